"""A reader under read_committed, of a few lines, and what the log itself says was committed.

The reader goes by what brokers tell it: the last stable offset and the list of aborted transactions. `committed_in`
goes by the markers in the log alone. Both must come to the same.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterable
from typing import Any, NamedTuple

from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import fetch
from isthmus.protocol.records import decode_batch

from .brokers import Cluster
from .history import Batch, batches_of
from .raw_reader import ANSWER_TIMEOUT_S, LOOK_AGAIN
from .wire import Wire, connect

READ_COMMITTED = 1
VERSION = 11
ATTRIBUTES = struct.Struct(">h")
PRODUCER = struct.Struct(">qh")
TRANSACTIONAL, CONTROL = 0x10, 0x20
ABORT, COMMIT = 0, 1


class Head(NamedTuple):
    """What a batch's header says of its transaction."""

    is_transactional: bool
    is_control: bool
    producer_id: int


def head_of(batch: Batch) -> Head:
    (attributes,) = ATTRIBUTES.unpack_from(batch.data, 21)
    producer_id, _ = PRODUCER.unpack_from(batch.data, 43)
    return Head(bool(attributes & TRANSACTIONAL), bool(attributes & CONTROL), producer_id)


def marker_of(batch: Batch) -> int | None:
    """COMMIT or ABORT; None where compaction has left the batch alone, for its producer's epoch."""
    records = decode_batch(batch.data)
    if not records:
        return None
    key = bytes(records[0].key or b"")
    return int.from_bytes(key[2:4], "big")


def committed_in(batches: Iterable[Batch]) -> list[tuple[int, bytes]]:
    """(offset, value) of all records that count, in order of offsets. Values are `application/transaction/…`.

    Raises AssertionError unless each transaction has one marker, which is its own.
    """
    found: list[tuple[int, bytes]] = []
    waiting: dict[int, list[tuple[int, bytes]]] = {}
    ended: dict[bytes, int] = {}  # by transaction: where its marker is
    for batch in batches:
        head = head_of(batch)
        if head.is_control:
            if (marker := marker_of(batch)) is None:
                continue
            told = waiting.pop(head.producer_id, [])
            names = list(dict.fromkeys(value.rpartition(b"/")[0] for _, value in told))
            assert len(names) <= 1, f"the marker at {batch.base_offset} ends all of {names}"
            for name in names:
                assert name not in ended, f"{name!r} has a marker at {ended[name]} and one at {batch.base_offset}"
                ended[name] = batch.base_offset
            if marker == COMMIT:
                found += told
            continue
        rows = [(record.offset, bytes(record.value or b"")) for record in decode_batch(batch.data)]
        if head.is_transactional:
            waiting.setdefault(head.producer_id, []).extend(rows)
        else:
            found += rows
    left = [rows for rows in waiting.values() if rows]
    assert not left, f"these have no marker: {left}"
    return sorted(found)


class CommittedReader:
    """position: the next offset. `read`: (offset, value) of all that it was given and that is not aborted.
    has_gaps: the log is compacted."""

    def __init__(self, cluster: Cluster, topic: str, partition: int, *, has_gaps: bool = False) -> None:
        self.position = 0
        self.read: list[tuple[int, bytes]] = []
        self._sim = cluster.sim
        self._cluster = cluster
        self._topic = topic
        self._partition = partition
        self._has_gaps = has_gaps
        self._stable = self._known = 0  # the last stable offset, and the high watermark that it was told with
        self.task = cluster.sim.machine(f"committed-{topic}-{partition}").start().outcome(self._run())

    async def _run(self) -> None:
        chance = self._sim.random
        while True:
            address, _ = await self._cluster.leader(self._topic, self._partition)
            try:
                wire = await connect(address)
            except OSError:
                await asyncio.sleep(chance.uniform(0.05, 0.5))
                continue
            try:
                while await self._fetch(wire):
                    pass
            except (ConnectionError, TimeoutError):
                self._sim.counters["reconnects"] += 1
            finally:
                wire.transport.abort()
            await asyncio.sleep(chance.uniform(0.02, 0.2))

    async def until(self, end: int, within_s: float) -> None:
        """Wait until it has read up to there."""
        await self._sim.until(lambda: self.task.done() or self.position >= end, "all is read", within_s)
        if self.task.done():
            self.task.result()

    async def _fetch(self, wire: Wire) -> bool:
        """False when the leader is to be looked for again."""
        asked = fetch.FetchPartition(
            partition=self._partition,
            fetch_offset=self.position,
            partition_max_bytes=self._sim.random.choice((1, 500, 1 << 20)),
        )
        request = fetch.Request(
            replica_id=-1,
            max_wait_ms=300,
            min_bytes=1,
            isolation_level=READ_COMMITTED,
            topics=[fetch.FetchTopic(topic=self._topic, partitions=[asked])],
        )
        answer = await asyncio.wait_for(wire.request(fetch.API, request, VERSION), ANSWER_TIMEOUT_S)
        if answer.error_code:
            return False
        row = answer.responses[0].partitions[0]
        where = f"{self._topic}-{self._partition} at offset {self.position}"
        if row.error_code:
            assert row.error_code in LOOK_AGAIN, f"a reader of {where} is told {ErrorCode(row.error_code).name}"
            return False
        stable = row.last_stable_offset
        assert 0 <= stable <= row.high_watermark, f"{where}: LSO {stable}, high watermark {row.high_watermark}"
        # A new leader may not know yet how far its log is committed.
        assert stable >= self._stable or row.high_watermark < self._known, (
            f"{where}: the last stable offset was {self._stable}, it is {stable}, of {row.high_watermark}"
        )
        if stable >= self._stable:
            self._stable, self._known = stable, row.high_watermark
        self._take(row, where)
        return True

    def _take(self, row: Any, where: str) -> None:
        aborted = sorted((each.first_offset, each.producer_id) for each in row.aborted_transactions or ())
        now_aborted: set[int] = set()
        for batch in batches_of(bytes(row.records or b"")):
            is_next = batch.base_offset <= self.position or self._has_gaps
            assert is_next and self.position <= batch.last_offset, f"a reader of {where} is given {batch.base_offset}"
            assert batch.last_offset < row.last_stable_offset, f"a reader of {where} is given {batch.last_offset}"
            while aborted and aborted[0][0] <= batch.last_offset:
                now_aborted.add(aborted.pop(0)[1])
            head = head_of(batch)
            if head.is_control:
                now_aborted.discard(head.producer_id)
            elif not (head.is_transactional and head.producer_id in now_aborted):
                for record in decode_batch(batch.data):
                    if record.offset >= self.position:
                        self.read.append((record.offset, bytes(record.value or b"")))
            self.position = batch.last_offset + 1
            self._sim.counters["batches_read"] += 1
