"""The sources of the metrics. A scrape reads once what may change while it is written piece by piece."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from ...runtime import Runtime
from ..cluster.controller import Controller
from ..cluster.image import MetadataImage
from ..coordinators.consumer_groups.group import GroupState
from ..coordinators.group_states import State
from ..coordinators.groups import GroupCoordinator
from ..coordinators.transactions.coordinator import TransactionCoordinator
from ..purgatory import Purgatory
from ..replication._core import Traffic
from ..replication.fetching import Fetching
from ..replication.isr_changes import IsrChanges
from ..replication.manager import ReplicaManager
from ..replication.partition import Partition
from ..server._route import Route
from ..server.fetch_sessions import FetchSessions
from ..server.latency import Latency
from ..server.listener import Server
from ..storage.disk.files import Files
from ..storage.upkeep.cleaner import Cleaner
from .windows import Windows


@dataclass(slots=True, kw_only=True)
class Rooms:
    """The rooms of a broker that serves."""

    image: MetadataImage
    replicas: ReplicaManager
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    cleaner: Cleaner
    controller: Controller
    isr_changes: IsrChanges
    fetching: Fetching
    fetch_sessions: FetchSessions


@dataclass(slots=True, kw_only=True)
class Sources:
    """All sources. `rooms` is None before the broker serves, and again when it stops."""

    node_id: int
    version: str
    runtime: Runtime
    files: Files
    server: Server
    purgatory: Purgatory
    state: Callable[[], int]  # Kafka's number of the broker's state
    started_ms: int
    rooms: Rooms | None = None
    windows: Windows = field(default_factory=Windows)


class Scrape:
    """One reading."""

    def __init__(self, sources: Sources, loop_time: float) -> None:
        self.sources = sources
        self.loop_time = loop_time
        rooms = sources.rooms
        topics = {} if rooms is None else rooms.replicas.partitions
        self.partitions: list[Partition] = [
            topics[name][index] for name in sorted(topics) for index in sorted(topics[name])
        ]
        self.routes: list[Route] = sorted(
            (route for route in sources.server.every_route if route.requests),
            key=lambda route: (route.api.key, route.version),
        )
        self.offline: dict[tuple[str, int], str] = {} if rooms is None else rooms.replicas.offline()
        self.groups: dict[State, int] = {} if rooms is None else rooms.groups.counts()
        self.consumer_groups: dict[GroupState, int] = {} if rooms is None else rooms.groups.consumer_counts()
        self.unread_groups: dict[int, str] = {} if rooms is None else rooms.groups.unread()

    @property
    def rooms(self) -> Rooms:
        assert self.sources.rooms is not None
        return self.sources.rooms

    @cached_property
    def latencies(self) -> list[tuple[str, Latency]]:
        """By API name, for the APIs that were requested."""
        return list({route.api.name: route.latency for route in self.routes}.items())

    @cached_property
    def by_topic(self) -> dict[str, Traffic]:
        """The traffic of each topic, summed over its partitions here."""
        topics: dict[str, Traffic] = {}
        for partition in self.partitions:
            topics.setdefault(partition.topic, Traffic()).add(partition.traffic)
        return topics

    @cached_property
    def overall(self) -> Traffic:
        """The traffic of all topics, deleted ones too."""
        total = Traffic()
        total.add(self.rooms.replicas.gone)
        for counts in self.by_topic.values():
            total.add(counts)
        return total
