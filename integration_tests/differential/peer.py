"""A broker under comparison, ours or stock Kafka, and what a scenario is given to ask it with."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from isthmus.protocol.messages import (
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    find_coordinator,
    list_offsets,
    metadata,
)
from isthmus.protocol.schema import Api, Struct

from .versions import STOCK
from .wire import ANSWER_TIMEOUT_S, Connection, decode, plain

SETUP_TIMEOUT_S = 20.0
POLL_S = 0.002
TOPIC = 2  # kind of resource
ERROR_CODES = ("error_code", "partition_error_code")  # names of fields
CLOSED = "<the broker closed the connection>"
KEEPS = "-1"  # retention.ms
NO_SUCH_ID = bytes.fromhex("0123456789abcdef0123456789abcdef")


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
        self.producer_ids: dict[int, str] = {}  # of transactional producers, with who was given them
        self.held: dict[str, Any] = {}  # what clients hold since before a restart

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
    topics: dict[str, None] = field(default_factory=dict)  # that it asked to be made
    groups: dict[str, None] = field(default_factory=dict)  # that it used
    transactions: dict[str, None] = field(default_factory=dict)  # transactional ids that it used
    group_logs: dict[str, None] = field(default_factory=dict)  # groups whose records are read back

    def compare(self, request: Struct, only: Callable[[Any], Any] | None = None) -> Any:
        """Ask in the version under test and keep the answer; `only` cuts out what belongs to the case.

        A connection that the broker closes instead is an answer too: the text CLOSED, and None is returned.
        """
        self._note(request)
        try:
            answer = self.peer.ask(request, self.version)
        except ConnectionError:
            self.answers.append(CLOSED)
            self.peer.reconnect()
            return None
        kept = plain(answer, self.version)
        self.answers.append(only(kept) if only else kept)
        return answer

    def compare_raw(self, api: Api, body: bytes, header_tags: bytes = b"\0") -> None:
        """Ask a flexible version with a body written by hand, and keep the answer."""
        try:
            data = self.peer.connection.ask_raw(api.key, self.version, header_tags + body, flexible=False)
        except ConnectionError:
            self.answers.append(CLOSED)
            self.peer.reconnect()
            return
        self.answers.append(plain(decode(api, self.version, data), self.version))

    def compare_pipelined(self, *requests: Struct) -> None:
        """Send requests without waiting, in our newest versions, and keep the answers."""
        for request in requests:
            self.peer.connection.send(request, type(request).API.max_version)
        for request in requests:
            api = type(request).API
            self.answers.append({api.name: plain(self.peer.connection.receive(), api.max_version)})

    def compare_waiting(self, request: Struct, meanwhile: Callable[[], object]) -> Any:
        """Ask on a connection of its own what the broker may hold back, do something, and keep the answer."""
        connection = Connection(self.peer.address)
        try:
            connection.send(request, self.version)
            meanwhile()
            answer = connection.receive()
        except TimeoutError:
            raise AssertionError(f"{self.peer.name} has not answered for {ANSWER_TIMEOUT_S:.0f} s") from None
        finally:
            connection.close()
        self.answers.append(plain(answer, self.version))
        return answer

    def expect_closed_by(self, key: int, version: int) -> None:
        """Compare that the broker closes the connection at a request of a key and version without a body."""
        self.peer.connection.send_raw(key, version)
        self.expect_closed()

    def send(self, request: Struct) -> None:
        """Send in the version under test what is not answered."""
        self.peer.connection.send_unanswered(request, self.version)

    def expect_closed(self) -> None:
        """Compare that the broker closes the connection."""
        self.answers.append(CLOSED if self.peer.connection.is_closed() else "<the connection is open>")
        self.peer.reconnect()

    def see(self, request: Struct, only: Callable[[Any], Any] | None = None) -> Any:
        """Ask in our newest version what has come of it, and keep the answer under its API to be compared."""
        answer = self.peer.ask(request)
        api = type(request).API
        kept = plain(answer, api.max_version)
        self.answers.append({api.name: only(kept) if only else kept})
        return answer

    def prepare(self, request: Struct, version: int | None = None) -> Any:
        """Ask in our newest version; the answer is not compared."""
        self._note(request)
        return self.peer.ask(request, version)

    def _note(self, request: Struct) -> None:
        """Remember the topics that a request may make."""
        if isinstance(request, create_topics.Request):
            self.topics.update(dict.fromkeys(topic.name for topic in request.topics))
        elif isinstance(request, metadata.Request) and request.allow_auto_topic_creation:
            names = (topic.name for topic in request.topics or ())
            self.topics.update(dict.fromkeys(name for name in names if name and not name.startswith("__")))

    def topic(self, suffix: str = "", partitions: int = 1, **configs: str) -> bytes:
        """Make a topic and wait until it is served; its id. Option names have _ for the dots.

        It keeps its records, however old their timestamps are: a pass of retention may come at any time.
        """
        name = self.name + suffix
        configs.setdefault("retention_ms", KEEPS)
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

    def id_of(self, name: str) -> bytes:
        """The id of a topic that is there."""
        wanted = metadata.MetadataRequestTopic(name=name)
        [topic] = self.prepare(metadata.Request(topics=[wanted], allow_auto_topic_creation=False)).topics
        assert topic.error_code == 0, topic
        return topic.topic_id

    def delete_topic(self, suffix: str = "") -> None:
        """Delete a topic of the case and wait until it is not known any more."""
        name = self.name + suffix
        wanted = delete_topics.DeleteTopicState(name=name)
        [deleted] = self.prepare(delete_topics.Request(topics=[wanted], timeout_ms=10_000)).responses
        assert deleted.error_code == 0, deleted
        self.await_gone(name)

    def await_gone(self, name: str) -> None:
        """Wait until a topic is not known and its partitions are not served any more."""
        wanted = metadata.MetadataRequestTopic(name=name)
        about = metadata.Request(topics=[wanted], allow_auto_topic_creation=False)
        row = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)
        ends = list_offsets.Request(
            replica_id=-1, topics=[list_offsets.ListOffsetsTopic(name=name, partitions=[row])], timeout_ms=5_000
        )  # fmt: skip

        def gone() -> bool:
            known = self.prepare(about).topics[0].error_code == 0
            return not known and self.prepare(ends).topics[0].partitions[0].error_code == 3

        self.wait_until(gone, f"topic {name} is gone")

    def options_of(self, name: str, kind: int = TOPIC) -> dict[str, str | None]:
        resource = describe_configs.DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=None
        )
        [result] = self.prepare(describe_configs.Request(resources=[resource])).results
        return {each.name: each.value for each in result.configs}

    def await_options(self, name: str, kind: int = TOPIC, **values: str | None) -> None:
        """Wait until a resource has these values; stock Kafka answers an alteration before it takes effect."""

        def settled() -> bool:
            found = self.options_of(name, kind)
            return all(found.get(option) == value for option, value in values.items())

        self.wait_until(settled, f"{name} has the options {values}")

    def delete_records(self, before: int, partition: int = 0) -> None:
        """Let a partition of the case's topic start at an offset."""
        row = delete_records.DeleteRecordsPartition(partition_index=partition, offset=before)
        topic = delete_records.DeleteRecordsTopic(name=self.name, partitions=[row])
        [answer] = self.prepare(delete_records.Request(topics=[topic], timeout_ms=5_000)).topics
        assert answer.partitions[0].error_code == 0, answer

    @staticmethod
    def now_ms() -> int:
        return int(time.time() * 1000)

    def coordinator(self, group: str | None = None) -> None:
        """Wait until the broker coordinates the group and has loaded its partition."""
        self.groups[group or self.name] = None
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
            time.sleep(POLL_S)


@dataclass(frozen=True)
class Scenario:
    """One thing asked of every version of an API from `since` to `until`; with `ends` of the first and last of them."""

    key: int
    kind: str  # "success" or "error"
    label: str
    run: Callable[[Case], None]
    since: int
    until: int
    ends: bool

    @property
    def versions(self) -> list[int]:
        low, high = STOCK[self.key]
        asked = list(range(max(low, self.since), min(high, self.until) + 1))
        return sorted({asked[0], asked[-1]}) if self.ends else asked


class Scenarios(list[Scenario]):
    """The scenarios of one file, collected by the decorators.

    since, until: the versions that can be asked. ends: only the first and the last of them. each: preconditions, as the
    states of a group; every one of them makes a scenario of its own, and is given to the function.
    """

    def success(
        self, key: int, since: int = 0, until: int = 99, *, ends: bool = False, each: Sequence[str] = ()
    ) -> Callable[[Callable[..., None]], None]:
        return self._collect(key, "success", since, until, ends, each)

    def error(
        self, key: int, since: int = 0, until: int = 99, *, ends: bool = False, each: Sequence[str] = ()
    ) -> Callable[[Callable[..., None]], None]:
        return self._collect(key, "error", since, until, ends, each)

    def _collect(
        self, key: int, kind: str, since: int, until: int, ends: bool, each: Sequence[str]
    ) -> Callable[[Callable[..., None]], None]:
        def keep(run: Callable[..., None]) -> None:
            if not each:
                self.append(Scenario(key, kind, run.__name__, run, since, until, ends))
            for precondition in each:
                label = f"{run.__name__}-{precondition}"
                self.append(Scenario(key, kind, label, partial(_given, run, precondition), since, until, ends))

        return keep


def _given(run: Callable[..., None], precondition: str, case: Case) -> None:
    run(case, precondition)
