"""Fills the stores of tasks from their changelogs, all partitions at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from ...client import Admin, Client, Consumer, TopicPartition
from ..engine.checkpoint import MARKER, as_read
from ..engine.stores.store import Store
from ..engine.task import Task
from ..errors import ChangelogError
from .turns import Piece, Turns, in_pieces

POLL_MS = 500
STUCK_S = 120.0  # without a record or a decided transaction: longer than any transaction of a worker is open


class _Filling:
    """One changelog partition, and the store that it fills, as long as its task is here."""

    def __init__(self, tp: TopicPartition, store: Store, is_here: Callable[[], bool]) -> None:
        self.store = store
        self.is_here = is_here
        self.where = f"{tp.topic}-{tp.partition}"
        self.is_whole = True  # the last record so far is a marker: of no checkpoint is there only a part

    def take(self, piece: Piece) -> int:
        """The number of rows."""
        if not self.is_here():
            self.is_whole = True
            return 0
        rows, marker = as_read(piece.keys, piece.values, self.where)
        self.store.restore(rows, piece.next_offset, marker)
        if piece.keys:
            self.is_whole = piece.keys[-1] == MARKER
        return len(rows)


async def load(
    client: Client,
    tasks: Sequence[Task],
    changelog: Callable[[str], str],
    loaded: Callable[[int], None] = lambda rows: None,
    is_here: Callable[[Task], bool] = lambda task: True,
    begins: Callable[[Mapping[TopicPartition, int]], None] = lambda ends: None,
) -> None:
    """Fill the stores of tasks with what is committed; `Task.restored` is next. changelog: topic of a table. loaded:
    told of each number of rows. is_here: False once a task's stores are closed, as it was taken away meanwhile. begins:
    told where the changelogs end.

    Everything that is committed by now is in the result, also what is committed by a transaction that is still open:
    its end is waited for. Of each table there are whole checkpoints, also while the app writes more. Raises
    ChangelogError if the end does not come, and for what is no changelog of the app.
    """
    places: dict[TopicPartition, _Filling] = {}
    for task in tasks:
        for table, store in task.stores.items():
            tp = TopicPartition(changelog(table), task.partition)
            assert tp not in places, f"two tasks have {tp.topic}-{tp.partition}: {[str(each.id) for each in tasks]}"
            places[tp] = _Filling(tp, store, partial(is_here, task))
    if places:
        await _fill(client, places, loaded, begins)


async def _fill(
    client: Client,
    fillings: dict[TopicPartition, _Filling],
    loaded: Callable[[int], None],
    begins: Callable[[Mapping[TopicPartition, int]], None],
) -> None:
    loop = asyncio.get_running_loop()
    ends = {
        tp: offset for tp, (offset, *_) in (await Admin(client).list_offsets(dict.fromkeys(fillings, "latest"))).items()
    }
    begins(ends)
    consumer = Consumer(client, auto_offset_reset="earliest", isolation="read_committed")
    consumer.assign({tp: each.store.changelog_offset or None for tp, each in fillings.items()})
    waiting = {tp: end for tp, end in ends.items() if end > fillings[tp].store.changelog_offset}
    stuck_at, turns = loop.time() + STUCK_S, Turns()
    try:
        while waiting:
            for batches in await consumer.poll_batches(POLL_MS):
                for piece in in_pieces(batches):
                    loaded(fillings[batches.tp].take(piece))
                    await turns.give()
                stuck_at = loop.time() + STUCK_S
            for tp in [tp for tp, end in waiting.items() if (consumer.position(tp) or 0) >= end]:
                if fillings[tp].is_whole:  # else the app runs, and the rest of a checkpoint is still to be fetched
                    del waiting[tp]
            if waiting and loop.time() > stuck_at:
                tp, end = next(iter(waiting.items()))
                raise ChangelogError(
                    f"{tp.topic}-{tp.partition} was read up to offset {consumer.position(tp)} of {end}, and for "
                    f"{STUCK_S:.0f} s no further: a transaction is open there that does not end (see `isthmus "
                    "transaction list`), the partition has no leader, or its broker hangs"
                )
    finally:
        await consumer.close()
