"""Watermarks by datacenter: which of them is idle, which is stalled, and what becomes of windows then. Pure.

A datacenter whose mirror says at time t that everything up to the source's end is here, and whose records the task has
read, is complete up to t, though nothing happens there: it is *idle*, and holds nothing up. One of which nothing is
heard, or whose records are not brought, is *stalled*: what happens there is not known. The policy says what is done:

* `hold`: wait; windows close when it is back;
* `exclude`: wait for `after`, then go on without it. Results say so (`WindowResult.missing`), and are given again, as
  revisions, when it is back;
* `fail`: wait for `after`, then end the app.

How long a datacenter has been stalled is measured on the clock of its mirror, and on the worker's since the mirror was
heard last: the two need not agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from math import inf
from typing import NamedTuple

from ..errors import AppError, StreamsError
from .origin import Beat
from .time import Clocks

HOLD, EXCLUDE, FAIL = "hold", "exclude", "fail"
COMPLETE, RETURNING, STALLED, EXCLUDED = "complete", "returning", "stalled", "excluded"
STANDINGS = (COMPLETE, RETURNING, STALLED, EXCLUDED)  # from the best to the worst
CLOCK_MS = 1_000  # by which a mirror's clock may be ahead, beside the bound


@dataclass(frozen=True)
class ByDatacenter:
    """policy: `hold`, `exclude` or `fail`. after: seconds for which a datacenter may be stalled before the policy acts.
    Raises AppError for another policy, or for a time that is not above 0."""

    policy: str = HOLD
    after: float = 60.0

    def __post_init__(self) -> None:
        if self.policy not in (HOLD, EXCLUDE, FAIL):
            raise AppError(f"watermarks: policy is '{self.policy}', but must be one of {HOLD}, {EXCLUDE}, {FAIL}")
        if not self.after > 0:
            raise AppError(f"watermarks: after is {self.after!r}, but must be more than 0 seconds")


class Completeness:
    """Up to which time a place has everything that a source had. Of what is told of the source, one word is remembered
    until the place has reached it: so a source that never rests is followed, too."""

    __slots__ = ("_end", "_end_ms", "at_ms")

    def __init__(self) -> None:
        self.at_ms = -1
        self._end_ms = self._end = -1  # the source ended here at this time; -1: nothing is waited for

    def observe(self, seen_ms: int, source_end: int, reached: int) -> None:
        """The source ended at `source_end` when it was seen; the place now ends at `reached`."""
        if self._end_ms < 0:
            self._end_ms, self._end = seen_ms, source_end
        if reached < self._end:
            return
        self.at_ms = max(self.at_ms, self._end_ms)
        self._end_ms = -1
        if reached >= source_end:
            self.at_ms = max(self.at_ms, seen_ms)
        else:
            self._end_ms, self._end = seen_ms, source_end


class Source(NamedTuple):
    """A topic of a task. bound_ms: see `Watermarks`."""

    datacenter: str
    bound_ms: int


class Seen(NamedTuple):
    """What is known of a topic's partition. beat None: its mirror has never said anything; position: of the task."""

    beat: Beat | None
    position: int


class Standing(NamedTuple):
    """How a task stands with a datacenter. state: `complete`, what its mirror brings is new enough; `returning`, so it
    is, but results lack it until it has come to where the others are; `stalled` and `excluded`, for longer than `after`
    it is not, and windows wait for it, or do not. complete_ms: up to this time of its mirror's clock all is here; -1:
    not known. why: it is stalled; for people. ahead_ms: by which its mirror's clock is ahead, where that is more than
    the bound allows; else 0."""

    state: str
    complete_ms: int
    why: str = ""
    ahead_ms: int = 0


class Rule:
    """Applies a policy to the watermarks of a task, of which each source is a topic. sources: those that a mirror
    brings. app: for errors. standings: by datacenter, as of the last look."""

    def __init__(self, app: str, of: ByDatacenter, sources: Mapping[str, Source], watermarks: Clocks) -> None:
        self._app = app
        self._of = of
        self._after_ms = round(of.after * 1000)
        self._sources = dict(sources)
        self._watermarks = watermarks
        self._mirrored = {topic: Completeness() for topic in sources}
        self._read = {topic: Completeness() for topic in sources}
        self._begun_ms: int | None = None
        self._said_ms: dict[str, int] = {}  # by topic: of the last beat
        self._heard_ms: dict[str, int] = {}  # wall clock here when it came; a beat that was there at first may be old
        self.standings: dict[str, Standing] = {}
        self._topics: dict[str, list[str]] = {}
        for topic, source in sources.items():
            self._topics.setdefault(source.datacenter, []).append(topic)
        self._out: dict[str, None] = {}  # topics
        for topic in watermarks.excluded_sources:
            if of.policy == EXCLUDE and topic in sources:
                self._out[topic] = None
            else:  # an earlier policy excluded it, or it was a copy then: nobody else would bring it back
                watermarks.include(topic)

    @property
    def topics(self) -> list[str]:
        return list(self._sources)

    def look(self, wall_ms: int, seen: Mapping[str, Seen]) -> bool:
        """Move the watermarks by what is known now, by topic. Returns whether a datacenter was excluded or is back.
        Raises StreamsError by the policy `fail`."""
        for topic, (beat, position) in seen.items():
            if beat is not None:
                self._mirrored[topic].observe(beat.seen_ms, beat.source_end, beat.mirrored_to)
                self._read[topic].observe(beat.seen_ms, beat.source_end, position)
                if beat.said_ms != self._said_ms.get(topic):
                    self._said_ms[topic] = beat.said_ms
                    if self._begun_ms is not None:
                        self._heard_ms[topic] = wall_ms
        if self._begun_ms is None:
            self._begun_ms = wall_ms
        changed = any(list(map(partial(self._ruled, wall_ms, self._begun_ms, seen), self._topics)))
        for topic, read in self._read.items():
            if read.at_ms >= 0:
                self._watermarks.complete(topic, read.at_ms - self._sources[topic].bound_ms)
        return changed

    def _ruled(self, wall_ms: int, begun_ms: int, seen: Mapping[str, Seen], datacenter: str) -> bool:
        topics = self._topics[datacenter]
        complete_ms = min(self._mirrored[topic].at_ms for topic in topics)
        worst = max(topics, key=partial(self._behind_ms, wall_ms))
        behind_ms = self._behind_ms(wall_ms, worst)
        is_out = any(topic in self._out for topic in topics)
        is_stalled = min(behind_ms, wall_ms - begun_ms) >= self._after_ms
        why = ""
        if is_stalled or is_out:
            why = self._why(worst, seen[worst].beat, wall_ms - self._heard_ms.get(worst, begun_ms))
        changed = False
        if is_out and behind_ms < self._after_ms:
            changed, is_out, why = True, False, ""
            for topic in topics:
                self._out.pop(topic, None)
                self._watermarks.include(topic)
        elif is_stalled and not is_out and self._of.policy == FAIL:
            since = "is complete" if complete_ms < 0 else f"after {_as_time(complete_ms)} is complete"
            raise StreamsError(
                f"app {self._app}: datacenter {datacenter} is stalled: {why}, and for {self._of.after:g} s nothing "
                f"{since}. Look at its mirror (isthmus mirror status), or choose the policy '{HOLD}' or '{EXCLUDE}'"
            )
        elif is_stalled and not is_out and self._of.policy == EXCLUDE:
            changed = is_out = True
            for topic in topics:
                self._out[topic] = None
                self._watermarks.exclude(topic)
        lacks = any(datacenter in each.excluded for each in self._watermarks.each)
        state = EXCLUDED if is_out else STALLED if why else RETURNING if lacks else COMPLETE
        ahead_ms = max(map(self._ahead_ms, topics))
        self.standings[datacenter] = Standing(state, complete_ms, why, ahead_ms)
        return changed

    def _behind_ms(self, wall_ms: int, topic: str) -> float:
        """How long ago a mirror had all of a topic."""
        complete_ms = self._mirrored[topic].at_ms
        if complete_ms < 0 or topic not in self._heard_ms:
            return inf
        return self._said_ms[topic] - complete_ms + wall_ms - self._heard_ms[topic]

    def _ahead_ms(self, topic: str) -> int:
        if topic not in self._heard_ms:
            return 0
        ahead_ms = self._said_ms[topic] - self._heard_ms[topic]
        return ahead_ms if ahead_ms > self._sources[topic].bound_ms + CLOCK_MS else 0

    def _why(self, topic: str, beat: Beat | None, silent_ms: int) -> str:
        """The greatest part of what lies between now and the time up to which a topic is complete."""
        if beat is None:
            return f"no mirror has ever said anything of {topic}"
        if topic not in self._heard_ms and silent_ms < self._after_ms:
            return f"it was so before, and its mirror has said nothing of {topic} yet"
        unseen_ms = beat.said_ms - beat.seen_ms
        behind_ms = beat.seen_ms - self._mirrored[topic].at_ms
        if silent_ms >= max(unseen_ms, behind_ms):
            return f"its mirror has said nothing of {topic} for {silent_ms / 1000:.0f} s"
        if unseen_ms >= behind_ms:
            return f"its mirror has not seen the source of {topic} for {(unseen_ms + silent_ms) / 1000:.0f} s"
        return f"its mirror is {beat.source_end - beat.mirrored_to} records behind in {topic}"


def _as_time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(" ", "milliseconds")
