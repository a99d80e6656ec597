"""What coordinators wrote of a case's transactions and groups, in `__transaction_state` and `__consumer_offsets`.

The bytes of groups' records are compared as they are, but for what is random or belongs to a moment; the records of
transactions field by field, since producer ids stand in them. How records are put into batches is not compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

from isthmus.protocol.messages import fetch, metadata, transaction_records

from .batches import CONTROL, records_of, split
from .peer import Case
from .wire import plain

TRANSACTIONS, OFFSETS = "__transaction_state", "__consumer_offsets"
MAX_BYTES = 64 << 20
AROUND_NOW_MS = 60_000
# Kinds of records of `__consumer_offsets`: a classic group, whose members are in no order; the epoch of a consumer
# group, with a hash of the topics that it reads and their ids; a pattern, with the version of the metadata that it met.
CLASSIC_KIND, EPOCH_KIND, PATTERN_KIND = 2, 3, 16
HASH_AT = 9
VERSION_BEFORE_END = 17


def transactions(case: Case) -> list[dict[str, Any]]:
    """By transactional id, the records of its state."""
    logs = _Logs(case, TRANSACTIONS)
    return [
        {"transactional_id": each, "records": [_state(value) for _, value in logs.records(each, _of_transaction(each))]}
        for each in sorted(case.transactions)
    ]


def groups(case: Case) -> list[dict[str, Any]]:
    """By group that the case wants, its offsets, its records but for classic ones, and the markers of its producers."""
    logs = _Logs(case, OFFSETS)
    return [{"group_id": each, "records": list(_of_group(case, logs, each))} for each in sorted(case.group_logs)]


def _of_group(case: Case, logs: _Logs, group: str) -> Iterator[dict[str, Any]]:
    """Records of one kind that follow each other in a batch are those of members, which Kafka has in no order."""
    name = _string(group)
    for batch in logs.batches(group):
        if batch["attributes"] & CONTROL:
            is_own = case.peer.producer_ids.get(batch["producer_id"], "").startswith(case.name)
            own = list(records_of(batch)) if is_own else []
        else:
            own = [(key, value) for key, value in records_of(batch) if key is not None and key[2:].startswith(name)]
        for kind, rows in groupby(own, key=lambda row: _kind(row[0])):
            if kind != CLASSIC_KIND:
                kept = {name: batch[name] for name in ("attributes", "producer_id", "producer_epoch")}
                yield from ({**kept, "key": key, "value": _masked(case, kind, value)} for key, value in sorted(rows))


def _state(value: bytes | None) -> Any:
    """A record's value: its version, its length and its fields, whose topics Kafka has in no order."""
    if value is None:
        return None
    version = int.from_bytes(value[:2], "big")
    fields = plain(transaction_records.decode_value(value), version)
    for topic in fields["transaction_partitions"] or []:
        topic["partition_ids"].sort()
    if fields["transaction_partitions"]:
        fields["transaction_partitions"].sort(key=lambda topic: topic["topic"])
    return {"version": version, "length": len(value), **fields}


def _of_transaction(transactional_id: str) -> Callable[[bytes], bool]:
    wanted = b"\0\0" + _string(transactional_id)
    return wanted.__eq__


def _string(text: str) -> bytes:
    data = text.encode()
    return len(data).to_bytes(2, "big") + data


def _kind(key: bytes | None) -> int:
    return int.from_bytes((key or b"")[:2], "big")


def _masked(case: Case, kind: int, data: bytes | None) -> bytes | None:
    """A value without what is random or counted by the cluster, and without times of now."""
    if data is None:
        return None
    if kind == EPOCH_KIND and len(data) >= HASH_AT + 8:
        data = data[:HASH_AT] + b"<hash>" + data[HASH_AT + 8 :]
    if kind == PATTERN_KIND:
        data = data[:-VERSION_BEFORE_END] + b"<version>" + data[8 - VERSION_BEFORE_END :]
    for topic_id, name in case.peer.topic_ids.items():
        data = data.replace(topic_id, f"<id of {name}>".encode())
    now = int(time.time() * 1000)
    for at in range(len(data) - 7):
        if abs(int.from_bytes(data[at : at + 8], "big") - now) < AROUND_NOW_MS:
            data = data[:at] + b"<now>   " + data[at + 8 :]
    return data


class _Logs:
    """The partitions of an internal topic, each read once."""

    def __init__(self, case: Case, topic: str) -> None:
        self._case = case
        self._topic = topic
        self._read: dict[int, list[dict[str, Any]]] = {}

    def records(self, key: str, is_wanted: Callable[[bytes], bool]) -> Iterator[tuple[bytes, bytes | None]]:
        for batch in self.batches(key):
            for found, value in records_of(batch):
                if found is not None and is_wanted(found):
                    yield found, value

    def batches(self, key: str) -> list[dict[str, Any]]:
        """Of the partition that a transactional id or a group is kept in."""
        wanted = metadata.MetadataRequestTopic(name=self._topic)
        [topic] = self._case.prepare(metadata.Request(topics=[wanted])).topics
        if topic.error_code:
            return []
        index = java_hash(key) % len(topic.partitions)
        if index not in self._read:
            self._read[index] = list(self._fetched(topic.topic_id, index))
        return self._read[index]

    def _fetched(self, topic_id: bytes, index: int) -> Iterator[dict[str, Any]]:
        offset = 0
        while True:
            partition = fetch.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=MAX_BYTES)
            topic = fetch.FetchTopic(topic_id=topic_id, partitions=[partition])
            request = fetch.Request(max_wait_ms=0, min_bytes=0, max_bytes=MAX_BYTES, topics=[topic])
            [row] = self._case.prepare(request).responses[0].partitions
            batches = split(bytes(row.records or b""))
            if row.error_code or not batches:
                return
            yield from batches
            offset = batches[-1]["base_offset"] + batches[-1]["last_offset_delta"] + 1


def java_hash(text: str) -> int:
    """Java's String.hashCode without its sign, by which Kafka chooses a partition."""
    value = 0
    data = text.encode("utf-16-be")
    for at in range(0, len(data), 2):
        value = (31 * value + int.from_bytes(data[at : at + 2], "big")) & 0xFFFFFFFF
    return value if value < 1 << 31 else (1 << 32) - value
