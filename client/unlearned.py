"""Records of topics that are new to the client: they wait here, in their order, until the topic's metadata is known."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from ..protocol.errors import KafkaError
from ..protocol.topic_names import why_invalid
from .cluster import Client
from .errors import ClientError, no_topic
from .partitioner import ProducerTopic

LEARN_ATTEMPTS = 8


class Later(NamedTuple):
    """Records, and how many. size_bytes: their part of the buffer. put: into batches."""

    length: int
    size_bytes: int
    future: asyncio.Future[Any]
    put: Callable[[ProducerTopic], None]

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)
            self.future.exception()  # seen: asyncio logs one that nobody asks for


class Unlearned:
    """What waits, bounded by the producer's buffer. look_at: a topic as the client's metadata has it; released: called
    with the bytes of what waits no more; refused: what the futures are told of an error."""

    def __init__(
        self,
        client: Client,
        timeout_s: float,
        look_at: Callable[[str], ProducerTopic],
        released: Callable[[int], None],
        refused: Callable[[Exception], Exception],
    ) -> None:
        self._client = client
        self._timeout_s = timeout_s
        self._look_at = look_at
        self._released = released
        self._refused = refused
        self._waiting: dict[str, list[Later]] = {}
        self._jobs: dict[asyncio.Task[None], None] = {}

    def __contains__(self, topic: str) -> bool:
        return topic in self._waiting

    @property
    def records(self) -> int:
        return sum(later.length for each in self._waiting.values() for later in each)

    def add(self, topic: str, later: Later) -> None:
        """The first one of a topic has its metadata fetched; the cluster may create the topic then."""
        waiting = self._waiting.setdefault(topic, [])
        waiting.append(later)
        if len(waiting) == 1:
            name = f"{self._client.client_id} producer: learn {topic}"
            job = asyncio.get_running_loop().create_task(self._learn(topic), name=name)
            self._jobs[job] = None
            job.add_done_callback(lambda done: self._jobs.pop(done, None))

    async def until_none(self) -> None:
        while self._waiting:
            await asyncio.wait(list(self._jobs), return_when=asyncio.FIRST_COMPLETED)

    def fail(self, error_of: Callable[[str], Exception]) -> None:
        """Of each topic."""
        for topic in list(self._waiting):
            self._fail(topic, error_of(topic))

    async def stop(self) -> None:
        """Learn nothing any more; what waits is to be failed."""
        jobs = list(self._jobs)
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)

    async def _learn(self, topic: str) -> None:
        error: Exception = no_topic(topic)
        try:
            async with self._client.operation(f"metadata of topic {topic}", self._timeout_s * 1000) as operation:
                for _ in range(0 if why_invalid(topic) else LEARN_ATTEMPTS):  # no broker can have an invalid one
                    await self._client.refresh_metadata([topic], create=True, timeout_ms=operation.remaining_ms)
                    if self._look_at(topic).count:
                        break
                    await operation.again(no_topic(topic))
        except (KafkaError, ClientError) as failed:
            error = failed
        known = self._look_at(topic)
        if not known.count:
            self._fail(topic, self._refused(error))
            return
        for later in self._waiting.pop(topic, ()):
            self._released(later.size_bytes)  # it counts where it is put
            if later.future.done():
                continue
            try:
                later.put(known)
            except Exception as wrong:  # a partitioner is the user's code: the other records go on
                later.fail(self._refused(wrong))

    def _fail(self, topic: str, error: Exception) -> None:
        for later in self._waiting.pop(topic, ()):
            self._released(later.size_bytes)
            later.fail(error)
