"""Watermarks: up to which event time a task's input is complete.

Each source of a task has a watermark: the greatest timestamp seen, less a bound for disorder. The task's is the least
of its sources', and never goes back. A watermark w says that no event with a timestamp below w is expected; one that
comes all the same is late to whatever has been closed.

A source is a topic, or what `source_of` makes of an event: with the datacenter that a record is from, each datacenter
has a watermark of its own (they need not agree on partitions, or on how far they are behind). Who knows more than the
events do says so: `complete` for a source that is known to be complete (a heartbeat of a mirror), `idle` for one with
nothing to read, `exclude` for one that is behind and that nobody wants to wait for, and `include` when it is back.
`names` has a name for each source in results, where its datacenter is meant, and not its topic. Then events alone do
not include it again, and results lack it until it has come to where the others went on without it.

A topic that tasks of the app write has a source for each of these tasks (`upstreams`): its events move nothing, the
heartbeats among them do (`heartbeats.py`).

The state is kept with a task's checkpoints: after a restart the same events are late as before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..errors import RecordError
from .event import NO_WATERMARK, Event
from .heartbeats import Heartbeat, taken_along

AWAITED, IDLE, EXCLUDED, BEHIND = range(4)  # states of a source; behind: included, and not yet where it was left
NOTHING_AWAITED = 1 << 62
OWN = ""  # what is kept under it is the task's own watermark; no topic has this name

SourceOf = Callable[[Event], str]
Kept = MutableMapping[str, Sequence[Any]]  # source -> its watermark and state; of a task also what it lacks


Lacking = tuple[tuple[str, int], ...]


@dataclass(slots=True)
class _Source:
    """bound_ms: see `Watermarks`. told: it is a task that writes a topic; lacking: what it has said of its sources."""

    bound_ms: int = 0
    told: bool = False
    watermark_ms: int = NO_WATERMARK
    state: int = AWAITED
    lacking: Lacking = ()


class Watermarks:
    """sources: those that are waited for from the start, though none of their events was seen. bound_ms: how far an
    event's timestamp may be behind an earlier one's of its source; bounds_ms: of sources with one of their own. kept:
    what an earlier one has kept, and where `save` keeps the state; None: nowhere. names: of the sources in results.
    upstreams: topics that tasks of the app write: by the name of a sub-topology, how many tasks it has. prefix: of
    what is kept, where several keep theirs in one place."""

    def __init__(
        self,
        sources: Iterable[str],
        bound_ms: int = 0,
        source_of: SourceOf | None = None,
        kept: Kept | None = None,
        names: Mapping[str, str] | None = None,
        bounds_ms: Mapping[str, int] | None = None,
        upstreams: Mapping[str, Mapping[str, int]] | None = None,
        prefix: str = "",
    ) -> None:
        self._bound_ms = bound_ms
        self._bounds_ms = dict(bounds_ms or {})
        self._upstreams = {topic: dict(writers) for topic, writers in (upstreams or {}).items()}
        self._prefix = prefix
        self.watermark_ms = NO_WATERMARK
        self.stream_time_ms = NO_WATERMARK
        self._source_of = source_of
        self._kept = kept
        self._names = names
        self._sources = {name: self._new(name) for name in sources if name not in self._upstreams}
        for topic, writers in self._upstreams.items():
            for writer, count in writers.items():
                self._sources |= {name: _Source(told=True) for name in _names(topic, writer, range(count))}
        self._changed: set[str] = set()
        if kept is not None:
            for row, (watermark_ms, other, *more) in kept.items():
                name = row.removeprefix(prefix)
                if not row.startswith(prefix):
                    continue
                if name == OWN:
                    self.watermark_ms, self.stream_time_ms = watermark_ms, other
                elif name in self._sources or source_of is not None:
                    source = self._sources.setdefault(name, self._new(name))
                    source.watermark_ms, source.state = watermark_ms, other
                    source.lacking = tuple((of, at_ms) for lacking in more for of, at_ms in lacking)
            self.watermark_ms = max(self.watermark_ms, self._least())  # a source that held it back may be no more

    def _new(self, name: str) -> _Source:
        return _Source(self._bounds_ms.get(name, self._bound_ms))

    def source(self, name: str) -> int:
        """The watermark of one source; -1 before its first event."""
        return self._sources[name].watermark_ms

    def has(self, topic: str) -> bool:
        """Whether it is for this topic."""
        return topic in self._sources or topic in self._upstreams

    @property
    def topics_told(self) -> frozenset[str]:
        """Topics of which heartbeats say how far they are."""
        return frozenset(self._upstreams)

    @property
    def excluded(self) -> tuple[str, ...]:
        """Sources that are not waited for though they may have events, in order, by their names in results, which may
        lack these."""
        return tuple(dict.fromkeys(name for name, _ in self.lacking))

    @property
    def lacking(self) -> Lacking:
        """The same, with the watermark of each."""
        names = self._names
        found = {
            (name if names is None else names[name], source.watermark_ms)
            for name, source in self._sources.items()
            if source.state in (EXCLUDED, BEHIND)
        }
        for source in self._sources.values():
            found.update(source.lacking)
        return tuple(sorted(found))

    @property
    def is_idle(self) -> bool:
        """Whether no source is waited for."""
        return not any(map(_holds, self._sources.values()))

    @property
    def excluded_sources(self) -> tuple[str, ...]:
        return tuple(name for name, source in self._sources.items() if source.state == EXCLUDED)

    def stamp(self, events: list[Event]) -> int:
        """Set each event's watermark; events are in the order in which they are processed. Returns the last one.

        A source that was not known is waited for from its first event on; one that was idle or excluded is so again.
        """
        source_of, sources = self._source_of, self._sources
        current, stream_time = self.watermark_ms, self.stream_time_ms
        alone = len(sources) == 1
        for event in events:
            name = event.topic if source_of is None else source_of(event)
            source = sources.get(name)
            if source is None:
                source = sources[name] = self._new(name)
                alone = len(sources) == 1
            timestamp_ms = event.timestamp_ms
            if timestamp_ms > stream_time:
                stream_time = timestamp_ms
            before, at = source.watermark_ms, timestamp_ms - source.bound_ms
            is_back = source.state != AWAITED
            if at > before or is_back:
                source.watermark_ms = max(before, at)
                self._changed.add(name)
                if is_back and self._names is not None and source.state != IDLE:
                    if source.state == BEHIND:
                        current = max(current, self._least())
                        self._catch_up(source, current)
                    event.watermark_ms = current
                    continue
                source.state = AWAITED
                if is_back or before <= current < at:  # else another source holds the watermark where it is
                    current = at if alone and not is_back else max(current, self._least())
            event.watermark_ms = current
        self.watermark_ms, self.stream_time_ms = current, stream_time
        return current

    def receive(self, events: list[Event]) -> list[Event]:
        """`stamp` for events of topics that tasks of the app write. Returns them without the heartbeats among them."""
        found = []
        stream_time = self.stream_time_ms
        for event in events:
            if type(event.value) is Heartbeat:
                self._hear(event.topic, event.value)
                continue
            if event.raw_headers:
                self._hear_along(event)
            if event.timestamp_ms > stream_time:
                stream_time = event.timestamp_ms
            event.watermark_ms = self.watermark_ms
            found.append(event)
        self.stream_time_ms = stream_time
        return found

    def _hear_along(self, event: Event) -> None:
        try:
            beat, event.raw_headers = taken_along(event.raw_headers)
        except ValueError as error:
            raise RecordError(f"{event.topic}-{event.partition} offset {event.offset}: {error}") from error
        if beat is not None:
            self._hear(event.topic, beat)

    def _hear(self, topic: str, beat: Heartbeat) -> None:
        writers = self._upstreams[topic]
        known = writers.get(beat.writer)
        if known is None:
            return  # of another version of the app, where other tasks wrote the topic
        if beat.tasks > known:
            writers[beat.writer] = beat.tasks
            new = _names(topic, beat.writer, range(known, beat.tasks))
            self._sources |= {name: _Source(told=True) for name in new}
            self._changed.update(new)
        [name] = _names(topic, beat.writer, [beat.partition])
        source = self._sources.setdefault(name, _Source(told=True))
        source.watermark_ms = max(source.watermark_ms, beat.watermark_ms)
        source.state = IDLE if beat.is_idle else AWAITED
        is_back = source.lacking and not beat.lacking and source.watermark_ms < self.watermark_ms
        # What went on without it lacks it until it has come there.
        source.lacking = tuple((of, source.watermark_ms) for of, _ in source.lacking) if is_back else beat.lacking
        self._moved(name)

    def complete(self, source: str, watermark_ms: int) -> int:
        """A source is complete up to this event time, though it may have no events there. Returns the watermark. What
        tasks write is complete when these say so."""
        if source in self._upstreams:
            return self.watermark_ms
        known = self._sources.setdefault(source, self._new(source))
        if watermark_ms <= known.watermark_ms:
            return self.watermark_ms
        known.watermark_ms = watermark_ms
        moved = self._moved(source)
        self._catch_up(known, moved)
        return moved

    def least_beside(self, other: Watermarks) -> int:
        """The least watermark of the sources that are awaited here and that another one does not have."""
        beside = [
            each.watermark_ms for name, each in self._sources.items() if name not in other._sources and _holds(each)
        ]
        return min(beside, default=NOTHING_AWAITED)

    def idle(self, source: str) -> int:
        """A source has nothing to read: do not wait for it until its next event. If it is the last one, the watermark
        stays where it is: that nothing comes does not say that everything came. Returns the watermark."""
        return self._set(source, IDLE)

    def exclude(self, source: str) -> int:
        """The same for a source that is behind: results say that they may lack its events. Returns the watermark."""
        return self._set(source, EXCLUDED)

    def include(self, source: str) -> int:
        """Wait for a source again. What went on without it does not go back. Returns the watermark."""
        known = self._sources.get(source)
        is_behind = self._names is not None and known is not None and known.watermark_ms < self.watermark_ms
        return self._set(source, BEHIND if is_behind else AWAITED)

    def save(self) -> None:
        """Keep what has changed, between batches."""
        if self._kept is None or not self._changed:
            return
        for name in sorted(self._changed):
            source = self._sources[name]
            more = [[list(each) for each in source.lacking]] if source.told else []
            self._kept[self._prefix + name] = (source.watermark_ms, source.state, *more)
        self._kept[self._prefix + OWN] = (self.watermark_ms, self.stream_time_ms)
        self._changed.clear()

    def _set(self, source: str, state: int) -> int:
        known = self._sources.setdefault(source, self._new(source))
        if known.state == state:
            return self.watermark_ms
        known.state = state
        return self._moved(source)

    @staticmethod
    def _catch_up(source: _Source, watermark_ms: int) -> None:
        if source.state == BEHIND and source.watermark_ms >= watermark_ms:
            source.state = AWAITED

    def _moved(self, source: str) -> int:
        self._changed.add(source)
        self.watermark_ms = max(self.watermark_ms, self._least())
        return self.watermark_ms

    def _least(self) -> int:
        return min((each.watermark_ms for each in self._sources.values() if _holds(each)), default=NO_WATERMARK)


class Clocks:
    """The watermarks of a part of the graph, of which several may have the same source: all are told."""

    def __init__(self, each: Iterable[Watermarks]) -> None:
        self.each = tuple(each)

    def complete(self, source: str, watermark_ms: int) -> None:
        for each in self._with(source):
            each.complete(source, watermark_ms)

    def idle(self, source: str) -> None:
        for each in self._with(source):
            each.idle(source)

    def exclude(self, source: str) -> None:
        for each in self._with(source):
            each.exclude(source)

    def include(self, source: str) -> None:
        for each in self._with(source):
            each.include(source)

    @property
    def excluded_sources(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for each in self.each for name in each.excluded_sources))

    def source(self, name: str) -> int:
        """The watermark of one source."""
        return next(self._with(name)).source(name)

    def _with(self, source: str) -> Iterator[Watermarks]:
        return (each for each in self.each if each.has(source))


def _holds(source: _Source) -> bool:
    return source.state in (AWAITED, BEHIND)


class Progress(NamedTuple):
    """rests: it is not waited for, since it has nothing to read; is_excluded: nor is it, since its datacenter is
    stalled."""

    watermark_ms: int
    rests: bool
    is_excluded: bool


def watermark_by_source(kept: Mapping[str, Sequence[Any]]) -> dict[str, Progress]:
    """What `Watermarks` have kept, for people: of each topic the least of its watermarks."""
    found: dict[str, Progress] = {}
    for row, (watermark_ms, state, *_) in kept.items():
        name = row.partition(" < ")[0].rpartition(" ")[2]
        if name != OWN:
            before = found.get(name, Progress(watermark_ms, True, False))
            rests, is_excluded = before.rests and state == IDLE, before.is_excluded or state == EXCLUDED
            found[name] = Progress(min(before.watermark_ms, watermark_ms), rests, is_excluded)
    return found


def _names(topic: str, writer: str, partitions: Iterable[int]) -> list[str]:
    """Sources of a topic that tasks write. No topic has such a name."""
    return [f"{topic} < {writer}-{partition}" for partition in partitions]
