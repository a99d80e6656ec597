"""A consumer of a few lines that reads by fetch sessions (KIP-227), as Java's does, and what must hold of its answers.

It names only the partitions that it has moved on in, holds some back for a while, and its limits leave room for little
at a time. Whatever is cut or killed: it is given each record once and in order, never one that a crash can take back,
nothing of what it has forgotten, and no mark that goes back.
"""

from __future__ import annotations

import asyncio
from typing import Any

from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import fetch, list_offsets
from isthmus.protocol.records import iter_records

from .hosts import Process, ProcessKilled
from .product import BrokerHost
from .runner import Simulation
from .wire import Wire, ask, connect

ANSWER_TIMEOUT_S = 20.0
NEW, NO_SESSION = 0, 0  # epoch, id
EARLIEST = -2
SESSION_LOST = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
)
AGAIN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE)


class LostAnswerError(Exception):
    """The connection went when the answer was on its way."""


class Deleted:
    """What an administrator deleted: offsets before `asked` may be gone, those before `told` are."""

    def __init__(self, partitions: int) -> None:
        self.asked = [0] * partitions
        self.told = [0] * partitions


class Reader:
    """A machine that runs one consumer. `read` has all that it was given, by partition and offset."""

    def __init__(
        self, sim: Simulation, name: str, host: BrokerHost, topic: str, partitions: int, deleted: Deleted
    ) -> None:
        chance = sim.random
        self.sim = sim
        self.name = name
        self.host = host
        self.topic = topic
        self.partitions = range(partitions)
        self.deleted = deleted
        self.max_bytes = chance.choice((1, 1, 400, 1 << 20))
        self.partition_max_bytes = chance.choice((1, 1 << 20))
        self.min_bytes = chance.choice((0, 1, 1, 300))
        self.max_wait_ms = chance.choice((50, 500, 3000))
        self.holds_back = True
        self.loses_answers = chance.random() < 0.4
        self.wanted = list(self.partitions)
        self.positions = [0] * partitions
        self.high_watermarks = [-1] * partitions
        self.log_starts = [-1] * partitions
        self.read: dict[tuple[int, int], bytes] = {}
        self.session_id, self.epoch = NO_SESSION, NEW
        self.in_session: dict[int, int] = {}  # fetch offset by partition, as the broker knows it
        self.running = True
        self.machine = sim.machine(name)
        self.keeper = sim.loop.create_task(self._keep())

    def check(self) -> None:
        """Raises what went wrong."""
        if self.keeper.done():
            self.keeper.result()

    async def _keep(self) -> None:
        process = self.machine.start()
        try:
            await process.outcome(self._live(process))
        except ProcessKilled:
            pass

    async def _live(self, process: Process) -> None:
        self.random = process.runtime.random
        while self.running:
            try:
                wire = await connect(self.host.address)
            except OSError:
                await asyncio.sleep(self.random.uniform(0.05, 0.5))
                continue
            try:
                while self.running:
                    await self._fetch(wire)
            except (ConnectionError, TimeoutError):
                self.sim.counters["reader_reconnects"] += 1
                if self.random.random() < 0.5:
                    self.epoch = NEW  # as Java's does; else it asks again under the same epoch, and may be refused
            except LostAnswerError:
                self.sim.counters["lost_answers"] += 1
            finally:
                wire.transport.abort()

    async def _fetch(self, wire: Wire) -> None:
        if self.holds_back and self.random.random() < 0.1:
            self.wanted = sorted(
                self.random.sample(list(self.partitions), self.random.randint(1, len(self.partitions)))
            )
        elif not self.holds_back:
            self.wanted = list(self.partitions)
        asked = {index: self.positions[index] for index in self.wanted}
        begins = self.epoch == NEW
        rows = [
            fetch.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=self.partition_max_bytes)
            for index, offset in asked.items()
            if begins or self.in_session.get(index) != offset
        ]
        gone = [] if begins else [index for index in self.in_session if index not in asked]
        request = fetch.Request(
            max_wait_ms=self.max_wait_ms,
            min_bytes=self.min_bytes,
            max_bytes=self.max_bytes,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=[fetch.FetchTopic(topic=self.topic, partitions=rows)] if rows else [],
            forgotten_topics_data=[fetch.ForgottenTopic(topic=self.topic, partitions=gone)] if gone else [],
        )
        told = list(self.deleted.told)
        answer = await asyncio.wait_for(wire.request(fetch.API, request), ANSWER_TIMEOUT_S)
        if self.loses_answers and self.random.random() < 0.1:
            raise LostAnswerError
        if answer.error_code in SESSION_LOST:
            self.sim.counters["sessions_lost"] += 1
            self.epoch = NEW
            return
        assert not answer.error_code, f"{self.name} was told {ErrorCode(answer.error_code).name}"
        self.session_id = answer.session_id
        self.epoch = self.epoch + 1 if answer.session_id else NEW
        self.in_session = asked
        self.sim.counters["sessions"] += begins and answer.session_id != NO_SESSION
        found = {row.partition_index: row for topic in answer.responses for row in topic.partitions}
        assert not begins or found.keys() == asked.keys(), f"{self.name} was told of {list(found)} of {list(asked)}"
        self.sim.counters["left_out"] += self._is_cut_short(found)
        for index, row in found.items():
            assert index in asked, f"{self.name} is told of {index}, and reads {list(asked)}"
            await self._take(index, row, told[index])
        if not found:
            await asyncio.sleep(self.random.uniform(0.0, 0.05))

    def _is_cut_short(self, found: dict[int, Any]) -> bool:
        """Whether a limit left out a partition that this reader has not read to its end."""
        given = {index for index, row in found.items() if row.records}
        return bool(given) and any(
            index not in given and 0 <= self.positions[index] < self.high_watermarks[index] for index in self.wanted
        )

    async def _take(self, index: int, row: Any, told_start: int) -> None:
        code = row.error_code
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            assert self.positions[index] < self.deleted.asked[index], f"{index}/{self.positions[index]} is out of range"
            self.positions[index] = await earliest(self.host, self.topic, index)
            self.sim.counters["resets"] += 1
            return
        if code:
            assert code in AGAIN, f"{self.name} was told {ErrorCode(code).name} of {index}"
            self.epoch = NEW
            return
        known = self.high_watermarks[index]
        assert row.high_watermark >= known, f"{index}: the high watermark was {known}, it is {row.high_watermark}"
        assert row.log_start_offset >= told_start, f"{index} begins at {row.log_start_offset}, {told_start} was told"
        self.high_watermarks[index] = row.high_watermark
        self.log_starts[index] = row.log_start_offset
        for record in iter_records(bytes(row.records or b"")):
            if record.offset < self.positions[index]:
                continue  # of a batch that the position is within
            at = self.positions[index]
            assert record.offset == at or at < self.deleted.asked[index], f"{index}: {record.offset} comes after {at}"
            assert record.offset < row.high_watermark, f"{index}/{record.offset} is past {row.high_watermark}"
            self.read[index, record.offset] = bytes(record.value or b"")
            self.positions[index] = record.offset + 1


async def earliest(host: BrokerHost, topic: str, index: int) -> int:
    """Where a partition begins, by whatever life of the broker answers."""
    asked = list_offsets.ListOffsetsPartition(partition_index=index, timestamp=EARLIEST)
    request = list_offsets.Request(
        replica_id=-1, topics=[list_offsets.ListOffsetsTopic(name=topic, partitions=[asked])]
    )
    while True:
        [row] = (await ask(host.address, list_offsets.API, request)).topics[0].partitions
        if not row.error_code:
            return int(row.offset)
        await asyncio.sleep(0.1)
