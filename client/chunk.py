"""Hands out what was fetched of a partition as records, decoded a piece at a time within a bound of memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..protocol import records
from ..protocol.errors import KafkaError
from ..protocol.records import CorruptBatch, Record, TooLargeToDecode
from .fetcher import FetchedBatches


class Chunk:
    """One partition's fetched batches on their way to the user, decoded a piece at a time when their turn comes.
    `position` is the offset after the last record handed over; once `is_empty`, the offset after the last batch.
    `epoch` is the leader epoch of the batch before `position`, -1 if it is not known."""

    __slots__ = (
        "_at",
        "_batch_at",
        "_batch_epoch",
        "_batches",
        "_decode_max_bytes",
        "_next_batch_at",
        "_piece",
        "_pieces",
        "epoch",
        "is_empty",
        "position",
        "tp",
    )

    def __init__(self, batches: FetchedBatches, decode_max_bytes: int) -> None:
        self.tp = batches.tp
        self.position, self.epoch = batches.from_offset, batches.from_epoch
        self.is_empty = False
        self._batches = batches
        self._decode_max_bytes = decode_max_bytes
        self._batch_at = self._next_batch_at = 0  # positions in the batches' bytes
        self._batch_epoch = -1
        self._pieces: Iterator[list[Record]] | None = None  # of the batch at _batch_at, None after its last one
        self._piece: list[Record] = []
        self._at = 0  # index of the next record in the piece

    def take(self, most: int) -> list[Record]:
        """The next records. Raises CorruptBatch if the first of them cannot be read, at each call."""
        taken: list[Record] = []
        try:
            while len(taken) < most and self._has_next():
                some = self._piece[self._at : self._at + most - len(taken)]
                self._at += len(some)
                self.position, self.epoch = some[-1].offset + 1, self._batch_epoch
                taken += some
        except KafkaError:
            if not taken:
                raise
        return taken

    def rest(self) -> FetchedBatches:
        """What was not returned yet, from the batch with the next record on."""
        is_begun = self._at < len(self._piece) or self._pieces is not None
        begin = self._batch_at if is_begun else self._next_batch_at
        return replace(
            self._batches,
            records=self._batches.records[begin:],
            from_offset=self.position,
            from_epoch=self.epoch,
        )

    def _has_next(self) -> bool:
        """Whether there is another record, which is then decoded; if not, all batches count as returned."""
        while self._at >= len(self._piece):
            if self._pieces is None and not self._begin_batch():
                self.is_empty, self.position = True, self._batches.next_offset
                self.epoch = self._batches.next_epoch
                return False
            assert self._pieces is not None
            self._piece, self._at = [], 0
            try:
                piece = next(self._pieces, None)
            except CorruptBatch as error:
                self._pieces, self._next_batch_at = None, self._batch_at  # the next call reads it again
                way = "; a larger decode_max_bytes takes it" if isinstance(error, TooLargeToDecode) else ""
                raise type(error)(f"{self.tp.topic}-{self.tp.partition}: {error.message}{way}") from error
            if piece is None:
                self._pieces = None
            else:
                self._piece = piece
        return True

    def _begin_batch(self) -> bool:
        found = next(records.walk(self._batches.records, self._next_batch_at), None)
        if found is None:
            return False
        begin, header = found
        self._batch_at, self._next_batch_at = begin, begin + header.size_bytes
        self._batch_epoch = header.partition_leader_epoch
        self._pieces = records.record_pieces(
            self._batches.records[begin : self._next_batch_at],
            from_offset=self.position,
            max_bytes=self._decode_max_bytes,
        )
        return True
