"""Where to begin in partitions, as a person says it: the earliest or latest record, an offset, or a time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from ..client import Admin, TopicPartition
from ..deploy.errors import DeployError

ENDS = ("earliest", "latest")
WAYS = "earliest, latest, an offset, or a time: 2026-01-31T10:00 (in this machine's zone), with +01:00, or -1h30m ago"
UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000}
AGO = re.compile(r"-(?=\d)(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")


@dataclass(frozen=True)
class Start:
    """One of `end` (earliest, latest), `offset`, and `time_ms` (of the epoch)."""

    end: str = ""
    offset: int | None = None
    time_ms: int | None = None


def start_of(option: str, text: str, now_ms: int) -> Start:
    """option: what it was said to, for the DeployError that names the ways to say it."""
    if text in ENDS:
        return Start(end=text)
    if text.isascii() and text.isdigit():
        return Start(offset=int(text))
    if ago := AGO.fullmatch(text):
        amounts = zip(ago.groups(), UNITS_MS.values(), strict=True)
        return Start(time_ms=max(0, now_ms - sum(int(amount) * unit_ms for amount, unit_ms in amounts if amount)))
    try:
        return Start(time_ms=max(0, int(datetime.fromisoformat(text).timestamp() * 1000)))
    except (ValueError, OverflowError):
        raise DeployError(f"{option} {text}: write {WAYS}") from None


async def offsets_at(
    admin: Admin, start: Start, tps: Iterable[TopicPartition], isolation: int
) -> dict[TopicPartition, int]:
    """The first offset to read of each partition: of a time the first record since, or the end where there is none. An
    offset is taken as it is."""
    if start.offset is not None:
        return dict.fromkeys(tps, start.offset)
    tps = list(tps)
    found = await admin.list_offsets(dict.fromkeys(tps, start.end or start.time_ms or 0), isolation)
    late = [tp for tp, (offset, *_) in found.items() if offset < 0]
    ends = await admin.list_offsets(dict.fromkeys(late, "latest"), isolation) if late else {}
    return {tp: ends.get(tp, at)[0] for tp, at in found.items()}


class Place(NamedTuple):
    """Where a reader of a partition is moved. wanted: as it was said; new: that, or the end of the log that is nearer;
    first, end: of the log."""

    wanted: int
    new: int
    first: int
    end: int

    @property
    def note(self) -> str:
        return "" if self.new == self.wanted else f"{self.wanted} is not between {self.first} and {self.end}"


async def places(
    admin: Admin,
    tps: Sequence[TopicPartition],
    committed: Mapping[TopicPartition, int],
    start: Start | None,
    shift: int,
    isolation: int,
) -> dict[TopicPartition, Place]:
    """Where to go on in each partition: at `start`, or so many records on from what is committed."""
    earliest = await admin.list_offsets(dict.fromkeys(tps, "earliest"))
    latest = await admin.list_offsets(dict.fromkeys(tps, "latest"))
    wanted = await offsets_at(admin, start, tps, isolation) if start else {tp: committed[tp] + shift for tp in tps}
    found = {}
    for tp in tps:
        first, end = earliest[tp][0], latest[tp][0]
        found[tp] = Place(wanted[tp], min(max(wanted[tp], first), end), first, end)
    return found
