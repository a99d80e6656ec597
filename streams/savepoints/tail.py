"""Which checkpoint of a task is saved while its app may run: one that all its tables have. Pure but for the files.

A changelog is compacted: an old row may be gone because a newer one was written after it. So a table can be cut at a
marker only if nothing before the marker was removed for the sake of what came after it. That holds for the last marker
there was when everything before it had been read, and for those that were written since. The table is read as it grows
until all tables of the task have one of these in common. Each checkpoint has a marker in every table of its task, and
they become readable at about the same time, so that this is soon.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ...client import FetchedBatches, TopicPartition
from ...protocol import records
from ..engine.checkpoint import MARKER, Marker, as_read
from ..errors import AppError, ChangelogError
from .format import Part, PartWriter, Snapshot

CUTS_MAX = 1_000  # checkpoints of a table to choose from

Rows = list[tuple[bytes, bytes | None]]


class Cut(NamedTuple):
    """A marker, and what is written up to it."""

    marker: Marker
    raw: bytes
    snapshot: Snapshot


class Tail:
    """One partition of a table's changelog, on its way into a file. end: up to which offset it must be read before
    anything may be chosen."""

    def __init__(self, app: str, table: str, tp: TopicPartition, writer: PartWriter, end: int) -> None:
        self.app = app
        self.table = table
        self.tp = tp
        self.end = end
        self.position = 0
        self._writer = writer
        self._where = f"{tp.topic}-{tp.partition}"
        self._is_at_end = False
        self._cuts: deque[Cut] = deque(maxlen=1)

    @property
    def is_read(self) -> bool:
        return self.position >= self.end

    def follow(self, end: int) -> None:
        """Everything below the first end was read; the log ends here now. Once that is read, too, cuts are kept."""
        self.end, self._is_at_end = end, True
        self._keep()

    def _keep(self) -> None:
        if self._is_at_end and self.is_read and self._cuts.maxlen == 1:
            self._cuts = deque(self._cuts, maxlen=CUTS_MAX)

    def take(self, batches: FetchedBatches) -> int:
        """The number of rows."""
        timestamps, keys, values = records.decode_lists(batches.records, from_offset=batches.from_offset)[1:]
        count = 0
        for rows, last, marker in _segments(timestamps, keys, values, self._where):
            newest = dict(rows)
            self._writer.write([last] * len(newest), list(newest), list(newest.values()))
            count += len(rows)
            if marker is not None:
                self._cuts.append(Cut(Marker.decode(marker, self.app, self._where), marker, self._writer.snapshot()))
        self.position = batches.next_offset
        self._keep()
        return count

    @property
    def cuts(self) -> Sequence[Cut]:
        """Checkpoints that may be chosen, in order; none before everything is read."""
        return () if self._cuts.maxlen == 1 else tuple(self._cuts)

    @property
    def is_settled(self) -> bool:
        """Whether all is read, so that `cuts` has what there is."""
        return self._cuts.maxlen != 1

    def close(self, number: int | None, *, runs: bool) -> Part:
        """The file, cut at this checkpoint. None: of a table that has none: a global one, or one without rows. runs:
        whether its app does. Raises AppError for a global table of one that does: its rows are of many tasks."""
        if number is None:
            if runs and self._writer.snapshot().records:
                raise AppError(
                    f"app {self.app} runs, and has a global table, {self.table}: its rows are of checkpoints of many "
                    "tasks. Stop its workers first"
                )
            return self._writer.close(self.tp.partition)
        cut = next(each for each in self._cuts if each.marker.number == number)
        self._writer.cut(cut.snapshot)
        return self._writer.close(self.tp.partition, cut.raw)

    def abandon(self) -> None:
        self._writer.abandon()


def common(tails: Mapping[str, Tail]) -> dict[str, int | None] | None:
    """The checkpoint at which each table of one partition is cut, by table; None: none has been read yet that all
    tables of a task have. A table that its task does not have any more is cut at its own last one.

    Raises ChangelogError where a task had a table of which there is no changelog now.
    """
    if not all(each.is_settled for each in tails.values()):
        return None
    chosen: dict[str, int | None] = {name: None for name, each in tails.items() if not each.cuts}
    waiting = {name: tail.cuts for name, tail in tails.items() if tail.cuts}
    while waiting:
        newest = max((cuts[-1].marker for cuts in waiting.values()), key=lambda marker: marker.number)
        together = [name for name in newest.tables if name in waiting]
        before = [name for name in newest.tables if name in chosen]
        if any(chosen[name] is None for name in before):
            return None  # its first marker is to be read yet
        missing = [name for name in newest.tables if name not in tails]
        if missing and not before:  # else the task has gone on since without this table
            where = next(iter(tails.values())).tp.partition
            raise ChangelogError(
                f"app {newest.app} has no changelog of table {missing[0]}, which checkpoint {newest.number} of "
                f"partition {where} has: the topic was deleted"
            )
        numbers = [{cut.marker.number for cut in waiting[name]} for name in together]
        shared = set.intersection(*numbers)
        if not shared:
            return None
        chosen.update(dict.fromkeys(together, max(shared)))
        for name in together:
            del waiting[name]
    return chosen


def _segments(
    timestamps: Sequence[int], keys: Sequence[bytes | None], values: Sequence[bytes | None], where: str
) -> Iterator[tuple[Rows, int, bytes | None]]:
    """Rows up to each marker, the time of the last one, and the marker; None behind the last one."""
    start = 0
    while start < len(keys):
        try:
            stop = keys.index(MARKER, start) + 1
        except ValueError:
            stop = len(keys)
        rows, marker = as_read(keys[start:stop], values[start:stop], where)
        yield rows, timestamps[stop - 1], marker
        start = stop
