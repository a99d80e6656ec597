"""The log of the model of replication: records in memory, of which a power cut loses what is not on disk. Its leader
epochs are the product's.

A record is (leader epoch, value). On the wire it is two bytes, after the offset of the first in eight.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from isthmus.core_broker.storage.log._producers import ProducerStates
from isthmus.core_broker.storage.log._tail import LogTail
from isthmus.core_broker.storage.log.append import Origin
from isthmus.core_broker.storage.log.epochs import LeaderEpochs
from isthmus.protocol.errors import ErrorCode, KafkaError

Record = tuple[int, int]


def packed(offset: int, records: tuple[Record, ...]) -> bytes:
    return offset.to_bytes(8) + bytes(each for record in records for each in record)


def unpacked(data: bytes) -> tuple[Record, ...]:
    return tuple(zip(data[8::2], data[9::2], strict=True))


def tail_without_transactions() -> LogTail:
    tail = LogTail.__new__(LogTail)
    tail.producers = ProducerStates()
    tail.log_start_offset = 0
    return tail


class MemoryLog:
    """What replication asks of a log. Each record is a batch of its own, and a read gives one of them.

    recovery_point: all before it is on disk. A start syncs what it finds.
    """

    tail = tail_without_transactions()
    ranges = failure = None
    needs_flush = False
    log_start_offset = 0

    def __init__(self, records: tuple[Record, ...] = ()) -> None:
        self.records = records
        self.recovery_point = len(records)
        self.epochs = LeaderEpochs()
        for offset, (epoch, _) in enumerate(records):
            self.epochs.assign(epoch, offset)

    def copy(self) -> MemoryLog:
        made = MemoryLog.__new__(MemoryLog)
        made.records, made.recovery_point, made.epochs = self.records, self.recovery_point, LeaderEpochs()
        made.epochs._epochs, made.epochs._starts = list(self.epochs._epochs), list(self.epochs._starts)
        made.epochs.latest = self.epochs.latest
        return made

    @property
    def log_end_offset(self) -> int:
        return len(self.records)

    @property
    def latest_epoch(self) -> int:
        return self.epochs.latest

    def append(self, data: bytes, origin: Origin, leader_epoch: int, *_: Any) -> Any:
        end, records = len(self.records), unpacked(data)
        if origin is Origin.REPLICATION:
            if int.from_bytes(data[:8]) != end:
                raise KafkaError.of(ErrorCode.CORRUPT_MESSAGE, "a gap")
        else:
            records = tuple((leader_epoch, value) for _, value in records)
        for offset, (epoch, _) in enumerate(records, end):
            self.epochs.assign(epoch, offset)
        self.records += records
        return SimpleNamespace(next_offset=len(self.records), size_bytes=0, records_count=len(records))

    def read(self, offset: int, *_: Any) -> Any:
        if offset > len(self.records):
            raise KafkaError.of(ErrorCode.OFFSET_OUT_OF_RANGE, "past the end")
        found = [packed(offset, self.records[offset : offset + 1])] if offset < len(self.records) else []
        return SimpleNamespace(ranges=found)

    def assign_epoch(self, epoch: int) -> None:
        self.epochs.assign(epoch, len(self.records))

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return self.epochs.end_offset_for(epoch, len(self.records))

    async def truncate_to(self, offset: int, last_check: Callable[[], None]) -> None:
        last_check()
        self.records = self.records[:offset]
        self.recovery_point = min(self.recovery_point, len(self.records))
        self.epochs.truncate_end(len(self.records))

    async def sync(self) -> None:
        self.recovery_point = len(self.records)

    def configure(self, config: Any) -> None:
        pass
