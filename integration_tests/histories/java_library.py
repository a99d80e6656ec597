"""Kafka's own Java client behind the histories' interfaces: one process (java/Worker.java) has the clients of a
history, and is told what to do a line at a time."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from integration_tests.brokers import die_with_parent
from integration_tests.histories.libraries import POLL_S, REQUEST_S, SESSION_S, Records
from integration_tests.histories.transactional import ANSWER_S, DELIVERY_S, TIMEOUT_S, Doomed, Later, Over
from integration_tests.peers.peers import java_command

SOURCE = Path(__file__).with_name("java") / "Worker.java"
HEAP = "256m"
JVM = ("-XX:TieredStopAtLevel=1",)
LINE_BYTES_MAX = 64 << 20
START_S = 60.0  # it is compiled first

# Classes of exceptions, by what a producer may do after them; any other has ended the producer.
FENCED = ("ProducerFencedException", "InvalidProducerEpochException")
ENDING = (*FENCED, "ApplicationRecoverableException", "OutOfOrderSequenceException", "IllegalStateException")
REPEATED = ("TimeoutException", "InterruptException")

COMMON = {
    "request.timeout.ms": int(REQUEST_S * 1000),
    "metadata.max.age.ms": 2000,
    "reconnect.backoff.max.ms": 500,
    "retry.backoff.max.ms": 500,
    "socket.connection.setup.timeout.ms": int(REQUEST_S * 1000),
}


class JavaError(Exception):
    """classes: of the exception, from its own up."""

    def __init__(self, classes: Sequence[str], text: str) -> None:
        super().__init__(f"{classes[0]}: {text}")
        self.classes = classes


def _ended() -> JavaError:
    return JavaError(["Ended"], "the Java process has ended")


class Java:
    """The process. Ends with ours."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._ids = itertools.count()
        self._reading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        command = java_command(str(SOURCE), profile="broker", heap=HEAP, log="OFF", jvm=JVM)
        self._process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_BYTES_MAX,
            preexec_fn=die_with_parent,
        )
        self._reading = asyncio.create_task(self._read(self._process))

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout
        while line := await process.stdout.readline():
            answer = json.loads(line)
            future = self._answers.pop(answer["id"], None)
            if future is None or future.done():  # given up, or a send that called back and raised, too
                continue
            if "error" in answer:
                future.set_exception(JavaError(answer["error"], answer["text"]))
            else:
                future.set_result(answer["told"])
        for future in self._answers.values():
            if not future.done():
                future.set_exception(_ended())

    def ask(self, client: str, do: str, **fields: Any) -> asyncio.Future[Any]:
        """A future of what it tells; JavaError."""
        assert self._process and self._process.stdin
        number = next(self._ids)
        future = asyncio.get_running_loop().create_future()
        if self._process.returncode is not None:
            future.set_exception(_ended())
            return future
        self._answers[number] = future
        line = json.dumps({"id": number, "client": client, "do": do, **fields})
        self._process.stdin.write(line.encode() + b"\n")
        return future

    async def close(self) -> None:
        assert self._process and self._reading
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        await self._reading


class JavaWriter:
    def __init__(self, java: Java, bootstrap: str, name: str, transactional_id: str) -> None:
        self._java = java
        self._name = name
        self._options = {
            "bootstrap.servers": bootstrap,
            "client.id": name,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": int(TIMEOUT_S * 1000),
            "delivery.timeout.ms": int(DELIVERY_S * 1000),
            "max.block.ms": int(ANSWER_S * 1000),
            "linger.ms": 5,
            **COMMON,
        }

    async def start(self) -> None:
        await self._java.ask(self._name, "producer", options=self._options)
        await self._step("start")

    async def begin(self) -> None:
        await self._step("begin")

    async def send(self, topic: str, partition: int, value: str) -> asyncio.Future[int]:
        return self._java.ask(self._name, "send", topic=topic, partition=partition, value=value)

    async def offsets(self, topic: str, positions: Mapping[int, int], group: Any) -> None:
        await self._step("offsets", topic=topic, positions=positions, group=group)

    async def commit(self) -> None:
        await self._step("commit")

    async def abort(self) -> None:
        await self._step("abort")

    async def _step(self, do: str, **fields: Any) -> None:
        try:
            await self._java.ask(self._name, do, **fields)
        except JavaError as error:
            if any(each in REPEATED for each in error.classes):
                raise Later(str(error)) from None
            if "KafkaException" not in error.classes or any(each in ENDING for each in error.classes):
                raise Over(str(error), any(each in FENCED for each in error.classes)) from None
            raise Doomed(str(error)) from None

    async def close(self) -> None:
        await self._java.ask(self._name, "close")


class JavaReader:
    def __init__(
        self, java: Java, bootstrap: str, topic: str, name: str, group: str, rack: str, isolation: str
    ) -> None:
        self._java = java
        self._topic = topic
        self._name = name
        self.span = 0
        self._options = {
            "bootstrap.servers": bootstrap,
            "client.id": name,
            "client.rack": rack,
            "isolation.level": isolation,
            "enable.auto.commit": "false",
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "org.apache.kafka.clients.consumer.RangeAssignor",
            "session.timeout.ms": int(SESSION_S * 1000),
            "heartbeat.interval.ms": 500,
            "default.api.timeout.ms": int(ANSWER_S * 1000),
            "fetch.max.wait.ms": 100,
            **COMMON,
            **({"group.id": group} if group else {}),
        }

    async def start(self) -> None:
        await self._java.ask(self._name, "consumer", topic=self._topic, options=self._options)

    async def subscribe(self) -> None:
        self.span = await self._java.ask(self._name, "subscribe")

    async def assign(self, positions: Mapping[int, int]) -> None:
        self.span = await self._java.ask(self._name, "assign", topic=self._topic, positions=positions)

    async def rewind(self, positions: Mapping[int, int]) -> None:
        self.span = await self._java.ask(self._name, "rewind", topic=self._topic, positions=positions)

    async def poll(self) -> Records:
        told = await self._java.ask(self._name, "poll", ms=int(POLL_S * 1000))
        self.span = told["span"]
        return {
            int(partition): [(offset, value) for offset, value in records]
            for partition, records in told["records"].items()
        }

    async def commit(self, positions: Mapping[int, int]) -> None:
        await self._java.ask(self._name, "commit", topic=self._topic, positions=positions)

    async def committed(self, partitions: Sequence[int]) -> dict[int, int]:
        told = await self._java.ask(self._name, "committed", topic=self._topic, positions=dict.fromkeys(partitions, 0))
        return {int(partition): offset for partition, offset in told.items()}

    async def metadata(self) -> Any:
        await self._java.ask(self._name, "metadata")
        return self._name

    async def close(self) -> None:
        await self._java.ask(self._name, "close")
