"""What mirrors say of themselves: a record a partition in the target's `__mirror_status` topic, the last one holds."""

from __future__ import annotations

import json
from typing import Any

from ..client import Admin, Client, Consumer, TopicPartition

STATUS_TOPIC = "__mirror_status"
POLL_MS = 500
POLL_RECORDS_MAX = 10_000


def status_key(link: str, topic: str, partition: int) -> bytes:
    return f"{link}/{topic}/{partition}".encode()


async def read_status(target: Client) -> list[dict[str, Any]]:
    """The last status of each link, topic and partition, sorted by them; none where no mirror has written yet."""
    if STATUS_TOPIC not in await Admin(target).list_topics():
        return []
    tp = TopicPartition(STATUS_TOPIC, 0)
    end = await _end(target, tp)
    consumer = Consumer(target, auto_offset_reset="earliest")
    consumer.assign({tp: None})
    latest: dict[tuple[str, str, int], dict[str, Any]] = {}
    try:
        while (consumer.position(tp) or 0) < end:
            polled = (await consumer.poll(POLL_MS, POLL_RECORDS_MAX)).get(tp, ())
            if not polled:
                end = min(end, await _end(target, tp))  # a target may have lost what it held, with its power
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
