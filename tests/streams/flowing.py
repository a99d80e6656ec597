"""Runs an app's whole graph in memory: each of its parts as one task, and the app's own topics between them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from isthmus.streams.api.pipeline import Pipeline
from isthmus.streams.engine.event import Event
from isthmus.streams.engine.graph import Chain, Given, Kind
from isthmus.streams.engine.stores.memory import MemoryStore
from isthmus.streams.engine.stores.store import Store
from isthmus.streams.engine.tables import TableSpec
from isthmus.streams.engine.time import Kept, Watermarks


class Flowing:
    """sent: what ends gave, by topic or agent. tables: of the app's agents. store: makes the stores."""

    def __init__(
        self, pipeline: Pipeline, *tables: TableSpec, store: Callable[[TableSpec], Store] = MemoryStore
    ) -> None:
        self.graph = pipeline.graph
        self.sent: dict[str, list[Event]] = defaultdict(list)
        specs = [*self.graph.specs.values(), *tables]
        self.stores: dict[str, Store] = {spec.name: store(spec) for spec in specs}
        self.watermarks: dict[int, Kept] = {}  # of each part
        self.chains: dict[str, Chain] = {}  # by topic
        self._offsets: dict[str, int] = defaultdict(int)
        self._begin()

    def _begin(self) -> None:
        for number, part in enumerate(self.graph.parts()):
            topics = [topic for node in part if node.kind is Kind.TOPIC for topic in node.topics]
            chain = Chain(part, self.stores, Watermarks(topics, kept=self.watermarks.setdefault(number, {})))
            list(chain.read())
            self.chains.update(dict.fromkeys(topics, chain))

    def restart(self) -> None:
        """All tasks begin anew with what a changelog would have of their tables."""
        for chain in dict.fromkeys(self.chains.values()):
            chain.save()
        for name, store in self.stores.items():
            fresh = MemoryStore(store.spec)
            encode_key, encode_value = store.spec.encode_key, store.spec.encode_value
            fresh.restore([(encode_key(key), encode_value(key, row)) for key, row in store.rows.items()], 0)
            list(fresh.settle())
            self.stores[name] = fresh
        self._begin()

    def send(self, topic: str, *records: tuple[Any, Any, int]) -> None:
        """Process records (key, value, timestamp) of a topic as one batch, and all that they cause."""
        self._process(topic, [self._event(topic, *record) for record in records])

    def advance(self, watermark_ms: int) -> None:
        """Say that all topics are complete up to a time."""
        for chain in dict.fromkeys(self.chains.values()):
            for topic, other in self.chains.items():
                if other is chain:
                    chain.clocks.complete(topic, watermark_ms)
            self._deliver(chain.advance())

    def tick(self, wall_ms: int, idle: Iterable[str] = ()) -> None:
        """idle: topics with nothing to read."""
        for chain in dict.fromkeys(self.chains.values()):
            self._deliver(chain.tick(wall_ms, [topic for topic in idle if self.chains[topic] is chain]))

    def values(self, topic: str) -> list[Any]:
        return [event.value for event in self.sent[topic]]

    def rows(self, table: str) -> dict[Any, Any]:
        return dict(self.stores[table].rows)

    def _event(self, topic: str, key: Any, value: Any, timestamp_ms: int) -> Event:
        self._offsets[topic] += 1
        return Event(key, value, timestamp_ms, topic, 0, self._offsets[topic] - 1)

    def _process(self, topic: str, events: list[Event]) -> None:
        self._deliver(self.chains[topic].process(topic, events, 0))

    def _deliver(self, given: Given) -> None:
        for name, events in given.items():
            node = self.graph.nodes[name]
            if node.kind is Kind.REPARTITION:
                [topic] = node.topics
                self._process(topic, [self._event(topic, each.key, each.value, each.timestamp_ms) for each in events])
            else:
                self.sent[node.topics[0] if node.topics else name] += events
