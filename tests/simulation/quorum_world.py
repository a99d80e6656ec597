"""A quorum in memory under faults: nodes of `tests/core_broker/cluster/raft/node.py`, a network, disks, invariants.

Time is in ms, and one event after the other happens, from one heap. After each of them the invariants of Kafka's own
Raft simulation are checked (RaftEventSimulationTest): they have its names.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from isthmus.core_broker.cluster.raft import messages as m
from isthmus.core_broker.cluster.raft.leader import Leader
from isthmus.core_broker.cluster.raft.raft import RaftOptions
from isthmus.core_broker.cluster.raft.voters import ReplicaKey, Voter
from isthmus.protocol.errors import ErrorCode
from tests.core_broker.cluster.raft.node import (
    Crashed,
    Message,
    RaftNode,
    Record,
    dynamic_voters,
    endpoints_of,
    formatted_with,
    key_of,
    static_voters,
)

ADMIN = -9  # the source of requests that change the voters
REQUEST_LOST_MS = 30  # until a connection to a dead process is known to be broken
VOTER_TIMEOUT_MS = 5_000


@dataclass
class Faults:
    """Of one run: chances of each message and each disk write, in ms where they are times."""

    loss: float = 0.0
    double: float = 0.0
    slow_message: float = 0.0
    slow_flush: float = 0.0
    crash_after_vote: float = 0.0
    latency_ms: tuple[int, int] = (1, 10)
    flush_ms: tuple[int, int] = (0, 8)


@dataclass(order=True)
class Event:
    at_ms: int
    number: int
    do: Callable[[], None] = field(compare=False)


class QuorumWorld:
    """voters: ids of the first voters. others: of the other nodes. is_dynamic: the voters are in the log."""

    def __init__(
        self,
        chance: random.Random,
        counters: Counter[str],
        voters: list[int],
        others: list[int],
        is_dynamic: bool,
        options: RaftOptions,
    ) -> None:
        self.options = options
        self.chance = chance
        self.counters = counters
        self.faults = Faults()
        self.now_ms = 0
        self.nodes: dict[int, RaftNode] = {}
        self.lives: dict[int, int] = {}  # of each node: its directory
        self.paused_until: dict[int, int] = {}
        self.cuts: dict[tuple[int, int], None] = {}
        self.truth: list[Record] = []  # what is committed, by offset
        self.acknowledged: dict[int, Any] = {}  # values by offset
        self.waiting: list[tuple[int, int, int, Any]] = []  # (node, epoch, offset, value) that was appended
        self.leaders: dict[int, int] = {}  # by epoch
        self.epochs: dict[int, int] = {}  # persisted, by node
        self.leader_high_watermark = 0
        self.checked: dict[int, int] = {}  # how much of a node's committed records was compared
        self._events: list[Event] = []
        self._number = 0
        self._ticks: dict[int, int | None] = {}
        self.lost: ReplicaKey | None = None  # a voter whose disk is lost; no other may be before it is removed
        self.on_leader: Callable[[int], None] = lambda node_id: None
        self._value = 0
        self._flushing: dict[int, None] = {}
        servers = tuple(endpoints_of(each) for each in [*voters, *others])
        for node_id in [*voters, *others]:
            self.lives[node_id] = self.epochs[node_id] = 0
            node = self._new_node(node_id, servers)
            if not is_dynamic:
                node.configured = static_voters(voters)
            elif node_id in voters:
                node.log = formatted_with(dynamic_voters([key_of(each) for each in voters]))
            self.start(node_id)

    def _new_node(self, node_id: int, servers: Any) -> RaftNode:
        node = RaftNode(
            key_of(node_id, self.lives[node_id]), servers=servers, note=self._note, options=self.options,
            chance=lambda n: self.chance.randrange(n) if n > 0 else 0, flushes_at_once=False,
        )  # fmt: skip
        self.nodes[node_id] = node
        return node

    # --- What happens -------------------------------------------------------------------------------------------------

    def at(self, delay_ms: int, do: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, Event(self.now_ms + max(0, delay_ms), self._number, do))

    def run(self, until_ms: int, done: Callable[[], bool] | None = None) -> bool:
        """Let time pass; True if `done` came true."""
        while self._events and self._events[0].at_ms <= until_ms:
            event = heapq.heappop(self._events)
            self.now_ms = event.at_ms
            event.do()
            if done is not None and done():
                return True
        self.now_ms = max(self.now_ms, until_ms)
        return False

    def up(self) -> list[RaftNode]:
        return [node for node in self.nodes.values() if node.raft is not None]

    def start(self, node_id: int) -> None:
        node = self.nodes[node_id]
        self.checked[node_id] = 0
        self._flushing.pop(node_id, None)
        self._at_node(node, lambda: node.start(self.now_ms))

    def crash(self, node_id: int) -> None:
        node = self.nodes[node_id]
        if node.raft is None:
            return
        self.counters["crashes"] += 1
        if node.log.flushed_offset < node.log.end_offset:
            self.counters["crashes_with_loss"] += 1
        node.crash()
        self._ticks[node_id] = None

    def wipe(self, node_id: int) -> None:
        """The node comes back with an empty disk: another replica."""
        self.crash(node_id)
        self.lives[node_id] += 1
        self.epochs[node_id] = 0
        self.counters["disks_lost"] += 1
        before = self.nodes[node_id]
        self._new_node(node_id, before.servers).life = before.life
        self.start(node_id)

    def pause(self, node_id: int, length_ms: int) -> None:
        """The process does not run for a while; what comes waits."""
        self.paused_until[node_id] = self.now_ms + length_ms
        self.counters["pauses"] += 1

    def append(self, node_id: int) -> bool:
        """A client asks a node, which decides if it may."""
        node = self.nodes[node_id]
        if node.raft is None or node.leads is None or self.is_paused(node_id):
            return False
        epoch, start = node.leads
        if len(node.committed) <= start:
            return False
        values = [self._next_value() for _ in range(self.chance.choice((1, 1, 1, 3)))]
        offset = node.log.end_offset
        self.waiting += [(node_id, epoch, offset + index, value) for index, value in enumerate(values)]
        self._at_node(node, lambda: node.append(values, self.now_ms))
        return True

    def _next_value(self) -> int:
        self._value += 1
        return self._value

    def snapshot(self, node_id: int) -> None:
        node = self.nodes[node_id]
        if node.raft is None or self.is_paused(node_id):
            return
        most = min(len(node.committed), node.log.end_offset)
        if most > node.log.start_offset:
            end = self.chance.randint(node.log.start_offset + 1, most)
            self._at_node(node, lambda: node.take_snapshot(self.now_ms, end))
            self.counters["snapshots"] += 1

    def ask(self, node_id: int, request: Any) -> None:
        """Ask a node to change the voters."""
        node = self.nodes[node_id]
        if node.raft is not None and not self.is_paused(node_id):
            self._at_node(node, lambda: node.take(Message(ADMIN, node_id, 0, request), self.now_ms))

    def add_voter(self, leader: int, added: int) -> None:
        voter = Voter(self.nodes[added].key, endpoints_of(added))
        self.ask(leader, m.AddVoter(voter, VOTER_TIMEOUT_MS, self.chance.random() < 0.8))

    def remove_voter(self, leader: int, key: ReplicaKey) -> None:
        self.ask(leader, m.RemoveVoter(key))

    def resign(self, node_id: int) -> None:
        """Stop a node in good order."""
        node = self.nodes[node_id]
        if node.raft is not None and not self.is_paused(node_id):
            self._at_node(node, lambda: node.step(m.Resign(self.now_ms)))

    def leader(self) -> RaftNode | None:
        """The one of the highest epoch that may decide."""
        found = [node for node in self.up() if node.leads is not None and len(node.committed) > node.leads[1]]
        return max(found, key=lambda node: node.running.epoch, default=None)

    # --- Network and disks --------------------------------------------------------------------------------------------

    def is_paused(self, node_id: int) -> bool:
        return self.paused_until.get(node_id, 0) > self.now_ms

    def _at_node(self, node: RaftNode, do: Callable[[], None]) -> None:
        """Something happens at a node; then what it has sent goes out, and the invariants are checked."""
        had = node.running.high_watermark if node.raft is not None else None
        try:
            do()
        except Crashed:
            self.counters["crashes_between_effects"] += 1
            self.crash(node.id)
        sent, node.sent = node.sent, []
        for each in sent:
            self._send(each)
        if node.raft is not None:
            self._arm(node)
            self._flush_later(node)
            self._check(node, had)
        self._check_persisted(node)

    def _arm(self, node: RaftNode) -> None:
        deadline = node.running.deadline_ms
        if deadline is None or self._ticks.get(node.id) == deadline:
            return
        self._ticks[node.id] = deadline
        raft = node.raft

        def tick() -> None:
            if node.raft is not raft or self._ticks.get(node.id) != deadline:
                return
            if self.is_paused(node.id):
                self.at(self.paused_until[node.id] - self.now_ms, tick)
                return
            self._ticks[node.id] = None
            self._at_node(node, lambda: node.step(m.Tick(self.now_ms)))

        self.at(deadline - self.now_ms, tick)

    def _flush_later(self, node: RaftNode) -> None:
        if node.log.flushed_offset >= node.log.end_offset or node.id in self._flushing:
            return
        self._flushing[node.id] = None
        raft = node.raft
        slow = self.chance.random() < self.faults.slow_flush
        delay = self.chance.randint(500, 2500) if slow else self.chance.randint(*self.faults.flush_ms)

        def flush() -> None:
            if node.raft is raft and raft is not None:
                del self._flushing[node.id]
                self._at_node(node, lambda: node.flush(self.now_ms))

        self.at(delay, flush)

    def _send(self, message: Message) -> None:
        """A response has the source and target of its request."""
        if ADMIN in (message.source, message.target):
            if not message.is_request:
                self.counters[f"voters_{message.body.error.name}"] += 1
            return
        source, target = message.source, message.target
        if not message.is_request:
            source, target = target, source
        copies = 1
        if self.chance.random() < self.faults.loss:
            copies = 0
        elif self.chance.random() < self.faults.double:
            copies = 2
            self.counters["doubled"] += 1
        for _ in range(copies):
            slow = self.chance.random() < self.faults.slow_message
            latency = self.chance.randint(200, 3000) if slow else self.chance.randint(*self.faults.latency_ms)
            self.at(latency, lambda: self._arrive(message, source, target))

    def _arrive(self, message: Message, source: int, target: int) -> None:
        if (source, target) in self.cuts:
            self.counters["cut_off"] += 1
            return
        node = self.nodes[target]
        if self.is_paused(target):
            self.at(self.paused_until[target] - self.now_ms, lambda: self._arrive(message, source, target))
            return
        if node.raft is None:
            asking = self.nodes[source]
            if message.is_request and asking.raft is not None and (target, source) not in self.cuts:
                raft = asking.raft

                def lost() -> None:
                    if asking.raft is raft:
                        self._at_node(asking, lambda: asking.step(m.Failed(self.now_ms, message.id, is_lost=True)))

                self.at(self.chance.randint(1, REQUEST_LOST_MS), lost)
            return
        self._at_node(node, lambda: node.take(message, self.now_ms))

    # --- Invariants ---------------------------------------------------------------------------------------------------

    def _note(self, node_id: int, effect: m.Effect) -> None:
        self.counters[type(effect).__name__] += 1
        if isinstance(effect, m.BecameLeader):
            self.on_leader(node_id)
        is_vote = isinstance(effect, m.Persist) and effect.voted is not None and effect.leader_id == m.NO_NODE
        if is_vote and self.chance.random() < self.faults.crash_after_vote:
            self.counters["crashes_after_votes"] += 1
            self.at(self.chance.randint(1, 5), lambda: self._restart(node_id))

    def _restart(self, node_id: int) -> None:
        if self.nodes[node_id].raft is not None:
            self.crash(node_id)
            self.start(node_id)

    def _check(self, node: RaftNode, had: int | None) -> None:
        raft = node.running
        self.counters[f"role_{type(raft.role).__name__}"] += 1
        persisted = node.persisted
        assert (0 if persisted is None else persisted.epoch) == raft.epoch or persisted is None, (
            f"MonotonicEpoch: node {node.id} is in epoch {raft.epoch}, its disk has {persisted}"
        )
        if raft.is_leader:
            self._check_leader(raft.epoch, node.id)
            self._check_high_watermark(node, had)
        self._check_snapshot(node)
        self._check_committed(node)

    def _check_persisted(self, node: RaftNode) -> None:
        if node.persisted is None:
            return
        epoch, before = node.persisted.epoch, self.epochs[node.id]
        assert epoch >= before, f"MonotonicEpoch: node {node.id} went from epoch {before} to {epoch}"
        self.epochs[node.id] = epoch
        if node.persisted.leader_id != m.NO_NODE:
            self._check_leader(epoch, node.persisted.leader_id)

    def _check_leader(self, epoch: int, leader_id: int) -> None:
        known = self.leaders.setdefault(epoch, leader_id)
        assert known == leader_id, f"SingleLeader: epoch {epoch} has leaders {known} and {leader_id}"

    def _check_high_watermark(self, node: RaftNode, had: int | None) -> None:
        raft = node.running
        if raft.high_watermark is None or raft.high_watermark == had:
            return
        offset = raft.high_watermark
        voters = raft.voters.last.voters
        reached = sum(self._has_reached(each.key, offset) for each in voters)
        assert reached > len(voters) // 2, (
            f"MajorityReachedHighWatermark: {reached} of {len(voters)} voters have {offset} on disk"
        )
        if raft.epoch == max(self.leaders):
            assert offset >= self.leader_high_watermark, (
                f"MonotonicHighWatermark: from {self.leader_high_watermark} to {offset}"
            )
            self.leader_high_watermark = offset

    def _has_reached(self, key: ReplicaKey, offset: int) -> bool:
        """A voter whose disk is lost may have had it."""
        node = self.nodes[key.id]
        return key == self.lost or (key.matches(node.key) and node.log.flushed_offset >= offset)

    def _check_snapshot(self, node: RaftNode) -> None:
        log = node.log
        if log.start_offset == 0:
            return
        assert log.taken is not None and log.taken.id.offset == log.start_offset, (
            f"SnapshotAtLogStart: node {node.id}: the log begins at {log.start_offset}, the snapshot is {log.snapshot}"
        )
        last = self.truth[log.start_offset - 1]
        assert last[0] == log.taken.id.epoch, f"SnapshotAtLogStart: {log.snapshot} of node {node.id} ends with {last}"

    def _check_committed(self, node: RaftNode) -> None:
        done = min(self.checked[node.id], len(node.committed))
        for offset in range(done, len(node.committed)):
            record = node.committed[offset]
            if offset == len(self.truth):
                self.truth.append(record)
                self._acknowledge(offset, record)
            assert offset < len(self.truth) and self.truth[offset] == record, (
                f"ConsistentCommittedData: at offset {offset} node {node.id} has {record}, "
                f"committed is {self.truth[offset : offset + 1]}"
            )
        self.checked[node.id] = len(node.committed)
        high_watermark = node.running.high_watermark
        assert high_watermark is None or high_watermark <= node.log.end_offset, (
            f"ConsistentCommittedData: node {node.id} ends at {node.log.end_offset}, committed is {high_watermark}"
        )

    def _acknowledge(self, offset: int, record: Record) -> None:
        for each in [each for each in self.waiting if each[2] == offset]:
            self.waiting.remove(each)
            if (each[1], each[3]) == record:
                self.acknowledged[offset] = each[3]
                self.counters["acked"] += 1

    def check_end(self) -> None:
        """Nothing that was acknowledged is missing anywhere."""
        for node in self.up():
            for offset, value in self.acknowledged.items():
                assert node.committed[offset][1] == value, f"node {node.id} lost value {value} at offset {offset}"


def is_leader(node: RaftNode) -> bool:
    return node.raft is not None and isinstance(node.raft.role, Leader)


__all__ = ["ErrorCode", "QuorumWorld", "is_leader"]
