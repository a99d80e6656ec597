"""Runs an app under the TestDriver over events of several topics, and reads what it gave."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import chain, cycle, groupby
from typing import Any, NamedTuple

from isthmus.streams import App
from isthmus.streams.driver import Sent, TestDriver, TestRecord
from tests.streams.forgetting import crash_and_forget

END_MS = 1 << 42  # event time after all


class Given(NamedTuple):
    topic: str
    key: Any
    value: Any
    timestamp_ms: int


class Run:
    """What was given to the app, and what it gave. Keys and values are JSON."""

    def __init__(self, app: App) -> None:
        self.driver = TestDriver(app)
        self.sent: list[Sent] = []
        self._seen = 0

    async def give(self, events: Iterable[Given], batches: Sequence[int] = (1_000,)) -> None:
        """Events in this order; those of one topic that follow each other as one fetch, of at most so many, by
        turns."""
        most = cycle(batches)
        for topic, run in groupby(events, lambda event: event.topic):
            records = [TestRecord(_json(event.value), _json(event.key), event.timestamp_ms) for event in run]
            begin = 0
            while begin < len(records):
                end = begin + next(most)
                self.driver.send(topic, *records[begin:end])
                begin = end

    async def end(self) -> Run:
        """All topics are complete."""
        self.driver.advance_event_time(END_MS)
        return self

    async def restart(self, *, loses: Iterable[Given] = ()) -> None:
        """A checkpoint, more events of which nothing is to remain, and a crash."""
        self.driver.commit()
        self._keep()
        await self.give(loses)
        crash_and_forget(self.driver)
        self._seen = 0

    async def close(self) -> None:
        self.driver.close()

    def _keep(self) -> None:
        self.sent += self.driver.sent[self._seen :]
        self._seen = len(self.driver.sent)

    def records(self, topic: str) -> list[Given]:
        self._keep()
        return [
            Given(topic, _loaded(each.key), _loaded(each.value), each.timestamp_ms or 0)
            for each in self.sent
            if each.topic == topic
        ]

    def values(self, topic: str) -> list[Any]:
        return [record.value for record in self.records(topic)]


def in_time_order(*topics: Iterable[Given]) -> list[Given]:
    """The events of several topics as one task reads them."""
    return sorted(chain(*topics), key=lambda event: event.timestamp_ms)


def app_of(name: str) -> App:
    return App(name, key_serializer="json", value_serializer="json")


def _json(value: Any) -> bytes | None:
    return None if value is None else json.dumps(value).encode()


def _loaded(data: bytes | None) -> Any:
    return None if data is None else json.loads(data)
