"""Joins of two tables by a foreign key of the left one (KIP-213), wherever the rows are.

A right row is in the partition of its key, and the left rows that refer to it are in any. So a left row's task asks the
right row's, and that one remembers who has asked:

* `ForeignKeyRequests`, behind the left table: a request to the task of the foreign key for each change, and one to
  forget the row where it has referred to another key before;
* `ForeignKeyResponses`, behind the right table: answers each request with the present right row, and all that are
  remembered when that changes;
* `ForeignKeyResult`, beside the left table: joins an answer with the left row. An answer has the hash of the left value
  that was asked for: it is dropped where the row has changed since, for its own request will be answered.

Requests and answers go through two topics of the app. Both have each record once, and keep the order of what a task
writes to a partition, so the last answer to be taken is of the last left and the last right value.

The result is a table itself, with the left table's keys, in its partitions. Its changes have the timestamps of those
that caused them; Kafka's have the greater one of both rows, which these tables do not keep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Any, NamedTuple

from ..codecs import encode_table_value
from ..event import Event
from ..placement import BY_FIRST
from ..steps import in_steps
from ..tables import TableSpec
from .operator import Context, Failed, KeyKind, Outputs, derived, raise_failed, unusable_key
from .stream_join import INNER
from .table_joins import JoinResult, Sides, Value, reader
from .table_sources import Change, of_left_out

STALE = "stale"  # name of a count
Key = Callable[[Any], Any]


class Request(NamedTuple):
    """What a left row's task sends, as a list, under the foreign key. partition: of the left row, of so many as there
    are tasks; hash: of its value; None: it does not refer to the key any more."""

    left_key: Any
    partition: int
    tasks: int
    hash: str | None


class Response(NamedTuple):
    """The answer, as a list, under the left row's key. right None: there is no such row."""

    partition: int
    tasks: int
    hash: str
    right: Any


def hash_of(value: Any) -> str:
    """Of a table's value: the same for equal ones, also after a restart."""
    return blake2b(encode_table_value(value), digest_size=12).hexdigest()


def response_place(event: Event, count: int) -> int | None:
    """Where an answer goes: to the task that has asked. None: by its key, since the table has got another number of
    partitions, where rows are by their keys."""
    response = Response(*event.value)
    return response.partition if response.tasks == count else None


class ForeignKeyRequests:
    """Input: changes of the left table. Outputs: requests, and the changes after which a row refers to none.
    foreign_key: the right table's key for a left value; None: there is no such row."""

    outputs = 2
    hold_ms = 0
    specs: tuple[TableSpec, ...] = ()

    def __init__(self, name: str, foreign_key: Key) -> None:
        self.name = name
        self.foreign_key = foreign_key
        self.counts: dict[str, int] = {}
        self._partition, self._tasks = 0, 1
        self._failed: Failed = raise_failed

    def open(self, context: Context) -> None:
        self._partition, self._tasks, self._failed = context.partition, context.tasks, context.failed

    def process(self, port: int, events: list[Event]) -> Outputs:
        found: list[Event] = []
        alone: list[Event] = []
        for event in events:
            old, new = event.value
            before = None if old is None else of_left_out(self.foreign_key, old)
            try:
                after = None if new is None else self.foreign_key(new)
            except Exception as error:
                self._failed(self.name, event, error)
                event, after = derived(event, Change(old, None)), None  # as if the row were deleted
            if before is not None and before != after:
                found.append(self._request(event, before, None))
            if after is None:
                alone.append(event)
            else:
                found.append(self._request(event, after, hash_of(new)))
        return found, alone

    def advance(self, watermark_ms: int) -> Outputs:
        return [], []

    def tick(self, wall_ms: int) -> Outputs:
        return [], []

    def _request(self, event: Event, key: Any, hash: str | None) -> Event:
        asked = derived(event, list(Request(event.key, self._partition, self._tasks, hash)))
        asked.key = key
        return asked


class ForeignKeyResponses:
    """Ports: requests, and changes of the right table. Output: responses. Its table has who refers to what: (right key,
    left key) -> partition, tasks and hash of the left row; by right key they are in memory, too."""

    outputs = 1
    hold_ms = 0

    def __init__(self, name: str, right: str, versioned: bool = False) -> None:
        self.name = name
        self.right = right
        self.specs = (TableSpec(name, placement=BY_FIRST),)
        self.counts: dict[str, int] = {}
        self._versioned = versioned
        self._failed: Failed = raise_failed
        self._kind = KeyKind()
        self._referring: dict[Any, dict[Any, None]] = {}  # right key -> left keys, in the order of their first requests

    def open(self, context: Context) -> None:
        self._store = context.store(self.name)
        self._row, self._failed = reader(context, self.right, self._versioned), context.failed

    def read(self) -> Iterator[None]:
        for some in in_steps(self._store.rows):
            for right_key, left_key in some:
                self._referring.setdefault(right_key, {})[left_key] = None
            yield

    def process(self, port: int, events: list[Event]) -> Outputs:
        found: list[Event] = []
        for event in events:
            if port == 0:
                found += self._asked(event)
            else:
                right = event.value.new
                found += [self._answer(event, left_key, right) for left_key in self._referring.get(event.key, ())]
        return (found,)

    def advance(self, watermark_ms: int) -> Outputs:
        return ([],)

    def tick(self, wall_ms: int) -> Outputs:
        return ([],)

    def _asked(self, event: Event) -> list[Event]:
        request = Request(*event.value)
        try:
            keys = self._referring.setdefault(event.key, {})
        except TypeError:
            self._failed(self.name, event, unusable_key(event))
            return []
        try:
            self._kind.look(event.key, self._row(event.key), self._row)
        except TypeError as error:
            self._failed(self.name, event, error)
        if request.hash is not None:
            keys[request.left_key] = None
            self._store.set((event.key, request.left_key), [request.partition, request.tasks, request.hash])
            return [self._answer(event, request.left_key, self._row(event.key))]
        if request.left_key in keys:
            del keys[request.left_key]
            self._store.delete((event.key, request.left_key))
        if not keys:
            del self._referring[event.key]
        return []

    def _answer(self, event: Event, left_key: Any, right: Any) -> Event:
        answer = derived(event, [*self._store.rows[event.key, left_key], right])  # a `Response`
        answer.key = left_key
        return answer


class ForeignKeyResult:
    """Ports: changes of the left table after which a row refers to none, and responses. Output: changes of the result,
    which is a table of the operator's name. `inner` results need both rows, `left` the left one."""

    outputs = 1
    hold_ms = 0

    def __init__(self, name: str, left: str, value: Value, how: str = INNER, versioned: bool = False) -> None:
        self.name = name
        self.left = left
        self.how = how
        self.result = JoinResult(name, value, how)
        self.specs = (self.result.spec,)
        self.counts = {STALE: 0}
        self._versioned = versioned

    def open(self, context: Context) -> None:
        self.result.open(context)
        self._row = reader(context, self.left, self._versioned)

    def process(self, port: int, events: list[Event]) -> Outputs:
        return (self.result.changes(self._sides(port, events)),)

    def _sides(self, port: int, events: list[Event]) -> Iterator[Sides]:
        for event in events:
            if port == 0:
                yield event, event.value.new, None
                continue
            left, response = self._row(event.key), Response(*event.value)
            if left is None or hash_of(left) != response.hash:
                self.counts[STALE] += 1
            else:
                yield event, left, response.right

    def advance(self, watermark_ms: int) -> Outputs:
        return ([],)

    def tick(self, wall_ms: int) -> Outputs:
        return ([],)
