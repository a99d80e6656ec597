"""Joins of two streams whose events belong together if they are near in time.

A left event at time t is joined with each right event of its key in [t - before, t + after]. Both are kept for as long
as another may come. Of `left` and `outer` joins, what has no partner is given once none can come any more (KIP-633):
so an event is given either with each of its partners or once without one, never both. That differs from Kafka, where a
partner that comes after such a result gives a second one.

An event is late if the time in which it could have been given without a partner is over: t + after + grace for a left
event, t + before + grace for a right one. A row is (key, timestamp, number) -> [packed value, whether it had a
partner].
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any

from ...errors import AppError
from ..event import NO_WATERMARK, Event
from ..placement import BY_FIRST
from ..steps import in_steps
from ..stores.store import Store
from ..tables import TableSpec
from .keeping import pack, unpack
from .operator import LATE, SKIPPED, Context, Failed, Outputs, derived, raise_failed, unusable_key

INNER, LEFT, OUTER = "inner", "left", "outer"
_FIRST, _LAST = -1, 1 << 62  # numbers below and above all


@dataclass(frozen=True)
class JoinWindows:
    """How far a right event may be before and after a left one. before_ms + after_ms may not be negative, each may be:
    a right event at least 5 s after the left one has before_ms = -5000."""

    before_ms: int
    after_ms: int
    grace_ms: int = 0

    def __post_init__(self) -> None:
        if self.before_ms + self.after_ms < 0:
            raise AppError(
                f"a join from {self.before_ms} ms before to {self.after_ms} ms after has no time in which events match"
            )
        if self.grace_ms < 0:
            raise AppError(f"a grace of {self.grace_ms} ms: it cannot be negative")


class StreamJoin:
    """Ports: left and right; with `alone`, where a stream is joined with itself, only the first. Outputs: what `value`
    returns for both values, None in place of one that is missing; and the late events.

    A result has the greater timestamp of both, and the position of the event that came later. What has no partner has
    its own timestamp and no position, since time caused it. Events without value are skipped; those without key have no
    partner, so they are given at once, or are skipped.
    """

    outputs = 2

    def __init__(
        self,
        name: str,
        windows: JoinWindows,
        value: Callable[[Any, Any], Any],
        how: str = INNER,
        alone: bool = False,
    ) -> None:
        self.name = name
        self.windows = windows
        self.value = value
        self.how = how
        self.specs = tuple(TableSpec(f"{name}-{side}", placement=BY_FIRST) for side in ("left", "right"))
        self.counts = {LATE: 0, SKIPPED: 0}
        self._alone = alone
        self._given_alone = (how in (LEFT, OUTER), how == OUTER)  # left, right
        before, after, grace = windows.before_ms, windows.after_ms, windows.grace_ms
        # By side: how far the others may be before and after, and the watermark after its time at which it has none.
        self._reach = ((before, after), (after, before))
        self._close_ms = (max(after, 0) + grace + 1, max(before, 0) + grace + 1)
        self._keep_ms = max(before, 0) + max(after, 0) + grace + 1
        waits = [self._close_ms[side] for side in (0, 1) if self._given_alone[side]]
        self.hold_ms = max(waits, default=0)
        self._times: tuple[dict[Any, list[tuple[int, int]]], ...] = ({}, {})  # key -> (timestamp, number), in order
        self._due: list[tuple[int, int, int, tuple[Any, int, int], bool]] = []  # a heap; the last says: only if alone
        self._number = 0
        self._watermark_ms = NO_WATERMARK
        self._partition = 0
        self._failed: Failed = raise_failed

    def open(self, context: Context) -> None:
        self._stores: tuple[Store, ...] = tuple(context.store(spec.name) for spec in self.specs)
        self._partition, self._failed = context.partition, context.failed

    def read(self) -> Iterator[None]:
        for side, store in enumerate(self._stores):
            for some in in_steps(store.rows.items()):
                for where, (_, matched) in some:
                    self._index(side, where, bool(matched))
                yield
            for times in self._times[side].values():
                times.sort()
        heapify(self._due)

    def process(self, port: int, events: list[Event]) -> Outputs:
        found: list[Event] = []
        late: list[Event] = []
        sides = (0, 1) if self._alone else (port,)
        close = self._close_ms[port]
        for event in events:
            if event.watermark_ms > self._watermark_ms:
                self._advance(event.watermark_ms, found)
            if event.value is None or (event.key is None and not self._given_alone[port]):
                self.counts[SKIPPED] += 1
                continue
            if event.timestamp_ms + close <= self._watermark_ms:
                late.append(event)
                continue
            try:
                self._join(sides, event, found)
            except Exception as error:
                self._failed(self.name, event, error)
        self.counts[LATE] += len(late)
        return found, late

    def advance(self, watermark_ms: int) -> Outputs:
        found: list[Event] = []
        if watermark_ms > self._watermark_ms:
            self._advance(watermark_ms, found)
        return found, []

    def tick(self, wall_ms: int) -> Outputs:
        return [], []

    def _join(self, sides: tuple[int, ...], event: Event, found: list[Event]) -> None:
        """Give an event with its partners, and keep it. Raises what `value` raises; then nothing has changed."""
        if event.key is None:
            found += [derived(event, self._joined(side, event.value, None), hold_ms=self.hold_ms) for side in sides]
            return
        before, after = self._reach[0]
        meets_itself = self._alone and before >= 0 and after >= 0
        met = [self._met(side, event, meets_itself and side == 1) for side in sides]
        for side, (results, partners) in zip(sides, met, strict=True):
            found += results
            for where, kept in partners:
                self._stores[1 - side].set(where, [kept, 1])
            self._keep(side, event, bool(results) or meets_itself or not self._given_alone[side])

    def _met(self, side: int, event: Event, meets_itself: bool) -> tuple[list[Event], list[tuple[Any, Any]]]:
        """The results of an event with its partners, and those of these that had none. meets_itself: it is one of them,
        and is not kept yet."""
        at, value, other = event.timestamp_ms, event.value, 1 - side
        before, after = self._reach[side]
        try:
            times = self._times[other].get(event.key, ())
        except TypeError:
            raise unusable_key(event) from None
        low, high = bisect_left(times, (at - before, _FIRST)), bisect_right(times, (at + after, _LAST))
        rows, results, partners = self._stores[other].rows, [], []
        for timestamp_ms, number in times[low:high]:
            where = event.key, timestamp_ms, number
            row = rows[where]
            given = self._joined(side, value, unpack(row[0]))
            results.append(derived(event, given, max(at, timestamp_ms), self.hold_ms))
            if not row[1]:
                partners.append((where, row[0]))
        if meets_itself:
            given = self._joined(side, value, unpack(pack(value)))
            results.insert(bisect_right(times, (at, _LAST)) - low, derived(event, given, hold_ms=self.hold_ms))
        return results, partners

    def _keep(self, side: int, event: Event, matched: bool) -> None:
        key, at = event.key, event.timestamp_ms
        mine = self._times[side].get(key, ())
        number = bisect_right(mine, (at, _LAST))
        number = mine[number - 1][1] + 1 if number and mine[number - 1][0] == at else 0
        where = key, at, number
        self._stores[side].set(where, [pack(event.value), int(matched)])
        self._index(side, where, matched)
        times = self._times[side][key]
        if len(times) > 1 and times[-1] < times[-2]:
            insort(times, times.pop())

    def _joined(self, side: int, mine: Any, other: Any) -> Any:
        return self.value(other, mine) if side else self.value(mine, other)

    def _index(self, side: int, where: tuple[Any, int, int], matched: bool) -> None:
        key, timestamp_ms, number = where
        self._times[side].setdefault(key, []).append((timestamp_ms, number))
        self._number += 1
        if not matched:
            heappush(self._due, (timestamp_ms + self._close_ms[side], self._number, side, where, True))
        heappush(self._due, (timestamp_ms + self._keep_ms, self._number, side, where, False))

    def _advance(self, watermark_ms: int, found: list[Event]) -> None:
        self._watermark_ms = watermark_ms
        while self._due and self._due[0][0] <= watermark_ms:
            due_ms, _, side, where, only_alone = heappop(self._due)
            row = self._stores[side].rows.get(where)
            if row is None or (only_alone and row[1]):
                continue  # it was given alone, or has had a partner
            key, timestamp_ms, number = where
            if not row[1]:
                self._give(side, where, unpack(row[0]), due_ms, found)
            self._stores[side].delete(where)
            times = self._times[side][key]
            del times[bisect_left(times, (timestamp_ms, number))]
            if not times:
                del self._times[side][key]

    def _give(self, side: int, where: tuple[Any, int, int], value: Any, due_ms: int, found: list[Event]) -> None:
        """The result of an event that has no partner."""
        key, timestamp_ms, _ = where
        stamp = due_ms - self.hold_ms
        event = Event(key, value, timestamp_ms, self.name, self._partition, -1, (), stamp)
        try:
            event.value = self._joined(side, value, None)
        except Exception as error:
            self._failed(self.name, event, error)
            return
        found.append(event)
