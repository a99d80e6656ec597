"""A broker under comparison, ours or stock Kafka, and what a scenario is given to ask it with."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from isthmus.protocol.messages import (
    create_topics,
    describe_cluster,
    describe_groups,
    find_coordinator,
    list_offsets,
    metadata,
)
from isthmus.protocol.schema import Struct

from .wire import Connection, plain

SETUP_TIMEOUT_S = 20.0
CLOSED = "<the broker closed the connection>"


class Peer:
    """One broker: its connection, and the values by which it may rightly differ from another."""

    def __init__(self, name: str, address: str):
        self.name = name
        self.address = address
        self.connection = Connection(address)
        about = self.ask(describe_cluster.Request())
        [broker] = about.brokers
        self.cluster_id: str = about.cluster_id
        self.node_id: int = broker.broker_id
        self.host: str = broker.host
        self.port: int = broker.port
        self.topic_ids: dict[bytes, str] = {}  # of the topics that scenarios made

    def ask(self, request: Struct, version: int | None = None) -> Any:
        api = type(request).API
        return self.connection.ask(request, api.max_version if version is None else version)

    def reconnect(self) -> None:
        self.close()
        self.connection = Connection(self.address)

    def close(self) -> None:
        self.connection.close()


@dataclass
class Case:
    """One scenario in one version against one peer. `answers` is what is compared, in the order asked."""

    peer: Peer
    version: int
    name: str  # of the topic or group that belongs to this case alone; the same for both peers
    answers: list[Any] = field(default_factory=list)

    def compare(self, request: Struct, only: Callable[[Any], Any] | None = None) -> Any:
        """Ask in the version under test and keep the answer; `only` cuts out what belongs to the case.

        A connection that the broker closes instead is an answer too: the text CLOSED, and None is returned.
        """
        try:
            answer = self.peer.ask(request, self.version)
        except ConnectionError:
            self.answers.append(CLOSED)
            self.peer.reconnect()
            return None
        kept = plain(answer, self.version)
        self.answers.append(only(kept) if only else kept)
        return answer

    def prepare(self, request: Struct, version: int | None = None) -> Any:
        """Ask in our newest version; the answer is not compared."""
        return self.peer.ask(request, version)

    def topic(self, suffix: str = "", partitions: int = 1, **configs: str) -> bytes:
        """Make a topic and wait until it is served; its id. Option names have _ for the dots."""
        name = self.name + suffix
        wanted = create_topics.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[
                create_topics.CreatableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in configs.items()
            ],
        )
        [made] = self.prepare(create_topics.Request(topics=[wanted], timeout_ms=10_000)).topics
        assert made.error_code == 0, made
        self.peer.topic_ids[made.topic_id] = name
        self.await_topic(name, partitions)
        return made.topic_id

    def await_topic(self, name: str, partitions: int = 1) -> None:
        """Wait until the topic is known and its leaders serve it, which in stock Kafka is a moment later."""
        wanted = metadata.MetadataRequestTopic(name=name)
        about = metadata.Request(topics=[wanted], allow_auto_topic_creation=False)
        rows = [list_offsets.ListOffsetsPartition(partition_index=each, timestamp=-1) for each in range(partitions)]
        ends = list_offsets.Request(
            replica_id=-1, topics=[list_offsets.ListOffsetsTopic(name=name, partitions=rows)], timeout_ms=5_000
        )  # fmt: skip

        def served() -> bool:
            [topic] = self.prepare(about).topics
            if topic.error_code == 0:
                self.peer.topic_ids[topic.topic_id] = name
            if len(topic.partitions) != partitions:
                return False
            return all(each.error_code == 0 for each in self.prepare(ends).topics[0].partitions)

        self.wait_until(served, f"topic {name} has {partitions} partitions with leaders")

    def coordinator(self, group: str | None = None) -> None:
        """Wait until the broker coordinates the group and has loaded its partition."""
        find = find_coordinator.Request(coordinator_keys=[group or self.name])
        describe = describe_groups.Request(groups=[group or self.name])

        def found() -> bool:
            [coordinator], [described] = self.prepare(find).coordinators, self.prepare(describe).groups
            return coordinator.error_code == 0 and described.error_code not in (14, 15, 16)  # loading, not there

        self.wait_until(found, f"a coordinator for {group or self.name}")

    def wait_until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + SETUP_TIMEOUT_S
        while not holds():
            assert time.monotonic() < deadline, f"{self.peer.name} at {self.peer.address}: never came: {what}"
            time.sleep(0.02)


@dataclass(frozen=True)
class Scenario:
    """One thing asked of every version from `since` to `until` of an API."""

    key: int
    kind: str  # "success" or "error"
    label: str
    run: Callable[[Case], None]
    since: int
    until: int


class Scenarios(list[Scenario]):
    """The scenarios of one file, collected by the decorators."""

    def success(self, key: int, since: int = 0, until: int = 99) -> Callable[[Callable[[Case], None]], None]:
        return self._collect(key, "success", since, until)

    def error(self, key: int, since: int = 0, until: int = 99) -> Callable[[Callable[[Case], None]], None]:
        return self._collect(key, "error", since, until)

    def _collect(self, key: int, kind: str, since: int, until: int) -> Callable[[Callable[[Case], None]], None]:
        def keep(run: Callable[[Case], None]) -> None:
            self.append(Scenario(key, kind, run.__name__, run, since, until))

        return keep
