"""Fetched data of one partition that agents have not processed, decoded a few record batches at a time. So neither the
memory nor the time until the worker can do something else depends on the size of a fetch."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...client.consumer import FetchedBatches
from ...protocol import records
from ...protocol.errors import KafkaError
from ..api.rpc import take_out
from ..api.topics import Topic
from ..engine.checkpoint import Position
from ..engine.columns import ColumnTypes, batch_event, decoded
from ..engine.event import NO_WATERMARK, Event, Headers, Message
from ..engine.failures import FAIL, STOP, decided
from ..engine.heartbeats import heartbeat_in, is_heartbeat
from ..errors import RecordError

NOT_DECODED = "the value cannot be decoded"
NO_TIME = "timestamp= of the topic gives no event time for the value"


class Raw(NamedTuple):
    """A record as it was fetched."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def _as_ms(time: Any) -> int:
    if not isinstance(time, int):
        raise ValueError(f"it returns {time!r}, and is to return an int: ms since the epoch")
    return time


def _raw(record: records.Record) -> Raw:
    key = None if record.key is None else bytes(record.key)
    value = None if record.value is None else bytes(record.value)
    return Raw(record.offset, record.timestamp_ms, key, value, tuple(record.headers))


class Refused(NamedTuple):
    """A record that cannot be decoded, and is left out by this policy."""

    raw: Raw
    error: RecordError
    policy: str


class Backlog:
    """topic: says how its records are read, and what is done with those that cannot be. from_offset: the task's
    position; earlier records are left out."""

    def __init__(self, fetched: FetchedBatches, topic: Topic, from_offset: int) -> None:
        self.tp = fetched.tp
        self.refused: list[Refused] = []  # so far; whoever reads it empties it
        self._topic = topic
        self._data = fetched.records
        self._at = 0  # the data is decoded up to here
        self._decoded_to = Position(from_offset)  # after the decoded events
        self._end = Position(max(fetched.next_offset, from_offset), fetched.next_epoch)
        self._events: list[Event] = []
        self._done = 0  # of the decoded events
        self._poison: RecordError | None = None  # comes after the decoded events
        self._begin = 0  # of the data of the decoded events
        self._raws: dict[int, Raw] | None = None  # of the decoded events by offset, once one was asked for

    def count(self, done: int) -> int:
        """How many records the next `done` events are."""
        if self._topic.columns is None:
            return done
        return sum(event.value.num_rows for event in self._events[self._done : self._done + done])

    @property
    def empty(self) -> bool:
        return self._done >= len(self._events) and self._at >= len(self._data) and self._poison is None

    def ahead(self, most: int) -> list[Event]:
        """The next events, at most this many. They stay until they are `passed`. Raises RecordError where the next
        record cannot be decoded, and its policy does not leave it out."""
        if self._done >= len(self._events):
            if self._poison is not None:
                raise self._poison
            self._decode(most)
            if not self._events and self._poison is not None:
                raise self._poison
        whole = self._done == 0 and len(self._events) <= most
        return self._events if whole else self._events[self._done : self._done + most]

    def passed(self, count: int) -> Position:
        """Drop this many of the next events as done. Returns the position after them."""
        self._done += count
        if self._done < len(self._events):
            return Position(self._events[self._done].offset, self._decoded_to.leader_epoch)
        # They know this, so that until a collection of garbage no event would be freed, nor the data.
        self._events, self._done = [], 0
        return self._end if self.empty else self._decoded_to

    @property
    def next_timestamp_ms(self) -> int:
        """The time of the next event; of a record that cannot be decoded, or of none, as early as can be."""
        if self._done >= len(self._events) and self._poison is None and self._at < len(self._data):
            self._decode(1)
        return self._events[self._done].timestamp_ms if self._done < len(self._events) else -1

    def raw(self, offset: int) -> Raw | None:
        """A record of the backlog as it was fetched."""
        if self._raws is None:
            self._raws = {each.offset: _raw(each) for each in records.iter_records(self._data[self._begin : self._at])}
        found = self._raws.get(offset)
        if found is None:  # of an event that was taken earlier
            self._raws = {each.offset: _raw(each) for each in records.iter_records(self._data)}
            found = self._raws.get(offset)
        return found

    # --- As the carrier of its events -----------------------------------------------------------------

    @property
    def app(self) -> Any:
        return self._topic.app

    def message_of(self, offset: int) -> Message:
        raw = self.raw(offset)
        assert raw is not None, "its events are of its records"
        return Message(*self.tp, offset, raw.timestamp_ms / 1000, raw.headers, raw.key, raw.value)

    def _decode(self, most: int) -> None:
        """Whole record batches with about this many records."""
        begin, end, count = self._at, len(self._data), 0
        from_offset, decoded_to = self._decoded_to.offset, self._decoded_to
        try:
            for at, header in records.walk(self._data, begin):
                count += header.records_count
                decoded_to = Position(max(decoded_to.offset, header.next_offset), header.partition_leader_epoch)
                if count >= most:
                    end = at + header.size_bytes
                    break
            if self._topic.columns is not None:
                self._as_columns(self._topic.columns, begin, end, decoded_to)
                return
            columns = records.decode_lists_with_headers(self._data[begin:end], from_offset=from_offset)
        except KafkaError as error:
            raise RecordError(f"{self.tp.topic}-{self.tp.partition} from offset {from_offset} on: {error}") from error
        self._done, self._at, self._decoded_to = 0, end, decoded_to
        self._begin, self._raws = begin, None
        self._events = []
        beats: list[Event] = []
        if self._topic.has_heartbeats and any(map(is_heartbeat, columns[4])):
            beats, columns = self._without_heartbeats(columns)
        self._make_events(columns)
        if beats:
            until = self._decoded_to.offset  # where a record cannot be decoded, it ends there
            self._events += [beat for beat in beats if beat.offset < until]
            self._events.sort(key=lambda event: event.offset)

    def _without_heartbeats(self, columns: records.ListsWithHeaders) -> tuple[list[Event], records.ListsWithHeaders]:
        """Heartbeats as events, and all other records."""
        beats: list[Event] = []
        others: list[tuple[Any, ...]] = []
        for row in zip(*columns, strict=True):
            offset, timestamp_ms, _, _, headers = row
            if not is_heartbeat(headers):
                others.append(row)
                continue
            try:
                value = heartbeat_in(headers)
            except ValueError as error:
                raise RecordError(f"{self.tp.topic}-{self.tp.partition} offset {offset}: {error}") from error
            beats.append(Event(None, value, timestamp_ms, *self.tp, offset, headers, NO_WATERMARK, self))
        kept: Any = tuple(map(list, zip(*others, strict=True))) if others else ([], [], [], [], [])
        return beats, kept

    def _make_events(self, columns: records.ListsWithHeaders) -> None:
        topic, partition = self.tp
        offsets, timestamps, keys, values, headers = columns
        if self._topic.is_asked:
            take_out(self._topic, values, headers)
        if self._topic.serialization.schema is not None or self._topic.timestamp is not None:
            self._one_by_one(columns)
            return
        try:
            made = self._decoded(keys, values)
        except ValueError:
            self._one_by_one(columns)
            return
        self._events = [
            Event(key, value, timestamp_ms, topic, partition, offset, each, NO_WATERMARK, self)
            for offset, timestamp_ms, key, value, each in zip(offsets, timestamps, *made, headers, strict=True)
        ]

    def _as_columns(self, types: ColumnTypes, begin: int, end: int, decoded_to: Position) -> None:
        """The same as record batches, each the value of an event with the offset of its first record."""
        from_offset = self._decoded_to.offset
        self._done, self._at, self._decoded_to = 0, end, decoded_to
        self._begin, self._raws, self._events = begin, None, []

        def refused(offset: int, problem: str) -> bool:
            raw = self.raw(offset)
            assert raw is not None, "it is among what was decoded"
            return self._refuses(raw, ValueError(problem))

        for found in records.iter_columns(self._data[begin:end], from_offset=from_offset):
            batches, ends_at = decoded(found, types, *self.tp, refused)
            self._events += [batch_event(batch, *self.tp, self) for batch in batches]
            if ends_at is not None:
                self._decoded_to = Position(ends_at)
                return

    def _decoded(self, keys: list[bytes | None], values: list[bytes | None]) -> tuple[list[Any], list[Any]]:
        serialization = self._topic.serialization
        return serialization.key.decode_column(keys), serialization.value.decode_column(values)

    def _one_by_one(self, columns: records.ListsWithHeaders) -> None:
        """Where one of the records cannot be decoded, or a schema or the topic's clock looks at each."""
        topic, partition = self.tp
        serialization, timestamp_of, app = self._topic.serialization, self._topic.timestamp, self._topic.app
        for raw in map(Raw, *columns):
            timestamp_ms, problem = raw.timestamp_ms, NOT_DECODED
            try:
                key, value = serialization.read(app, raw)
                if timestamp_of is not None and value is not None:
                    problem = NO_TIME
                    timestamp_ms = _as_ms(timestamp_of(value))
            except Exception as error:
                if not self._refuses(raw, error, problem):
                    self._decoded_to = Position(raw.offset)
                    return
                continue
            self._events.append(
                Event(key, value, timestamp_ms, topic, partition, raw.offset, raw.headers, NO_WATERMARK, self)
            )

    def _refuses(self, raw: Raw, error: Exception, what: str = NOT_DECODED) -> bool:
        """Whether a record that cannot be decoded is left out; else nothing goes on after the events before it."""
        policy = decided(self._topic.on_error, *self.tp, raw.offset, error)
        ends = policy in (FAIL, STOP)
        way_out = "; such records are left out where the topic has on_error='skip' or 'dead_letter'" if ends else ""
        problem = RecordError(f"{self.tp.topic}-{self.tp.partition} offset {raw.offset}: {what}: {error}{way_out}")
        problem.__cause__ = error
        problem.at = (*self.tp, raw.offset)
        if ends:
            problem.must_stop = policy == STOP
            self._poison = problem
            return False
        self.refused.append(Refused(raw, problem, policy))
        return True
