"""What was fetched of one partition and has not been given to agents: decoded a few record batches at a time, so that
neither memory nor the time until the worker can do something else grow with what a fetch brings."""

from __future__ import annotations

from collections.abc import Callable

from ...client.consumer import FetchedBatches
from ...protocol import records
from ...protocol.errors import KafkaError
from ..engine.codecs import Codec
from ..engine.task import Event, events
from ..errors import RecordError


class Backlog:
    """from_offset: where the task stands; records below it are left out. skip: as of `engine.task.events`."""

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
        self._at = 0  # in the data: up to here it is decoded
        self._offset = from_offset  # of what comes after all decoded
        self._end = max(fetched.next_offset, from_offset)
        self._events: list[Event] = []
        self._given = 0  # of the decoded events

    @property
    def empty(self) -> bool:
        return self._given >= len(self._events) and self._at >= len(self._data)

    def take(self, most: int) -> tuple[list[Event], int]:
        """The next events and the offset after them."""
        if self._given >= len(self._events):
            self._decode(most)
        whole = self._given == 0 and len(self._events) <= most
        some = self._events if whole else self._events[self._given : self._given + most]
        self._given += len(some)
        if self.empty:
            return some, self._end
        return some, self._offset if self._given >= len(self._events) else some[-1].offset + 1

    def _decode(self, most: int) -> None:
        """Whole record batches that hold about as many records."""
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
        self._given, self._at = 0, end
