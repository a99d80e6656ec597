"""Keeps workers away from an app's state while it is being replaced: a topic that is there from the first change to the
last one. A worker looks for it when it starts, and again as a member of the group, before it restores tasks; a restore
looks for workers after it has made the topic. So one of them sees the other.

The topic has one record, which says what is being done. While it has none, nothing was changed yet.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass

import orjson

from ...client import Admin, Client, Consumer, Producer, TopicPartition
from ...client.admin import NewTopic
from ...protocol.errors import ErrorCode, KafkaError
from ..engine import topic_names
from ..errors import StreamsError

RESET, RESTORE = "reset", "restore"
POLL_MS = 500
READ_S = 30.0  # to read what is there
GONE_MS = 30_000.0  # for brokers to know that it is gone


@dataclass(frozen=True)
class Change:
    """what: a reset or a restore. folder, taken_ms: of the savepoint that is restored; folder is absolute."""

    what: str
    folder: str = ""
    taken_ms: int = 0

    @property
    def source(self) -> str:
        return f"of {self.folder} " if self.folder else ""


async def is_up(client: Client, app_id: str) -> bool:
    topic = topic_names.fence(app_id)
    await client.refresh_metadata([topic])
    return bool(client.partitions(topic))


async def check(client: Client, app_id: str) -> None:
    """Raises StreamsError while a change of the app's state is under way, or was not finished."""
    if not await is_up(client, app_id):
        return
    change = await read(client, app_id)
    what = f"a {change.what} {change.source}" if change is not None else "a change of its state "
    raise StreamsError(
        f"app {app_id}: {what}is under way, or was not finished: topic {topic_names.fence(app_id)} is there. "
        f"Wait for it, or run it again; `isthmus streams reset {app_id}` starts over"
    )


async def read(client: Client, app_id: str) -> Change | None:
    """What is being done, or was not finished. None: nothing was changed yet. Raises StreamsError where that cannot be
    read."""
    tp = TopicPartition(topic_names.fence(app_id), 0)
    ends = await Admin(client).list_offsets({tp: "latest"})
    consumer = Consumer(client, auto_offset_reset="earliest")
    consumer.assign({tp: 0})
    change: Change | None = None
    try:
        async with asyncio.timeout(READ_S):
            while (consumer.position(tp) or 0) < ends[tp][0]:
                for records in (await consumer.poll(POLL_MS)).values():
                    for record in records:
                        assert record.value is not None
                        change = Change(**orjson.loads(record.value))
    except TimeoutError:
        raise StreamsError(f"topic {tp.topic} could not be read within {READ_S:.0f} s") from None
    finally:
        await consumer.close()
    return change


async def put_up(client: Client, app_id: str, change: Change) -> None:
    topic = topic_names.fence(app_id)
    try:
        await Admin(client).create_topics([NewTopic(topic, 1)])
    except KafkaError as error:
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
    producer = Producer(client)
    await producer.start()
    try:
        await producer.send(topic, orjson.dumps(asdict(change)), partition=0)
    finally:
        await producer.close()


async def take_down(client: Client, app_id: str) -> None:
    """Afterwards the app may be started."""
    topic = topic_names.fence(app_id)
    await Admin(client).delete_topics([topic])
    async with client.operation(f"deletion of topic {topic}", GONE_MS) as operation:
        while await is_up(client, app_id):
            await operation.pause(KafkaError.of(ErrorCode.TOPIC_ALREADY_EXISTS, topic))
