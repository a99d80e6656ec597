"""Decides which batches and markers of transactions compaction may drop, as it reads a log (KIP-98).

The records of an aborted transaction are dropped. A marker may be dropped when no batch of its transaction was read
any more. An abort marker that is kept is written to the new segment's transaction index.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Iterable

from ....protocol.records import BatchHeader, decode_batch
from ..log.index_files import AbortedTransaction
from ..log.transactions import ABORT, COMMIT

_CONTROL_KEY = struct.Struct(">hh")  # version, type


class CompactedTransactions:
    """Takes every batch in order, from the log's start or from later on: `take_data` for data, `take_control` for
    control batches. aborted: of the whole log."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = [(each.first_offset, each) for each in aborted]
        heapq.heapify(self._coming)
        self._aborted: dict[int, AbortedTransaction] = {}  # open at this point of the log, by producer
        self._with_data: dict[int, None] = {}  # producers with an open transaction of which a batch was read
        self._retained: list[AbortedTransaction] = []

    def _advance(self, offset: int) -> None:
        while self._coming and self._coming[0][0] <= offset:
            each = heapq.heappop(self._coming)[1]
            if each.last_offset >= offset:  # else it has ended before what is read: what follows is of later ones
                self._aborted.setdefault(each.producer_id, each)

    def take_data(self, header: BatchHeader) -> bool:
        """Take a data batch. True if it belongs to an aborted transaction."""
        self._advance(header.last_offset)
        if not header.is_transactional:
            return False
        self._with_data[header.producer_id] = None
        return header.producer_id in self._aborted

    def take_control(self, buf: memoryview, position: int, header: BatchHeader) -> bool:
        """Take a control batch. True if it is not needed any more: its transaction has no batch, or it has no record.

        Raises CorruptBatch.
        """
        self._advance(header.last_offset)
        records = decode_batch(buf, position)
        if not records:
            return True
        try:
            _, kind = _CONTROL_KEY.unpack_from(records[0].key or b"")
        except struct.error:
            return False
        if kind not in (ABORT, COMMIT):
            return False
        had_data = header.producer_id in self._with_data
        self._with_data.pop(header.producer_id, None)
        if kind == ABORT:
            aborted = self._aborted.pop(header.producer_id, None)
            if aborted is None:
                return True
            if had_data:
                self._retained.append(aborted)
        return not had_data

    def take_retained(self) -> list[AbortedTransaction]:
        """The aborted transactions, of those read since the last call, whose markers are kept."""
        taken, self._retained = self._retained, []
        return taken
