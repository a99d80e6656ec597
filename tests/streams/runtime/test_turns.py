"""Long work in parts."""

import asyncio
from collections.abc import Generator

import pytest

from isthmus.client import FetchedBatches, TopicPartition
from isthmus.protocol import records
from isthmus.streams.runtime import turns
from isthmus.streams.runtime.turns import PIECE_ROWS, in_pieces, in_turns
from tests.running import in_loop, run_by


@run_by(in_loop)
async def test_steps_that_are_not_wanted_any_more_are_not_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TURN_S", 0.0)
    stores = dict.fromkeys(range(3))

    def steps() -> Generator[None, None, int]:
        for _ in stores:  # fails where it has changed
            yield
        return len(stores)

    assert await in_turns(steps()) == 3
    asyncio.get_running_loop().call_soon(stores.clear)
    assert await in_turns(steps(), lambda: bool(stores)) is None


def test_what_was_fetched_comes_in_pieces_that_leave_nothing_out() -> None:
    """Small batches come together, large ones are cut; the first may begin before what was asked for."""
    data, base = b"", 10
    for count in (3, 4, PIECE_ROWS - 7, 2 * PIECE_ROWS + 1, 5):
        rows = [(0, b"%d" % n, None, ()) for n in range(base, base + count)]
        data += bytes(records.build_batch(rows, base_offset=base))  # type: ignore[arg-type]
        base += count
    end = base + 2  # a marker of a transaction was last
    fetched = FetchedBatches(TopicPartition("t", 0), memoryview(data), 12, end, end, end)
    pieces = list(in_pieces(fetched))
    assert [key for piece in pieces for key in piece.keys] == [b"%d" % n for n in range(12, base)]
    assert [len(piece.keys) for piece in pieces] == [PIECE_ROWS - 2, PIECE_ROWS, PIECE_ROWS, 1, 5]
    firsts = [int(piece.keys[0] or b"") for piece in pieces]
    assert [piece.next_offset for piece in pieces] == [*firsts[1:], end]
    nothing = FetchedBatches(TopicPartition("t", 0), memoryview(b""), 12, 15, 15, 15)
    assert list(in_pieces(nothing)) == [([], [], 15)]
