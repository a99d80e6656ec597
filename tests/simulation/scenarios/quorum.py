"""(q) The metadata quorum alone, as a step function: nodes that crash and lose what was not on disk, a network that
loses, doubles and delays, cuts that may be one-way, processes that hang, snapshots, and voters that change.

After every event the invariants hold. Then the faults end, and within a bound all nodes have the same and a new
decision is everywhere.
"""

from __future__ import annotations

from isthmus.core_broker.cluster.raft.leader import Leader
from isthmus.core_broker.cluster.raft.raft import RaftOptions

from ..quorum_world import Faults, QuorumWorld
from ..rare_states import RAFT, counted
from ..runner import Simulation

FAULTY_MS = 25_000
KINDS = (
    "crash", "crash", "effects", "start", "cut", "heal", "orphans", "snapshot", "pause", "voters", "voters", "resign",
)  # fmt: skip
CALM_MS = 60_000  # within which everything must be in order again


async def quorum(sim: Simulation) -> None:
    with counted(sim.counters, RAFT):
        run_quorum(sim)


def run_quorum(sim: Simulation) -> None:
    chance = sim.random
    count = chance.choice((1, 3, 3, 3, 5, 5, 7))
    is_dynamic = chance.random() < 0.7
    voters = list(range(1, count + 1))
    if is_dynamic and chance.random() < 0.4:
        voters = voters[:1]  # the others are added while it runs
    others = [each for each in range(1, count + 2) if each not in voters]
    eager = RaftOptions(election_timeout_ms=60, fetch_timeout_ms=200, election_backoff_max_ms=100, fetch_max_wait_ms=50)
    options = eager if chance.random() < 0.3 else RaftOptions()
    world = QuorumWorld(chance, sim.counters, voters, others if is_dynamic else others[:1], is_dynamic, options)
    world.faults = Faults(
        loss=chance.choice((0.0, 0.01, 0.1)),
        double=chance.choice((0.0, 0.02, 0.2)),
        slow_message=chance.choice((0.0, 0.01, 0.1)),
        slow_flush=chance.choice((0.0, 0.0, 0.05)),
        crash_after_vote=chance.choice((0.0, 0.0, 0.3)),
        latency_ms=chance.choice(((1, 2), (1, 10), (1, 60))),
        flush_ms=chance.choice(((0, 0), (0, 8), (1, 80))),
    )
    Disturber(world, is_dynamic).begin()
    world.run(FAULTY_MS)
    calm(world)
    Admin(world).begin()
    assert world.run(FAULTY_MS + CALM_MS, Settled(world).now), "no order again: " + state_of(world)
    world.run(world.now_ms + 5_000)
    world.check_end()
    sim.trace.add("end", len(world.truth), max(world.leaders, default=0))


class Disturber:
    """Does something every now and then."""

    def __init__(self, world: QuorumWorld, is_dynamic: bool) -> None:
        self.world = world
        self.chance = world.chance
        self.is_dynamic = is_dynamic
        self.pause_ms = self.chance.choice((150, 400, 1500))  # between two faults, about
        self.is_hasty = False  # somebody asks new leaders to change the voters
        self._left_to_orphan = 0  # leaders to come
        self.append_ms = self.chance.choice((15, 60, 200))

    def begin(self) -> None:
        self.is_hasty = self.is_dynamic and self.chance.random() < 0.5
        self.world.on_leader = self._led
        self.world.at(0, self._append)
        self.world.at(1_000, self._disturb)

    @property
    def _is_over(self) -> bool:
        return self.world.now_ms >= FAULTY_MS

    def _append(self) -> None:
        if not self._is_over:
            self.world.append(self.chance.choice(list(self.world.nodes)))
            self.world.at(self.chance.randint(1, self.append_ms), self._append)

    def _disturb(self) -> None:
        if self._is_over:
            return
        world, chance = self.world, self.chance
        node_id = chance.choice(list(world.nodes))
        node = world.nodes[node_id]
        leader = world.leader()
        if leader is not None and chance.random() < 0.5:
            node, node_id = leader, leader.id  # what happens to a leader matters most
        match chance.choice(KINDS):
            case "crash" if self._may_fall(node_id):
                world.crash(node_id)
                world.at(chance.choice((1, 100, 1_000, 6_000)), lambda: self._up(node_id))
            case "effects" if self._may_fall(node_id) and node.raft is not None:
                node.crash_after = chance.randint(0, 6)
                world.at(chance.randint(500, 4_000), lambda: self._up(node_id))
            case "start":
                self._up(node_id)
            case "cut":
                self._cut()
            case "heal":
                world.cuts.clear()
            case "orphans" if leader is not None:
                self._left_to_orphan = chance.randint(1, 4)
                self._orphans(leader.id)
            case "snapshot":
                world.snapshot(node_id)
            case "pause":
                world.pause(node_id, chance.choice((50, 800, 3_000, 8_000)))
            case "resign" if chance.random() < 0.3:
                world.resign(node_id)
                world.at(2_000, lambda: self._restart(node_id))
            case "voters" if self.is_dynamic and leader is not None:
                self._change_voters(leader.id if chance.random() < 0.9 else chance.choice(list(world.nodes)))
        world.at(chance.randint(1, 2 * self.pause_ms), self._disturb)

    def _may_fall(self, node_id: int) -> bool:
        """Mostly a majority stays, so that there is something to lose."""
        up = [each.id for each in self.world.up() if each.id != node_id]
        return len(up) > len(self.world.nodes) // 2 or self.chance.random() < 0.2

    def _up(self, node_id: int) -> None:
        if self.world.nodes[node_id].raft is None:
            self.world.start(node_id)

    def _restart(self, node_id: int) -> None:
        self.world.crash(node_id)
        self._up(node_id)

    def _cut(self) -> None:
        world, chance = self.world, self.chance
        ids = list(world.nodes)
        side = chance.sample(ids, chance.randint(1, max(1, len(ids) // 2)))
        is_one_way = chance.random() < 0.4
        world.counters["one_way_cuts" if is_one_way else "cuts"] += 1
        for one in side:
            for other in ids:
                if other not in side:
                    world.cuts[one, other] = None
                    if not is_one_way:
                        world.cuts[other, one] = None
        world.at(chance.randint(300, 6_000), world.cuts.clear)

    def _orphans(self, node_id: int) -> None:
        """What a leader has written is on its disk alone, and so is what the next ones write, each cut off as soon as
        it leads: their logs differ in several epochs."""
        world, chance = self.world, self.chance
        world.cuts.clear()
        for other in world.nodes:
            if other != node_id:
                world.cuts[other, node_id] = world.cuts[node_id, other] = None
        for _ in range(chance.randint(0, 3)):
            world.append(node_id)
        world.counters["orphans"] += 1
        if not self._left_to_orphan:
            world.at(chance.randint(1_000, 6_000), world.cuts.clear)

    def _led(self, node_id: int) -> None:
        """A leader was elected."""
        if self._left_to_orphan and not self._is_over:
            self._left_to_orphan -= 1
            self._orphans(node_id)
        elif self.is_hasty:
            self._hasty(node_id)

    def _hasty(self, node_id: int) -> None:
        """Somebody asks a leader that has just been elected to change the voters."""
        if self.chance.random() < 0.3 and not self._is_over:
            self.world.at(self.chance.randint(0, 10), lambda: self._change_voters(node_id))

    def _change_voters(self, asked: int) -> None:
        world, chance = self.world, self.chance
        leader = world.leader()
        raft = world.nodes[asked].raft if leader is None else leader.raft
        if raft is None:
            return
        voters = raft.voters.last
        outside = [each for each in world.nodes if each not in voters.ids]
        is_decided = leader is not None and raft.voters.last_offset < (raft.high_watermark or 0)
        is_decided = is_decided and isinstance(raft.role, Leader) and raft.role.change is None
        if world.lost is not None:
            if voters.has(world.lost) or not is_decided:
                world.remove_voter(asked, world.lost)
            else:
                world.lost = None
        elif is_decided and outside and chance.random() < 0.1:
            world.wipe(chance.choice(outside))
        elif is_decided and len(voters) > 2 and chance.random() < 0.3:
            # What this voter had may now be on one other only, which the rest needs for an election.
            world.lost = chance.choice(voters.voters).key
            world.wipe(world.lost.id)
        elif outside and (len(voters) < 2 or chance.random() < 0.6):
            world.add_voter(asked, chance.choice(outside))
        elif len(voters) > 1:
            world.remove_voter(asked, chance.choice(voters.voters).key)
        if chance.random() < 0.2 and not self._is_over:
            world.at(chance.choice((0, 5, 50)), lambda: self._change_voters(asked))  # it must wait for the first change


class Admin:
    """Somebody who starts what is down, and removes a voter whose disk is lost, once the faults are over."""

    def __init__(self, world: QuorumWorld) -> None:
        self.world = world

    def begin(self) -> None:
        self._look()

    def _look(self) -> None:
        for node_id, node in self.world.nodes.items():
            if node.raft is None:
                self.world.start(node_id)
        leader, lost = self.world.leader(), self.world.lost
        if leader is not None and lost is not None and leader.running.voters.last.has(lost):
            self.world.remove_voter(leader.id, lost)
        self.world.at(500, self._look)


def calm(world: QuorumWorld) -> None:
    """The faults end."""
    world.faults = Faults()
    world.cuts.clear()
    for node in world.nodes.values():
        node.crash_after = None
        if node.raft is not None and node.raft.is_stopping:
            world.crash(node.id)


class Settled:
    """Whether a decision that is made now is on every node."""

    def __init__(self, world: QuorumWorld) -> None:
        self.world = world
        self.wanted: int | None = None

    def now(self) -> bool:
        world = self.world
        if self.wanted is None or self.wanted not in world.acknowledged:
            leader = world.leader()
            is_same = leader is not None and any(
                each[0] == leader.id and each[1] == leader.running.epoch for each in world.waiting
            )
            if leader is not None and not is_same:
                self.wanted = leader.log.end_offset
                if not world.append(leader.id):
                    self.wanted = None
            return False
        up = world.up()
        return len(up) == len(world.nodes) and all(len(node.committed) > self.wanted for node in up)


def state_of(world: QuorumWorld) -> str:
    lines = []
    for node in world.nodes.values():
        if node.raft is None:
            lines.append(f"{node.id} down")
            continue
        raft = node.raft
        lines.append(
            f"{node.id} {type(raft.role).__name__} epoch {raft.epoch} leader {raft.leader_id} hw {raft.high_watermark} "
            f"voters {raft.voters.last} log {node.log.start_offset}-{node.log.end_offset}@{node.log.last_epoch} "
            f"{raft.role if not raft.is_leader else ''}"
        )
    return "\n".join(lines)
