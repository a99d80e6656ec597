"""Three brokers under comparison, each a controller too: ours, or nodes of stock Kafka; both have the ids 1 to 3."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from integration_tests.brokers import running_cluster
from integration_tests.peers.peers import cluster
from integration_tests.waiting import until
from isthmus.protocol.messages import (
    create_topics,
    describe_cluster,
    describe_quorum,
    elect_leaders,
    metadata,
)
from isthmus.protocol.schema import Struct

from .normalise import VOLATILE, unexplained
from .peer import ERROR_CODES
from .versions import STOCK
from .wire import Connection, plain

IDS = (1, 2, 3)
SETTINGS: Mapping[str, object] = {
    "auto.create.topics.enable": "false",
    "broker.session.timeout.ms": 4000,
    "group.initial.rebalance.delay.ms": 0,
}
OWN = ("host", "port", "cluster_id", "controller_id")  # of a trio; a node's address is named by its id
SETTLE_S = 90.0


class Trio:
    """addresses, controllers: by node id, of the listeners for clients and for controllers. send_signal: sends one
    to a node's process. answers: what was kept to be compared, by what it is of."""

    def __init__(
        self,
        name: str,
        addresses: Mapping[int, str],
        controllers: Mapping[int, str],
        send_signal: Callable[[int, int], None],
    ) -> None:
        self.name = name
        self.addresses = addresses
        self.controllers = controllers
        self.signal = send_signal
        self.answers: dict[str, list[Any]] = {}
        self.codes: list[tuple[int, int]] = []  # API and error code, of all that was kept
        self._connections: dict[str, Connection] = {}
        self._nodes = {int(address.rpartition(":")[2]): node for node, address in addresses.items()}
        self._topics: dict[bytes, str] = {}

    def ask(self, node: int, request: Struct, version: int | None = None, controller: bool = False) -> Any:
        address = (self.controllers if controller else self.addresses)[node]
        if address not in self._connections:
            self._connections[address] = Connection(address)
        highest = STOCK[type(request).API.key][1] if type(request).API.key in STOCK else type(request).API.max_version
        return self._connections[address].ask(request, highest if version is None else version)

    def keep(
        self,
        what: str,
        node: int,
        request: Struct,
        version: int | None = None,
        controller: bool = False,
        only: Callable[[Any], Any] | None = None,
    ) -> Any:
        """Ask, and keep the answer to be compared; `only` cuts it."""
        api = type(request).API
        try:
            answer = self.ask(node, request, version, controller)
        except OSError as error:
            raise AssertionError(f"{self.name}: {what}, {api.name} at {node}: {error!r}") from error
        used = version if version is not None else STOCK.get(api.key, (0, api.max_version))[1]
        kept = plain(answer, used)
        found = self._own(only(kept) if only else kept)
        label = f"{what}: {api.name} v{used} at {'a controller' if controller else node}"
        self.answers.setdefault(label, []).append(found)
        self.codes += [(api.key, code) for code in _codes(found)]
        return answer

    def every_version(self, what: str, node: int, request: Struct, but: range = range(0)) -> None:
        """`keep` in all versions that stock Kafka has, but those."""
        low, high = STOCK[type(request).API.key]
        for version in range(low, high + 1):
            if version not in but:
                self.keep(what, node, request, version)

    def create(self, name: str, *replicas: list[int], **options: str) -> bytes:
        """A topic whose partitions are at these brokers, once it is led by the first of each. Its id."""
        topic = create_topics.CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                create_topics.CreatableReplicaAssignment(partition_index=index, broker_ids=nodes)
                for index, nodes in enumerate(replicas)
            ],
            configs=[
                create_topics.CreatableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in options.items()
            ],
        )
        answer = self.ask(1, create_topics.Request(topics=[topic], timeout_ms=20_000))
        assert answer.topics[0].error_code == 0, answer
        self._topics[answer.topics[0].topic_id] = name
        for node in IDS:
            until(partial(self._knows, node, name, len(replicas)), f"node {node} knows {name}", SETTLE_S)
        topic_id: bytes = answer.topics[0].topic_id
        return topic_id

    def _knows(self, node: int, name: str, count: int) -> bool:
        partitions = self.partitions(name, node)
        return len(partitions) == count and all(each.leader_id == each.replica_nodes[0] for each in partitions)

    def partitions(self, name: str, node: int = 1) -> list[Any]:
        asked = metadata.Request(topics=[metadata.MetadataRequestTopic(name=name)])
        return list(self.ask(node, asked).topics[0].partitions)

    def alive(self, node: int = 1) -> list[int]:
        """Brokers that are not fenced, as a node tells."""
        return sorted(each.broker_id for each in self.ask(node, describe_cluster.Request()).brokers)

    def active_controller(self) -> int:
        """As node 1 tells; -1 while there is none."""
        partition = describe_quorum.PartitionRequest(partition_index=0)
        topic = describe_quorum.TopicRequest(topic_name="__cluster_metadata", partitions=[partition])
        answer = self.ask(1, describe_quorum.Request(topics=[topic]))
        return int(answer.topics[0].partitions[0].leader_id) if answer.topics else -1

    def following_controller(self) -> int:
        return next(each for each in IDS if each != self.active_controller())

    def elect_another_than(self, node: int) -> None:
        """Have another controller than this node's: what was passed on to it would wait as long as it hangs.

        A node of Kafka passes requests on to the controller that it found last, until that one answers to a change that
        it is none, or not at all for 30 s. So each of the others is made to ask for a change, of a topic that is not.
        """
        if self.active_controller() == node:
            self.signal(node, signal.SIGSTOP)
            try:
                until(lambda: node not in self.alive(), "another controller has fenced it", SETTLE_S)
            finally:
                self.signal(node, signal.SIGCONT)
            until(lambda: self.alive() == [*IDS], "all brokers are there again", SETTLE_S)
        nothing = elect_leaders.TopicPartitions(topic="none", partitions=[0])
        for each in IDS:
            if each != node:
                self.ask(each, elect_leaders.Request(topic_partitions=[nothing], timeout_ms=20_000))

    def close(self) -> None:
        for each in self._connections.values():
            each.close()

    def _own(self, value: Any, name: str = "") -> Any:
        """An answer with what belongs to this trio replaced."""
        if isinstance(value, dict):
            return {key: self._own(each, key) for key, each in value.items()}
        if isinstance(value, list):
            return [self._own(each, name) for each in value]
        if name == "port":
            return f"<port of {self._nodes[value]}>" if value in self._nodes else value
        if name in OWN:
            return f"<its {name}>"
        if name == "topic_id":
            return f"<id of {self._topics[value]}>" if value in self._topics else value
        return VOLATILE[name][0](value, _NOBODY) if name in VOLATILE else value


class _Nobody:
    """Both trios number their nodes alike."""

    node_id = None
    producer_ids: Mapping[int, str] = {}


_NOBODY: Any = _Nobody()


def _codes(answer: Any) -> Iterator[int]:
    if isinstance(answer, dict):
        for key, value in answer.items():
            if key in ERROR_CODES and value:
                yield value
            else:
                yield from _codes(value)
    elif isinstance(answer, list):
        for each in answer:
            yield from _codes(each)


@contextlib.contextmanager
def our_trio(folder: Path) -> Iterator[Trio]:
    with running_cluster(folder, settings=SETTINGS) as made:
        controllers = {node: each.listen[0].partition("://")[2] for node, each in made.brokers.items()}
        addresses = {node: each.address for node, each in made.brokers.items()}
        trio = Trio("isthmus", addresses, controllers, lambda node, number: made.brokers[node].signal(number))
        try:
            yield trio
        finally:
            trio.close()


@contextlib.contextmanager
def stock_trio() -> Iterator[Trio]:
    with cluster(nodes=3, properties=SETTINGS, heap="400m") as made:
        listeners = {each.id: each.properties["listeners"].split(",") for each in made.nodes}
        found = {node: [each.partition("://")[2] for each in both] for node, both in listeners.items()}
        trio = Trio(
            "stock Kafka",
            {node: both[0] for node, both in found.items()},
            {node: both[1] for node, both in found.items()},
            lambda node, number: made.node(node).signal(number),
        )
        try:
            yield trio
        finally:
            trio.close()


@contextlib.contextmanager
def both_after(history: Callable[[Trio], object], folder: Path) -> Iterator[tuple[Trio, Trio]]:
    """Ours and stock Kafka's, after the history that both have at once. Ours has its data in the folder."""
    with our_trio(folder) as ours, stock_trio() as stock, ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(history, each) for each in (ours, stock)]:
            done.result()
        yield ours, stock


def differences(ours: Trio, stock: Trio) -> list[str]:
    """Of the answers that were kept under the same labels; that ours says why is none."""
    wrong: list[str] = []
    for label, answers in ours.answers.items():
        for answer, theirs in zip(answers, stock.answers[label], strict=True):
            found = unexplained(label, answer, theirs)
            wrong += [line for line in found if "error_message: ours '<some text>', stock Kafka's None" not in line]
    return wrong
