"""Explores all histories of a small quorum, breadth first: the step function itself, in every order of events.

    python -m tests.core_broker.cluster.raft.model [--epochs 2] [--values 2] [--crashes 1] [--losses 1] ...

A state is what the nodes have in memory and on disk, and the messages under way. From each, every possible event is
tried: a message arrives or is lost, a node stands for election, a leader decides, a log is flushed, a leader gives up,
a node crashes (losing what is not on disk) and starts. States that were seen are not tried again. In every state these
must hold: one leader an epoch, one vote of a node an epoch; logs that have a record in common have all before it in
common; what is committed never changes, is on a majority of disks, and in the log of each later leader.

With `--late 0` an answer arrives with its request, or is lost. That is a fraction of the states, and enough for two
epochs; answers that come while something else happens are left to smaller bounds and to the simulator.

Time does not exist here: all is at 0, and a deadline comes when the model says so. What can make no difference is left
out: a pre-vote is always won, since it only ever prevents an election; a log is flushed at once when nobody can crash
any more; answers that nobody waits for are gone, and so are those that only say that a request has come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field, fields, replace
from typing import Any

from isthmus.core_broker.cluster.raft import messages as m
from isthmus.core_broker.cluster.raft.leader import Leader
from isthmus.core_broker.cluster.raft.links import Links
from isthmus.core_broker.cluster.raft.raft import Raft, RaftOptions
from isthmus.core_broker.cluster.raft.roles import Candidate, Follower, Prospective, Resigned, Votes
from isthmus.protocol.errors import ErrorCode
from tests.core_broker import exploring

from .node import Message, RaftNode, Record, key_of, static_voters

OPTIONS = RaftOptions(retry_backoff_ms=0)


@dataclass(frozen=True)
class Bounds:
    """How much may happen in one history. snapshots: of a log, by its node. late: whether answers may be."""

    nodes: int = 3
    epochs: int = 2
    values: int = 2
    crashes: int = 1
    losses: int = 1
    resignations: int = 0
    snapshots: int = 0
    late: int = 1


@dataclass
class State:
    """Nodes are shared between states: an event changes a copy of one."""

    nodes: list[RaftNode]
    network: list[Message] = field(default_factory=list)
    truth: tuple[Record, ...] = ()
    leaders: dict[int, int] = field(default_factory=dict)
    votes: dict[tuple[int, int], int] = field(default_factory=dict)  # (node, epoch) -> candidate
    left: dict[str, int] = field(default_factory=dict)  # of what is bounded

    def copy(self) -> State:
        return replace(
            self, nodes=list(self.nodes), network=list(self.network), leaders=dict(self.leaders),
            votes=dict(self.votes), left=dict(self.left),
        )  # fmt: skip

    def key(self, keys: dict[int, Any]) -> Any:
        """Equal for states from which the same can happen. A request is known by its two ends, not by its id."""
        messages = frozenset(
            (each.source, each.target, each.body, self.is_awaited(each), count)
            for each, count in Counter(self.network).items()
        )
        held = tuple(
            (node.id, token_of(asked), self.is_awaited(asked)) for node in self.nodes for asked in node._tokens.values()
        )
        nodes = tuple(keys[id(node)] if id(node) in keys else node_key(node) for node in self.nodes)
        return nodes, messages, frozenset(held), self.truth, tuple(self.left.values())

    def is_awaited(self, message: Message) -> bool:
        """Whether the answer to it counts."""
        return message.id in self.nodes[message.source - 1].running._links._sent


def token_of(asked: Message) -> Any:
    return asked.source, asked.body


def copy_of(node: RaftNode) -> RaftNode:
    made = replace(node, log=node.log.copy(), committed=list(node.committed), sent=[], _part=list(node._part))
    made._tokens = dict(node._tokens)
    raft = node.running
    other = Raft.__new__(Raft)
    for name in RAFT_FIELDS:
        setattr(other, name, getattr(raft, name))
    other.log, other.voters, other._links = made.log, copy(raft.voters), copy_of_links(raft._links)
    other._effects = []
    role: Any = copy(raft.role)
    match role:
        case Prospective() | Candidate():
            role.votes = Votes(dict(role.votes.granted), dict(role.votes.unreachable))
        case Leader():
            role.voters = {node_id: copy(each) for node_id, each in role.voters.items()}
            role.observers = {key: copy(each) for key, each in role.observers.items()}
            role.fetching, role.held = dict(role.fetching), dict(role.held)
        case Resigned():
            role.unacknowledged = dict(role.unacknowledged)
    other.role = role
    made.raft = other
    return made


def copy_of_links(links: Links) -> Links:
    links_by_node = {node_id: copy(each) for node_id, each in links._links.items()}
    return replace(links, _sent=dict(links._sent), _links=links_by_node)


def node_key(node: RaftNode) -> Any:
    """But for the requests that it has sent and holds, which the state adds."""
    raft, log = node.running, node.log
    links = frozenset((sent.node_id, sent.request) for sent in raft._links._sent.values())
    return (
        raft.epoch, raft.leader_id, raft.voted, raft.high_watermark, role_key(raft.role), links, node.persisted,
        log.start_offset, tuple(log.records), log.flushed_offset, log.taken and log.taken.id, len(node.committed),
        node.leads,
    )  # fmt: skip


def role_key(role: Any) -> Any:
    match role:
        case Prospective() | Candidate():
            return type(role).__name__, tuple(role.votes.granted.items())
        case Leader():
            return "Leader", tuple(each.end_offset for each in role.voters.values())
        case Follower():
            return "Follower", role.has_fetched, role.told_high_watermark, role.snapshot, role.position
        case Resigned():
            return "Resigned", tuple(role.unacknowledged)
    return type(role).__name__


RAFT_FIELDS = [each.name for each in fields(Raft)]


def first_state(bounds: Bounds) -> State:
    voters = static_voters(range(1, bounds.nodes + 1))
    nodes = []
    for node_id in range(1, bounds.nodes + 1):
        node = RaftNode(key_of(node_id), voters, OPTIONS, chance=most, flushes_at_once=False)
        node.start(0)
        node.sent = []  # they do not look for a leader yet
        node.running._links = Links(OPTIONS.request_timeout_ms, OPTIONS.retry_backoff_ms)
        nodes.append(node)
    left = {name: getattr(bounds, name) for name in ("values", "crashes", "losses", "resignations", "snapshots")}
    return State(nodes, left=left)


def most(n: int) -> int:
    """The chance of the model: all pauses are long, and end when it says so."""
    return max(n - 1, 0)


class Model:
    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds

    def first_state(self) -> State:
        return first_state(self.bounds)

    def keys(self, state: State) -> dict[int, Any]:
        return {id(node): node_key(node) for node in state.nodes}

    def key(self, state: State, keys: dict[int, Any]) -> Any:
        return state.key(keys)

    def reached(self, state: State) -> dict[str, int]:
        return {"leaders": len(state.leaders), "committed records": len(state.truth)}

    def following(self, state: State) -> Iterator[tuple[str, State]]:
        """All that can happen next. Raises AssertionError for what must not."""
        for index, message in enumerate(state.network):
            target = message.target if message.is_request else message.source
            after = state.copy()
            del after.network[index]
            yield f"{message.source}->{message.target} {message.body} arrives", self._at(after, target, "take", message)
            if state.left["losses"]:
                after = self._less(state, "losses")
                del after.network[index]
                after = self._at(after, message.source, "fail", message)
                yield f"{message.source}->{message.target} {message.body} is lost", after
                if message.is_request and not self.bounds.late:
                    after = self._less(state, "losses")
                    del after.network[index]
                    what = f"{message.source}->{message.target} {message.body} arrives, and the answer is lost"
                    yield what, self._at(after, target, "take, but do not answer", message)
        for node in state.nodes:
            yield from self._of_node(state, node)

    def _of_node(self, state: State, node: RaftNode) -> Iterator[tuple[str, State]]:
        raft = node.running
        if (
            not isinstance(raft.role, Leader)
            and raft.epoch < self.bounds.epochs
            and not self._is_symmetric(state, node)
        ):
            yield f"{node.id} stands for election", self._at(state.copy(), node.id, "stand", None)
        if node.log.flushed_offset < node.log.end_offset:
            yield f"{node.id} has flushed", self._at(state.copy(), node.id, "flush", None)
        if node.leads is not None and len(node.committed) > node.leads[1] and state.left["values"]:
            value = self.bounds.values - state.left["values"]
            yield f"{node.id} decides", self._at(self._less(state, "values"), node.id, "append", value)
        if isinstance(raft.role, Leader) and state.left["resignations"]:
            yield f"{node.id} gives up", self._at(self._less(state, "resignations"), node.id, "give up", None)
        if state.left["snapshots"] and len(node.committed) > node.log.start_offset:
            yield f"{node.id} takes a snapshot", self._at(self._less(state, "snapshots"), node.id, "snapshot", None)
        if state.left["crashes"]:
            yield f"{node.id} crashes", self._at(self._less(state, "crashes"), node.id, "crash", None)

    def _is_symmetric(self, state: State, node: RaftNode) -> bool:
        """At first all nodes are the same: it is enough that one of them stands."""
        return node.id != 1 and all(each.running.epoch == 0 for each in state.nodes)

    def _less(self, state: State, name: str) -> State:
        after = state.copy()
        after.left[name] -= 1
        return after

    def _at(self, state: State, node_id: int, what: str, given: Any) -> State:
        node = state.nodes[node_id - 1] = copy_of(state.nodes[node_id - 1])
        had = node.running.high_watermark
        node.flushes_at_once = not state.left["crashes"]
        match what:
            case "take, but do not answer":
                node.take(given, 0)
                answered = len(node.sent)
                node.sent = [each for each in node.sent if each.is_request or each[:3] != given[:3]]
                if len(node.sent) < answered:
                    self._send(state, node)
                    return self._at(state, given.source, "fail", given)
            case "fail":
                if given.id in node.running._links._sent:
                    node.step(m.Failed(0, given.id))
            case "take":
                node.take(given if given.is_request else given._replace(life=node.life), 0)
            case "stand":
                self._stand(node)
            case "flush":
                node.flush(0)
            case "append":
                node.append([given], 0)
            case "give up":
                assert isinstance(node.running.role, Leader)
                node.running.role.check_deadline_ms = 0
                node.step(m.Tick(0))
            case "snapshot":
                node.take_snapshot(0, len(node.committed))
            case "crash":
                self._crash(state, node)
        self._send(state, node)
        self._check(state, node, had)
        state.network = [each for each in state.network if each.is_request or state.is_awaited(each)]
        return state

    def _crash(self, state: State, node: RaftNode) -> None:
        """And start again. What it had asked may still arrive, but not an answer; those whom it had not answered see
        their connections break."""
        held = list(node._tokens.values())
        node.crash()
        node.start(0)
        node.running._links.last_id += 1_000 * node.life
        state.network = [each for each in state.network if each.is_request or each.source != node.id]
        state.network = [each._replace(id=-1) if each.source == node.id else each for each in state.network]
        for index, other in enumerate(state.nodes):
            if any(asked.source == node.id for asked in other._tokens.values()):
                made = state.nodes[index] = copy_of(other)
                made._tokens = {
                    token: asked._replace(id=-1) if asked.source == node.id else asked
                    for token, asked in other._tokens.items()
                }
        for asked in held:
            if state.is_awaited(asked):
                asking = state.nodes[asked.source - 1] = copy_of(state.nodes[asked.source - 1])
                asking.step(m.Failed(0, asked.id, is_lost=True))
                self._send(state, asking)

    def _send(self, state: State, node: RaftNode) -> None:
        """What a node has sent is under way. An answer that says nothing is there at once."""
        sent, node.sent = node.sent, []
        for each in sent:
            says_nothing = isinstance(each.body, (m.BeginQuorumEpochAnswer, m.EndQuorumEpochAnswer))
            if each.is_request or (self.bounds.late and not says_nothing):
                state.network.append(each._replace(life=0))
            elif state.is_awaited(each):
                asking = state.nodes[each.source - 1] = copy_of(state.nodes[each.source - 1])
                asking.take(each._replace(life=asking.life), 0)
                self._send(state, asking)

    def _stand(self, node: RaftNode) -> None:
        """Its time is over, and the pre-vote is won."""
        raft = node.running
        match raft.role:
            case Candidate() as role:
                role.backoff_ms = 0
            case role:
                role.deadline_ms = 0  # type: ignore[union-attr]
        node.step(m.Tick(0))
        if isinstance(raft.role, Prospective):
            asked = [each for each in node.sent if isinstance(each.body, m.Vote)]
            node.sent = []
            for each in asked:
                if isinstance(raft.role, Prospective):
                    granted = m.VoteAnswer(ErrorCode.NONE, raft.epoch, m.NO_NODE, (), True)
                    node.step(m.Answered(0, each.id, granted))

    # --- What must hold -----------------------------------------------------------------------------------------------

    def _check(self, state: State, node: RaftNode, had: int | None) -> None:
        raft = node.running
        if node.persisted is not None:
            self._check_election(state, node.id, node.persisted)
        if node.leads is not None:
            known = state.leaders.setdefault(node.leads[0], node.id)
            assert known == node.id, f"epoch {node.leads[0]} has leaders {known} and {node.id}"
            if raft.epoch == max(state.leaders):
                mine = node.log.all_values()
                assert mine[: len(state.truth)] == state.truth, (
                    f"leader {node.id} lacks what is committed: {state.truth}"
                )
        if raft.is_leader and raft.high_watermark not in (None, had):
            reached = sum(each.log.flushed_offset >= (raft.high_watermark or 0) for each in state.nodes)
            assert reached > len(state.nodes) // 2, f"{raft.high_watermark} is on {reached} disks"
        committed = tuple(node.committed)
        common = min(len(committed), len(state.truth))
        assert committed[:common] == state.truth[:common], f"node {node.id}: {committed}, committed is {state.truth}"
        if len(committed) > len(state.truth):
            assert raft.is_leader, f"node {node.id} applies what no leader has committed"
            state.truth = committed
        for other in state.nodes:
            if other is not node:
                self._check_logs(node, other)

    def _check_election(self, state: State, node_id: int, persisted: m.Persist) -> None:
        if persisted.voted is not None:
            known = state.votes.setdefault((node_id, persisted.epoch), persisted.voted.id)
            assert known == persisted.voted.id, f"node {node_id} votes twice in epoch {persisted.epoch}"
        if persisted.leader_id != m.NO_NODE:
            known = state.leaders.setdefault(persisted.epoch, persisted.leader_id)
            assert known == persisted.leader_id, (
                f"epoch {persisted.epoch} has leaders {known} and {persisted.leader_id}"
            )

    def _check_logs(self, one: RaftNode, other: RaftNode) -> None:
        """Where two logs have a record of the same epoch at an offset, they are the same up to there."""
        mine, theirs = one.log.all_values(), other.log.all_values()
        for offset in range(min(len(mine), len(theirs)) - 1, -1, -1):
            if mine[offset][0] == theirs[offset][0]:
                assert mine[: offset + 1] == theirs[: offset + 1], f"{one.id} has {mine}, {other.id} has {theirs}"
                return


def explore(
    bounds: Bounds, most_states: int | None = None, progress: exploring.Progress | None = None
) -> exploring.Found:
    """All states within the bounds, or as many as are asked for, the nearest first."""
    return exploring.explore(Model(bounds), most_states, progress)


if __name__ == "__main__":
    raise SystemExit(exploring.main("tests.core_broker.cluster.raft.model", __doc__, Bounds, explore))
