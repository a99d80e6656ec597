"""Files that are closed for others' sake, and found again by their names."""

from __future__ import annotations

import errno
import os
import resource
import threading

import pytest

from isthmus.core_broker.storage.disk._data_file import FileRange
from isthmus.core_broker.storage.disk.real_files import OpenFiles, RealFiles


@pytest.fixture
def few():
    files = RealFiles(2, max_open=4)
    yield files
    files.close()


def descriptors(folder) -> int:
    """Open descriptors of files in a folder."""
    paths = []
    for name in os.listdir("/proc/self/fd"):
        try:
            paths.append(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:
            continue  # that of the listing itself
    return sum(path.startswith(f"{folder}/") for path in paths)


def made(files, folder, count):
    found = []
    for number in range(count):
        file = files.open(f"{folder}/{number}")
        file.append([b"%d" % number])
        found.append(file)
    return found


@pytest.mark.parametrize(("most", "is_open"), [(4, 4), (100, 20)])
def test_no_more_than_the_bound_are_open(tmp_path, most, is_open):
    files = RealFiles(2, max_open=most)
    held = made(files, tmp_path, 20)
    assert descriptors(tmp_path) == is_open == len(files.open_files)
    assert [file.pread(9, 0) for file in held] == [b"%d" % number for number in range(20)]
    assert descriptors(tmp_path) == is_open
    del held
    assert descriptors(tmp_path) == len(files.open_files) == 0
    files.close()


def test_one_that_is_used_stays_open_longer_than_those_that_are_not(few, tmp_path):
    busy, idle, *rest = made(few, tmp_path, 5)
    at_first = busy.hold(), idle.hold()
    for number in range(100, 140):
        rest.append(few.open(f"{tmp_path}/{number}"))
        busy.append([b"."])
    assert busy.hold() is at_first[0]
    assert idle.hold() is not at_first[1]


@pytest.mark.parametrize(
    "use", [lambda f: f.hold(), lambda f: f.pread(1, 0), lambda f: f.pread_cached(1, 0), lambda f: f.is_cached(0, 1)]
)
def test_what_was_read_since_the_last_look_has_a_second_chance(few, tmp_path, use):
    read, idle, *rest = made(few, tmp_path, 4)
    for file in (read, idle, *rest):
        file.is_used = False
    use(read)
    rest.append(few.open(f"{tmp_path}/another"))
    assert read._descriptor is not None and idle._descriptor is None


def test_what_is_in_use_is_not_closed_under_who_uses_it(few, tmp_path):
    (file,) = made(few, tmp_path, 1)
    held = file.hold()
    others = [few.open(f"{tmp_path}/other{number}") for number in range(9)]
    assert os.pread(held.fd, 9, 0) == b"0"
    fd = held.fd
    del held
    with pytest.raises(OSError):
        os.fstat(fd)
    assert len(others) == 9 and file.pread(9, 0) == b"0"


def test_range_is_read_after_its_file_was_closed_and_after_it_was_deleted(few, tmp_path):
    (file,) = made(few, tmp_path, 1)
    part = FileRange(file, 0, 1)
    others = [few.open(f"{tmp_path}/other{number}") for number in range(9)]
    assert part.read() == b"0"
    file.keep()
    few.unlink(file.path)
    del file
    others += [few.open(f"{tmp_path}/more{number}") for number in range(9)]
    assert part.read() == b"0"
    assert descriptors(tmp_path) == 5  # the bound, and the one that has no name
    del part
    assert descriptors(tmp_path) == 4


def test_file_that_nobody_kept_is_missed_when_its_name_is_gone(few, tmp_path):
    """The control of the test above."""
    (file,) = made(few, tmp_path, 1)
    others = [few.open(f"{tmp_path}/other{number}") for number in range(9)]
    few.unlink(file.path)
    with pytest.raises(FileNotFoundError, match="0"):
        file.pread(1, 0)
    few.open(file.path)
    with pytest.raises(OSError, match="another file has taken its name") as caught:
        file.pread(1, 0)
    assert caught.value.errno == errno.ESTALE and others


def test_renamed_file_is_found_by_its_new_name(few, tmp_path):
    (file,) = made(few, tmp_path, 1)
    file.keep()
    few.rename(file.path, f"{tmp_path}/new")
    file.renamed(f"{tmp_path}/new")
    others = [few.open(f"{tmp_path}/other{number}") for number in range(9)]
    assert descriptors(tmp_path) == 4
    assert file.pread(1, 0) == b"0" and others


def test_new_file_is_made_by_the_first_call_that_needs_it(few, tmp_path):
    path = tmp_path / "later"
    file = few.new(str(path))
    assert not path.exists()
    file.keep()
    assert not path.exists()
    file.append([b"x"])
    assert path.read_bytes() == b"x" and file.size == 1
    few.new(str(tmp_path / "synced")).sync()
    assert (tmp_path / "synced").exists()


def test_closed_file_does_not_come_back(few, tmp_path):
    (file,) = made(few, tmp_path, 1)
    file.close()
    with pytest.raises(OSError, match="closed"):
        file.pread(1, 0)


def test_process_without_descriptors_closes_what_it_can_and_says_what_to_do(tmp_path):
    files = RealFiles(2)
    held = made(files, tmp_path, 40)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(int(name) for name in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 1, hard))
    try:
        spare = []
        with pytest.raises(OSError):
            while True:
                spare.append(os.open("/dev/null", os.O_RDONLY))
        more = [files.open(f"{tmp_path}/more{number}") for number in range(60)]
        assert [file.pread(9, 0) for file in held] == [b"%d" % number for number in range(40)]
        kept = [file.hold() for file in held + more if _can(file)]
        with pytest.raises(OSError, match=f"Too many open files: this process may have {used + 1} ") as caught:
            files.open(f"{tmp_path}/last")
        assert caught.value.errno == errno.EMFILE and caught.value.filename == f"{tmp_path}/last" and kept
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in spare:
            os.close(fd)
    files.close()


def _can(file) -> bool:
    try:
        file.keep()
    except OSError:
        return False
    return True


def test_threads_that_close_each_other_s_files_read_what_is_theirs(few, tmp_path):
    held = made(few, tmp_path, 16)
    wrong = []

    def read(first: int) -> None:
        for number in range(4000):
            each = (first + number * 7) % 16
            if held[each].pread(9, 0) != b"%d" % each:
                wrong.append(each)

    threads = [threading.Thread(target=read, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert descriptors(tmp_path) <= 4


@pytest.mark.parametrize("end", ["its name is gone", "another file has its name"])
def test_reader_that_opens_a_file_again_while_its_name_goes_finds_what_was_kept(few, tmp_path, end, monkeypatch):
    path = f"{tmp_path}/segment"
    file = few.open(path)
    file.append([b"what it holds"])
    file.let_go()
    opening = OpenFiles.open

    def late(self, path, flags):
        """Another thread was quicker: it has kept the file and taken the name away."""
        monkeypatch.setattr(OpenFiles, "open", opening)
        file.keep()
        os.unlink(path)
        if end == "another file has its name":
            few.open(path).append([b"other bytes, and more of them"])
        return opening(self, path, flags)

    monkeypatch.setattr(OpenFiles, "open", late)
    assert file.pread(100, 0) == b"what it holds"
    file.let_go()  # the control: of one that nobody keeps open there is nothing left
    with pytest.raises(OSError):
        file.pread(100, 0)


@pytest.mark.parametrize("change", [lambda file: file.append([b"b"]), lambda file: file.truncate(file.size - 1)])
def test_file_that_another_thread_changes_while_it_is_opened_again_is_the_same(few, tmp_path, change, monkeypatch):
    [file] = made(few, tmp_path, 1)
    file.let_go()
    look, looks = os.fstat, []

    def changed() -> None:
        looks.append(file.size)
        if len(looks) == 1:
            change(file)
            file.let_go()

    def before(fd):
        changed()
        return look(fd)

    def after(fd):
        about = look(fd)
        changed()
        return about

    for each in (after, before):
        looks.clear()
        file.append([b"more"])
        file.let_go()
        with monkeypatch.context() as patched:
            patched.setattr(os, "fstat", each)
            file.hold()
        assert len(looks) == 2
