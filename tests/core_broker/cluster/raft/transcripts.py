"""Reads and runs the transcripts in `raft/*.txt`: commands, then what the nodes did.

    command arguments
    ----
    what the nodes did, a line each

An empty line ends it. `#` begins a comment. `python -m tests.core_broker.cluster.raft.transcripts` writes all of them
anew from what the code does now; then read the difference.

`time`, `settle` and `lead` tell what changed at the nodes, but not the messages. Time stands still unless a command
moves it. Chance is a tenth of what it may be at node 1, two tenths at node 2, and so on. Commands:

    nodes 1 2 3 [voters 1 2] [dynamic]   start these; voters: those that are, else all; dynamic: they are in the log
    node 4 [life 1]                      start one more, an observer; life: with another directory
    timeout 1                            time goes on until node 1 waits no longer in its role, and only it is told
    time 500                             time goes on by this many ms, and what is under way arrives at once
    deliver [1 2]                        what is under way between nodes 1 and 2, or everything, arrives; once
    settle                               deliver, again and again, until only fetches that wait are under way
    lead 1                               timeout 1, then settle
    drop                                 what is under way is lost
    lost 1 2                             node 1 sees its connection to node 2 break
    append 1 a b                         leader 1 appends these values
    slow 1 / flush 1                     appends of node 1 are not on disk until it is flushed
    snapshot 1                           node 1 replaces what is committed by a snapshot
    crash 1 / start 1 / resign 1 / give_up 1
    cut 1 2 / heal                       messages from 1 to 2 are lost from now on
    add 1 4 / remove 1 4                 ask node 1 to add or remove voter 4
    status                               role, epoch, high watermark and log of each node
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isthmus.core_broker.cluster.raft import messages as m
from isthmus.core_broker.cluster.raft.raft import Candidate, Leader
from isthmus.core_broker.cluster.raft.voters import ReplicaKey, Voter

from .node import (
    Message,
    RaftNode,
    described,
    dynamic_voters,
    endpoints_of,
    formatted_with,
    key_of,
    shown,
    static_voters,
)

DIRECTORY = Path(__file__).parent
ROUNDS = 40  # of a settle
CLIENT = 0


@dataclass
class World:
    nodes: dict[int, RaftNode] = field(default_factory=dict)
    now_ms: int = 0
    under_way: list[Message] = field(default_factory=list)
    cuts: dict[tuple[int, int], None] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    is_quiet: bool = False  # about messages

    def run(self, command: str) -> str:
        """What happens at a command."""
        name, *words = command.split()
        self.lines = []
        self.is_quiet = name in ("settle", "time", "lead")
        getattr(self, f"do_{name}")(*words)
        self._collect()
        return "\n".join(self.lines) or "nothing"

    def _collect(self) -> None:
        for node in self.nodes.values():
            for each in node.sent:
                if each.source != CLIENT:
                    self.under_way.append(each)
                elif not each.is_request:
                    self.lines.append(f"client: {described(each.body)}")
            node.sent = []

    def _note(self, node: int, effect: m.Effect) -> None:
        text = described(effect)
        if not (self.is_quiet and text.startswith(("to ", "answer: "))):
            self.lines.append(f"{node}: {text}")

    def _roles(self) -> dict[int, str]:
        return {id: type(node.raft.role).__name__ for id, node in self.nodes.items() if node.raft}

    def _at(self, node_id: int, do: Any, *arguments: Any) -> None:
        """Do something at a node, and say which role it has then."""
        before = self._roles().get(node_id)
        do(*arguments)
        after = self._roles().get(node_id)
        if after != before:
            self.lines.append(f"{node_id}: is {after} now")
        self._collect()

    # --- Commands -----------------------------------------------------------------------------------------------------

    def do_nodes(self, *words: str) -> None:
        numbers = [int(word) for word in words if word.isdigit()]
        ids, voters = numbers, numbers
        if "voters" in words:
            at = words.index("voters")
            ids = [int(word) for word in words[:at]]
            voters = [int(word) for word in words[at + 1 :] if word.isdigit()]
        is_dynamic = "dynamic" in words
        for node_id in ids:
            key = key_of(node_id)
            node = self.nodes[node_id] = RaftNode(key, note=self._note, chance=chance_of(node_id))
            if is_dynamic:
                node.log = formatted_with(dynamic_voters([key_of(each) for each in voters]))
            else:
                node.configured = static_voters(voters)
            self._at(node_id, node.start, self.now_ms)

    def do_node(self, node_id: str, *words: str) -> None:
        key = key_of(int(node_id), int(words[1]) if words else 0)
        servers = tuple(endpoints_of(each) for each in self.nodes)
        node = self.nodes[key.id] = RaftNode(key, servers=servers, note=self._note, chance=chance_of(key.id))
        self._at(key.id, node.start, self.now_ms)

    def do_timeout(self, node_id: str) -> None:
        node = self.nodes[int(node_id)]
        match node.running.role:
            case Candidate(backoff_ms=int(deadline)) | Leader(check_deadline_ms=deadline):
                pass
            case role:
                deadline = role.deadline_ms
        assert deadline is not None
        self.now_ms = max(self.now_ms, deadline)
        self.lines.append(f"time is {self.now_ms} ms")
        self._at(node.id, node.step, m.Tick(self.now_ms))

    def do_time(self, ms: str) -> None:
        end = self.now_ms + int(ms)
        while True:
            self.do_settle()
            due = [
                (node.raft.deadline_ms, node.id)
                for node in self.nodes.values()
                if node.raft and node.raft.deadline_ms is not None
            ]
            if not due or min(due)[0] > end:
                break
            at, node_id = min(due)
            self.now_ms = max(self.now_ms, at)
            self._at(node_id, self.nodes[node_id].step, m.Tick(self.now_ms))
        self.now_ms = end

    def do_lead(self, node_id: str) -> None:
        self.do_timeout(node_id)
        self.do_settle()

    def do_deliver(self, *words: str) -> None:
        wanted = {int(word) for word in words}
        taken = [each for each in self.under_way if not wanted or set(_way(each)) == wanted]
        self.under_way = [each for each in self.under_way if each not in taken]
        for each in taken:
            self._deliver(each)

    def _deliver(self, message: Message) -> None:
        source, target = _way(message)
        if (source, target) in self.cuts:
            return
        node = self.nodes.get(target)
        if node is None or node.raft is None:
            asking = self.nodes.get(source)
            if message.is_request and asking is not None and asking.raft is not None:
                if not self.is_quiet:
                    self.lines.append(f"{source} -> {target}: no connection")
                self._at(source, asking.step, m.Failed(self.now_ms, message.id, is_lost=True))
            return
        if not self.is_quiet:
            self.lines.append(f"{source} -> {target}: {described(message.body)}")
        self._at(target, node.take, message, self.now_ms)

    def do_settle(self) -> None:
        for _ in range(ROUNDS):
            if not self.under_way:
                return
            self.do_deliver()
        self.lines.append(f"not settled after {ROUNDS} rounds")

    def do_drop(self) -> None:
        self.under_way = []

    def do_lost(self, node_id: str, other: str) -> None:
        node = self.nodes[int(node_id)]
        self._at(node.id, node.step, m.ConnectionLost(self.now_ms, int(other)))

    def do_append(self, node_id: str, *values: str) -> None:
        node = self.nodes[int(node_id)]
        if node.running.is_leader:
            self._at(node.id, node.append, values, self.now_ms)
        else:
            self.lines.append(f"{node_id}: does not lead")

    def do_slow(self, node_id: str) -> None:
        self.nodes[int(node_id)].flushes_at_once = False

    def do_flush(self, node_id: str) -> None:
        node = self.nodes[int(node_id)]
        node.flushes_at_once = True
        self._at(node.id, node.flush, self.now_ms)

    def do_snapshot(self, node_id: str) -> None:
        node = self.nodes[int(node_id)]
        self._at(node.id, node.take_snapshot, self.now_ms)

    def do_crash(self, node_id: str) -> None:
        self.nodes[int(node_id)].crash()

    def do_start(self, node_id: str) -> None:
        node = self.nodes[int(node_id)]
        self._at(node.id, node.start, self.now_ms)

    def do_resign(self, node_id: str) -> None:
        node = self.nodes[int(node_id)]
        self._at(node.id, node.step, m.Resign(self.now_ms))

    def do_give_up(self, node_id: str) -> None:
        node = self.nodes[int(node_id)]
        self._at(node.id, node.step, m.Resign(self.now_ms, stops=False))

    def do_cut(self, source: str, target: str) -> None:
        self.cuts[int(source), int(target)] = None

    def do_heal(self) -> None:
        self.cuts = {}

    def do_add(self, node_id: str, added: str) -> None:
        voter = Voter(self._key(added), endpoints_of(int(added)))
        self._ask(int(node_id), m.AddVoter(voter, 5_000))

    def do_remove(self, node_id: str, removed: str) -> None:
        self._ask(int(node_id), m.RemoveVoter(self._key(removed)))

    def _key(self, node_id: str) -> ReplicaKey:
        node = self.nodes.get(int(node_id))
        return key_of(int(node_id)) if node is None else node.key

    def _ask(self, node_id: int, request: Any) -> None:
        self._at(node_id, self.nodes[node_id].take, Message(CLIENT, node_id, 0, request), self.now_ms)

    def do_status(self) -> None:
        for node in self.nodes.values():
            log = f"log {node.log.start_offset}:{shown(node.log.records)}"
            if node.log.flushed_offset < node.log.end_offset:
                log += f" on disk up to {node.log.flushed_offset}"
            if node.raft is None:
                self.lines.append(f"{node.id}: down, {log}")
                continue
            raft = node.raft
            role = type(raft.role).__name__
            leader = "?" if raft.leader_id == m.NO_NODE else raft.leader_id
            self.lines.append(
                f"{node.id}: {role} epoch={raft.epoch} leader={leader} hw={raft.high_watermark} "
                f"voters={raft.voters.last.ids} {log}"
            )


def chance_of(node_id: int) -> Callable[[int], int]:
    return lambda n: n * node_id // 10


def _way(message: Message) -> tuple[int, int]:
    """From where to where: a response has the source and target of its request."""
    return (message.source, message.target) if message.is_request else (message.target, message.source)


@dataclass
class Part:
    """comments: lines before the command."""

    comments: list[str]
    command: str
    expected: str


def parse(text: str) -> list[Part]:
    parts: list[Part] = []
    for block in text.strip().split("\n\n"):
        lines = block.splitlines()
        comments = [line for line in lines if line.startswith("#")]
        rest = [line for line in lines if not line.startswith("#")]
        if not rest:
            parts.append(Part(comments, "", ""))
            continue
        expected = rest[2:] if len(rest) > 1 and rest[1] == "----" else []
        parts.append(Part(comments, rest[0], "\n".join(expected)))
    return parts


def played(text: str) -> str:
    """The transcript as it is with the code of now."""
    world = World()
    blocks = []
    for part in parse(text):
        lines = list(part.comments)
        if part.command:
            lines += [part.command, "----", world.run(part.command)]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def main() -> None:
    for path in sorted(DIRECTORY.glob("*.txt")):
        path.write_text(played(path.read_text()))


if __name__ == "__main__":
    main()
