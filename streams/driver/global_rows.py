"""The global tables of an app under the driver: their rows follow topics in memory."""

from __future__ import annotations

from functools import partial

from ...client import TopicPartition
from ...client.partitioner import partition_for_key
from ..api.app import App
from ..engine.checkpoint import as_read, as_written
from ..engine.stores.global_store import GlobalStore, Place
from ..engine.stores.memory import MemoryStore
from .topics import MemoryTopics


class GlobalRows:
    """Those of the app's own changelogs, and views of other topics; in memory, wherever a worker has them."""

    def __init__(self, app: App, topics: MemoryTopics) -> None:
        self._app = app
        self._topics = topics
        self.stores: dict[str, GlobalStore] = {}
        self._names: dict[str, str] = {}  # topics by table
        for name, spec in app.global_tables.items():
            topic = self._names[name] = spec.source or app.changelog_topic(name)
            topics.create(topic, topics.default if spec.source else spec.partitions or 1)
            partition_of = None if spec.source else partial(_partition_of, topics.count(topic))
            self.stores[name] = GlobalStore(spec, [MemoryStore(spec)], partition_of)

    def is_read(self, topic: str) -> bool:
        return topic in self._names.values()

    def follow(self) -> None:
        """Read what is committed."""
        for name, store in self.stores.items():
            topic = self._names[name]
            for partition in range(self._topics.count(topic)):
                end = self._topics.end(TopicPartition(topic, partition))
                begin = store.start(partition)
                if begin >= end:
                    continue
                written = self._topics.records(topic, partition, begin)
                if store.spec.source is None:
                    rows, _ = as_read([each.key for each in written], [each.value for each in written], topic)
                else:
                    rows = [(each.key, each.value) for each in written if each.key is not None]
                store.follow(partition, rows, end)

    def commit(self, now_ms: int) -> None:
        """Write what the app has changed."""
        for name, store in self.stores.items():
            places = []
            for change in store.take_changes():
                [row] = as_written([(change.key, change.value)])
                sent = self._topics.append(self._names[name], change.partition, row.key, row.value, now_ms)
                places.append(Place(sent.partition, sent.offset))
            store.confirm(places)
        self.follow()


def _partition_of(count: int, key: bytes) -> int:
    return partition_for_key(key, count)
