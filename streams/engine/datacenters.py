"""Watermarks by datacenter: which of them is idle, which is stalled, and what becomes of windows then. Pure.

A datacenter whose mirror says at time t that everything up to the source's end is here, and whose records the task has
read, is complete up to t, though nothing happens there: it is *idle*, and holds nothing up. One of which nothing is
heard, or whose records are not brought, is *stalled*: what happens there is not known. The policy says what is done:

* `hold`: wait; windows close when it is back;
* `exclude`: wait for `after`, then go on without it. Results say so (`WindowResult.missing`), and are given again, as
  revisions, when it is back;
* `fail`: wait for `after`, then end the app.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from ..errors import AppError, StreamsError
from .origin import Beat
from .time import Clocks

HOLD, EXCLUDE, FAIL = "hold", "exclude", "fail"


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


class Rule:
    """Applies a policy to the watermarks of a task, of which each source is a topic. sources: those that a mirror
    brings. app: for errors."""

    def __init__(self, app: str, of: ByDatacenter, sources: Mapping[str, Source], watermarks: Clocks) -> None:
        self._app = app
        self._of = of
        self._after_ms = round(of.after * 1000)
        self._sources = dict(sources)
        self._watermarks = watermarks
        self._mirrored = {topic: Completeness() for topic in sources}
        self._read = {topic: Completeness() for topic in sources}
        self._begun_ms: int | None = None
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
        if self._begun_ms is None:
            self._begun_ms = wall_ms
        for topic, (beat, position) in seen.items():
            if beat is not None:
                self._mirrored[topic].observe(beat.seen_ms, beat.source_end, beat.mirrored_to)
                self._read[topic].observe(beat.seen_ms, beat.source_end, position)
        ruled = partial(self._ruled, wall_ms)
        changed = self._of.policy != HOLD and any(list(map(ruled, self._topics)))
        for topic, read in self._read.items():
            if read.at_ms >= 0:
                self._watermarks.complete(topic, read.at_ms - self._sources[topic].bound_ms)
        return changed

    def _ruled(self, wall_ms: int, datacenter: str) -> bool:
        assert self._begun_ms is not None
        topics = self._topics[datacenter]
        complete_ms = min(self._mirrored[topic].at_ms for topic in topics)
        is_out = any(topic in self._out for topic in topics)
        if is_out and complete_ms >= 0 and wall_ms - complete_ms < self._after_ms:
            for topic in topics:
                self._out.pop(topic, None)
                self._watermarks.include(topic)
            return True
        if is_out or wall_ms - max(complete_ms, self._begun_ms) < self._after_ms:
            return False
        if self._of.policy == FAIL:
            since = "nothing was complete" if complete_ms < 0 else f"nothing is complete after {complete_ms} (epoch ms)"
            raise StreamsError(
                f"app {self._app}: datacenter {datacenter} is stalled: for {self._of.after:g} s "
                f"{since} of {', '.join(topics)}. Look at its mirror (isthmus mirror status), or choose the policy "
                f"'{HOLD}' or '{EXCLUDE}'"
            )
        for topic in topics:
            self._out[topic] = None
            self._watermarks.exclude(topic)
        return True
