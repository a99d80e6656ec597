"""What a scenario has left behind: all records of its topics, all offsets of its groups, and what the coordinators
wrote of its transactions and groups, read back in our newest versions, so that an answer that looked right and did
something else is seen all the same.
"""

from __future__ import annotations

from typing import Any

from isthmus.protocol.messages import fetch, list_offsets, metadata, offset_fetch

from . import state_records
from .batches import TRANSACTIONAL, split
from .peer import Case

EARLIEST, LATEST = -2, -1
MAX_BYTES = 64 << 20
BY_NAME_UNTIL = 9  # OffsetFetch, which goes by topic ids from then on
READ_COMMITTED = 1


def read_back(case: Case) -> dict[str, Any]:
    """Of the topics that the case may have made, of its groups and its transactions."""
    return {
        "topics": _topics(case),
        "groups": [_offsets(case, group) for group in sorted(case.groups)],
        "transactions": state_records.transactions(case),
        "group_records": state_records.groups(case),
    }


def _topics(case: Case) -> list[dict[str, Any]]:
    if not case.topics:
        return []
    rows = [metadata.MetadataRequestTopic(name=name) for name in case.topics]
    known = case.prepare(metadata.Request(topics=rows, allow_auto_topic_creation=False)).topics
    found = [(topic.name, topic.topic_id, len(topic.partitions)) for topic in known if topic.error_code == 0]
    if not found:
        return []
    first, last = (_ends(case, found, timestamp) for timestamp in (EARLIEST, LATEST))
    stable = _ends(case, found, LATEST, READ_COMMITTED)
    batches = _batches(case, found, first)
    return [
        {
            "topic": name,
            "partitions": [
                {
                    "first": first[name, i],
                    "last": last[name, i],
                    "stable": stable[name, i],
                    "batches": batches[topic_id, i],
                    "aborted": _aborted(case, topic_id, i, first[name, i][1], batches[topic_id, i]),
                }
                for i in range(count)
            ],
        }
        for name, topic_id, count in sorted(found)
    ]


def _aborted(
    case: Case, topic_id: bytes, index: int, first: int, batches: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """What readers of committed records are told of aborted transactions, from the partition's first offset on."""
    if not any(batch["attributes"] & TRANSACTIONAL for batch in batches):
        return []
    partition = fetch.FetchPartition(partition=index, fetch_offset=first, partition_max_bytes=MAX_BYTES)
    topic = fetch.FetchTopic(topic_id=topic_id, partitions=[partition])
    request = fetch.Request(
        max_wait_ms=0, min_bytes=0, max_bytes=MAX_BYTES, isolation_level=READ_COMMITTED, topics=[topic]
    )  # fmt: skip
    [row] = case.prepare(request).responses[0].partitions
    return [
        {"producer_id": each.producer_id, "first_offset": each.first_offset} for each in row.aborted_transactions or []
    ]


def _ends(
    case: Case, topics: list[tuple[str, bytes, int]], timestamp: int, isolation_level: int = 0
) -> dict[tuple[str, int], Any]:
    wanted = [
        list_offsets.ListOffsetsTopic(
            name=name,
            partitions=[
                list_offsets.ListOffsetsPartition(partition_index=i, timestamp=timestamp) for i in range(count)
            ],
        )
        for name, _, count in topics
    ]
    answer = case.prepare(
        list_offsets.Request(replica_id=-1, isolation_level=isolation_level, topics=wanted, timeout_ms=5_000)
    )
    return {
        (topic.name, row.partition_index): (row.error_code, row.offset)
        for topic in answer.topics
        for row in topic.partitions
    }


def _batches(
    case: Case, topics: list[tuple[str, bytes, int]], first: dict[tuple[str, int], Any]
) -> dict[tuple[bytes, int], list[dict[str, Any]]]:
    """Kafka gives what lies in one segment at a time, so it is asked until there is no more."""
    found: dict[tuple[bytes, int], list[dict[str, Any]]] = {
        (topic_id, i): [] for _, topic_id, count in topics for i in range(count)
    }
    after = {(topic_id, i): max(first[name, i][1], 0) for name, topic_id, count in topics for i in range(count)}
    while after:
        wanted: dict[bytes, fetch.FetchTopic] = {}
        for (topic_id, index), offset in after.items():
            topic = wanted.setdefault(topic_id, fetch.FetchTopic(topic_id=topic_id))
            topic.partitions.append(
                fetch.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=MAX_BYTES)
            )
        request = fetch.Request(max_wait_ms=0, min_bytes=0, max_bytes=MAX_BYTES, topics=list(wanted.values()))
        after = {}
        for answer in case.prepare(request).responses:
            for row in answer.partitions:
                batches = split(bytes(row.records or b""))
                if batches:
                    last = batches[-1]
                    found[answer.topic_id, row.partition_index] += batches
                    after[answer.topic_id, row.partition_index] = last["base_offset"] + last["last_offset_delta"] + 1
    return found


def _offsets(case: Case, group: str) -> dict[str, Any]:
    wanted = offset_fetch.OffsetFetchRequestGroup(group_id=group, topics=None)
    [answer] = case.prepare(offset_fetch.Request(groups=[wanted]), BY_NAME_UNTIL).groups
    return {
        "group": group,
        "error_code": answer.error_code,
        "offsets": sorted(
            [topic.name, row.partition_index, row.committed_offset, row.metadata]
            for topic in answer.topics
            for row in topic.partitions
        ),
    }
