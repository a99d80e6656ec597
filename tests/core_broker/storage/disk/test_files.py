"""The operating system behind the seam."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import os
from types import FunctionType

import pytest

from isthmus.core_broker.storage.disk._data_file import KNOWN_BYTES, LOOK_BYTES, DataFile, FileRange
from isthmus.core_broker.storage.disk.errors import TornWrite
from isthmus.core_broker.storage.disk.files import Descriptor, DirectoryLocked
from isthmus.core_broker.storage.disk.real_files import RealFiles
from tests.running import in_loop, run_by

from ..support import NO_FILES, files_may_have

CACHESTAT = 451  # the number of the system call, on every architecture
PAGE = os.sysconf("SC_PAGE_SIZE")
PLACES = 5  # where a test looks for a page that is not cached


def test_append_takes_more_buffers_than_one_call_does(files, tmp_path):
    file = files.open(str(tmp_path / "a"))
    parts = [bytes([n % 256]) * (n % 7) for n in range(5000)]
    file.append(parts)
    file.append([memoryview(b"xyz")[1:], bytearray(b"!")])
    assert file.size == file.pread(1 << 20, 0).__len__() == sum(map(len, parts)) + 3
    assert file.pread(1 << 20, 0) == b"".join(parts) + b"yz!"


def test_append_that_does_not_fit_is_cut_back(files, tmp_path):
    file = files.open(str(tmp_path / "a"))
    file.append([b"a" * 100])
    with files_may_have(150), pytest.raises(OSError) as caught:
        file.append([b"b" * 30, b"c" * 30])
    assert caught.value.errno == errno.EFBIG
    assert caught.value.filename == str(tmp_path / "a")
    assert not isinstance(caught.value, TornWrite)
    assert (file.size, os.path.getsize(tmp_path / "a")) == (100, 100)
    file.append([b"d"])
    assert file.pread(10, 98) == b"aad"


def test_append_that_cannot_be_cut_back_says_so(files, tmp_path, monkeypatch):
    file = files.open(str(tmp_path / "a"))

    def refuse(*args):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "pwritev", refuse)
    monkeypatch.setattr(os, "ftruncate", refuse)
    with pytest.raises(TornWrite, match="Input/output error"):
        file.append([b"x"])


def test_atomic_write_leaves_the_old_file_when_it_fails(files, tmp_path, monkeypatch):
    path = str(tmp_path / "a")
    files.write_atomic(path, b"old")
    files.write_atomic(path, b"newer")
    assert files.read(path) == b"newer"

    def refuse(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError):
        files.write_atomic(path, b"newest")
    assert files.listdir(str(tmp_path)) == ["a"]
    assert files.read(path) == b"newer"


def test_lock_is_held_by_one(files, tmp_path):
    path = str(tmp_path / ".lock")
    held = files.lock(path)
    with pytest.raises(DirectoryLocked, match=str(tmp_path)):
        files.lock(path)
    held.release()
    files.lock(path).release()


def test_range_outlives_the_name_of_its_file(files, tmp_path):
    path = str(tmp_path / "a")
    file = files.open(path)
    file.append([b"0123456789"])
    part = FileRange(file, 2, 5)
    files.unlink(path)
    del file
    assert (len(part), part.read()) == (5, b"23456")


def test_what_is_cached_is_told_without_waiting(files, tmp_path):
    file = files.open(str(tmp_path / "a"))
    file.append([bytes(range(256)) * 4096])
    assert file.pread_cached(5, 250) == bytes(range(250, 255))
    assert file.pread_cached(10_000, 1024 * 1024 - 3) == b"\xfd\xfe\xff"
    found = [file.pread_cached(1, n) for n in range(256)]  # each is of its own memory
    found += [file.pread_cached(n, 0) for n in (0, 16384)]
    assert found == [bytes([n]) for n in range(256)] + [b"", bytes(range(256)) * 64]
    assert {type(each) for each in found} == {bytes}
    assert file.is_cached(0, file.size)
    file._descriptor = Descriptor(os.open(file.path, os.O_WRONLY))
    assert file.is_cached(0, file.size)  # it cannot be told; who reads it is told why not
    with pytest.raises(OSError) as caught:
        file.pread_cached(5, 0)
    assert (caught.value.errno, caught.value.filename) == (errno.EBADF, file.path)


def cold_file(files, tmp_path, size):
    """A file on disk, and its descriptor; the page cache has nothing of it, where the file system is on one."""
    file = files.open(str(tmp_path / "a"))
    file.append([bytes(size)])
    file.sync()
    fd = file.hold().fd
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    return file, fd


def test_what_is_not_cached_is_not_waited_for(files, tmp_path):
    """As Python's own call tells it: a file system in memory has nothing that is not cached.

    Who is told to wait has set the reading of that page going: each look is at a place where nobody has looked. A fast
    disk may have the page there before the system looks for it a second time: one look in a thousand, and more on a
    busy machine. So each kind of look has PLACES to find one that is not cached.
    """
    file, fd = cold_file(files, tmp_path, 5 * PLACES * 3 * LOOK_BYTES)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)  # nothing is read ahead
    places = iter(range(LOOK_BYTES, file.size, 3 * LOOK_BYTES))

    def is_told(look):
        return any(look(next(places)) for _ in range(PLACES))

    def must_wait(read, *arguments):
        try:
            read(*arguments)
        except BlockingIOError as error:
            assert read is not file.pread_cached or error.filename == file.path
            return True
        return False

    def ends_where_nothing_was_read(at):
        file.pread(LOOK_BYTES, at)
        assert file.is_cached(at, LOOK_BYTES)
        return not file.is_cached(at, LOOK_BYTES + 1)  # it looks on

    if not is_told(lambda at: must_wait(os.preadv, fd, [bytearray(1)], at, os.RWF_NOWAIT)):
        assert file.is_cached(0, file.size)
        return
    assert is_told(lambda at: not file.is_cached(at, 1))
    assert is_told(lambda at: not file.is_cached(at - LOOK_BYTES, LOOK_BYTES + 1))
    assert is_told(lambda at: must_wait(file.pread_cached, 5000, at))
    assert is_told(ends_where_nothing_was_read)


@pytest.mark.skipif(isinstance(DataFile.is_cached, FunctionType), reason="plain Python has no call that counts pages")
def test_a_look_does_not_make_the_system_read(files, tmp_path):
    """Else looks far ahead of a reader are in the way of what the system reads ahead for it."""

    def cached_pages():
        told = (ctypes.c_uint64 * 5)()
        if ctypes.CDLL(None, use_errno=True).syscall(CACHESTAT, fd, (ctypes.c_uint64 * 2)(0, file.size), told, 0):
            pytest.skip(f"the system does not count what is cached: {os.strerror(ctypes.get_errno())}")
        return told[0]

    file, fd = cold_file(files, tmp_path, 4 << 20)
    if cached_pages():
        pytest.skip("this file system has nothing that is not cached")
    file.pread(1, 0)
    assert file.is_cached(0, 1)  # so it is known that it can be told
    before = cached_pages()
    assert file.is_cached(0, file.size, file.size - PAGE * before)
    assert not file.is_cached(0, file.size, file.size - PAGE * before - 1)
    assert not file.is_cached(3 << 20, 1) and not file.is_cached(0, file.size)
    assert cached_pages() == before
    with contextlib.suppress(BlockingIOError):
        os.preadv(fd, [bytearray(1)], 3 << 20, os.RWF_NOWAIT)
    assert cached_pages() > before  # the control: to read what need not be waited for does


@pytest.mark.skipif(isinstance(DataFile.is_cached, FunctionType), reason="plain Python has no call that counts pages")
def test_what_follows_a_piece_is_looked_at_with_it_and_not_again_for_a_while(files, tmp_path):
    piece, size = 1 << 20, KNOWN_BYTES + (4 << 20)
    file, fd = cold_file(files, tmp_path, size)
    try:
        os.preadv(fd, [bytearray(1)], piece, os.RWF_NOWAIT)
    except BlockingIOError:
        pass
    else:
        pytest.skip("this file system has nothing that is not cached")
    file.pread(size, 0)
    assert file.is_cached(0, piece) and file.known_end == 0  # the first look only finds that it can be told
    assert file.is_cached(piece, piece)
    assert (file.known_start, file.known_end, file.known_until_ms > 0) == (piece, piece + KNOWN_BYTES, True)
    assert file.is_cached(size - piece, piece) and file.known_start == piece  # nothing follows it
    assert file.is_cached(size - 2 * piece, piece) and file.known_end == size

    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    file.known_until_ms = 1 << 60
    assert file.is_cached(size - piece, piece)  # it is not looked at again
    assert not file.is_cached(size - 2 * piece - 1, piece)  # but what is not known is
    file.known_until_ms = 0
    assert not file.is_cached(size - piece, piece)
    file.known_until_ms = 1 << 60
    file.truncate(size - 1)
    assert not file.is_cached(size - 2 * piece, piece)


@pytest.mark.skipif(isinstance(DataFile.is_cached, FunctionType), reason="plain Python has no call that counts pages")
def test_a_gap_in_what_follows_a_piece_is_not_known_as_cached(files, tmp_path):
    piece = 1 << 20
    file, fd = cold_file(files, tmp_path, 2 * KNOWN_BYTES)
    file.pread(file.size, 0)
    assert file.is_cached(0, 1)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)  # nothing is read ahead
    os.posix_fadvise(fd, 3 * piece, piece, os.POSIX_FADV_DONTNEED)
    try:
        os.preadv(fd, [bytearray(1)], 3 * piece, os.RWF_NOWAIT)
    except BlockingIOError:
        os.posix_fadvise(fd, 3 * piece, piece, os.POSIX_FADV_DONTNEED)  # the look has read a page
    else:
        pytest.skip("this file system has nothing that is not cached")
    assert file.is_cached(piece, piece) and file.known_end == 0
    assert file.is_cached(4 * piece, piece) and file.known_start == 4 * piece


def test_each_page_of_a_range_counts(files, tmp_path):
    file, fd = cold_file(files, tmp_path, 1024 * 1024)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)  # nothing is read ahead
    for position in range(0, file.size, LOOK_BYTES):
        file.pread(1, position)
    try:
        os.preadv(fd, [bytearray(1)], PAGE, os.RWF_NOWAIT)
    except BlockingIOError:
        if not isinstance(DataFile.is_cached, FunctionType):  # plain Python looks at some pages only
            assert not file.is_cached(2 * PAGE, file.size - 2 * PAGE)
            assert not files.open(file.path).is_cached(0, file.size)  # not when it is asked for the first time, either
            assert not file.is_cached(LOOK_BYTES + PAGE - 1, 2)
    assert file.is_cached(LOOK_BYTES, PAGE)


def test_where_no_file_system_tells_what_is_cached_it_is_read(files):
    """One of the system's own has no answer; as Python's own call tells it."""
    file = files.open("/proc/self/comm", create=False)
    with pytest.raises(OSError) as caught:
        os.preadv(file.hold().fd, [bytearray(1)], 0, os.RWF_NOWAIT)
    assert caught.value.errno == errno.EOPNOTSUPP
    assert all(file.is_cached(0, 1) for _ in range(2))
    assert file.pread_cached(100, 0) == files.read("/proc/self/comm") != b""


def test_who_gave_a_range_is_told_that_it_cannot_be_read(files, tmp_path):
    file = files.open(str(tmp_path / "a"))
    file.append([b"0123"])
    told = []
    part = FileRange(file, 1, 2, told.append)
    assert part.read() == b"12" and told == []
    file._descriptor = Descriptor(os.open(file.path, os.O_WRONLY))
    with pytest.raises(OSError) as caught:
        part.read()
    assert told == [caught.value]


def test_open_without_create_misses(files, tmp_path):
    with pytest.raises(FileNotFoundError):
        files.open(str(tmp_path / "a"), create=False)


@pytest.mark.parametrize(
    "use",
    [
        lambda files, path: files.read(path),
        lambda files, path: files.open(path),
        lambda files, path: files.open(path, create=False),
        lambda files, path: files.new(path).append([b"x"]),
    ],
)
@pytest.mark.parametrize("kind", NO_FILES)
def test_what_is_no_file_is_refused_and_not_waited_for(files, tmp_path, kind, use):
    path = tmp_path / "a"
    with NO_FILES[kind](path):
        before = descriptors_of(path)
        with pytest.raises(OSError, match=f"a {kind} is in its place: move it away") as caught:
            use(files, str(path))
        assert caught.value.filename == str(path)
        assert (caught.value.errno == errno.EISDIR) == (kind == "directory")
        if kind != "FIFO":  # whose writer has one now and then
            assert descriptors_of(path) == before  # though the error is still there
    files.open(str(path))  # the control: nothing is in its place any more


def descriptors_of(path):
    """This process's."""
    found = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    return [each for each in found if os.path.exists(each) and os.path.samefile(each, path)]


def test_a_file_that_is_opened_again_is_not_waited_for(tmp_path):
    files = RealFiles(1, max_open=1)
    file = files.open(str(tmp_path / "a"))
    file.append([b"x"])
    files.open(str(tmp_path / "b")).append([b"y"])  # which closes the first
    (tmp_path / "a").unlink()
    with NO_FILES["FIFO"](tmp_path / "a"), pytest.raises(OSError, match="a FIFO is in its place"):
        file.pread(1, 0)
    files.close()


def test_descriptors_are_given_back(files, tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    for n in range(50):
        files.open(str(tmp_path / str(n))).append([b"x"])
    assert len(os.listdir("/proc/self/fd")) == before


@run_by(in_loop)
async def test_blocking_work_runs_beside_the_loop(files):
    done = asyncio.Event()
    loop = asyncio.get_running_loop()
    await files.run(lambda: loop.call_soon_threadsafe(done.set))
    await asyncio.wait_for(done.wait(), 5)
    with pytest.raises(KeyError):
        await files.run({}.__getitem__, "x")


@pytest.mark.parametrize(
    ("call", "use"),
    [
        ("pread", lambda file: file.pread(10, 0)),
        ("pwrite", lambda file: file.pwrite(b"x", 0)),
        ("pwritev", lambda file: file.append([b"x"])),
        ("ftruncate", lambda file: file.truncate(0)),
        ("fdatasync", lambda file: file.sync()),
    ],
)
def test_error_of_any_call_names_the_file(files, tmp_path, call, use, monkeypatch):
    """The system names none where it is given a descriptor."""
    file = files.open(str(tmp_path / "a"))
    file.append([b"a" * 100])

    def refuse(*arguments):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, refuse)
        with pytest.raises(OSError) as caught:
            use(file)
    assert (caught.value.errno, caught.value.filename) == (errno.EIO, file.path)
