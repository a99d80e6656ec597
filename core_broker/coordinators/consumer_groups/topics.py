"""The topics of the metadata image, as consumer groups see them: by id and name, with hashes, and what has changed.

Nothing is pushed to groups: a group remembers the count of changes up to which it has looked, and compares.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ...cluster.image import Delta, MetadataImage
from .assignors.types import TopicDescriber
from .metadata_hash import group_hash, topic_hash

MAX_CHANGED = 100_000  # topics whose last change is remembered; past that, all count as changed


class Topics:
    """changes: how many changes of topics there were. new_topics_at: offset in the metadata of the last new topic."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._hashes: dict[str, int] = {}
        self._changed: dict[str, int] = {}  # by name, the count at its last change
        self._all_changed = 0
        self.changes = 0
        self.new_topics_at = -1

    def on_change(self, delta: Delta) -> None:
        """Follow a change of the metadata image."""
        if self.new_topics_at < 0 or delta.created:
            self.new_topics_at = self._image.offset
        if not (delta.changed or delta.deleted):
            return
        self.changes += 1
        for names in (delta.changed, delta.deleted):
            for name in names:
                self._changed[name] = self.changes
                self._hashes.pop(name, None)
        if len(self._changed) > MAX_CHANGED:
            self._changed.clear()
            self._all_changed = self.changes

    def have_changed(self, names: Iterable[str], since: int) -> bool:
        """Whether any of these has changed after the count was `since`."""
        if since < self._all_changed:
            return True
        return any(self._changed.get(name, 0) > since for name in names)

    @property
    def version(self) -> int:
        """Of the metadata: the offset of the last change."""
        return self._image.offset

    @property
    def names(self) -> Collection[str]:
        return self._image.topics.keys()

    def id_of(self, name: str) -> bytes | None:
        topic = self._image.topics.get(name)
        return None if topic is None else topic.id

    def ids_of(self, names: Iterable[str]) -> frozenset[bytes]:
        """Of those that exist."""
        return frozenset(topic.id for topic in map(self._image.topics.get, names) if topic is not None)

    def name_of(self, topic_id: bytes) -> str | None:
        return self._image.names_by_id.get(topic_id)

    def describer(self, topic_id: bytes) -> TopicDescriber:
        """Raises KeyError for a topic that does not exist."""
        topic = self._image.topics[self._image.names_by_id[topic_id]]
        return TopicDescriber(len(topic.partitions), self._racks(topic.name))

    def hash_of(self, names: Iterable[str]) -> int:
        """The hash of those that exist (KIP-1101)."""
        return group_hash({name: self._hash(name) for name in names if name in self._image.topics})

    def _hash(self, name: str) -> int:
        found = self._hashes.get(name)
        if found is None:
            found = self._hashes[name] = topic_hash(name, self._image)
        return found

    def _racks(self, name: str) -> list[frozenset[str]]:
        brokers = self._image.brokers
        return [
            frozenset(
                broker.rack
                for broker in map(brokers.get, partition.replicas)
                if broker is not None and broker.rack is not None
            )
            for partition in self._image.topics[name].partitions.values()
        ]
