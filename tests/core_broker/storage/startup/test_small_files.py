"""Whatever the small files of a data directory hold, who reads one says what it says, or that it is damaged; a log
whose files they are opens by what is left, or says why not."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import struct
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from isthmus.core_broker.storage.check.findings import Known
from isthmus.core_broker.storage.check.partition_check import check_partition
from isthmus.core_broker.storage.disk.small_files import (
    LOG_START_CHECKPOINT,
    CheckpointError,
    parse_meta_properties,
    parse_offsets,
    parse_partition_metadata,
)
from isthmus.core_broker.storage.log._producers import ProducerStates, SnapshotError
from isthmus.core_broker.storage.log.append import Origin
from isthmus.core_broker.storage.log.epochs import LeaderEpochs
from isthmus.core_broker.storage.log.log_config import LogConfig
from isthmus.core_broker.storage.startup.checkpoints import CHECKPOINTS
from isthmus.protocol.batch_layout import HEADER, HEADER_SIZE, LENGTH_OVERHEAD
from isthmus.protocol.crc import crc32c
from isthmus.protocol.errors import KafkaError
from isthmus.protocol.records import build_batch

from ..directories import TOPIC_ID, opened
from ..support import NOW_MS, FilesAtOnce, append, batch, contents, open_log, run

pytestmark = pytest.mark.usefixtures("no_waiting_for_the_disk")

SMALL = LogConfig(segment_bytes=400, index_interval_bytes=100)
MAX_INT32, MAX_INT64 = 2**31 - 1, 2**63 - 1

EDGES = [0, 1, -1, 7, MAX_INT32, MAX_INT32 + 1, -MAX_INT32 - 1, MAX_INT64, -MAX_INT64 - 1]
NUMBERS = st.sampled_from(EDGES) | st.integers(-MAX_INT64 - 1, MAX_INT64)
TEXTS = st.sampled_from([*map(str, EDGES), str(MAX_INT64 + 1), "9" * 30, "9" * 5000, "x", "", "1_0", "é", "\x85"])
PRODUCER = ">qhiqiqiq"  # an entry of a producer snapshot
BITS = {"h": 16, "i": 32, "q": 64}


def rows(of: str, numbers: st.SearchStrategy[int] = NUMBERS) -> st.SearchStrategy[bytes]:
    """Entries of a struct, its numbers cut to what they may be."""
    bits = [BITS[each] for each in of.removeprefix(">")]
    cut = [numbers.map(lambda n, b=b: (n + (1 << b - 1)) % (1 << b) - (1 << b - 1)) for b in bits]
    return st.lists(st.tuples(*cut), max_size=4).map(lambda found: b"".join(struct.pack(of, *row) for row in found))


def snapshot(entries: bytes) -> bytes:
    body = struct.pack(">i", len(entries) // struct.calcsize(PRODUCER)) + entries
    return struct.pack(">hI", 1, crc32c(body)) + body


LINES = st.lists(st.lists(TEXTS | st.just("t"), max_size=4).map(" ".join), max_size=4)
CHECKPOINTED = LINES.map(lambda lines: "\n".join(["0", str(len(lines)), *lines, ""]).encode())
PROPERTIES = st.lists(
    st.tuples(st.sampled_from(["version", "cluster.id", "node.id", "isthmus.format", "topic_id"]), TEXTS), max_size=5
)
RAW = st.binary(max_size=200)
SNAPSHOTS = rows(PRODUCER).map(snapshot) | RAW
CONTENTS = {
    ".index": rows(">ii", st.integers(-1, 400)) | rows(">ii") | RAW,
    ".timeindex": rows(">qi") | RAW,
    ".txnindex": rows(">hqqqq") | RAW,
    ".snapshot": SNAPSHOTS,
    "leader-epoch-checkpoint": CHECKPOINTED | RAW,
    "partition.metadata": PROPERTIES.map(lambda p: "\n".join(f"{a}: {b}" for a, b in p).encode()) | RAW,
}


@given(data=SNAPSHOTS)
@example(snapshot(struct.pack(PRODUCER, 7, 0, 0, MAX_INT64, -1, 0, 0, -1)))
@settings(max_examples=200, deadline=None)
def test_a_producer_snapshot_is_read_or_damaged(data: bytes) -> None:
    try:
        states = ProducerStates.decode(data, "some/file")
    except SnapshotError as error:
        assert str(error).startswith("some/file: ")
    else:
        for _, entry in states.items():
            assert all(0 <= each.first_offset <= each.last_offset for each in entry.batches)
        assert len(ProducerStates.decode(states.encode(), "")) == len(states)


@given(data=CHECKPOINTED | RAW)
@settings(max_examples=200, deadline=None)
def test_a_checkpoint_is_read_or_damaged(data: bytes) -> None:
    try:
        offsets = parse_offsets(data, "some/file")
    except CheckpointError as error:
        assert str(error).startswith("some/file: ")
    else:
        assert all(0 <= index <= MAX_INT32 and 0 <= offset <= MAX_INT64 for (_, index), offset in offsets.items())
    try:
        epochs = LeaderEpochs.decode(data, "some/file")
    except CheckpointError as error:
        assert str(error).startswith("some/file: ")
    else:
        assert all(0 <= epoch <= MAX_INT32 and 0 <= start <= MAX_INT64 for epoch, start in epochs.entries())


@given(data=PROPERTIES.map(lambda p: "\n".join(f"{a}={b}" for a, b in p).encode()) | RAW)
@example(b"version=1\ncluster.id=x\nnode.id=x\n")
@example(b"version=1\ncluster.id=x\nnode.id=%s\n" % (b"9" * 5000))
@settings(max_examples=200, deadline=None)
def test_properties_are_read_or_damaged(data: bytes) -> None:
    try:
        assert int(parse_meta_properties(data, "some/file")["node.id"]) >= 0
    except CheckpointError as error:
        assert str(error).startswith("some/file")
    try:
        assert len(parse_partition_metadata(data.replace(b"=", b": "), "some/file")) == 16
    except CheckpointError as error:
        assert str(error).startswith("some/file: ")


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of several segments with all that a log can have beside them, closed."""
    path = tmp_path_factory.mktemp("small")
    files = FilesAtOnce(1)

    async def fill() -> None:
        async with opened(files, path) as logs:
            config = dataclasses.replace(SMALL, transaction_partition_verification_enable=False)
            log = await logs.create("t", 0, TOPIC_ID, config)
            for n in range(12):
                producer = {"producer_id": 40 + n, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
                guard = log.begin_verification(40 + n, 0, 0, False, NOW_MS)
                data = batch(2, timestamp=NOW_MS + n, **producer)
                log.append(data, Origin.COORDINATOR, n // 4, NOW_MS, guard=guard)
                rows = [(NOW_MS, struct.pack(">hh", 0, 0), struct.pack(">hi", 0, 1), ())]  # aborts
                marker = build_batch(rows, control=True, transactional=True, producer_id=40 + n, producer_epoch=0)
                log.append(marker, Origin.COORDINATOR, n // 4, NOW_MS)

    run(fill())
    files.close()
    found = {suffix: len(list((path / "t-0").glob(f"*{suffix}"))) for suffix in CONTENTS}
    assert all(found.values()) and found[".index"] > 3, found
    return path


@given(data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_log_with_a_small_file_that_is_damaged_opens_by_the_others_or_says_why_not(
    stopped: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    shutil.copytree(stopped / "t-0", folder / "t-0")
    suffix = data.draw(st.sampled_from(sorted(CONTENTS)))
    path = data.draw(st.sampled_from(sorted((folder / "t-0").glob(f"*{suffix}"))))
    before = path.read_bytes()
    part = st.integers(0, len(before)).map(lambda n: before[:n])
    path.write_bytes(data.draw(part | CONTENTS[suffix] | CONTENTS[suffix].map(lambda more: before + more)))
    is_clean = data.draw(st.booleans())
    point = data.draw(st.integers(0, 36))
    files = FilesAtOnce(1)
    check_partition(files, f"{folder}/t-0", Known(clean=is_clean, recovery_point=36, topic_id=TOPIC_ID))
    for clean in (is_clean, True):
        try:
            log = open_log(files, folder, SMALL, recovery_point=point, clean=clean)
        except KafkaError:
            continue
        refused_at_most(log.read, data.draw(st.integers(0, 36)), 1000)
        refused_at_most(log.aborted_transactions, 0, 36)
        refused_at_most(wait_for, log.offset_for_timestamp, NOW_MS + data.draw(st.integers(0, 12)))
        refused_at_most(wait_for, log.max_timestamp_offset)
        refused_at_most(append, log, batch(1))
        refused_at_most(wait_for, log.truncate_to, data.draw(st.integers(0, 36)))
        refused_at_most(append, log, batch(1))
        refused_at_most(wait_for, log.close)
    files.close()
    shutil.rmtree(folder)


def wait_for(use: Callable[..., Coroutine[Any, Any, object]], *arguments: Any) -> None:
    run(use(*arguments))


def refused_at_most(use: Callable[..., object], *arguments: Any) -> None:
    with contextlib.suppress(KafkaError):
        use(*arguments)


@pytest.mark.parametrize("base, delta", [(MAX_INT64, 1), (-MAX_INT64 - 1, -1), (MAX_INT64 - 3, MAX_INT32)])
def test_an_index_that_points_at_what_only_looks_like_a_batch_is_made_anew(
    tmp_path: Path, base: int, delta: int
) -> None:
    """A producer may write what it likes into a record."""
    files = FilesAtOnce(1)
    log = open_log(files, tmp_path)
    append(log, batch(1))
    fake = HEADER.pack(base, HEADER_SIZE + 1 - LENGTH_OVERHEAD, 0, 2, 0, 0, delta, 0, 0, -1, -1, -1, 1)
    append(log, build_batch([(NOW_MS, b"k", fake, ())]))
    before = contents(log)
    run(log.close())
    (path,) = (tmp_path / "t-0").glob("*.index")
    path.write_bytes(struct.pack(">ii", 1, before.index(fake)))
    again = open_log(files, tmp_path, clean=True)
    assert again.recovery_notes == ["segment 0: its indexes are rebuilt"]
    assert (contents(again), again.log_end_offset) == (before, 2)
    run(again.close())
    files.close()


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("offset", [MAX_INT64, MAX_INT64 + 1, 10**20 - 1])
@pytest.mark.parametrize("suffix", [".log", ".snapshot", ".index"])
def test_a_file_by_whose_name_offsets_are_too_large_does_not_matter(
    tmp_path: Path, suffix: str, offset: int, clean: bool
) -> None:
    files = FilesAtOnce(1)
    log = open_log(files, tmp_path)
    append(log, batch(3))
    run(log.close())
    (tmp_path / "t-0" / f"{offset:020}{suffix}").write_bytes(batch(1) if suffix == ".log" else b"")
    again = open_log(files, tmp_path, clean=clean)
    assert (again.log_start_offset, again.log_end_offset, again.segments_count) == (0, 3, 1)
    assert append(again, batch(1)).first_offset == 3
    run(again.close())
    files.close()


@given(
    name=st.sampled_from(CHECKPOINTS),
    data=TEXTS.map(lambda offset: f"0\n1\nt 0 {offset}\n".encode()) | CHECKPOINTED | RAW,
)
@example(name=LOG_START_CHECKPOINT, data=b"0\n1\nt 0 9223372036854775808\n")
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_directory_with_a_checkpoint_that_is_damaged_goes_on_without_it(
    stopped: Path, tmp_path_factory: pytest.TempPathFactory, name: str, data: bytes
) -> None:
    folder = tmp_path_factory.mktemp("damaged") / "data"
    shutil.copytree(stopped, folder)
    (folder / name).write_bytes(data)

    async def live() -> None:
        files = FilesAtOnce(1)
        async with opened(files, folder) as logs:
            refused_at_most(append, logs.logs["t", 0], batch(1))
        files.close()

    run(live())
    run(live())
    shutil.rmtree(folder.parent)
