"""Produce (0): requests of odd forms, as partitions named twice, topics without any, and bytes after a batch."""

from __future__ import annotations

import struct

from isthmus.protocol.messages import produce as m

from ..batches import KEY, batch, record
from ..peer import NO_SUCH_ID, Case, Scenarios
from ..requests import LATEST, new_producer, offsets_request, produce_request
from .produce import FIRST, in_order, sequenced

SCENARIOS = Scenarios()
LENGTH = struct.Struct(">i")  # of a batch, what follows it, from byte 8 on
LENGTH_AT, LENGTH_END = 8, 12


def topic(case: Case, topic_id: bytes, *rows: tuple[int, bytes], suffix: str = "") -> m.TopicProduceData:
    data = [m.PartitionProduceData(index=index, records=records) for index, records in rows]
    return m.TopicProduceData(name=case.name + suffix, topic_id=topic_id, partition_data=data)


def ask(case: Case, *topics: m.TopicProduceData, acks: int = -1) -> None:
    request = m.Request(acks=acks, timeout_ms=5_000, topic_data=list(topics))
    case.compare(request, only=lambda answer: in_order(answer, case))


def shorter(data: bytes, count: int) -> bytes:
    """A batch that says to be so many bytes shorter than it is."""
    return data[:LENGTH_AT] + LENGTH.pack(len(data) - LENGTH_END - count) + data[LENGTH_END:]


@SCENARIOS.error(0, since=FIRST, ends=True)
def of_a_partition_named_twice_what_is_wrong_is_told(case: Case) -> None:
    """And the last batch that is right is appended all the same."""
    topic_id = case.topic()
    for wrong in (b"", batch() + batch(), batch()[:-1], batch(magic=1), batch() + bytes(17)):
        for sent in ((wrong, batch(1)), (batch(2), wrong), (batch(1), wrong, batch(2)), (wrong, batch(1)[:-1])):
            ask(case, topic(case, topic_id, *((0, each) for each in sent)))
        ask(case, topic(case, topic_id, (0, wrong)), topic(case, topic_id, (0, batch(1))))
        ask(case, topic(case, topic_id, (0, wrong), (0, batch(1))), acks=2)


@SCENARIOS.error(0, since=FIRST, ends=True)
def of_partitions_named_twice_what_is_wrong_closes_the_connection_without_acks(case: Case) -> None:
    topic_id = case.topic()
    rows = topic(case, topic_id, (0, b""), (0, batch(2)))
    case.send(m.Request(acks=0, timeout_ms=5_000, topic_data=[rows]))
    case.expect_closed()
    case.see(offsets_request(case.name, LATEST))


@SCENARIOS.error(0, since=FIRST, ends=True)
def of_partitions_named_twice_a_request_that_fails_tells_once(case: Case) -> None:
    topic_id = case.topic(partitions=2)
    for wrong in (batch(magic=3), batch(attributes=0x10)):
        ask(case, topic(case, topic_id, (0, wrong), (1, batch()), (0, batch())))
        ask(case, topic(case, topic_id, (0, batch())), topic(case, topic_id, (0, wrong), (1, batch())))
    unknown = topic(case, NO_SUCH_ID, (0, batch()), suffix="-no")
    ask(case, unknown, topic(case, topic_id, (0, batch(magic=3))), unknown)


@SCENARIOS.success(0, since=FIRST, ends=True)
def topics_without_partitions_are_not_told_of(case: Case) -> None:
    topic_id = case.topic()
    ask(case, topic(case, topic_id))
    ask(case, topic(case, topic_id), topic(case, topic_id, (0, batch())))
    ask(case, topic(case, NO_SUCH_ID, suffix="-no"), topic(case, topic_id, (0, batch())))
    ask(case, topic(case, topic_id), topic(case, topic_id, (0, batch(magic=3))))
    ask(case, topic(case, topic_id), acks=2)


@SCENARIOS.error(0, since=FIRST, ends=True)
def bytes_after_a_batch(case: Case) -> None:
    """They must be the beginning of another one, and no whole one."""
    topic_id = case.topic()
    for count in (1, 11, 12, 16, 17, 60, 61, 62):
        ask(case, topic(case, topic_id, (0, batch() + bytes(count))))
    for after in (batch(), batch(magic=1), batch(magic=3)):
        for count in (12, 16, 17, 60, 61, len(after)):
            ask(case, topic(case, topic_id, (0, batch() + after[:count])))


@SCENARIOS.error(0, since=FIRST, ends=True)
def batches_that_say_to_be_shorter(case: Case) -> None:
    small = case.topic("-small", max_message_bytes="300")
    topic_id = case.topic()
    for count in (1, 11, 12, 17, 60, 67, 68, 69, 100):
        ask(case, topic(case, topic_id, (0, shorter(batch(), count))))
        ask(case, topic(case, small, (0, shorter(batch(20), count)), suffix="-small"))


@SCENARIOS.error(0, since=FIRST, ends=True)
def what_is_wrong_with_a_batch_is_told_before_wrong_acks(case: Case) -> None:
    topic_id = case.topic(partitions=2)
    wrong = (b"", batch() + batch(), batch() + bytes(17), shorter(batch(), 20), batch()[:-1], batch(magic=1))
    for sent in (*wrong, batch(break_crc=True)):
        ask(case, topic(case, topic_id, (0, sent), (1, batch()), (7, batch())), acks=2)


@SCENARIOS.error(0, since=FIRST, ends=True, each=("compacted", "uncompressed"))
def records_that_are_broken_where_they_are_looked_into(case: Case, how: str) -> None:
    options = {"cleanup_policy": "compact"} if how == "compacted" else {"compression_type": "uncompressed"}
    topic_id = case.topic("", 1, **options)
    whole = b"".join(record(index, KEY, b"value") for index in range(3))
    for codec in ("gzip", "snappy") if how == "uncompressed" else ("none", "gzip", "snappy"):
        for records in (whole[:-3], whole + bytes(3), whole[: len(whole) // 3], b"\x7f" * 40, b""):
            ask(case, topic(case, topic_id, (0, batch(records=records, codec=codec))))
        for count in (2, 4):
            sent = batch(records=whole, codec=codec, says_count=count, last_offset_delta=count - 1)
            ask(case, topic(case, topic_id, (0, sent)))


@SCENARIOS.success(0, since=FIRST, ends=True)
def what_follows_a_request_that_fails_without_acks_is_not_looked_at(case: Case) -> None:
    """Whatever else of the request is at work."""
    case.topic("-compacted", cleanup_policy="compact")
    topic_id = case.topic()
    large = batch(20, value=b"x" * 20_000, keys=True)
    compacted = topic(case, case.id_of(case.name + "-compacted"), (0, large), suffix="-compacted")
    unknown = topic(case, NO_SUCH_ID, (0, batch()), suffix="-no")
    case.send(m.Request(acks=0, timeout_ms=5_000, topic_data=[unknown, compacted]))
    case.send(m.Request(acks=0, timeout_ms=5_000, topic_data=[topic(case, topic_id, (0, batch()))]))
    case.expect_closed()


@SCENARIOS.success(0, since=FIRST, ends=True)
def a_producer_that_had_no_epoch_may_begin_anywhere(case: Case) -> None:
    topic_id = case.topic()
    producer_id = new_producer(case).producer_id
    for epoch, sequence in ((-1, 18), (-1, 21), (0, 40), (0, 43), (1, 46)):
        case.compare(produce_request(case, sequenced(case, producer_id, epoch, sequence), topic_id))
