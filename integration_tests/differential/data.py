"""Scenarios for Produce, Fetch, ListOffsets and Metadata."""

from __future__ import annotations

from isthmus.protocol.messages import fetch, init_producer_id, list_offsets, metadata, produce

from .batches import BASE_TIMESTAMP_MS, batch
from .peer import Case, Scenarios

SCENARIOS = Scenarios()
NO_SUCH_ID = bytes.fromhex("0123456789abcdef0123456789abcdef")


def produce_request(
    case: Case, records: bytes | None, topic_id: bytes, acks: int = -1, name: str = "", partition: int = 0
) -> produce.Request:
    data = produce.PartitionProduceData(index=partition, records=records)
    topic = produce.TopicProduceData(name=name or case.name, topic_id=topic_id, partition_data=[data])
    return produce.Request(acks=acks, timeout_ms=5_000, topic_data=[topic])


def fill(case: Case, topic_id: bytes, batches: int = 1) -> None:
    for _ in range(batches):
        answer = case.prepare(produce_request(case, batch(), topic_id))
        assert answer.responses[0].partition_responses[0].error_code == 0, answer


def new_producer(case: Case) -> init_producer_id.Response:
    """A producer id; a broker that has just started may need a moment before it gives one."""
    answers = []

    def given() -> bool:
        answers.append(case.prepare(init_producer_id.Request(transactional_id=None, transaction_timeout_ms=60_000)))
        return answers[-1].error_code == 0

    case.wait_until(given, "a producer id")
    return answers[-1]


@SCENARIOS.success(0)
def appends(case: Case) -> None:
    topic_id = case.topic()
    case.compare(produce_request(case, batch(), topic_id))
    case.compare(produce_request(case, batch(2), topic_id, acks=1))


@SCENARIOS.success(0, since=3)
def appends_at_the_brokers_time(case: Case) -> None:
    topic_id = case.topic(message_timestamp_type="LogAppendTime")
    case.compare(produce_request(case, batch(), topic_id))


@SCENARIOS.success(0, since=3)
def takes_a_repeated_batch_once(case: Case) -> None:
    topic_id = case.topic()
    producer = new_producer(case)
    sent = batch(producer_id=producer.producer_id, producer_epoch=producer.producer_epoch, base_sequence=0)
    case.compare(produce_request(case, sent, topic_id))
    case.compare(produce_request(case, sent, topic_id))


@SCENARIOS.error(0)
def unknown_topic(case: Case) -> None:
    case.compare(produce_request(case, batch(), NO_SUCH_ID))


@SCENARIOS.error(0)
def unknown_partition(case: Case) -> None:
    topic_id = case.topic()
    case.compare(produce_request(case, batch(), topic_id, partition=7))


@SCENARIOS.error(0)
def wrong_acks(case: Case) -> None:
    topic_id = case.topic()
    case.compare(produce_request(case, batch(), topic_id, acks=2))


@SCENARIOS.error(0, since=3)
def broken_crc(case: Case) -> None:
    topic_id = case.topic()
    case.compare(produce_request(case, batch(break_crc=True), topic_id))


@SCENARIOS.error(0, since=3)
def sequence_gap(case: Case) -> None:
    topic_id = case.topic()
    producer = new_producer(case)
    for base_sequence in (0, 9):
        sent = batch(producer_id=producer.producer_id, producer_epoch=0, base_sequence=base_sequence)
        case.compare(produce_request(case, sent, topic_id))


@SCENARIOS.error(0, since=3)
def batch_too_large(case: Case) -> None:
    topic_id = case.topic(max_message_bytes="100")
    case.compare(produce_request(case, batch(20), topic_id))


def fetch_request(case: Case, offset: int, topic_id: bytes, *, partition: int = 0, **fields: int) -> fetch.Request:
    wanted = fetch.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
    if "current_leader_epoch" in fields:
        wanted.current_leader_epoch = fields.pop("current_leader_epoch")
    topic = fetch.FetchTopic(topic=case.name, topic_id=topic_id, partitions=[wanted])
    return fetch.Request(**{"max_wait_ms": 100, "max_bytes": 1 << 20, "topics": [topic], **fields})


@SCENARIOS.success(1)
def reads_what_was_appended(case: Case) -> None:
    topic_id = case.topic()
    fill(case, topic_id, 2)
    case.compare(fetch_request(case, 0, topic_id))
    case.compare(fetch_request(case, 4, topic_id))  # the batch that holds the offset, whole
    case.compare(fetch_request(case, 6, topic_id))  # the end: nothing yet


@SCENARIOS.success(1)
def one_batch_comes_even_if_it_is_too_large(case: Case) -> None:
    topic_id = case.topic()
    fill(case, topic_id, 2)
    request = fetch_request(case, 0, topic_id, max_bytes=10)
    case.compare(request)


@SCENARIOS.success(1)
def reads_committed(case: Case) -> None:
    topic_id = case.topic()
    fill(case, topic_id)
    case.compare(fetch_request(case, 0, topic_id, isolation_level=1))


@SCENARIOS.success(1, since=7)
def full_request_of_a_new_session(case: Case) -> None:
    topic_id = case.topic()
    fill(case, topic_id)
    case.compare(fetch_request(case, 0, topic_id, session_id=0, session_epoch=0))


@SCENARIOS.error(1)
def fetch_offset_out_of_range(case: Case) -> None:
    topic_id = case.topic()
    fill(case, topic_id)
    case.compare(fetch_request(case, 100, topic_id))


@SCENARIOS.error(1)
def fetch_unknown_topic(case: Case) -> None:
    case.compare(fetch_request(case, 0, NO_SUCH_ID))


@SCENARIOS.error(1)
def fetch_unknown_partition(case: Case) -> None:
    topic_id = case.topic()
    case.compare(fetch_request(case, 0, topic_id, partition=7))


@SCENARIOS.error(1, since=9)
def fetch_with_a_leader_epoch_to_come(case: Case) -> None:
    topic_id = case.topic()
    fill(case, topic_id)
    case.compare(fetch_request(case, 0, topic_id, current_leader_epoch=9))


@SCENARIOS.error(1, since=7)
def unknown_session(case: Case) -> None:
    topic_id = case.topic()
    case.compare(fetch_request(case, 0, topic_id, session_id=123456, session_epoch=5))


def offsets_request(name: str, timestamp: int, *, partition: int = 0, epoch: int = -1) -> list_offsets.Request:
    wanted = list_offsets.ListOffsetsPartition(
        partition_index=partition, current_leader_epoch=epoch, timestamp=timestamp
    )  # fmt: skip
    topic = list_offsets.ListOffsetsTopic(name=name, partitions=[wanted])
    return list_offsets.Request(replica_id=-1, topics=[topic], timeout_ms=5_000)


@SCENARIOS.success(2)
def offsets_by_timestamp(case: Case) -> None:
    fill(case, case.topic(), 2)
    special = [-1, -2, *([-3] if case.version >= 7 else []), *([-4] if case.version >= 8 else [])]
    special += [*([-5] if case.version >= 9 else []), *([-6] if case.version >= 11 else [])]
    for timestamp in (*special, 0, BASE_TIMESTAMP_MS + 1, BASE_TIMESTAMP_MS + 20, BASE_TIMESTAMP_MS + 21):
        case.compare(offsets_request(case.name, timestamp))


@SCENARIOS.success(2)
def offsets_of_an_empty_partition(case: Case) -> None:
    case.topic()
    for timestamp in (-1, -2, 0, *([-3] if case.version >= 7 else [])):
        case.compare(offsets_request(case.name, timestamp))


@SCENARIOS.error(2)
def offsets_of_an_unknown_topic(case: Case) -> None:
    case.compare(offsets_request(case.name, -1))


@SCENARIOS.error(2)
def offsets_of_an_unknown_partition(case: Case) -> None:
    case.topic()
    case.compare(offsets_request(case.name, -1, partition=7))


@SCENARIOS.error(2, since=4)
def offsets_with_a_leader_epoch_to_come(case: Case) -> None:
    case.topic()
    case.compare(offsets_request(case.name, -1, epoch=9))


@SCENARIOS.error(2)
def offsets_by_a_timestamp_this_version_has_not(case: Case) -> None:
    case.topic()
    for timestamp in (-3, -4, -5, -6, -7):
        case.compare(offsets_request(case.name, timestamp))


def metadata_request(name: str | None, topic_id: bytes = bytes(16), **fields: bool) -> metadata.Request:
    topic = metadata.MetadataRequestTopic(name=name, topic_id=topic_id)
    return metadata.Request(topics=[topic], **fields)


@SCENARIOS.success(3)
def describes_a_topic(case: Case) -> None:
    case.topic(partitions=3)
    case.compare(metadata_request(case.name))


@SCENARIOS.success(3, since=1)
def no_topics(case: Case) -> None:
    case.compare(metadata.Request(topics=[]))


@SCENARIOS.success(3, since=1)
def all_topics_with_one_of_ours(case: Case) -> None:
    case.topic()

    def ours(answer: dict) -> dict:
        return {**answer, "topics": [topic for topic in answer["topics"] if topic["name"] == case.name]}

    case.compare(metadata.Request(topics=None), only=ours)


@SCENARIOS.success(3, since=8)
def topic_operations(case: Case) -> None:
    case.topic()
    case.compare(metadata_request(case.name, include_topic_authorized_operations=True))


@SCENARIOS.success(3, since=8, until=10)
def cluster_operations(case: Case) -> None:
    case.compare(metadata.Request(topics=[], include_cluster_authorized_operations=True))


@SCENARIOS.success(3, since=12)
def describes_a_topic_by_id(case: Case) -> None:
    case.compare(metadata_request(None, case.topic()))


@SCENARIOS.success(3)
def makes_a_topic_that_is_asked_for(case: Case) -> None:
    case.prepare(metadata_request(case.name), case.version)  # Kafka's first answer may or may not know it yet
    case.await_topic(case.name)
    case.compare(metadata_request(case.name))


@SCENARIOS.error(3)
def wrong_topic_name(case: Case) -> None:
    case.compare(metadata_request("no/name"))


@SCENARIOS.error(3, since=4)
def unknown_topic_is_not_made(case: Case) -> None:
    case.compare(metadata_request(case.name, allow_auto_topic_creation=False))


@SCENARIOS.error(3, since=12)
def unknown_topic_id(case: Case) -> None:
    case.compare(metadata_request(None, NO_SUCH_ID))
