"""Requests to the right one of three brokers, so that what scenarios of one node are made of works with a trio.

A `RoutedCase` stands for a `Case`: what is prepared goes to the coordinator of the transaction or group that it is of,
or to the leader of the partition. What is kept to be compared names its node.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from integration_tests.waiting import until
from isthmus.protocol.messages import (
    add_partitions_to_txn,
    alter_partition_reassignments,
    consumer_group_describe,
    describe_groups,
    describe_transactions,
    elect_leaders,
    find_coordinator,
    offset_fetch,
    write_txn_markers,
)
from isthmus.protocol.schema import Struct

from .peer import KEEPS, Case
from .state_records import OFFSETS, TRANSACTIONS, java_hash
from .transactional import NEVER_MS, NOT_YET, describe_request
from .trios import IDS, SETTLE_S, Trio

GROUP, TRANSACTION = 0, 1  # kinds of coordinators
PREFERRED = 0


class _Peer:
    """What scenarios ask of a peer beside its answers."""

    def __init__(self, trio: Trio) -> None:
        self.name = trio.name
        self.producer_ids: dict[int, str] = {}
        self.topic_ids: dict[bytes, str] = {}


class RoutedCase(Case):
    """name: of the topic, group and transaction of the case. Its topic is led by broker 1 and 2, one partition each."""

    def __init__(self, trio: Trio, name: str) -> None:
        super().__init__(_Peer(trio), 0, name)  # type: ignore[arg-type]
        self.trio = trio
        self.topics[name] = None
        self.topic_id = trio.create(name, [1, 2, 3], [2, 3, 1], retention_ms=KEEPS, segment_ms=NEVER_MS)

    def id_of(self, name: str) -> bytes:
        return self.topic_id

    def prepare(self, request: Struct, version: int | None = None) -> Any:
        """Asked again while a coordinator or leader is on its way."""
        answers: list[Any] = []

        def answered() -> bool:
            answers.append(self.trio.ask(self.node_for(request), request, version))
            return not _has_moved(answers[-1])

        until(answered, f"an answer to {type(request).API.name}", SETTLE_S)
        return answers[-1]

    def wait_until(self, holds: Callable[[], bool], what: str) -> None:
        until(holds, what, SETTLE_S)

    def coordinator(self, group: str | None = None) -> None:
        self.prepare(describe_groups.Request(groups=[group or self.name]))

    def node_for(self, request: Struct) -> int:
        match request:
            case find_coordinator.Request():
                return 1
            case add_partitions_to_txn.Request(transactions=[first, *_]):
                return self.coordinator_of(TRANSACTION, first.transactional_id)
            case add_partitions_to_txn.Request():
                return self.coordinator_of(TRANSACTION, request.v3_and_below_transactional_id)
            case describe_transactions.Request():
                return self.coordinator_of(TRANSACTION, request.transactional_ids[0])
            case describe_groups.Request():
                return self.coordinator_of(GROUP, request.groups[0])
            case consumer_group_describe.Request():
                return self.coordinator_of(GROUP, request.group_ids[0])
            case offset_fetch.Request():
                return self.coordinator_of(GROUP, request.groups[0].group_id)
            case write_txn_markers.Request():
                topic = request.markers[0].topics[0]
                return self.leader_of(topic.name, topic.partition_indexes[0])
        if getattr(request, "topic_data", None):
            return self.leader_of(self.name, request.topic_data[0].partition_data[0].index)  # type: ignore[attr-defined]
        if getattr(request, "group_id", None) and not hasattr(request, "groups") and _is_of_group(request):
            return self.coordinator_of(GROUP, request.group_id)  # type: ignore[attr-defined]
        if getattr(request, "transactional_id", None):
            return self.coordinator_of(TRANSACTION, request.transactional_id)  # type: ignore[attr-defined]
        return 1

    def coordinator_of(self, kind: int, key: str) -> int:
        found: list[int] = []
        wanted = find_coordinator.Request(key_type=kind, coordinator_keys=[key])

        def is_found() -> bool:
            [coordinator] = self.trio.ask(1, wanted).coordinators
            found.append(coordinator.node_id)
            return bool(coordinator.error_code == 0)

        until(is_found, f"a coordinator for {key}", SETTLE_S)
        return found[-1]

    def leader_of(self, topic: str, partition: int) -> int:
        found: list[int] = []

        def is_led() -> bool:
            rows = {each.partition_index: each.leader_id for each in self.trio.partitions(topic)}
            found.append(rows.get(partition, -1))
            return found[-1] > 0

        until(is_led, f"a leader of {topic}-{partition}", SETTLE_S)
        return found[-1]

    # --- Moves --------------------------------------------------------------------------------------------------------

    def move_transactions(self, transactional_id: str, *nodes: int) -> None:
        """Let the first of these brokers coordinate the transaction, once it has loaded it."""
        self.prepare(describe_request(transactional_id))
        self.move(TRANSACTIONS, self.index(TRANSACTIONS, transactional_id), *nodes)
        for node in nodes:
            knows = partial(self._knows_transaction, node, transactional_id, nodes[0])
            until(knows, f"{node} knows who coordinates", SETTLE_S)

    def move_group(self, group: str, *nodes: int) -> None:
        self.coordinator(group)
        self.move(OFFSETS, self.index(OFFSETS, group), *nodes)
        for node in nodes:
            until(partial(self._knows_group, node, group, nodes[0]), f"{node} knows who coordinates", SETTLE_S)

    def index(self, topic: str, key: str) -> int:
        return java_hash(key) % len(self.trio.partitions(topic))

    def move(self, topic: str, partition: int, *nodes: int) -> None:
        """Let these brokers have a partition, and the first lead it, as all of them know."""
        row = alter_partition_reassignments.ReassignablePartition(partition_index=partition, replicas=list(nodes))
        wanted = alter_partition_reassignments.ReassignableTopic(name=topic, partitions=[row])
        answer = self.trio.ask(1, alter_partition_reassignments.Request(topics=[wanted], timeout_ms=20_000))
        assert answer.responses[0].partitions[0].error_code == 0, answer
        for node in IDS:
            until(partial(self._placed, node, topic, partition, nodes), f"{topic}-{partition} is moved", SETTLE_S)
        elected = elect_leaders.TopicPartitions(topic=topic, partitions=[partition])
        self.trio.ask(
            1, elect_leaders.Request(election_type=PREFERRED, topic_partitions=[elected], timeout_ms=20_000)
        )  # fmt: skip
        for node in IDS:
            leads = partial(self._led, node, topic, partition, nodes[0])
            until(leads, f"{nodes[0]} leads {topic}-{partition}", SETTLE_S)

    def _placed(self, node: int, topic: str, partition: int, nodes: tuple[int, ...]) -> bool:
        rows = {each.partition_index: each for each in self.trio.partitions(topic, node)}
        return rows[partition].replica_nodes == list(nodes) and set(rows[partition].isr_nodes) == set(nodes)

    def _led(self, node: int, topic: str, partition: int, leader: int) -> bool:
        rows = {each.partition_index: each for each in self.trio.partitions(topic, node)}
        return bool(rows[partition].leader_id == leader)

    def _knows_transaction(self, node: int, transactional_id: str, coordinator: int) -> bool:
        """Whether a broker coordinates the transaction if it should, and knows that it does not if it should not."""
        [found] = self.trio.ask(node, describe_request(transactional_id)).transaction_states
        return (found.error_code not in NOT_YET) is (node == coordinator)

    def _knows_group(self, node: int, group: str, coordinator: int) -> bool:
        [found] = self.trio.ask(node, describe_groups.Request(groups=[group])).groups
        return (found.error_code not in NOT_YET) is (node == coordinator)


def _is_of_group(request: Struct) -> bool:
    return type(request).API.name in ("TxnOffsetCommit", "OffsetCommit", "ConsumerGroupHeartbeat", "OffsetDelete")


MOVED = (*NOT_YET, 6)  # the last one: not the leader


def _has_moved(answer: Any) -> bool:
    """Whether some part of an answer says that another broker is to be asked."""
    if isinstance(answer, Struct):
        return any(
            getattr(answer, field.name) in MOVED
            if field.name in ("error_code", "partition_error_code")
            else _has_moved(getattr(answer, field.name))
            for field in answer.FIELDS
        )
    return isinstance(answer, list) and any(_has_moved(each) for each in answer)
