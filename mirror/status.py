"""The status that mirrors report: one record per partition in the target's topic `__mirror_status`; the last counts.

A link as a whole has a record too, if there is something to report, with topic "" and partition -1.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..client import Admin, Client, Consumer, Producer, TopicPartition
from ..client.admin import NewTopic
from ..client.errors import ClientError
from ..protocol.errors import ErrorCode, KafkaError

STATUS_TOPIC = "__mirror_status"
STATUS_OPTIONS = {"cleanup.policy": "compact", "retention.ms": "-1"}
STATUS_PARTITION = TopicPartition(STATUS_TOPIC, 0)
WRITE_TIMEOUT_MS = 10_000  # after this a record counts as not written, and is written again
LINK = TopicPartition("", -1)  # in place of a partition: the link as a whole
TIMES = ("updated_ms", "lag_ms")  # fields that do not count as a change
POLL_MS = 500
POLL_RECORDS_MAX = 10_000


def status_key(link: str, topic: str, partition: int) -> bytes:
    return f"{link}/{topic}/{partition}".encode()


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
        """Write the rows that changed, and remove the records that are not among the rows."""
        await self._look()
        sent = []
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

    async def close(self) -> None:
        await self._producer.close()


async def read_status(target: Client) -> list[dict[str, Any]]:
    """The last status of each link, topic and partition, sorted by these; empty if no mirror has written yet.

    The status of a link as a whole has topic "" and partition -1, and no offsets.
    """
    if STATUS_TOPIC not in await Admin(target).list_topics():
        return []
    tp = STATUS_PARTITION
    end = await _end(target, tp)
    consumer = Consumer(target, auto_offset_reset="earliest")
    consumer.assign({tp: None})
    latest: dict[tuple[str, str, int], dict[str, Any]] = {}
    try:
        while (consumer.position(tp) or 0) < end:
            polled = (await consumer.poll(POLL_MS, POLL_RECORDS_MAX)).get(tp, ())
            if not polled:
                end = min(end, await _end(target, tp))  # after a power cut the target may have lost records
            for record in polled:
                link, topic, partition = bytes(record.key or b"").decode().rsplit("/", 2)
                where = (link, topic, int(partition))
                latest.pop(where, None)
                if record.value is not None:
                    said = json.loads(bytes(record.value))
                    latest[where] = {"link": link, "topic": topic, "partition": int(partition), **said}
    finally:
        await consumer.close()
    return [latest[where] for where in sorted(latest)]


async def _end(client: Client, tp: TopicPartition) -> int:
    return (await Admin(client).list_offsets({tp: "latest"}))[tp][0]
