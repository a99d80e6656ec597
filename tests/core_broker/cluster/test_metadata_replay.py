"""What Kafka's controller leaves in a metadata log, folded as Kafka folds it: transactions and snapshots."""

from __future__ import annotations

import asyncio
import random

import pytest

from isthmus.core_broker.cluster.image import InconsistentRecord, MetadataImage
from isthmus.core_broker.cluster.metadata_log import DIRECTORY, MetadataLog
from isthmus.core_broker.cluster.metadata_replay import Fold
from isthmus.core_broker.storage.disk.real_files import RealFiles
from isthmus.protocol.messages import metadata_records as r
from isthmus.protocol.primitives import write_uvarint
from isthmus.protocol.records import Record, build_batch
from isthmus.runtime import Runtime

RUNTIME = Runtime(random.Random(1), lambda: 1_000, lambda: 0)


def topic(name: str) -> r.TopicRecord:
    return r.TopicRecord(name=name, topic_id=name.encode().ljust(16))


def values(*records: object) -> list[bytes]:
    return [each if isinstance(each, bytes) else r.encode(each) for each in records]  # type: ignore[arg-type]


def unknown(number: int) -> bytes:
    return write_uvarint(1) + write_uvarint(number) + write_uvarint(0) + b"\0"


def folded(*batches: list[object]) -> MetadataImage:
    fold = Fold(MetadataImage("c"))
    offset = 0
    for batch in batches:
        found = []
        for value in values(*batch):
            found.append(Record(offset, 0, None, value, ()))
            offset += 1
        fold.apply(found, 3)
    return fold.image


def test_a_transactions_records_are_applied_at_its_end() -> None:
    begin, end = r.BeginTransactionRecord(name="x"), r.EndTransactionRecord()
    image = folded([begin, topic("a")])
    assert image.topics == {} and image.offset == 1
    image = folded([begin, topic("a")], [topic("b"), end, topic("c")])
    assert list(image.topics) == ["a", "b", "c"]


def test_an_aborted_transaction_leaves_nothing() -> None:
    begin, abort = r.BeginTransactionRecord(), r.AbortTransactionRecord(reason="a new controller")
    image = folded([topic("a"), begin, topic("b")], [topic("c"), abort, topic("d")])
    assert list(image.topics) == ["a", "d"]


def test_what_a_controller_tells_of_itself_changes_nothing() -> None:
    left = r.UnregisterControllerRecord(controller_id=1)
    records = [r.RegisterControllerRecord(controller_id=1), left, r.ClearElrRecord(topic_name="a"), r.NoOpRecord()]
    assert list(folded([topic("a"), *records]).topics) == ["a"]


def test_quotas_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    image = folded([unknown(14), topic("a")], [unknown(14)])
    assert list(image.topics) == ["a"]
    assert caplog.messages == ["the metadata has client quotas, which this broker ignores"]


@pytest.mark.parametrize(("number", "what"), [(18, "an ACL"), (11, "a SCRAM credential"), (999, "unknown type 999")])
def test_what_must_not_be_passed_over_is_refused(number: int, what: str) -> None:
    with pytest.raises(InconsistentRecord, match=f"at offset 1: .*{what}"):
        folded([topic("a"), unknown(number)])


def batch(offset: int, *records: object, control: bool = False) -> bytes:
    rows = [(1_000, b"\0\0\0\3" if control else None, value, ()) for value in values(*records)]
    return build_batch(rows, control=control, base_offset=offset, partition_leader_epoch=5)


def replayed(tmp_path, snapshots: dict[str, bytes], log_start: int, *appended: object) -> tuple[MetadataImage, int]:
    directory = tmp_path / DIRECTORY
    directory.mkdir()
    (directory / f"{log_start:020d}.log").write_bytes(b"".join(batch(log_start + n, e) for n, e in enumerate(appended)))
    for name, data in snapshots.items():
        (directory / f"{name}.checkpoint").write_bytes(data)

    async def run() -> tuple[MetadataImage, int]:
        log = await MetadataLog.open(RealFiles(1), str(tmp_path), RUNTIME)
        image = MetadataImage("c")
        await log.replay(image)
        await log.close()
        return image, log.last_epoch

    return asyncio.run(run())


def snapshot(*records: object) -> bytes:
    return batch(0, b"\0\0", control=True) + batch(1, *records) + batch(9, b"\0\0", control=True)


OLD, NEW = f"{5:020d}-{4:010d}", f"{7:020d}-{5:010d}"


def test_the_log_goes_on_from_the_newest_snapshot(tmp_path) -> None:
    snapshots = {OLD: snapshot(topic("a")), NEW: snapshot(topic("a"), topic("b"))}
    image, epoch = replayed(tmp_path, snapshots, 6, topic("b"), topic("c"))
    assert list(image.topics) == ["a", "b", "c"]  # b, at offset 6, is in the snapshot already
    assert (image.offset, epoch) == (7, 5)


def test_a_snapshot_alone_is_enough(tmp_path) -> None:
    image, epoch = replayed(tmp_path, {NEW: snapshot(topic("a"))}, 7)
    assert list(image.topics) == ["a"]
    assert (image.offset, image.epoch, epoch) == (6, 5, 5)


@pytest.mark.parametrize("names", [[], [OLD]])
@pytest.mark.parametrize("records", [[topic("c")], []], ids=["with records", "empty"])
def test_a_log_whose_start_no_snapshot_reaches_is_refused(tmp_path, names: list[str], records: list[object]) -> None:
    with pytest.raises(InconsistentRecord, match=f"the log has offsets 6 to {6 + len(records)}, "):
        replayed(tmp_path, {name: snapshot(topic("a")) for name in names}, 6, *records)
