"""Whatever happens to a byte, a tail or a file of a data directory, the check finds it, and a repair makes it good.

Left out is what no check can know, since nothing else says it: an offset moved within a hole of a mirrored topic (base
offsets are outside of the CRC), an index with fewer entries than it could have (it is sparse) or with another offset of
the same batch (it means the same), a producer snapshot that is gone (the log says the same). Of a broker that was
killed also a whole batch past the recovery point; a higher leader epoch of that batch in a mirrored topic, whose epochs
are the source's (the CRC does not cover it); and what the next start makes anew whatever it holds: the leader epochs
and the last segment's indexes.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from isthmus.core_broker.storage.check.findings import Kind
from isthmus.core_broker.storage.check.partition_check import check_partition
from isthmus.core_broker.storage.disk.real_files import RealFiles
from isthmus.core_broker.storage.disk.small_files import CheckpointError, parse_checkpoint, parse_partition_metadata
from isthmus.core_broker.storage.log.index_files import TIME_ENTRY
from isthmus.protocol.records import walk

from .made import IDS, MIRRORED, ONE_SEGMENT, PLAIN, SMALL, check, found, make, stored

pytestmark = pytest.mark.usefixtures("no_waiting_for_the_disk")


@pytest.fixture(scope="module", params=["stopped", "killed", "stopped with one segment", "killed with one segment"])
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = ONE_SEGMENT if "one" in request.param else SMALL
    return make(tmp_path_factory.mktemp("made") / "data", clean="stopped" in request.param, config=config)


def is_part_of(part: list[tuple[int, bytes]], whole: list[tuple[int, bytes]]) -> bool:
    left = iter(whole)
    return all(each in left for each in part)


def meaning(path: Path) -> object:
    """What a small file says; None when it says nothing."""
    data = path.read_bytes()
    try:
        if path.suffix == ".timeindex" and len(data) % TIME_ENTRY.size == 0 and path.with_suffix(".log").exists():
            batches = [header for _, header in walk(path.with_suffix(".log").read_bytes())]
            return [  # any offset of a batch stands for the batch
                (stamp, next((n for n, each in enumerate(batches) if each.last_offset >= int(path.stem) + at), at))
                for stamp, at in TIME_ENTRY.iter_unpack(data)
            ]
        if path.name == "leader-epoch-checkpoint":
            return list(parse_checkpoint(data, "", 2))
        if path.name == "partition.metadata":
            return parse_partition_metadata(data, "")
    except CheckpointError:
        return None
    return data


def flip(data: bytes, draw: Callable[..., int]) -> bytes:
    at = draw(st.integers(0, len(data) - 1))
    return data[:at] + bytes([data[at] ^ 1 << draw(st.integers(0, 7))]) + data[at + 1 :]


def cut(data: bytes, draw: Callable[..., int]) -> bytes:
    return data[: draw(st.integers(0, len(data) - 1))]


def grow(data: bytes, draw: Callable[..., int]) -> bytes:
    return data + bytes([draw(st.sampled_from([0, 1, 255]))]) * draw(st.integers(1, 200))


def wipe(data: bytes, draw: Callable[..., int]) -> bytes:
    start = draw(st.integers(0, len(data) - 1))
    size = draw(st.integers(1, 64))
    return data[:start] + bytes(len(data[start : start + size])) + data[start + size :]


def moved_within_a_hole(path: Path, before: bytes, after: bytes) -> bool:
    """Whether all that changed lies in base offsets of a topic that has holes."""
    if MIRRORED not in path.parent.name or path.suffix != ".log" or len(before) != len(after):
        return False
    starts = [position for position, _ in walk(before)]
    changed = [n for n in range(len(before)) if before[n] != after[n]]
    return all(any(0 <= n - start < 8 for start in starts) for n in changed)


def is_unknown_epoch(path: Path, before: bytes, after: bytes) -> bool:
    """Whether all that changed is the leader epoch of a mirrored topic's last batch, which is no lower by it."""
    if MIRRORED not in path.parent.name or path.suffix != ".log" or len(before) != len(after):
        return False
    last = [position for position, _ in walk(before)][-1]
    at = slice(last + 12, last + 16)
    same = before[: at.start] == after[: at.start] and before[at.stop :] == after[at.stop :]
    epochs = [int.from_bytes(data[at], "big", signed=True) for data in (before, after)]
    return same and epochs[1] > epochs[0]


def test_the_leader_epoch_of_a_mirrors_last_batch_is_unknown_after_a_kill_alone(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    for clean in (True, False):
        folder = make(tmp_path_factory.mktemp("epochs") / "data", clean=clean, config=ONE_SEGMENT)
        [path] = (folder / f"{MIRRORED}-0").glob("*.log")
        before = path.read_bytes()
        last = [position for position, _ in walk(before)][-1]
        after = before[: last + 15] + bytes([before[last + 15] ^ 4]) + before[last + 16 :]
        path.write_bytes(after)
        assert is_unknown_epoch(path, before, after)
        assert (found(folder) != []) == clean


@pytest.mark.parametrize("kind", ["leader-epoch-checkpoint", "*.timeindex"])
def test_every_flipped_bit_of_what_has_no_checksum_is_found(
    tmp_path_factory: pytest.TempPathFactory, kind: str
) -> None:
    folder = make(tmp_path_factory.mktemp("flipped") / "data", config=ONE_SEGMENT)
    files = RealFiles(1)
    whole = check(folder)
    flipped = 0
    for topic in IDS:
        [path] = (folder / f"{topic}-0").glob(kind)
        before, said = path.read_bytes(), meaning(path)
        for bit in range(len(before) * 8):
            data = bytearray(before)
            data[bit // 8] ^= 1 << bit % 8
            path.write_bytes(data)
            if meaning(path) != said:
                flipped += 1
                report = check_partition(files, str(path.parent), whole.checked[topic, 0].known)
                assert report.problems, f"bit {bit % 8} of byte {bit // 8} of {path.name}"
        path.write_bytes(before)
    assert flipped > 300
    assert found(folder) == []
    files.close()


def test_a_leader_epoch_below_none_is_found_whether_a_checkpoint_knows_better_or_not(directory: Path) -> None:
    whole = check(directory)
    files = RealFiles(1)
    for path in sorted((directory / f"{PLAIN}-0").glob("*.log")):
        before = path.read_bytes()
        for position, _ in walk(before):
            data = bytearray(before)
            data[position + 12] ^= 0x80  # the sign
            path.write_bytes(data)
            report = check_partition(files, str(path.parent), whole.checked[PLAIN, 0].known)
            assert Kind.EPOCH in {each.kind for each in report.problems}, f"{path.name} at {position}"
        path.write_bytes(before)
    assert found(directory) == []
    files.close()


@given(data=st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_damage_is_found_and_mended(directory: Path, tmp_path_factory: pytest.TempPathFactory, data) -> None:
    work = tmp_path_factory.mktemp("damaged") / "data"
    shutil.copytree(directory, work)
    is_clean = (directory / ".kafka_cleanshutdown").exists()
    last = {name: max((work / name).glob("*.log")).stem for name in stored(directory)}

    def is_known(path: Path) -> bool:
        """Of a log that was killed: what the next start makes anew, and what it cannot trust yet."""
        if is_clean or path.suffix in (".log", ".metadata"):
            return True
        return path.suffix != ".snapshot" and last[path.parent.name] not in path.name and "epoch" not in path.name

    victims = [
        path for path in sorted(work.glob("*/*")) if path.parent.name in last and is_known(path) and path.stat().st_size
    ]
    path = data.draw(st.sampled_from(victims))
    before = path.read_bytes()
    said = meaning(path)
    how = data.draw(st.sampled_from([flip, flip, cut, grow, wipe, None]))
    event(f"{how.__name__ if how else 'remove'} {path.suffix or path.name}")
    if how is None:
        assume(path.suffix not in (".snapshot",))
        path.unlink()
    else:
        after = how(before, data.draw)
        path.write_bytes(after)
        assume(after != before and meaning(path) != said)
        assume(not (path.suffix == ".index" and how is cut and len(after) % 8 == 0))
        assume(not moved_within_a_hole(path, before, after))
        assume(is_clean or path.stem != last[path.parent.name] or not is_unknown_epoch(path, before, after))
        if not is_clean and path.suffix == ".log" and how is cut:
            # Nobody can know of a whole batch past the recovery point that it was there.
            assume(len(after) not in [position for position, _ in walk(before)][-1:])
    assert found(work), f"{how} {path.name}"

    mended = check(work, repair=True)
    assert not mended.left
    for checked in mended.checked.values():
        assert all(each.kind is Kind.GAP for each in checked.left), checked
    assert all(" gap " in line for line in found(work))
    originals = stored(directory)
    for name, batches in stored(work).items():
        if name == path.parent.name:
            assert is_part_of(batches, originals[name])
        else:
            assert batches == originals[name]
    shutil.rmtree(work.parent)


def test_what_is_not_damaged_is_clean_and_a_repair_leaves_it_alone(directory: Path) -> None:
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    assert found(directory) == []
    assert check(directory, repair=True).still_wrong == 0
    after = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    assert after == before


def test_control_the_directory_holds_what_can_be_damaged(directory: Path) -> None:
    kinds = {path.suffix or path.name for path in directory.glob("*/*") if path.stat().st_size}
    assert kinds >= {".log", ".txnindex", ".metadata", "leader-epoch-checkpoint"}
    closed = sum(path.stem != f"{0:020}" for path in directory.glob("*/*.log"))
    if closed or (directory / ".kafka_cleanshutdown").exists():
        assert kinds >= {".index", ".timeindex", ".snapshot"}
    assert {PLAIN, MIRRORED} == set(IDS)
    assert all(len(batches) > 40 for batches in stored(directory).values())
