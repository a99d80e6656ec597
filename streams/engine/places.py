"""Places: which records of the changelog have a task's rows, where a run writes the next ones, and which to remove.

`changelog.py` says why. A run writes each row to the slot that does not hold the row's last value, so
that it needs no tombstones of its own but for rows that are deleted. Rows of earlier runs stay where they are until
this run writes them again. If more than RUNS_MAX runs have rows that are needed, the first checkpoint writes the rows
of the runs with the fewest again. So a start costs a small part of the table, a row has a small number of records, and
an end marker names a small number of runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from .changelog import BEGIN, RUN_BYTES, ChangelogRecord, Restored, place, row_record

RUNS_MAX = 16  # number of earlier runs whose rows may stay in place


class Places:
    """The places of one run. `earlier`: previous runs with rows that are needed -> their last valid checkpoint."""

    def __init__(self, run: bytes) -> None:
        self.earlier: dict[bytes, int] = {}
        self._own = (place(run, 0), place(run, 1))
        self._slots: dict[bytes, int] = {}  # rows written by this run -> slot of the last valid value
        self._inherited: dict[bytes, tuple[bytes, ...]] = {}  # rows not written by it -> places in earlier runs
        self._rewrites: dict[bytes, bytes] = {}  # for the first checkpoint
        self._leftovers: tuple[list[bytes], list[bytes]] = [], []  # what is to go after the first checkpoint
        self._written: dict[bytes, tuple[int, bool]] = {}  # rows of the checkpoint under way -> slot, whether deleted

    def take_over(self, restored: Restored) -> None:
        """The state with which this run begins."""
        needed = Counter(_run(where) for where in restored.newest.values())
        self.earlier = {run: last for run, last in restored.runs.items() if needed[run]}
        too_many = {run for run, _ in needed.most_common()[RUNS_MAX:]}
        superseded: list[bytes] = []
        deleted: list[bytes] = []
        few: dict[tuple[bytes, ...], tuple[bytes, ...]] = {}  # one shared object for all rows with the same places
        for key, where in restored.newest.items():
            others = restored.others.get(key, ())
            if key in restored.rows:
                run = _run(where)
                if run in too_many:
                    self._rewrites[key] = restored.rows[key]
                superseded += [other + key for other in others if _run(other) != run]
                places = (where, *(other for other in others if _run(other) == run))
                self._inherited[key] = few.setdefault(places, places)
            else:
                superseded += [other + key for other in others]
                deleted.append(where + key)
        for key, others in restored.others.items():
            if key not in restored.newest:
                superseded += [other + key for other in others]
        own = _run(self._own[0])
        superseded += [key for key in restored.markers if key[len(BEGIN) :][:RUN_BYTES] != own]
        self._leftovers = superseded, deleted

    def write(self, changes: Iterable[tuple[bytes, bytes | None]], number: int) -> list[ChangelogRecord]:
        """Rows of the next checkpoint. changes: row key, value (None: deleted). The previous one must be valid."""
        rows = []
        for key, value in {**self._rewrites, **dict(changes)}.items():
            held = self._slots.get(key)
            if value is None and held is None and key not in self._inherited:
                continue  # the log has no record of it
            slot = 0 if held is None else 1 - held
            self._written[key] = slot, value is None
            rows.append(row_record(self._own[slot], key, value, number))
        self._rewrites = {}
        return rows

    def confirm(self) -> tuple[list[ChangelogRecord], list[ChangelogRecord]]:
        """The checkpoint that `write` began counts. Gives tombstones for what is not needed any more, in two parts.

        The second part is written once the first is acknowledged. It removes the values that say that a row was
        deleted, and these must outlive the values that they supersede.
        """
        superseded, deleted = self._leftovers
        self._leftovers = [], []
        for key, (slot, is_deleted) in self._written.items():
            superseded += [where + key for where in self._inherited.pop(key, ())]
            if is_deleted:
                if key in self._slots:
                    superseded.append(self._own[1 - slot] + key)
                    del self._slots[key]
                deleted.append(self._own[slot] + key)
            else:
                self._slots[key] = slot
        self._written = {}
        return [ChangelogRecord(key) for key in superseded], [ChangelogRecord(key) for key in deleted]


def _run(where: bytes) -> bytes:
    return where[len(BEGIN) :][:RUN_BYTES]
