"""Sending and asking where no worker runs: in a script, a test, a web application of the user's own, or a command.

A client and a producer are started by the first record, one pair for each app and loop. A record is acknowledged before
`send` returns: a script may end right after it. Who sends much awaits several at a time, or uses `send_soon` and
`flush`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from ...client import Client, Producer, RecordMetadata
from ...runtime import system
from ..api.outgoing import Outgoing
from ..api.rpc import Replies
from ..api.settings import Settings
from ..engine.task import Task
from .declaring import declare
from .replies import ReplyReader

if TYPE_CHECKING:
    from ..api.topics import Topic

SOON_MAX = 10_000  # records that `send_soon` has given and that are not acknowledged, before `send` waits for them


class OutsideOutbox:
    """An `Outbox` of the running loop, and the `ReadsReplies` of replies to what is asked there."""

    def __init__(self, conf: Settings, replies: Replies) -> None:
        self._conf = conf
        self.client = Client(conf.bootstrap, client_id=conf.broker_client_id)
        self._producer = Producer(
            self.client,
            linger_ms=0,
            compression=conf.producer_compression_type,
            partitioner=conf.producer_partitioner,
        )
        self._replies = ReplyReader(self.client, system(), replies, conf.reply_expires)
        self._starting: asyncio.Future[None] | None = None
        self._sending: dict[asyncio.Task[RecordMetadata], None] = {}

    async def start(self) -> None:
        """Once; others wait for the same start. Raises ClientError where no broker answers."""
        if self._starting is None:
            self._starting = asyncio.ensure_future(self._start())
        await asyncio.shield(self._starting)

    async def _start(self) -> None:
        await self.client.start()
        await self._producer.start()

    async def send(self, task: Task | None, record: Outgoing) -> Awaitable[RecordMetadata]:
        """Returns when the record is acknowledged; raises why it is not."""
        while len(self._sending) >= SOON_MAX:
            await asyncio.wait(self._sending, return_when=asyncio.FIRST_COMPLETED)
        return await self._send(record)

    async def _send(self, record: Outgoing) -> asyncio.Future[RecordMetadata]:
        await self.start()
        if not self._producer.has_space:
            await self._producer.wait_for_space()
        sent = record.put(self._producer)
        await sent
        return sent

    def put(self, *_: object) -> None:
        """Each record is given to `send`."""

    def send_soon(self, task: Task | None, record: Outgoing) -> Awaitable[RecordMetadata]:
        async def sent() -> RecordMetadata:
            return (await self._send(record)).result()

        sending = asyncio.get_running_loop().create_task(sent())
        self._sending[sending] = None
        sending.add_done_callback(lambda each: self._sending.pop(each, None))
        return sending

    async def declare(self, topic: Topic) -> None:
        await self.start()
        await declare(self.client, self._conf, topic)

    async def read(self, topic: str) -> None:
        await self.start()
        await self._replies.read(topic)

    def new_id(self) -> str:
        return self._replies.new_id()

    async def flush(self) -> None:
        """Wait for what `send_soon` was given; errors are in what it returned."""
        if self._sending:
            await asyncio.wait(self._sending)

    async def close(self) -> None:
        await self.flush()
        await self._replies.close()
        await self._producer.close()
        await self.client.close()
