"""The status that mirrors report: one record per partition in the target's topic `__mirror_status`; the last counts.

A link as a whole has a record too, if there is something to report, with topic "" and partition -1. Something is
written every ALIVE_MS, though nothing has changed: by the newest `updated_ms` of a link it is known that its worker
lives.

Beside these a link has *heartbeats*, which are written all the time (`heartbeats`): by them a reader of the target
tells a source in which nothing happens from one that is not seen, or whose records are not here yet. Their keys have
topic "" and partitions from -2 downwards.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from typing import Any

from ..client import Admin, Client, Consumer, Producer, TopicPartition
from ..client.admin import NewTopic
from ..client.errors import ClientError
from ..protocol.errors import ErrorCode, KafkaError
from .link import MirrorLink
from .partition import PartitionMirror

STATUS_TOPIC = "__mirror_status"
# Heartbeats come all the time, and only closed segments are compacted: who begins to read reads no week of them.
STATUS_OPTIONS = {"cleanup.policy": "compact", "retention.ms": "-1", "segment.ms": "600000"}
STATUS_PARTITION = TopicPartition(STATUS_TOPIC, 0)
WRITE_TIMEOUT_MS = 10_000  # after this a record counts as not written, and is written again
LINK = TopicPartition("", -1)  # in place of a partition: the link as a whole
ALIVE_MS = 5_000
SILENT_AFTER_MS = 15_000  # without a record of a link: its worker is gone, hangs, or is cut off from the target
UNSEEN_AFTER_MS = 6_000  # a source that has not answered for so long hangs, though no request has run out of time yet
HEARTBEAT = -2  # partition in the key of the first heartbeat; that of the next one is -3, and so on
HEARTBEAT_PARTITIONS_MAX = 1_000  # of one record
TIMES = ("updated_ms", "lag_ms")  # fields that do not count as a change
POLL_MS = 500
POLL_RECORDS_MAX = 10_000


def status_key(link: str, topic: str, partition: int) -> bytes:
    return f"{link}/{topic}/{partition}".encode()


def heartbeats(link: MirrorLink, partitions: Iterable[PartitionMirror], now_ms: int) -> list[dict[str, Any]]:
    """The values of a link's heartbeats: what is known of the partitions that its source has ever answered for.

    topics: target topic -> [partition, wall time in ms at which the source was asked, its high watermark then, end of
    the target's log], for each. A partition stands in one record alone.
    """
    seen = sorted(
        (each.target_topic, each.index, each.seen_ms, each.source_high_watermark, each.next_offset, each.topic)
        for each in partitions
        if each.seen_ms >= 0
    )
    found = []
    for begin in range(0, len(seen), HEARTBEAT_PARTITIONS_MAX):
        topics: dict[str, list[list[int]]] = {}
        sources: dict[str, str] = {}
        for target_topic, index, seen_ms, source_end, mirrored_to, source_topic in seen[
            begin : begin + HEARTBEAT_PARTITIONS_MAX
        ]:
            topics.setdefault(target_topic, []).append([index, seen_ms, source_end, mirrored_to])
            sources[target_topic] = source_topic
        found.append({"source": link.source_alias, "time_ms": now_ms, "topics": topics, "source_topics": sources})
    return found


class StatusWriter:
    """Keeps the records of one link in `__mirror_status` up to date. `target` is started.

    The topic is created, also if it was deleted meanwhile. If it may have lost records, all are written again. `start`
    and `write` raise KafkaError, ClientError.
    """

    def __init__(self, link: str, target: Client) -> None:
        self.link = link
        self.target = target
        # A duplicate status is harmless. A producer that stops because the target lost an older one is not.
        self._producer = Producer(target, linger_ms=0, idempotent=False, delivery_timeout_ms=WRITE_TIMEOUT_MS)
        self._written: dict[TopicPartition, dict[str, Any] | None] = {}  # None: it exists, but its content is unknown
        self._incarnation: tuple[bytes | None, int] = None, -1  # topic id, leader epoch
        self._alive_ms = 0  # the newest `updated_ms` that was written

    async def start(self) -> None:
        await self._look()
        await self._producer.start()

    async def _look(self) -> None:
        await self.target.refresh_metadata([STATUS_TOPIC], timeout_ms=WRITE_TIMEOUT_MS)
        if not self.target.partitions(STATUS_TOPIC):
            try:
                await Admin(self.target).create_topics([NewTopic(STATUS_TOPIC, 1, -1, STATUS_OPTIONS)])
            except KafkaError as error:
                if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:  # another worker was first
                    raise
        incarnation = self.target.topic_id(STATUS_TOPIC), self.target.leader_epoch(STATUS_PARTITION)
        if incarnation != self._incarnation:  # another topic, or a leader that may have lost the end of its log
            self._incarnation = incarnation
            self._written = dict.fromkeys(self._written)

    def known(self, tp: TopicPartition) -> None:
        """The topic has a record of this partition that another worker wrote."""
        self._written.setdefault(tp, None)

    async def write(self, rows: Mapping[TopicPartition, dict[str, Any]]) -> None:
        """Write the rows that changed, one of them at least every ALIVE_MS, and remove the records that are not among
        the rows."""
        await self._look()
        sent = []
        self._give_sign(rows)
        for tp in [*rows, *(tp for tp in self._written if tp not in rows)]:
            row = rows.get(tp)
            what = None if row is None else {name: value for name, value in row.items() if name not in TIMES}
            if what is not None and self._written.get(tp) == what:
                continue
            self._written[tp] = None
            await self._producer.wait_for_space()
            value = None if row is None else json.dumps(row).encode()
            key = status_key(self.link, *tp)
            sent.append((tp, what, self._producer.send(STATUS_TOPIC, value, key, partition=0)))
        problem: BaseException | None = None
        for tp, what, future in sent:
            try:
                await future
            except (KafkaError, ClientError) as error:
                problem = error
                continue
            if what is None:
                del self._written[tp]
            else:
                self._written[tp] = what
        if problem is not None:
            raise problem

    def _give_sign(self, rows: Mapping[TopicPartition, dict[str, Any]]) -> None:
        """Have the first row written again, if nothing was for ALIVE_MS. Any other row that is written is a sign, too,
        but one that is written twice does no harm."""
        for tp, row in rows.items():
            now_ms = row.get("updated_ms", 0)
            if now_ms - self._alive_ms >= ALIVE_MS:
                self._alive_ms = now_ms
                self._written[tp] = None
            return

    async def beat(self, beats: Iterable[Mapping[str, Any]]) -> None:
        """Write heartbeats. One that is lost is not written again: the next one says more. Raises KafkaError,
        ClientError."""
        sent = []
        for number, beat in enumerate(beats):
            await self._producer.wait_for_space()
            key = status_key(self.link, "", HEARTBEAT - number)
            sent.append(self._producer.send(STATUS_TOPIC, json.dumps(beat).encode(), key, partition=0))
        problems = [each for each in await asyncio.gather(*sent, return_exceptions=True) if each is not None]
        for problem in problems:
            if isinstance(problem, BaseException):
                raise problem

    async def close(self) -> None:
        await self._producer.close()


async def read_status(target: Client) -> list[dict[str, Any]]:
    """The last status of each link, topic and partition, sorted by these; empty if no mirror has written yet.

    The status of a link as a whole has topic "" and partition -1, and no offsets. unseen_ms: for how long the mirror
    had not seen the partition's source when it said that last, by its heartbeats; -1: it has not said.
    """
    if STATUS_TOPIC not in await Admin(target).list_topics():
        return []
    tp = STATUS_PARTITION
    end = await _end(target, tp)
    consumer = Consumer(target, auto_offset_reset="earliest")
    consumer.assign({tp: None})
    latest: dict[tuple[str, str, int], dict[str, Any]] = {}
    unseen_ms: dict[tuple[str, str, int], int] = {}  # by link, target topic and partition
    try:
        while (consumer.position(tp) or 0) < end:
            polled = (await consumer.poll(POLL_MS, POLL_RECORDS_MAX)).get(tp, ())
            if not polled:
                end = min(end, await _end(target, tp))  # after a power cut the target may have lost records
            for record in polled:
                link, topic, partition = bytes(record.key or b"").decode().rsplit("/", 2)
                where = (link, topic, int(partition))
                if where[2] <= HEARTBEAT:
                    said = {} if record.value is None else json.loads(bytes(record.value))
                    for target_topic, partitions in said.get("topics", {}).items():
                        for index, seen_ms, *_ in partitions:
                            unseen_ms[link, target_topic, index] = said["time_ms"] - seen_ms
                    continue
                latest.pop(where, None)
                if record.value is not None:
                    said = json.loads(bytes(record.value))
                    latest[where] = {"link": link, "topic": topic, "partition": int(partition), **said}
    finally:
        await consumer.close()
    return [
        {**row, "unseen_ms": unseen_ms.get((row["link"], row.get("target_topic", ""), row["partition"]), -1)}
        for _, row in sorted(latest.items())
    ]


async def _end(client: Client, tp: TopicPartition) -> int:
    return (await Admin(client).list_offsets({tp: "latest"}))[tp][0]
