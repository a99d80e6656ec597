"""Our producer, which sends numbers in order, and our consumer, which reads them in a group: in a loop of their own."""

from __future__ import annotations

import asyncio
import threading
import time
import traceback
from collections.abc import Iterable

from integration_tests.waiting import until
from isthmus.client import Client, Consumer, Producer, TopicPartition

SEND_EVERY_S = 0.003
POLL_MS = 100
END_S = 60.0


class OurClients:
    """They run until `end`. The topic has one partition."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self.acked_ms: list[float] = []  # when a record was acknowledged, on the clock of this machine
        self.acked: list[tuple[int, int]] = []  # offset, number
        self.read: list[tuple[int, int]] = []  # the same, as the consumer has them
        self.assigned = 0  # times that the consumer was given partitions
        self.errors: list[str] = []
        self._bootstrap = bootstrap
        self._topic = topic
        self._group = group
        self._sent = 0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()

    def goes_on(self, records: int = 200, within_s: float = 60.0) -> None:
        """Wait until so many more are acknowledged, and read."""
        wanted = len(self.acked) + records
        until(lambda: len(self.acked) >= wanted, lambda: f"{len(self.acked)} acknowledged: {self.errors}", within_s)
        until(lambda: len(self.read) >= wanted, lambda: f"{len(self.read)} read: {self.errors}", within_s)

    def end(self) -> None:
        """All that was sent is acknowledged, and all of that is read, or `errors` says why not."""
        self._ends.set()
        self._thread.join(2 * END_S)
        assert not self._thread.is_alive(), self.errors

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._told(self._send()))
            tasks.create_task(self._told(self._read()))

    async def _told(self, work: asyncio.Future[None] | object) -> None:
        try:
            await work  # type: ignore[misc]
        except Exception:
            self.errors.append(traceback.format_exc())
            self._ends.set()

    async def _send(self) -> None:
        client = Client(self._bootstrap, "our-producer")
        await client.start()
        producer = Producer(client, linger_ms=2)
        await producer.start()
        while not self._ends.is_set():
            sent = producer.send(self._topic, str(self._sent).encode(), partition=0)
            sent.add_done_callback(lambda done, number=self._sent: self._acknowledged(done, number))  # type: ignore[misc]
            self._sent += 1
            await asyncio.sleep(SEND_EVERY_S)
        await producer.flush()
        await producer.close()
        await client.close()

    def _acknowledged(self, done: asyncio.Future[object], number: int) -> None:
        if error := done.exception():
            self.errors.append(f"{number}: {error!r}")
            return
        self.acked_ms.append(time.time() * 1000)
        self.acked.append((done.result().offset, number))  # type: ignore[attr-defined]

    async def _read(self) -> None:
        client = Client(self._bootstrap, "our-consumer")
        await client.start()
        consumer = Consumer(client, self._group)
        await consumer.subscribe([self._topic], on_assigned=self._given)
        while not (self._ends.is_set() and (self.errors or len(self.read) >= self._sent)):
            for records in (await consumer.poll(POLL_MS)).values():
                self.read += [(each.offset, int(each.value or b"")) for each in records]
                await consumer.commit({TopicPartition(self._topic, 0): records[-1].offset + 1})
        await consumer.close()
        await client.close()

    def _given(self, partitions: Iterable[TopicPartition]) -> None:
        self.assigned += 1
