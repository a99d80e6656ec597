"""ListOffsets (2): by timestamps and by the special ones."""

from __future__ import annotations

from isthmus.protocol.messages import list_offsets as m

from ..batches import BASE_TIMESTAMP_MS, batch
from ..peer import Case, Scenarios
from ..requests import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    fill,
    offsets_request,
    produce_request,
)

SCENARIOS = Scenarios()
SINCE = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING: 11}
COMMITTED = 1


def specials(case: Case) -> list[int]:
    return [timestamp for timestamp, since in SINCE.items() if case.version >= since]


@SCENARIOS.success(2)
def offsets_by_timestamp(case: Case) -> None:
    fill(case, case.topic(), 2)
    for timestamp in (*specials(case), 0, BASE_TIMESTAMP_MS + 1, BASE_TIMESTAMP_MS + 20, BASE_TIMESTAMP_MS + 21):
        case.compare(offsets_request(case.name, timestamp))


@SCENARIOS.success(2, ends=True)
def offsets_of_an_empty_partition(case: Case) -> None:
    case.topic()
    for timestamp in (*specials(case), 0):
        case.compare(offsets_request(case.name, timestamp))


@SCENARIOS.success(2, ends=True)
def offsets_of_records_out_of_order(case: Case) -> None:
    topic_id = case.topic()
    for base in (BASE_TIMESTAMP_MS + 1000, BASE_TIMESTAMP_MS, BASE_TIMESTAMP_MS + 500):
        case.prepare(produce_request(case, batch(base_timestamp_ms=base), topic_id))
    for later in (0, 500, 510, 1000, 1010, 1020, 1021):
        case.compare(offsets_request(case.name, BASE_TIMESTAMP_MS + later))
    if case.version >= SINCE[MAX_TIMESTAMP]:
        case.compare(offsets_request(case.name, MAX_TIMESTAMP))


@SCENARIOS.success(2, ends=True)
def offsets_of_records_without_time(case: Case) -> None:
    topic_id = case.topic()
    for _ in range(2):
        fill(case, topic_id, count=1, base_timestamp_ms=-1)
    for timestamp in (*specials(case), 0):
        case.compare(offsets_request(case.name, timestamp))
    case.delete_records(1)
    case.compare(offsets_request(case.name, LATEST))


@SCENARIOS.success(2, ends=True)
def offsets_in_compressed_batches(case: Case) -> None:
    fill(case, case.topic(), 2, codec="lz4")
    for timestamp in (*specials(case), BASE_TIMESTAMP_MS + 10):
        case.compare(offsets_request(case.name, timestamp))


@SCENARIOS.success(2, ends=True)
def offsets_after_records_were_deleted(case: Case) -> None:
    fill(case, case.topic(), 3)
    case.delete_records(4)
    for timestamp in (*specials(case), 0, BASE_TIMESTAMP_MS, BASE_TIMESTAMP_MS + 20):
        case.compare(offsets_request(case.name, timestamp))


@SCENARIOS.success(2, since=2, ends=True)
def offsets_for_readers_of_what_is_committed(case: Case) -> None:
    fill(case, case.topic())
    for timestamp in (*specials(case), 0):
        case.compare(offsets_request(case.name, timestamp, isolation_level=COMMITTED))


@SCENARIOS.success(2, ends=True)
def offsets_for_debuggers(case: Case) -> None:
    fill(case, case.topic())
    for timestamp in (LATEST, EARLIEST, 0):
        case.compare(offsets_request(case.name, timestamp, replica_id=-2))


@SCENARIOS.success(2, ends=True)
def offsets_of_several_partitions_and_topics(case: Case) -> None:
    for suffix in ("-a", "-b"):
        case.topic(suffix, partitions=2)
    topics = [
        m.ListOffsetsTopic(
            name=case.name + suffix,
            partitions=[m.ListOffsetsPartition(partition_index=i, timestamp=-1) for i in (1, 0, 7)],
        )
        for suffix in ("-b", "-no", "-a")
    ]
    case.compare(m.Request(replica_id=-1, topics=topics, timeout_ms=5_000), only=by_topic)


@SCENARIOS.success(2, ends=True)
def no_offsets(case: Case) -> None:
    case.compare(m.Request(replica_id=-1, topics=[], timeout_ms=5_000))


@SCENARIOS.error(2)
def offsets_of_an_unknown_topic(case: Case) -> None:
    case.compare(offsets_request(case.name, -1))
    case.compare(offsets_request("no/name", -1))


@SCENARIOS.error(2, ends=True)
def offsets_of_an_unknown_partition(case: Case) -> None:
    case.topic()
    for timestamp in (LATEST, EARLIEST, 0):
        case.compare(offsets_request(case.name, timestamp, partition=7))


@SCENARIOS.success(2, ends=True)
def offsets_of_topics_without_partitions(case: Case) -> None:
    case.topic()
    nothing = [m.ListOffsetsTopic(name=name, partitions=[]) for name in (case.name, case.name + "-no")]
    case.compare(m.Request(replica_id=-1, topics=nothing))
    case.compare(m.Request(replica_id=-1, topics=[*nothing, *offsets_request(case.name, LATEST).topics]))


@SCENARIOS.error(2, since=4, ends=True)
def offsets_with_a_leader_epoch_to_come(case: Case) -> None:
    case.topic()
    for timestamp in (LATEST, EARLIEST, 0):
        case.compare(offsets_request(case.name, timestamp, epoch=9))


@SCENARIOS.error(2)
def offsets_by_a_timestamp_this_version_has_not(case: Case) -> None:
    case.topic()
    for timestamp in (-3, -4, -5, -6, -7, -100):
        case.compare(offsets_request(case.name, timestamp))


@SCENARIOS.error(2, ends=True)
def offsets_of_a_partition_named_twice(case: Case) -> None:
    case.topic(partitions=2)
    rows = [m.ListOffsetsPartition(partition_index=i, timestamp=-1) for i in (0, 1, 0)]
    topic = m.ListOffsetsTopic(name=case.name, partitions=rows)
    case.compare(m.Request(replica_id=-1, topics=[topic], timeout_ms=5_000), only=by_topic)


@SCENARIOS.success(2, ends=True)
def offsets_of_a_topic_named_twice(case: Case) -> None:
    case.topic(partitions=2)
    topics = [
        m.ListOffsetsTopic(name=name, partitions=[m.ListOffsetsPartition(partition_index=index, timestamp=-1)])
        for name, index in ((case.name, 0), (case.name + "-no", 0), (case.name, 1), (case.name, 0))
    ]
    case.compare(m.Request(replica_id=-1, topics=topics[:3], timeout_ms=5_000), only=by_topic)
    case.compare(m.Request(replica_id=-1, topics=topics, timeout_ms=5_000), only=by_topic)


@SCENARIOS.error(2, since=2, ends=True)
def offsets_at_an_isolation_level_that_is_none(case: Case) -> None:
    fill(case, case.topic())
    for level in (2, -1):
        case.compare(offsets_request(case.name, LATEST, isolation_level=level))
    rows = [m.ListOffsetsPartition(partition_index=i, timestamp=LATEST) for i in (0, 7, 0)]
    topics = [m.ListOffsetsTopic(name=name, partitions=rows) for name in (case.name, case.name + "-no", case.name)]
    case.compare(m.Request(replica_id=-1, isolation_level=2, topics=topics, timeout_ms=5_000))


@SCENARIOS.error(2, ends=True)
def a_timestamp_that_is_none_is_told_before_all_else(case: Case) -> None:
    case.topic()
    case.compare(offsets_request(case.name, -100, partition=7))
    case.compare(offsets_request(case.name, -100, epoch=9))
    case.compare(offsets_request(case.name + "-no", -100))


@SCENARIOS.error(2, since=4, ends=True)
def offsets_with_a_leader_epoch_below_none(case: Case) -> None:
    case.topic()
    case.compare(offsets_request(case.name, LATEST, epoch=-2))


@SCENARIOS.error(2, ends=True)
def offsets_for_a_replica_that_is_none(case: Case) -> None:
    case.topic()
    case.compare(offsets_request(case.name, LATEST, replica_id=4711))


def by_topic(answer: dict) -> dict:
    """Kafka's order of topics and partitions is that in which lookups end."""
    answer["topics"].sort(key=lambda topic: topic["name"])
    for topic in answer["topics"]:
        topic["partitions"].sort(key=lambda row: row["partition_index"])
    return answer
