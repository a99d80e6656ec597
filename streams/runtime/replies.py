"""Reads topics of replies for what an app's code has asked in this process (`api/rpc.py`), from the first question on.

A topic of replies is read by all workers of the app from where it ends when they begin. Only committed replies are
seen: those of an app with exactly_once come with its next commit.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from ...client import Admin, Client, Consumer, TopicPartition
from ...client.admin import NewTopic
from ...client.errors import ClientError
from ...protocol import records
from ...protocol.errors import ErrorCode, KafkaError
from ...runtime import Runtime
from ..api.rpc import Replies

log = logging.getLogger("isthmus.streams")

POLL_MS = 500
RETRY_S = 1.0  # after an error of a poll


class ReplyReader:
    """The `ReadsReplies` of a worker or client. expires_s: for how long a topic that is created here keeps replies."""

    def __init__(self, client: Client, runtime: Runtime, replies: Replies, expires_s: float) -> None:
        self._client = client
        self._runtime = runtime
        self._replies = replies
        self._expires_s = expires_s
        self._readers: dict[str, asyncio.Task[None]] = {}  # by topic
        self._beginning = asyncio.Lock()

    def new_id(self) -> str:
        return self._runtime.uuid().hex()

    async def read(self, topic: str) -> None:
        """Raises KafkaError where the topic is not there and cannot be created."""
        if topic in self._readers:
            return
        async with self._beginning:
            if topic in self._readers:
                return
            await self._create(topic)
            tps = [TopicPartition(topic, partition) for partition in self._client.partitions(topic)]
            ends = await Admin(self._client).list_offsets(dict.fromkeys(tps, "latest"))
            consumer = Consumer(self._client, auto_offset_reset="latest", isolation="read_committed")
            consumer.assign({tp: offset for tp, (offset, *_) in ends.items()})
            self._readers[topic] = asyncio.get_running_loop().create_task(
                self._run(topic, consumer), name=f"replies of {topic}"
            )

    async def _create(self, topic: str) -> None:
        await self._client.refresh_metadata([topic])
        if self._client.partitions(topic):
            return
        options = {"retention.ms": str(round(self._expires_s * 1000))}
        try:
            await Admin(self._client).create_topics([NewTopic(topic, 1, -1, options)])
        except KafkaError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        await self._client.refresh_metadata([topic])

    async def _run(self, topic: str, consumer: Consumer) -> None:
        try:
            while True:
                try:
                    fetched = await consumer.poll_batches(POLL_MS)
                except (KafkaError, ClientError) as error:
                    log.warning("replies in %s are read again: %s", topic, error)
                    await asyncio.sleep(RETRY_S)
                    continue
                for batches in fetched:
                    for value in records.decode_lists(batches.records, from_offset=batches.from_offset).values:
                        self._replies.take(value)
        finally:
            await consumer.close()

    async def close(self) -> None:
        self._replies.end()
        for reader in self._readers.values():
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError, KafkaError, ClientError):
                await reader
        self._readers.clear()
