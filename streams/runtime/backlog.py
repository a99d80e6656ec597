"""Fetched data of one partition that agents have not processed, decoded a few record batches at a time. So neither the
memory nor the time until the worker can do something else depends on the size of a fetch."""

from __future__ import annotations

from collections.abc import Callable

from ...client.consumer import FetchedBatches
from ...protocol import records
from ...protocol.errors import KafkaError
from ..engine.codecs import Codec
from ..engine.task import Event, events
from ..errors import RecordError


class Backlog:
    """from_offset: the task's position; earlier records are left out. skip: see `engine.task.events`."""

    def __init__(
        self,
        fetched: FetchedBatches,
        codec: Codec,
        from_offset: int,
        skip: Callable[[RecordError], None] | None = None,
    ) -> None:
        self.tp = fetched.tp
        self._codec = codec
        self._skip = skip
        self._data = fetched.records
        self._at = 0  # the data is decoded up to here
        self._offset = from_offset  # the offset after the decoded events
        self._end = max(fetched.next_offset, from_offset)
        self._events: list[Event] = []
        self._done = 0  # of the decoded events

    @property
    def empty(self) -> bool:
        return self._done >= len(self._events) and self._at >= len(self._data)

    def ahead(self, most: int) -> list[Event]:
        """The next events, at most this many. They stay until they are `passed`."""
        if self._done >= len(self._events):
            self._decode(most)
        whole = self._done == 0 and len(self._events) <= most
        return self._events if whole else self._events[self._done : self._done + most]

    def passed(self, count: int) -> int:
        """Drop this many of the next events as done. Returns the offset after them."""
        self._done += count
        if self.empty:
            return self._end
        return self._offset if self._done >= len(self._events) else self._events[self._done - 1].offset + 1

    def _decode(self, most: int) -> None:
        """Whole record batches with about this many records."""
        begin, end, from_offset, count = self._at, len(self._data), self._offset, 0
        try:
            for at, header in records.walk(self._data, begin):
                count += header.records_count
                self._offset = max(self._offset, header.next_offset)
                if count >= most:
                    end = at + header.size_bytes
                    break
            columns = records.decode_lists(self._data[begin:end], from_offset=from_offset)
        except KafkaError as error:
            raise RecordError(f"{self.tp.topic}-{self.tp.partition} from offset {from_offset} on: {error}") from error
        self._events = events(self.tp.topic, self.tp.partition, columns, self._codec, from_offset, self._skip)
        self._done, self._at = 0, end
