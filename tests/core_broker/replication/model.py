"""Explores all histories of one replicated partition, breadth first: the product's own code, in every order of events.

    python -m tests.core_broker.replication.model [--values 2] [--fences 1] [--crashes 1] [--cuts 1] [--losses 1] ...

A state is what the brokers have in memory and in their logs, what the controller has decided, and the messages under
way. From each, every possible event is tried: a client writes, a follower fetches, a message is lost, a follower does
not keep up, the controller takes a change of in-sync replicas, fences a broker, lets it lead again, a broker learns
what was decided, a process is killed (the page cache stays) or its machine loses power (any end of the log is gone),
starts, registers and opens its log. States that were seen are not tried again.

In every state these must hold (KIP-101, 279, 497, 841, 903, 966; WeakIsr and StrongIsr of Kafka's TLA+ specification):

* what was below any high watermark never changes, and is in the log of the newest leader, at the same offset;
* a leader epoch has one leader;
* logs that have an epoch in common at an offset are the same up to there;
* who is in sync or eligible as the controller has it has all that was below a high watermark, unless its machine lost
  power since it registered;
* what a leader commits is in min.insync.replicas logs at that moment, if no machine loses power;
* the controller's leader is in sync; a change of in-sync replicas under an older epoch changes nothing.

`--unclean 1` lets a replica lead that is not in sync: records are then lost, which is what the model must find. With
`--late 0` an answer arrives with its request, or is lost: a fraction of the states.

Real are the controller's decisions and the image (`decisions.py`), and all that `node.py` names. The controller is one,
and decides at once: that several agree is the quorum's model. A broker applies all that it has not applied yet at once:
who is behind by one change only has applied the others before the last was decided. Time does not exist.

Explored to the end, with nothing that must not be (what is not named is as in `Bounds`):

    --values 1 --cuts 1 --fences 0 --lags 0                                      24,282 states
    --values 1 --crashes 1 --elr 0 --fences 0 --lags 0                           16,448 states
    --values 1 --shutdowns 1 --elections 1 --epochs 2 --fences 0 --lags 0        22,172 states
    --min-isr 1 --lags 0                                                         43,104 states
    --values 1 --replicas 2 --moves 1 --epochs 2 --lags 0                        57,312 states
    --replicas 2 --min-isr 1 --fsync 1 --cuts 1 --epochs 2 --fences 0            89,205 states
    --values 1 --replicas 2 --min-isr 1 --crashes 1 --losses 1 --elections 1    172,274 states
    --values 1 --replicas 2 --min-isr 1 --losses 1 --late 1 --fences 0            3,550 states

The nearest states alone: 250,000 of `--values 1`; 600,000 of `--epochs 2 --crashes 1 --cuts 1 --fences 0 --lags 0`;
400,000 of `--values 1 --late 1 --cuts 1 --fences 0`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from isthmus.core_broker import lifecycle
from isthmus.core_broker.cluster.controller import (
    AlterReassignments,
    BrokerHeartbeat,
    Election,
    ElectLeaders,
    FenceBroker,
    RegisterBroker,
)
from isthmus.core_broker.cluster.features import REGISTERED
from tests.core_broker import exploring
from tests.core_broker.cluster.support import ENDPOINTS

from .decisions import FIRST_EPOCH, Controller, Version, answer_of, command_of, isr_of, told_of
from .memory_log import Record
from .node import NO_EPOCH, TOPIC, Asked, Node, StillLoop, Told


@dataclass(frozen=True)
class Bounds:
    """How much may happen in one history. epochs: leader epochs after the first.

    fences: of brokers that live. lags: followers that do not keep up. crashes: kills; cuts: of power. moves: of the
    last replica to another broker; then there is one broker more than replicas. elections: of the preferred leader.
    shutdowns: in order. fsync: the topic's durability, else page_cache.
    """

    replicas: int = 3
    min_isr: int = 2
    values: int = 2
    epochs: int = 1
    fences: int = 1
    lags: int = 1
    crashes: int = 0
    cuts: int = 0
    losses: int = 0
    moves: int = 0
    elections: int = 0
    shutdowns: int = 0
    elr: int = 1
    fsync: int = 0
    unclean: int = 0
    late: int = 0


BUDGETS = ("values", "fences", "lags", "crashes", "cuts", "losses", "moves", "elections", "shutdowns")


class Alter(NamedTuple):
    """A change of in-sync replicas that is asked for. request: AlterPartition; answer: None before there is one."""

    broker_id: int
    request: Any
    answer: Any = None

    @property
    def key(self) -> Any:
        return self.broker_id, repr(self.request), repr(self.answer)


@dataclass
class State:
    """Nodes and versions are shared between states.

    versions: those that somebody knows who is not down, or is still to know. known: by each node, counted in these.
    fetches: under way, with the answer of those that have one. truth: what was below a high watermark of anybody.
    """

    nodes: list[Node]
    versions: list[Version]
    known: list[int]
    fetches: list[tuple[Asked, Told | None]] = field(default_factory=list)
    alters: list[Alter] = field(default_factory=list)
    truth: tuple[Record, ...] = ()
    leaders: dict[int, int] = field(default_factory=dict)
    cut: tuple[int, ...] = ()  # brokers that lost power, and have not registered since
    left: dict[str, int] = field(default_factory=dict)  # of what is bounded

    def copy(self) -> State:
        return replace(
            self, nodes=list(self.nodes), versions=list(self.versions), known=list(self.known),
            fetches=list(self.fetches), alters=list(self.alters), leaders=dict(self.leaders), left=dict(self.left),
        )  # fmt: skip

    @property
    def newest(self) -> Version:
        return self.versions[-1]


class Model:
    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._controller = Controller()
        self._nodes: dict[Any, Node] = {}  # one for each that differs
        self._steps: dict[Any, tuple[Node, Any]] = {}  # what was tried before

    def first_state(self) -> State:
        bounds = self.bounds
        count = bounds.replicas + bool(bounds.moves)
        ids, replicas = range(1, count + 1), list(range(1, bounds.replicas + 1))
        version = self._controller.first(
            ids,
            replicas,
            bounds.elr,
            {
                "min.insync.replicas": bounds.min_isr,
                "durability": "fsync" if bounds.fsync else "page_cache",
                "unclean.leader.election.enable": "true" if bounds.unclean else "false",
            },
        )
        nodes = []
        for each in ids:
            node = Node(each, version.image, registered=FIRST_EPOCH)
            node.open()
            nodes.append(self._known(node, version.key))
        return State(
            nodes, [version], [0] * count, leaders={0: 1}, left={name: getattr(bounds, name) for name in BUDGETS}
        )

    # --- Keys ---------------------------------------------------------------------------------------------------------

    def keys(self, state: State) -> dict[int, Any]:
        return {}

    def key(self, state: State, keys: dict[int, Any]) -> Any:
        return (
            tuple([id(node) for node in state.nodes]), tuple(state.known), tuple([each.key for each in state.versions]),
            frozenset(Counter(state.fetches).items()), frozenset(Counter([each.key for each in state.alters]).items()),
            state.truth, state.cut, tuple(state.leaders.items()), tuple(state.left.values()),
        )  # fmt: skip

    def _known(self, node: Node, version_key: int) -> Node:
        """The node that is equal to one, at a version of the metadata."""
        return self._nodes.setdefault((node.key, version_key), node)

    def reached(self, state: State) -> dict[str, int]:
        return {"leaders": len(state.leaders), "committed records": len(state.truth)}

    # --- What can happen ----------------------------------------------------------------------------------------------

    def following(self, state: State) -> Iterator[tuple[str, State]]:
        for node in state.nodes:
            if node.life == "up":
                yield from self._of_live(state, node)
            elif node.life == "starting" and lifecycle.knows(node.image, node.registered):
                yield f"{node.id} opens its log", self._after(state, node.id, "open")
            elif node.life == "down":
                yield from self._registers(state, node)
            if node.life != "down" and state.known[node.id - 1] < len(state.versions) - 1:
                yield f"{node.id} learns the metadata", self._after(state, node.id, "learn")
        yield from self._of_controller(state)
        yield from self._of_network(state)

    def _of_live(self, state: State, node: Node) -> Iterator[tuple[str, State]]:
        left, partition = state.left, node.partition
        if node.leads and partition is not None and partition.leadership is not None and partition.failure is None:
            if left["values"]:
                after = self._after(state, node.id, "append", self.bounds.values - left["values"], less="values")
                if after.nodes[node.id - 1].log.log_end_offset > node.log.log_end_offset:
                    yield f"{node.id} appends", after
            for broker_id, follower in partition.leadership.followers.items():
                if follower.end_offset == node.log.log_end_offset or follower.caught_up_ms < 0:
                    continue
                if broker_id not in partition.isr:
                    yield f"{broker_id} does not keep up with {node.id}", self._after(state, node.id, "lag", broker_id)
                elif left["lags"]:
                    after = self._after(state, node.id, "lag", broker_id, less="lags")
                    yield f"{broker_id} does not keep up with {node.id}", after
            if node.change is not None:
                yield from self._asks_for_change(state, node)
        yield from self._fetches(state, node)
        if partition is not None and partition._sync_task is not None:
            yield f"{node.id} has synced", self._after(state, node.id, "sync")
        if left["crashes"]:
            after = self._after(state, node.id, "crash", node.log.log_end_offset, less="crashes")
            yield f"{node.id} is killed", after
        if left["cuts"]:
            for kept in range(node.log.recovery_point if self.bounds.fsync else 0, node.log.log_end_offset + 1):
                after = self._after(state, node.id, "cut", kept, less="cuts")
                yield f"{node.id} loses power, and has {kept} records left", after

    def _fetches(self, state: State, node: Node) -> Iterator[tuple[str, State]]:
        asked = None if node.awaited is not None else node.asks
        if asked is None:
            return
        if self.bounds.late:
            yield f"{asked}: sent", self._after(state, node.id, "ask", asked)
            return
        leader = state.nodes[asked.leader - 1]
        if leader.manager is None:
            return
        after = self._after(state, leader.id, "answer", asked)
        told = after.fetches.pop()[1]
        if state.left["losses"]:
            lost = after.copy()
            lost.left["losses"] -= 1
            yield f"{asked}; the answer is lost", lost
        yield f"{asked}: {told}", self._after(after, node.id, "take", (asked, told))

    def _asks_for_change(self, state: State, node: Node) -> Iterator[tuple[str, State]]:
        assert node.change is not None
        if any(each.broker_id == node.id for each in state.alters):
            return
        what = f"{node.id} asks for in-sync replicas {list(node.change.isr)}"
        alter = Alter(node.id, node.alter)
        if self.bounds.late:
            after = state.copy()
            after.alters.append(alter)
            yield f"{what}: sent", after
            return
        after, answer = self._altered(state, alter)
        if after is None:
            return
        if state.left["losses"]:
            lost = self._after(after, node.id, "change", None, less="losses")
            yield f"{what}: {told_of(answer)}; the answer is lost", lost
        yield f"{what}: {told_of(answer)}", self._after(after, node.id, "change", answer)

    def _of_network(self, state: State) -> Iterator[tuple[str, State]]:
        for index, (asked, told) in enumerate(state.fetches):
            rest = state.copy()
            del rest.fetches[index]
            node = rest.nodes[asked.follower - 1]
            if told is not None:
                yield f"{asked}: {told} arrives", self._after(rest, node.id, "take", (asked, told))
            elif state.nodes[asked.leader - 1].manager is not None:
                yield f"{asked}: arrives", self._after(rest, asked.leader, "answer", asked)
            if state.left["losses"] or state.nodes[asked.leader - 1].manager is None:
                lost = self._after(rest, node.id, "not answered", asked)
                lost.left["losses"] -= state.nodes[asked.leader - 1].manager is not None
                yield f"{asked}: lost", lost
        for index, alter in enumerate(state.alters):
            rest = state.copy()
            del rest.alters[index]
            what = f"{alter.broker_id} asks for in-sync replicas {isr_of(alter.request)}"
            node = rest.nodes[alter.broker_id - 1]
            if alter.answer is not None:
                yield f"{what}: {told_of(alter.answer)} arrives", self._after(rest, node.id, "change", alter.answer)
            else:
                after, answer = self._altered(rest, alter)
                if after is not None:
                    after.alters.append(alter._replace(answer=answer))
                    yield f"{what}: arrives", self._without_the_unwanted(after)
            if state.left["losses"]:
                lost = self._after(rest, node.id, "change", None, less="losses")
                yield f"{what}: lost", lost

    def _registers(self, state: State, node: Node) -> Iterator[tuple[str, State]]:
        known = state.newest.image.brokers[node.id]
        command = RegisterBroker(
            node.id, bytes([known.epoch + 1]) * 16, ENDPOINTS, "cluster", features=REGISTERED,
            previous_epoch=known.epoch if node.has_kept_all else NO_EPOCH,
        )  # fmt: skip
        after, result = self._decide(state, command)
        if after is None:
            return
        assert not result.error_code, result
        after = self._after(after, node.id, "start", (len(state.versions) - 1, result.broker_epoch))
        after.cut = tuple(each for each in after.cut if each != node.id)
        yield f"{node.id} starts and registers{'' if node.has_kept_all else ', having lost records'}", after

    def _of_controller(self, state: State) -> Iterator[tuple[str, State]]:
        image, left = state.newest.image, state.left
        for node in state.nodes:
            known = image.brokers[node.id]
            is_alive = node.life == "up" and node.registered == known.epoch
            if not known.fenced and (left["fences"] or not is_alive):
                after, _ = self._decide(state, FenceBroker(node.id, known.epoch))
                if after is not None:
                    after.left["fences"] -= is_alive
                    yield f"the controller fences {node.id}", self._check(after)
            stops = known.in_controlled_shutdown or (left["shutdowns"] and not known.fenced)
            if is_alive and stops:
                command = BrokerHeartbeat(node.id, known.epoch, node.image.offset, want_shut_down=True)
                after, result = self._decide(state, command)
                if after is not None:
                    after.left["shutdowns"] -= not known.in_controlled_shutdown
                    if result.should_shut_down:
                        after = self._after(after, node.id, "crash", node.log.log_end_offset)
                    yield f"{node.id} {'stops' if result.should_shut_down else 'is to stop'}", self._check(after)
            if known.fenced and is_alive:
                after, _ = self._decide(state, BrokerHeartbeat(node.id, known.epoch, node.image.offset))
                if after is not None:
                    yield f"the controller unfences {node.id}", self._check(after)
        if left["elections"]:
            after, _ = self._decide(state, ElectLeaders(Election.PREFERRED, [(TOPIC, [0])]))
            if after is not None:
                after.left["elections"] -= 1
                yield "the preferred replica is elected", self._check(after)
        if left["moves"]:
            partition = state.newest.partition
            replicas = [*partition.replicas[:-1], self.bounds.replicas + 1]
            after, _ = self._decide(state, AlterReassignments([(TOPIC, [(0, replicas)])]))
            if after is not None:
                after.left["moves"] -= 1
                yield f"the partition is to move to {replicas}", self._check(after)

    # --- The controller -----------------------------------------------------------------------------------------------

    def _decide(self, state: State, command: Any) -> tuple[State | None, Any]:
        """The state after a decision, and its result. None if it is beyond the bounds, or changes nothing."""
        result, version = self._controller.decide(state.newest, command)
        if version is None or version.partition.leader_epoch > self.bounds.epochs:
            return None, result
        after = state.copy()
        after.versions.append(version)
        if version.partition.leader >= 0:
            after.leaders.setdefault(version.partition.leader_epoch, version.partition.leader)
        return after, result

    def _altered(self, state: State, alter: Alter) -> tuple[State | None, Any]:
        """The controller takes an AlterPartition. None if what follows is beyond the bounds."""
        request, known = alter.request, state.newest
        row = request.topics[0].partitions[0]
        command = command_of(request)
        after, result = self._decide(state, command)
        answer = answer_of(result)
        if after is None:
            is_beyond = self._controller.decide(known, command)[1] is not None
            return (None if is_beyond else state.copy()), answer
        partition = known.partition
        is_old = (row.leader_epoch, row.partition_epoch) != (partition.leader_epoch, partition.partition_epoch)
        assert not is_old, f"{alter.broker_id} changes in-sync replicas under an older epoch: {row}"
        assert partition.leader == alter.broker_id, f"{alter.broker_id} changes in-sync replicas, and does not lead"
        return self._check(after), answer

    # --- What happens -------------------------------------------------------------------------------------------------

    def _after(self, state: State, node_id: int, what: str, given: Any = None, less: str | None = None) -> State:
        after = state.copy()
        if less is not None:
            after.left[less] -= 1
        node, index = state.nodes[node_id - 1], node_id - 1
        match what:
            case "learn":
                given = tuple(after.versions[after.known[index] + 1 :])
                after.known[index] = len(after.versions) - 1
            case "start":
                after.known[index], epoch = given
                given = after.versions[after.known[index]], epoch
            case "cut":
                after.cut = (*after.cut, node.id)
        node, told = self._step(node, what, given, after.versions[after.known[index]].key)
        after.nodes[index] = node
        match what:
            case "ask":
                after.fetches.append((given, None))
            case "answer":
                after.fetches.append((given, told))
        self._forget(after)
        return self._check(self._without_the_unwanted(after), node, state.nodes[index], what == "learn" and told)

    def _step(self, node: Node, what: str, given: Any, version_key: int) -> tuple[Node, Any]:
        """What one event makes of a node, and what it tells. version_key: of what it then knows."""
        match what:
            case "learn":
                named: Any = tuple(version.key for version in given)
            case "start":
                named = given[1]
            case "change":
                named = repr(given)
            case _:
                named = given
        key = id(node), what, named, version_key
        if key not in self._steps:
            made = node.copy()
            told = made.step(what, given)
            self._steps[key] = self._known(made, version_key), told
        return self._steps[key]

    def _forget(self, state: State) -> None:
        """Versions that nobody is to learn any more. Who is down begins with the newest."""
        newest = len(state.versions) - 1
        live = [state.known[node.id - 1] for node in state.nodes if node.life != "down"]
        unneeded = min(live, default=newest)
        if unneeded:
            del state.versions[:unneeded]
        state.known = [
            0 if node.life == "down" else known - unneeded for node, known in zip(state.nodes, state.known, strict=True)
        ]

    def _without_the_unwanted(self, state: State) -> State:
        """Answers that nobody waits for are gone."""
        state.fetches = [
            (asked, told)
            for asked, told in state.fetches
            if told is None or not self.bounds.late or state.nodes[asked.follower - 1].awaited == asked
        ]
        state.alters = [
            each for each in state.alters if each.answer is None or state.nodes[each.broker_id - 1].change is not None
        ]
        return state

    # --- What must hold -----------------------------------------------------------------------------------------------

    def _check(
        self, state: State, node: Node | None = None, before: Node | None = None, has_led: bool = False
    ) -> State:
        """node: the one that has changed, and before; None: the controller has decided. has_led: meanwhile."""
        if node is not None and before is not None and node.partition is not None:
            self._check_node(state, node, before, has_led)
        newest = state.newest.partition
        if newest.leader >= 0:
            assert newest.leader in newest.isr, f"the controller's leader {newest.leader} is not in sync: {newest.isr}"
        for each in state.nodes:
            is_trusted = (each.id in newest.isr or each.id in newest.elr) and each.id not in state.cut
            leads_last = each.leads and each.partition.leader_epoch == newest.leader_epoch  # type: ignore[union-attr]
            if leads_last or is_trusted:
                have = each.log.records[: len(state.truth)]
                what = "leads" if leads_last else "is in sync" if each.id in newest.isr else "is eligible"
                assert have == state.truth, f"{each.id} {what} and has {list(have)}, committed is {list(state.truth)}"
        return state

    def _check_node(self, state: State, node: Node, before: Node, has_led: bool) -> None:
        partition, log = node.partition, node.log.records
        assert partition is not None
        if partition.leads and partition.failure is None:
            known = state.leaders[partition.leader_epoch]
            assert known == node.id, f"leader epoch {partition.leader_epoch} has leaders {known} and {node.id}"
        end = partition.high_watermark
        assert end <= len(log), f"{node.id} has high watermark {end}, and its log ends at {len(log)}"
        visible = log[:end]
        common = min(len(visible), len(state.truth))
        assert visible[:common] == state.truth[:common], (
            f"{node.id} shows {list(visible)}, what was shown before is {list(state.truth)}"
        )
        if len(visible) > len(state.truth):
            # One that learns several changes may have committed by the first, and follow by the last.
            is_known = partition.leads or before.leads or has_led
            assert is_known, f"{node.id} follows, and shows what no leader has committed: {list(visible)}"
            state.truth = visible
        had = 0 if before.partition is None else before.partition.high_watermark
        if partition.leads and partition.high_watermark > had and not self.bounds.cuts:
            copies = sum(each.log.records[: len(visible)] == visible for each in state.nodes)
            needed = min(self.bounds.min_isr, len(partition.replicas))
            assert copies >= needed, f"{node.id} commits {list(visible)}, which {copies} brokers have"
        for other in state.nodes:
            theirs = other.log.records
            for offset in range(min(len(log), len(theirs)) - 1, -1, -1):
                if log[offset][0] == theirs[offset][0]:
                    same = log[: offset + 1] == theirs[: offset + 1]
                    assert same, f"{node.id} has {list(log)}, {other.id} has {list(theirs)}"
                    break


def explore(
    bounds: Bounds, most_states: int | None = None, progress: exploring.Progress | None = None
) -> exploring.Found:
    async def run() -> exploring.Found:
        return exploring.explore(Model(bounds), most_states, progress)

    loop = StillLoop()
    try:
        return loop.run_until_complete(loop.create_task(run(), name="model"))
    finally:
        loop.close()


if __name__ == "__main__":
    raise SystemExit(exploring.main("tests.core_broker.replication.model", __doc__, Bounds, explore))
