"""Long work in parts, so that other work of the loop gets on: a worker that gives its group no sign of life is removed
from it, and one that answers nobody looks dead.

One fetch of a changelog has some hundred thousand rows where they are short, which take seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple, TypeVar

from ...client import FetchedBatches
from ...protocol import records

TURN_S = 0.02  # until other work of the loop gets on,
TURNS = 8  # by so many turns of it: a request and its answer take several
PIECE_ROWS = 1_000

T = TypeVar("T")


class Turns:
    """Of one piece of work, from when this is made."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._until = self._loop.time() + TURN_S

    async def give(self) -> None:
        """Let other work get on, if this one has had its time."""
        if self._loop.time() >= self._until:
            for _ in range(TURNS):
                await asyncio.sleep(0)
            self._until = self._loop.time() + TURN_S


async def in_turns(steps: Generator[None, None, T], are_wanted: Callable[[], bool] = lambda: True) -> T | None:
    """What the steps return; None once they are not wanted any more, and none was taken since."""
    turns = Turns()
    while are_wanted():
        try:
            next(steps)
        except StopIteration as end:
            found: T = end.value
            return found
        await turns.give()
    return None


class Piece(NamedTuple):
    """Some records that follow each other. next_offset: behind them."""

    keys: list[bytes | None]
    values: list[bytes | None]
    next_offset: int


def in_pieces(batches: FetchedBatches) -> Iterator[Piece]:
    """What was fetched of a partition, PIECE_ROWS records at a time; one piece at least. Raises CorruptBatch."""
    *some, last = _about(batches, PIECE_ROWS)
    for begin, end, next_offset in (*some, (last[0], last[1], batches.next_offset)):
        offsets, _, keys, values = records.decode_lists(batches.records[begin:end], from_offset=batches.from_offset)
        cuts = range(PIECE_ROWS, len(keys), PIECE_ROWS)
        for first, cut in zip((0, *cuts), (*cuts, len(keys)), strict=True):
            at = offsets[cut] if cut < len(keys) else next_offset
            yield Piece(keys[first:cut], values[first:cut], at)


def _about(batches: FetchedBatches, count: int) -> Iterator[tuple[int, int, int]]:
    """Whole record batches with so many records or more: where they begin and end in the data, and the offset behind
    them. If there are none, so it is said once."""
    begin = end = records_count = 0
    for at, header in records.walk(batches.records):
        end = at + header.size_bytes
        records_count += header.records_count
        if records_count >= count:
            yield begin, end, header.next_offset
            begin, records_count = end, 0
    if begin < end or not end:
        yield begin, end, batches.next_offset
