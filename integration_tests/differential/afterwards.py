"""What a scenario has left behind: all records of its topics and all offsets of its group, read back in our newest
versions, so that an answer that looked right and did something else is seen all the same.
"""

from __future__ import annotations

import struct
from typing import Any

import crc32c

from isthmus.protocol.messages import fetch, list_offsets, metadata, offset_fetch

from .peer import Case

EARLIEST, LATEST = -2, -1
MAX_BYTES = 64 << 20
BY_NAME_UNTIL = 9  # OffsetFetch, which goes by topic ids from then on
_HEADER = struct.Struct(">qiibIhiqqqhii")
FIELDS = (
    "base_offset", "length", "leader_epoch", "magic", "crc", "attributes", "last_offset_delta", "base_timestamp_ms",
    "max_timestamp_ms", "producer_id", "producer_epoch", "base_sequence", "records_count",
)  # fmt: skip


def read_back(case: Case) -> dict[str, Any]:
    """Of the topics that the case may have made, and of its groups."""
    return {"topics": _topics(case), "groups": [_offsets(case, group) for group in sorted(case.groups)]}


def _topics(case: Case) -> list[dict[str, Any]]:
    if not case.topics:
        return []
    rows = [metadata.MetadataRequestTopic(name=name) for name in case.topics]
    known = case.prepare(metadata.Request(topics=rows, allow_auto_topic_creation=False)).topics
    found = [(topic.name, topic.topic_id, len(topic.partitions)) for topic in known if topic.error_code == 0]
    if not found:
        return []
    first, last = (_ends(case, found, timestamp) for timestamp in (EARLIEST, LATEST))
    batches = _batches(case, found, first)
    return [
        {
            "topic": name,
            "partitions": [
                {"first": first[name, i], "last": last[name, i], "batches": batches[topic_id, i]} for i in range(count)
            ],
        }
        for name, topic_id, count in sorted(found)
    ]


def _ends(case: Case, topics: list[tuple[str, bytes, int]], timestamp: int) -> dict[tuple[str, int], Any]:
    wanted = [
        list_offsets.ListOffsetsTopic(
            name=name,
            partitions=[
                list_offsets.ListOffsetsPartition(partition_index=i, timestamp=timestamp) for i in range(count)
            ],
        )
        for name, _, count in topics
    ]
    answer = case.prepare(list_offsets.Request(replica_id=-1, topics=wanted, timeout_ms=5_000))
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


def split(data: bytes) -> list[dict[str, Any]]:
    """The batches in some bytes: their headers by field, whether the CRC is right, and what follows the header."""
    batches = []
    position = 0
    while len(data) - position >= _HEADER.size:
        batch: dict[str, Any] = dict(zip(FIELDS, _HEADER.unpack_from(data, position), strict=True))
        end = position + 12 + batch["length"]
        if end > len(data):
            break
        batch["crc"] = crc32c.crc32c(data[position + 21 : end]) == batch["crc"]
        batch["records"] = data[position + _HEADER.size : end]
        batches.append(batch)
        position = end
    return batches


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
