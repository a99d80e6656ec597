"""A coordinator of a consumer group as KIP-848 has it, reduced to what its members must keep to, and scripted brokers
that have one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import consumer_group_heartbeat as wire
from isthmus.protocol.messages import find_coordinator, offset_commit, offset_fetch
from tests.client.scripted import PORT, ScriptedBroker, World


def answer(epoch: int, assigned: dict[bytes, list[int]] | None = None) -> Any:
    parts = [wire.TopicPartitions(topic_id=topic_id, partitions=each) for topic_id, each in (assigned or {}).items()]
    assignment = None if assigned is None else wire.Assignment(topic_partitions=parts)
    return wire.Response(member_id="m", member_epoch=epoch, heartbeat_interval_ms=5_000, assignment=assignment)


class Known:
    """A member as the coordinator knows it."""

    def __init__(self) -> None:
        self.epoch = self.previous_epoch = -1
        self.assigned: frozenset[int] = frozenset()
        self.to_revoke: frozenset[int] = frozenset()  # until it is acknowledged


class Coordinator:
    """The rules of KIP-848 for a topic: target assignments by group epoch; a partition goes to nobody before its last
    owner has acknowledged that it gave it up."""

    def __init__(self, topic_id: bytes, partitions: int) -> None:
        self.topic_id = topic_id
        self.partitions = partitions
        self.epoch = 0
        self.members: dict[str, Known] = {}

    def target(self, name: str) -> frozenset[int]:
        names = sorted(self.members)
        first, step = (names.index(name) + self.epoch) % len(names), len(names)
        return frozenset(range(first, self.partitions, step))

    def remove(self, name: str) -> None:
        del self.members[name]
        self.epoch += 1

    def heard(self, request: Any) -> Any:
        name, epoch = request.member_id, request.member_epoch
        if epoch < 0:
            if name in self.members:
                self.remove(name)
            return wire.Response(member_epoch=epoch)
        if epoch == 0:
            assert request.topic_partitions == [] and request.rebalance_timeout_ms > 0
            assert request.subscribed_topic_names is not None
            self.members[name] = Known()
            self.epoch += 1
        known = self.members.get(name)
        if known is None:
            return wire.Response(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        said = None if request.topic_partitions is None else frozenset(_partitions(request.topic_partitions))
        is_late = epoch == known.previous_epoch and said is not None and said <= known.assigned
        if epoch not in (0, known.epoch) and not is_late:
            self.remove(name)
            return wire.Response(error_code=ErrorCode.FENCED_MEMBER_EPOCH)
        before = known.assigned
        self.reconcile(name, known, said)
        is_full = said is not None or request.subscribed_topic_names is not None
        if known.assigned == before and not is_full:
            return answer(known.epoch)
        return answer(known.epoch, {self.topic_id: sorted(known.assigned)})

    def reconcile(self, name: str, known: Known, said: frozenset[int] | None) -> None:
        if known.to_revoke:
            if said is None or said & known.to_revoke:
                return
            known.to_revoke = frozenset()
        target = self.target(name)
        if gone := known.assigned - target:
            known.assigned = known.assigned & target
            if said is None or said & gone:
                known.to_revoke = gone
                return
        taken = {p for other in self.members.values() if other is not known for p in other.assigned | other.to_revoke}
        known.assigned = target - taken
        if known.epoch != self.epoch:
            known.previous_epoch, known.epoch = known.epoch, self.epoch


def _partitions(parts: Iterable[Any]) -> list[int]:
    return [partition for each in parts for partition in each.partitions]


class Served:
    """The group g of all brokers of a world, with the topic t; brokers that come later are given by `serve`. node: its
    coordinator. beats: all heartbeats that came to it, with their loop times."""

    def __init__(self, world: World, partitions: int = 4) -> None:
        world.add_topic("t", partitions)
        self.world = world
        self.model = Coordinator(world.topics["t"], partitions)
        self.node = 1
        self.offsets: dict[tuple[str, int], int] = {}
        self.beats: list[tuple[float, Any]] = []
        for broker in world.brokers.values():
            self.serve(broker)

    def serve(self, broker: ScriptedBroker) -> None:
        def heartbeat(request: Any) -> Any:
            if broker.node_id != self.node:
                return wire.Response(error_code=ErrorCode.NOT_COORDINATOR)
            self.beats.append((asyncio.get_running_loop().time(), request))
            return self.model.heard(request)

        for name, answers in {
            "find_coordinator": self._find,
            "consumer_group_heartbeat": heartbeat,
            "offset_commit": self._commit,
            "offset_fetch": self._fetch,
        }.items():
            setattr(broker, f"on_{name}", answers)

    def beats_of(self, member_id: str) -> list[Any]:
        return [request for _, request in self.beats if request.member_id == member_id]

    def claims_of(self, member_id: str) -> list[tuple[float, list[int]]]:
        """What a member said that it has, and when."""
        return [
            (at, _partitions(request.topic_partitions))
            for at, request in self.beats
            if request.member_id == member_id and request.topic_partitions is not None
        ]

    def _find(self, request: Any) -> Any:
        assert (request.key_type, request.coordinator_keys) == (0, ["g"])
        host = self.world.brokers[self.node].host
        found = find_coordinator.Coordinator(key="g", node_id=self.node, host=host, port=PORT)
        return find_coordinator.Response(coordinators=[found])

    def refuse_as_stale(self, request: Any) -> Any:
        """Of OffsetCommit."""
        return self._commit(request, ErrorCode.STALE_MEMBER_EPOCH)

    def _commit(self, request: Any, code: int = 0) -> Any:
        known = self.model.members.get(request.member_id)
        if code:
            pass
        elif known is None:
            code = ErrorCode.UNKNOWN_MEMBER_ID
        elif known.epoch != request.generation_id_or_member_epoch:
            code = ErrorCode.STALE_MEMBER_EPOCH
        topics = []
        for topic in request.topics:
            if not code:
                self.offsets |= {(topic.name, each.partition_index): each.committed_offset for each in topic.partitions}
            parts = [
                offset_commit.OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
                for each in topic.partitions
            ]
            topics.append(offset_commit.OffsetCommitResponseTopic(name=topic.name, partitions=parts))
        return offset_commit.Response(topics=topics)

    def _fetch(self, request: Any) -> Any:
        [group] = request.groups
        topics = []
        for topic in group.topics:
            parts = [
                offset_fetch.OffsetFetchResponsePartitions(
                    partition_index=index, committed_offset=self.offsets.get((topic.name, index), -1)
                )
                for index in topic.partition_indexes
            ]
            topics.append(offset_fetch.OffsetFetchResponseTopics(name=topic.name, partitions=parts))
        return offset_fetch.Response(groups=[offset_fetch.OffsetFetchResponseGroup(group_id="g", topics=topics)])
