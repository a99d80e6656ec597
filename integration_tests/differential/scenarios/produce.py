"""Produce (0): what is appended, and all that is refused."""

from __future__ import annotations

from isthmus.protocol.messages import produce as m

from ..batches import (
    BASE_TIMESTAMP_MS,
    CONTROL,
    LOG_APPEND_TIME,
    STEP_MS,
    TRANSACTIONAL,
    batch,
    old_message_set,
    record,
)
from ..peer import NO_SUCH_ID, Case, Scenarios
from ..requests import EARLIEST, LATEST, fetch_request, new_producer, offsets_request, produce_request

SCENARIOS = Scenarios()
HOUR_MS = 3_600_000
FIRST = 3  # earlier versions are announced and refused


@SCENARIOS.success(0)
def appends(case: Case) -> None:
    topic_id = case.topic()
    case.compare(produce_request(case, batch(), topic_id))
    case.compare(produce_request(case, batch(2), topic_id, acks=1))


@SCENARIOS.success(0, since=FIRST, ends=True)
def appends_to_several_partitions_and_topics(case: Case) -> None:
    ids = {suffix: case.topic(suffix, partitions=2) for suffix in ("-a", "-b")}
    topics = [
        m.TopicProduceData(
            name=case.name + suffix,
            topic_id=topic_id,
            partition_data=[m.PartitionProduceData(index=i, records=batch(i + 1)) for i in (1, 0)],
        )
        for suffix, topic_id in ids.items()
    ]
    case.compare(m.Request(acks=-1, timeout_ms=5_000, topic_data=topics), only=lambda answer: in_order(answer, case))


@SCENARIOS.success(0, since=FIRST, ends=True)
def appends_to_some_of_several_partitions(case: Case) -> None:
    topic_id = case.topic()
    rows = [m.PartitionProduceData(index=i, records=batch(break_crc=i == 2)) for i in (0, 1)]
    topic = m.TopicProduceData(name=case.name, topic_id=topic_id, partition_data=rows)
    case.compare(m.Request(acks=-1, timeout_ms=5_000, topic_data=[topic]))


@SCENARIOS.success(0, since=FIRST, ends=True)
def nothing_to_append(case: Case) -> None:
    case.compare(m.Request(acks=-1, timeout_ms=5_000, topic_data=[]))


@SCENARIOS.success(0, since=FIRST, ends=True)
def acks_zero_is_not_answered(case: Case) -> None:
    topic_id = case.topic()
    case.send(produce_request(case, batch(), topic_id, acks=0))
    case.compare(produce_request(case, batch(), topic_id))


@SCENARIOS.success(0, since=FIRST, ends=True)
def appends_in_every_codec(case: Case) -> None:
    topic_id = case.topic()
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        if codec != "zstd" or case.version >= 7:
            case.compare(produce_request(case, batch(codec=codec), topic_id))


@SCENARIOS.success(0, since=FIRST, ends=True)
def offsets_and_epochs_of_producers_are_not_taken(case: Case) -> None:
    topic_id = case.topic()
    case.compare(produce_request(case, batch(base_offset=77, leader_epoch=5), topic_id))


@SCENARIOS.success(0, since=FIRST, ends=True)
def appends_at_the_brokers_time(case: Case) -> None:
    topic_id = case.topic(message_timestamp_type="LogAppendTime")
    case.compare(produce_request(case, batch(), topic_id))


@SCENARIOS.success(0, since=FIRST, ends=True)
def takes_a_repeated_batch_once(case: Case) -> None:
    topic_id = case.topic()
    producer = new_producer(case)
    sent = batch(producer_id=producer.producer_id, producer_epoch=producer.producer_epoch, base_sequence=0)
    case.compare(produce_request(case, sent, topic_id))
    case.compare(produce_request(case, sent, topic_id))


def sequenced(case: Case, producer_id: int, epoch: int, sequence: int, count: int = 3) -> bytes:
    return batch(count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


@SCENARIOS.success(0, since=FIRST, ends=True)
def repeats_of_the_last_five_batches_are_known(case: Case) -> None:
    topic_id = case.topic()
    producer_id = new_producer(case).producer_id
    for number in range(6):
        case.compare(produce_request(case, sequenced(case, producer_id, 0, 3 * number), topic_id))
    for number in (5, 3, 1, 0):  # the first is forgotten
        case.compare(produce_request(case, sequenced(case, producer_id, 0, 3 * number), topic_id))


@SCENARIOS.success(0, since=FIRST, ends=True)
def sequences_go_round(case: Case) -> None:
    topic_id = case.topic()
    producer_id = new_producer(case).producer_id
    for sequence in (2**31 - 3, 0, 3):
        case.compare(produce_request(case, sequenced(case, producer_id, 0, sequence), topic_id))


@SCENARIOS.success(0, since=FIRST, ends=True)
def an_unknown_producer_may_begin_anywhere(case: Case) -> None:
    topic_id = case.topic()
    case.compare(produce_request(case, sequenced(case, new_producer(case).producer_id, 3, 40), topic_id))


@SCENARIOS.success(0, since=FIRST, ends=True)
def a_new_epoch_begins_at_zero(case: Case) -> None:
    topic_id = case.topic()
    producer_id = new_producer(case).producer_id
    for epoch, sequence in ((0, 0), (1, 0), (1, 3)):
        case.compare(produce_request(case, sequenced(case, producer_id, epoch, sequence), topic_id))


@SCENARIOS.error(0)
def unknown_topic(case: Case) -> None:
    case.compare(produce_request(case, batch(), NO_SUCH_ID))


@SCENARIOS.error(0)
def unknown_partition(case: Case) -> None:
    topic_id = case.topic()
    case.compare(produce_request(case, batch(), topic_id, partition=7))
    case.compare(produce_request(case, batch(), topic_id, partition=-1))


@SCENARIOS.error(0)
def wrong_acks(case: Case) -> None:
    topic_id = case.topic()
    for acks in (2, -2):
        case.compare(produce_request(case, batch(), topic_id, acks=acks))


@SCENARIOS.error(0, since=FIRST, ends=True)
def acks_zero_that_fails_closes_the_connection(case: Case) -> None:
    topic_id = case.topic()
    case.send(produce_request(case, batch(break_crc=True), topic_id, acks=0))
    case.expect_closed()
    case.send(produce_request(case, batch(), topic_id, acks=0, partition=7))
    case.expect_closed()


@SCENARIOS.error(0, since=FIRST, ends=True)
def acks_zero_that_fails_for_one_partition_appends_to_the_others(case: Case) -> None:
    topic_id = case.topic(partitions=3)
    rows = [m.PartitionProduceData(index=i, records=batch(break_crc=i == 0)) for i in range(3)]
    topic = m.TopicProduceData(name=case.name, topic_id=topic_id, partition_data=rows)
    case.send(m.Request(acks=0, timeout_ms=5_000, topic_data=[topic]))
    case.expect_closed()


@SCENARIOS.error(0, since=FIRST)
def broken_crc(case: Case) -> None:
    topic_id = case.topic()
    case.compare(produce_request(case, batch(break_crc=True), topic_id))


@SCENARIOS.error(0, since=FIRST, ends=True)
def batches_that_are_not_whole(case: Case) -> None:
    topic_id = case.topic()
    whole = batch()
    for part in (b"", whole[:5], whole[:16], whole[:40], whole[:-1], whole + whole[:30], whole + whole[:5]):
        case.compare(produce_request(case, part, topic_id))


@SCENARIOS.error(0, since=FIRST, ends=True)
def more_than_one_batch(case: Case) -> None:
    topic_id = case.topic()
    case.compare(produce_request(case, batch() + batch(), topic_id))


@SCENARIOS.error(0, since=FIRST, ends=True)
def batches_of_other_formats(case: Case) -> None:
    topic_id = case.topic()
    for sent in (old_message_set(0), old_message_set(1), batch(magic=3), batch(magic=-1)):
        case.compare(produce_request(case, sent, topic_id))


@SCENARIOS.error(0, since=FIRST, ends=True)
def one_batch_fails_the_whole_request(case: Case) -> None:
    topic_id = case.topic(partitions=3)
    for wrong in (batch(magic=3), batch(magic=-1), batch(magic=3)[:-1], batch(attributes=TRANSACTIONAL)):
        for acks in (-1, 2):
            rows = [m.PartitionProduceData(index=i, records=wrong if i == 1 else batch()) for i in range(3)]
            topic = m.TopicProduceData(name=case.name, topic_id=topic_id, partition_data=rows)
            request = m.Request(acks=acks, timeout_ms=5_000, topic_data=[topic])
            case.compare(request, only=lambda answer: in_order(answer, case))


@SCENARIOS.error(0, since=FIRST, ends=True)
def one_batch_fails_alone(case: Case) -> None:
    topic_id = case.topic(partitions=3)
    whole = batch()
    for wrong in (whole[:-1], whole[:5], batch(magic=1), batch(break_crc=True), batch(base_offset=1), whole + whole):
        rows = [m.PartitionProduceData(index=i, records=wrong if i == 1 else whole) for i in range(3)]
        topic = m.TopicProduceData(name=case.name, topic_id=topic_id, partition_data=rows)
        request = m.Request(acks=-1, timeout_ms=5_000, topic_data=[topic])
        case.compare(request, only=lambda answer: in_order(answer, case))


@SCENARIOS.success(0, since=FIRST, ends=True)
def of_a_partition_named_twice_the_last_batch_is_taken(case: Case) -> None:
    topic_id = case.topic()
    rows = [m.PartitionProduceData(index=0, records=batch(count)) for count in (1, 2, 3)]
    topics = [
        m.TopicProduceData(name=case.name, topic_id=topic_id, partition_data=part) for part in (rows[:2], rows[2:])
    ]
    case.compare(m.Request(acks=-1, timeout_ms=5_000, topic_data=topics[:1]))
    case.compare(m.Request(acks=-1, timeout_ms=5_000, topic_data=topics))


@SCENARIOS.error(0, since=FIRST, ends=True)
def headers_that_lie(case: Case) -> None:
    topic_id = case.topic()
    case.compare(produce_request(case, batch(3, says_count=2), topic_id))
    case.compare(produce_request(case, batch(3, says_count=4), topic_id))
    case.compare(produce_request(case, batch(3, last_offset_delta=5), topic_id))
    case.compare(produce_request(case, batch(3, says_count=-1), topic_id))
    case.compare(produce_request(case, batch(0), topic_id))
    case.compare(produce_request(case, batch(attributes=5), topic_id))  # a codec that is not


@SCENARIOS.error(0, since=FIRST, ends=True)
def what_is_told_of_a_batch_with_several_faults(case: Case) -> None:
    topic_id = case.topic(max_message_bytes="200")
    case.compare(produce_request(case, batch(base_offset=7, break_crc=True), topic_id))
    case.compare(produce_request(case, batch(20, base_offset=7), topic_id))
    case.compare(produce_request(case, batch(20, break_crc=True), topic_id))
    case.compare(produce_request(case, batch(says_count=0, break_crc=True), topic_id))
    case.compare(produce_request(case, batch(says_count=2, attributes=CONTROL), topic_id))
    case.compare(produce_request(case, batch(attributes=CONTROL | TRANSACTIONAL), topic_id))
    producer_id = new_producer(case).producer_id
    sent = batch(producer_id=producer_id, producer_epoch=0, attributes=LOG_APPEND_TIME)
    case.compare(produce_request(case, sent, topic_id))


@SCENARIOS.error(0, since=FIRST, ends=True)
def records_that_are_broken(case: Case) -> None:
    topic_id = case.topic()
    good = record(0, b"k", b"v")
    case.compare(produce_request(case, batch(1, records=good[:-1]), topic_id))
    case.compare(produce_request(case, batch(1, records=good + b"\0"), topic_id))
    case.compare(produce_request(case, batch(1, records=b"\x7f" + good[1:]), topic_id))


@SCENARIOS.success(0, since=FIRST, ends=True)
def a_gap_in_the_offsets_of_records(case: Case) -> None:
    topic_id = case.topic()
    records = record(0, b"k", b"v") + record(5, b"k", b"v")
    newest = BASE_TIMESTAMP_MS + 5 * STEP_MS
    sent = batch(2, records=records, last_offset_delta=5, max_timestamp_ms=newest)
    case.compare(produce_request(case, sent, topic_id))
    case.compare(produce_request(case, batch(2, records=records, max_timestamp_ms=newest), topic_id))


@SCENARIOS.error(0, since=FIRST, ends=True)
def control_batches(case: Case) -> None:
    topic_id = case.topic()
    case.compare(produce_request(case, batch(1, attributes=CONTROL), topic_id))
    producer_id = new_producer(case).producer_id
    sent = batch(1, attributes=CONTROL, producer_id=producer_id, producer_epoch=0, base_sequence=0)
    case.compare(produce_request(case, sent, topic_id))


@SCENARIOS.error(0, since=FIRST, ends=True)
def producers_without_epoch_or_sequence(case: Case) -> None:
    topic_id = case.topic()
    producer_id = new_producer(case).producer_id
    case.compare(produce_request(case, batch(producer_id=producer_id), topic_id))
    case.compare(produce_request(case, batch(producer_id=producer_id, producer_epoch=0), topic_id))
    case.compare(produce_request(case, batch(producer_id=producer_id, base_sequence=0), topic_id))


@SCENARIOS.error(0, since=FIRST, ends=True)
def sequence_gap(case: Case) -> None:
    topic_id = case.topic()
    producer_id = new_producer(case).producer_id
    for sequence in (0, 9, 3, 4):
        case.compare(produce_request(case, sequenced(case, producer_id, 0, sequence), topic_id))


@SCENARIOS.error(0, since=FIRST, ends=True)
def a_new_epoch_that_does_not_begin_at_zero(case: Case) -> None:
    topic_id = case.topic()
    producer_id = new_producer(case).producer_id
    for epoch, sequence in ((0, 0), (1, 3)):
        case.compare(produce_request(case, sequenced(case, producer_id, epoch, sequence), topic_id))


@SCENARIOS.error(0, since=FIRST, ends=True)
def an_epoch_that_is_over(case: Case) -> None:
    topic_id = case.topic()
    producer_id = new_producer(case).producer_id
    for epoch, sequence in ((5, 0), (4, 3), (4, 0)):
        case.compare(produce_request(case, sequenced(case, producer_id, epoch, sequence), topic_id))


@SCENARIOS.error(0, since=FIRST, ends=True)
def a_producer_that_nobody_knows_with_an_epoch_below_none(case: Case) -> None:
    topic_id = case.topic()
    for epoch in (-2, -1):
        case.compare(produce_request(case, sequenced(case, new_producer(case).producer_id, epoch, 0), topic_id))


@SCENARIOS.success(0, since=FIRST, ends=True)
def attributes_that_mean_nothing_are_not_kept_where_the_broker_stamps(case: Case) -> None:
    topic_id = case.topic("-stamped", message_timestamp_type="LogAppendTime")
    case.compare(produce_request(case, batch(attributes=0x180), topic_id, name=case.name + "-stamped"))
    topic_id = case.topic()
    case.compare(produce_request(case, batch(attributes=0x180), topic_id))


@SCENARIOS.success(0, since=FIRST, ends=True)
def a_delete_horizon_of_a_producer_is_not_kept_where_the_broker_compresses_anew(case: Case) -> None:
    stamped = {"message_timestamp_type": "LogAppendTime"}
    plain = {"compression_type": "uncompressed"}
    for suffix, options in {"-1": {}, "-2": stamped, "-3": plain, "-4": {**stamped, **plain}}.items():
        topic_id = case.topic(suffix, 1, **options)
        for codec in ("none", "gzip"):
            sent = batch(attributes=0x40, codec=codec)
            case.compare(produce_request(case, sent, topic_id, name=case.name + suffix))


@SCENARIOS.error(0, since=FIRST, ends=True)
def batch_too_large(case: Case) -> None:
    topic_id = case.topic(max_message_bytes="200")
    case.compare(produce_request(case, batch(20), topic_id))
    case.compare(produce_request(case, batch(20, codec="gzip", value=b"same"), topic_id))  # small once compressed


@SCENARIOS.error(0, since=FIRST, ends=True)
def batch_larger_than_a_segment(case: Case) -> None:
    topic_id = case.topic(segment_bytes=str(1 << 20), max_message_bytes=str(1 << 22))
    case.compare(produce_request(case, batch(1, value=bytes(1 << 20)), topic_id))


@SCENARIOS.error(0, since=FIRST, ends=True)
def batch_that_just_fits(case: Case) -> None:
    size = len(batch())
    topic_id = case.topic(max_message_bytes=str(size))
    case.compare(produce_request(case, batch(), topic_id))
    case.compare(produce_request(case, batch(value=b"values %d"), topic_id))


@SCENARIOS.error(0, since=FIRST, ends=True)
def sequences_that_overlap(case: Case) -> None:
    topic_id = case.topic(partitions=2)
    producer_id = new_producer(case).producer_id
    for sequence, count in ((0, 3), (0, 2), (1, 2), (2, 3)):
        case.compare(produce_request(case, sequenced(case, producer_id, 0, sequence, count), topic_id))
    case.compare(produce_request(case, sequenced(case, producer_id, 0, 0), topic_id, partition=1))  # counts apart


@SCENARIOS.error(0, since=FIRST, ends=True)
def records_without_keys_in_a_compacted_topic(case: Case) -> None:
    topic_id = case.topic(cleanup_policy="compact")
    case.compare(produce_request(case, batch(3), topic_id))
    case.compare(produce_request(case, batch(3, keys=True), topic_id))
    case.compare(produce_request(case, batch(3, codec="gzip"), topic_id))
    case.compare(produce_request(case, batch(3, attributes=CONTROL), topic_id))  # the batch is at fault, not the keys
    case.compare(produce_request(case, batch(3, says_count=2), topic_id))


@SCENARIOS.error(0, since=FIRST, ends=True)
def timestamps_out_of_bounds(case: Case) -> None:
    early = case.topic("-before", message_timestamp_before_max_ms="1000")
    case.compare(produce_request(case, batch(), early, name=case.name + "-before"))
    late = case.topic("-after")
    far = case.now_ms() + 2 * HOUR_MS
    case.compare(produce_request(case, batch(base_timestamp_ms=far), late, name=case.name + "-after"))
    case.compare(produce_request(case, batch(base_timestamp_ms=-1), late, name=case.name + "-after"))
    wrong = batch(max_timestamp_ms=BASE_TIMESTAMP_MS + 5)
    case.compare(produce_request(case, wrong, late, name=case.name + "-after"))


@SCENARIOS.error(0, since=FIRST, ends=True)
def a_producer_that_claims_the_brokers_clock(case: Case) -> None:
    topic_id = case.topic(message_timestamp_type="LogAppendTime")
    case.compare(produce_request(case, batch(attributes=LOG_APPEND_TIME), topic_id))


@SCENARIOS.error(0, since=FIRST, ends=True)
def a_producer_that_claims_the_brokers_clock_in_vain(case: Case) -> None:
    topic_id = case.topic()
    case.compare(produce_request(case, batch(attributes=LOG_APPEND_TIME), topic_id))


@SCENARIOS.error(0, since=FIRST, ends=True)
def too_few_replicas(case: Case) -> None:
    topic_id = case.topic(min_insync_replicas="2")
    case.compare(produce_request(case, batch(), topic_id, acks=-1))
    case.compare(produce_request(case, batch(), topic_id, acks=1))


@SCENARIOS.error(0, since=FIRST, ends=True)
def internal_topics(case: Case) -> None:
    case.coordinator()
    topic_id = case.id_of("__consumer_offsets")
    case.compare(produce_request(case, batch(), topic_id, name="__consumer_offsets"))


@SCENARIOS.error(0, since=FIRST, until=6)
def zstd_for_clients_that_do_not_know_it(case: Case) -> None:
    topic_id = case.topic()
    sent = batch(codec="zstd")
    for each in (sent, sent + sent, batch(codec="zstd", break_crc=True)):
        case.compare(produce_request(case, each, topic_id))


@SCENARIOS.error(0, since=FIRST, ends=True)
def transactional_batches_outside_of_a_transaction(case: Case) -> None:
    topic_id = case.topic()
    producer_id = new_producer(case).producer_id
    sent = batch(attributes=TRANSACTIONAL, producer_id=producer_id, producer_epoch=0, base_sequence=0)
    case.compare(produce_request(case, sent, topic_id))


@SCENARIOS.success(0, since=FIRST, ends=True)
def what_is_appended_can_be_read(case: Case) -> None:
    topic_id = case.topic()
    case.compare(produce_request(case, batch(codec="gzip"), topic_id))
    case.see(offsets_request(case.name, LATEST))
    case.see(offsets_request(case.name, EARLIEST))
    case.see(fetch_request(case, 1, topic_id))


def in_order(answer: dict, case: Case) -> dict:
    """Kafka's order of topics and partitions is that of a hash table."""
    names = case.peer.topic_ids
    answer["responses"].sort(key=lambda topic: topic.get("name") or names.get(topic["topic_id"], ""))
    for topic in answer["responses"]:
        topic["partition_responses"].sort(key=lambda row: row["index"])
    return answer
