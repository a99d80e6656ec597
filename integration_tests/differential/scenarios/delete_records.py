"""DeleteRecords (21): new log starts, what is refused, and what readers see afterwards."""

from __future__ import annotations

from isthmus.protocol.messages import delete_records

from ..peer import Case, Scenarios
from ..requests import EARLIEST, fetch_request, fill, offsets_request

SCENARIOS = Scenarios()


def request(name: str, *rows: tuple[int, int], timeout_ms: int = 5_000) -> delete_records.Request:
    """rows: (partition, offset)."""
    partitions = [delete_records.DeleteRecordsPartition(partition_index=index, offset=offset) for index, offset in rows]
    topic = delete_records.DeleteRecordsTopic(name=name, partitions=partitions)
    return delete_records.Request(topics=[topic], timeout_ms=timeout_ms)


@SCENARIOS.success(21)
def deletes_up_to_an_offset(case: Case) -> None:
    topic_id = case.topic()
    fill(case, topic_id, 3)
    case.compare(request(case.name, (0, 4)))
    case.see(offsets_request(case.name, EARLIEST))
    case.see(fetch_request(case, 3, topic_id))  # before the start
    case.see(fetch_request(case, 4, topic_id))


@SCENARIOS.success(21, ends=True)
def deletes_all_by_the_high_watermark(case: Case) -> None:
    topic_id = case.topic()
    fill(case, topic_id)
    case.compare(request(case.name, (0, -1)))
    case.see(offsets_request(case.name, EARLIEST))
    case.see(fetch_request(case, 3, topic_id))


@SCENARIOS.success(21, ends=True)
def start_does_not_go_back(case: Case) -> None:
    fill(case, case.topic(), 2)
    case.compare(request(case.name, (0, 5)))
    case.compare(request(case.name, (0, 2)))
    case.compare(request(case.name, (0, 0)))


@SCENARIOS.success(21, ends=True)
def deletes_from_a_topic_compacted_and_deleted(case: Case) -> None:
    fill(case, case.topic(cleanup_policy="compact,delete"), keys=True)
    case.compare(request(case.name, (0, 1)))


@SCENARIOS.success(21, ends=True)
def deletes_from_a_topic_without_a_policy(case: Case) -> None:
    fill(case, case.topic(cleanup_policy=""))
    for offset in (1, 7, -1):
        case.compare(request(case.name, (0, offset)))


@SCENARIOS.success(21, ends=True)
def several_partitions_one_of_them_twice(case: Case) -> None:
    fill(case, case.topic(partitions=2), 2)
    case.compare(request(case.name, (0, 1), (1, 0), (0, 3)), only=by_partition)


@SCENARIOS.success(21, ends=True)
def no_topics_to_delete_from(case: Case) -> None:
    case.compare(delete_records.Request(topics=[], timeout_ms=5_000))


@SCENARIOS.error(21)
def offsets_outside_of_the_log(case: Case) -> None:
    fill(case, case.topic())
    case.compare(request(case.name, (0, 4)))
    case.compare(request(case.name, (0, -2)))


@SCENARIOS.error(21, ends=True)
def records_of_an_unknown_topic_or_partition(case: Case) -> None:
    case.compare(request(case.name, (0, 0)))
    case.topic()
    case.compare(request(case.name, (1, 0)))
    case.compare(request("no/name", (0, 0)))


@SCENARIOS.error(21, ends=True)
def records_of_a_compacted_topic(case: Case) -> None:
    case.topic(cleanup_policy="compact")
    case.compare(request(case.name, (0, -1)))


@SCENARIOS.error(21, ends=True)
def records_of_an_internal_topic(case: Case) -> None:
    case.coordinator()  # it makes __consumer_offsets
    case.compare(request("__consumer_offsets", (0, 0)))


def by_partition(answer: dict) -> dict:
    """Kafka's order is that of a hash table."""
    for topic in answer["topics"]:
        topic["partitions"].sort(key=lambda row: row["partition_index"])
    return answer
