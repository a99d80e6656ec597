"""One node of a quorum in memory: the step function, with a log and a state file that lose at a crash what is not on
disk. It carries out effects; messages go out through `sent`.

A record is (epoch, value). Values are what a leader appended, or the control records: `LeaderChange` and `Voters`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, cast

from isthmus.core_broker.cluster.raft import messages as m
from isthmus.core_broker.cluster.raft.messages import OffsetAndEpoch
from isthmus.core_broker.cluster.raft.raft import Raft, RaftOptions
from isthmus.core_broker.cluster.raft.voters import (
    Endpoint,
    Endpoints,
    ReplicaKey,
    Voter,
    VoterChange,
    VoterHistory,
    VoterSet,
)
from isthmus.protocol.errors import ErrorCode


class LeaderChange(NamedTuple):
    leader: int

    def __str__(self) -> str:
        return f"L{self.leader}"


class Voters(NamedTuple):
    voters: VoterSet
    kraft_version: int | None = None

    def __str__(self) -> str:
        return f"V{self.voters}"


Record = tuple[int, Any]


class Snapshot(NamedTuple):
    """All values before its end, instead of a state."""

    id: OffsetAndEpoch
    values: tuple[Record, ...]
    changes: tuple[VoterChange, ...]


@dataclass
class MemoryLog:
    """flushed_offset: all before it survives a crash."""

    start_offset: int = 0
    records: list[Record] = field(default_factory=list)
    flushed_offset: int = 0
    taken: Snapshot | None = None

    @property
    def end_offset(self) -> int:
        return self.start_offset + len(self.records)

    @property
    def last_epoch(self) -> int:
        if self.records:
            return self.records[-1][0]
        return self.taken.id.epoch if self.taken else 0

    @property
    def snapshot(self) -> OffsetAndEpoch | None:
        return self.taken.id if self.taken else None

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch | None:
        if not self.records or epoch > self.records[-1][0]:
            return None
        found, end = epoch, self.start_offset
        for each, _ in self.records:
            if each > epoch:
                break
            found, end = each, end + 1
        return OffsetAndEpoch(found, end)._replace(offset=end, epoch=found)

    def read(self, offset: int, most: int = 1 << 30) -> tuple[Record, ...]:
        return tuple(self.records[offset - self.start_offset :][:most])

    def append(self, records: Iterable[Record]) -> None:
        self.records += records

    def truncate(self, offset: int) -> None:
        del self.records[max(0, offset - self.start_offset) :]
        self.flushed_offset = min(self.flushed_offset, self.end_offset)

    def begin_after(self, snapshot: Snapshot, keeps: bool) -> None:
        """The snapshot replaces what is before its end; all, if not `keeps`."""
        self.records = list(self.read(snapshot.id.offset)) if keeps else []
        self.taken, self.start_offset = snapshot, snapshot.id.offset
        self.flushed_offset = max(self.flushed_offset, self.start_offset) if keeps else self.start_offset

    def all_values(self) -> tuple[Record, ...]:
        return (*(self.taken.values if self.taken else ()), *self.records)

    def copy(self) -> MemoryLog:
        return replace(self, records=list(self.records))


def changes_in(records: Iterable[Record], offset: int) -> list[VoterChange]:
    return [
        VoterChange(offset + index, value.voters, value.kraft_version)
        for index, (_, value) in enumerate(records)
        if isinstance(value, Voters)
    ]


def endpoints_of(node_id: int) -> Endpoints:
    return (Endpoint("CONTROLLER", f"host{node_id}", 9093),)


def key_of(node_id: int, life: int = 0) -> ReplicaKey:
    """life: which directory of the node's."""
    return ReplicaKey(node_id, bytes([life]) * 15 + bytes([node_id]))


class Message(NamedTuple):
    """A request, or the response to the one with the same source, target and id. life: of the source."""

    source: int
    target: int
    id: int
    body: Any
    life: int = 0

    @property
    def is_request(self) -> bool:
        return not isinstance(self.body, m.Response)


class Crashed(Exception):
    """The node was to crash before this effect."""


@dataclass
class RaftNode:
    """configured: voters that do not change (kraft.version 0). note(node, effect) is told of each effect."""

    key: ReplicaKey
    configured: VoterSet = field(default_factory=VoterSet)
    options: RaftOptions = field(default_factory=RaftOptions)
    chance: Callable[[int], int] = lambda n: 0
    servers: tuple[Endpoints, ...] = ()
    log: MemoryLog = field(default_factory=MemoryLog)
    persisted: m.Persist | None = None
    flushes_at_once: bool = True
    crash_after: int | None = None  # so many effects; the next one raises Crashed

    raft: Raft | None = None
    sent: list[Message] = field(default_factory=list)
    committed: list[Record] = field(default_factory=list)  # what a state machine has applied in this life
    leads: tuple[int, int] | None = None  # (epoch, start offset)
    life: int = 0  # how often it was started
    note: Callable[[int, m.Effect], None] = lambda node, effect: None
    _tokens: dict[int, Message] = field(default_factory=dict)
    _last_token: int = 0
    _part: list[Any] = field(default_factory=list)  # of a snapshot that is being fetched

    @property
    def id(self) -> int:
        return self.key.id

    @property
    def running(self) -> Raft:
        assert self.raft is not None, f"node {self.id} is down"
        return self.raft

    def start(self, now_ms: int) -> None:
        history = VoterHistory(self.configured)
        if self.log.taken:
            history.reset(self.log.taken.changes)
        history.add(changes_in(self.log.records, self.log.start_offset))
        self.committed = list(self.log.taken.values) if self.log.taken else []
        self.raft = Raft(
            self.key, self.log, history, self.options, self.chance, endpoints_of(self.id), self.servers, self.persisted
        )
        self.leads = None
        self.life += 1
        self._carry_out(self.raft.start(now_ms), now_ms)

    def crash(self) -> None:
        """What is not on disk is gone."""
        self.raft, self.leads, self.crash_after = None, None, None
        self.log.truncate(self.log.flushed_offset)
        self.sent, self._tokens, self._part = [], {}, []

    def step(self, event: m.Event) -> None:
        self._carry_out(self.running.step(event), event.now_ms)

    def take(self, message: Message, now_ms: int) -> None:
        """A message has come."""
        if not message.is_request:
            if message.life == self.life:  # a connection ends with its process
                self.step(m.Answered(now_ms, message.id, message.body))
            return
        self._last_token += 1
        self._tokens[self._last_token] = message
        if isinstance(message.body, m.ProbeVoter):
            probed = m.ProbeAnswer(ErrorCode.NONE, 0, kraft_versions=(0, 1))
            self._answer(m.Answer(self._last_token, probed))
            return
        self.step(m.Received(now_ms, self._last_token, message.body))

    def append(self, values: Iterable[Any], now_ms: int) -> None:
        """A leader decides."""
        assert self.running.is_leader
        self.log.append((self.running.epoch, value) for value in values)
        self._changed(now_ms)

    def flush(self, now_ms: int) -> None:
        if self.log.flushed_offset < self.log.end_offset:
            self.log.flushed_offset = self.log.end_offset
            self.step(m.LogChanged(now_ms))

    def take_snapshot(self, now_ms: int, end: int | None = None) -> None:
        """Of what is committed; the log before it is dropped."""
        end = (self.running.high_watermark or 0) if end is None else end
        if end <= self.log.start_offset:
            return
        epoch = self.log.read(end - 1, 1)[0][0]
        values = self.log.all_values()[:end]
        history = self.running.voters
        change = VoterChange(end - 1, history.at(end), history.kraft_version_at(end))
        self.log.begin_after(Snapshot(OffsetAndEpoch(end, epoch), values, (change,)), keeps=True)
        self.step(m.LogChanged(now_ms))

    def _changed(self, now_ms: int, records: tuple[Record, ...] = (), offset: int = 0) -> None:
        if self.flushes_at_once:
            self.log.flushed_offset = self.log.end_offset
        self.step(m.LogChanged(now_ms, changes_in(records, offset)))

    def _carry_out(self, effects: list[m.Effect], now_ms: int) -> None:
        """All of them, and what follows from changes of the log."""
        follow: list[Callable[[], None]] = []
        for effect in effects:
            if self.crash_after is not None:
                if self.crash_after == 0:
                    raise Crashed
                self.crash_after -= 1
            self.note(self.id, effect)
            after = self._carry_out_one(effect, now_ms)
            if after is not None:
                follow.append(after)
        for each in follow:
            each()

    def _carry_out_one(self, effect: m.Effect, now_ms: int) -> Callable[[], None] | None:
        log, offset = self.log, self.log.end_offset
        match effect:
            case m.Persist():
                self.persisted = effect
            case m.Send():
                target = effect.node_id if effect.node_id >= 0 else int(effect.endpoints[0].host.removeprefix("host"))
                self.sent.append(Message(self.id, target, effect.id, effect.request, self.life))
            case m.Answer():
                self._answer(effect)
            case m.AppendLeaderChange():
                records: list[Record] = [(effect.epoch, LeaderChange(self.id))]
                if effect.voters is not None:
                    records.append((effect.epoch, Voters(effect.voters, effect.kraft_version)))
                log.append(records)
                return lambda: self._changed(now_ms, tuple(records), offset)
            case m.AppendVoters():
                record = (effect.epoch, Voters(effect.voters))
                log.append([record])
                return lambda: self._changed(now_ms, (record,), offset)
            case m.AppendFetched():
                fetched = cast(tuple[Record, ...], effect.records)
                log.append(fetched)
                return lambda: self._changed(now_ms, fetched, offset)
            case m.Truncate():
                log.truncate(effect.offset)
                return lambda: self.step(m.LogChanged(now_ms))
            case m.WriteSnapshot():
                return self._write_snapshot(effect, now_ms)
            case m.Committed():
                self._apply(effect.high_watermark)
            case m.BecameLeader():
                self.leads = (effect.epoch, effect.start_offset)
            case m.LostLeadership():
                self.leads = None
            case m.Fatal():
                raise AssertionError(f"node {self.id}: {effect.message}")
        return None

    def _write_snapshot(self, effect: m.WriteSnapshot, now_ms: int) -> Callable[[], None] | None:
        if effect.position == 0:
            self._part = []
        assert len(self._part) == effect.position
        self._part += effect.data
        if not effect.is_last:
            return None
        *values, changes = self._part
        assert not self.running.is_leader, f"node {self.id} leads and loads a snapshot"
        self.log.begin_after(Snapshot(effect.snapshot, tuple(values), changes), keeps=False)
        self.committed = list(values)
        return lambda: self.step(m.SnapshotLoaded(now_ms, changes))

    def _answer(self, effect: m.Answer) -> None:
        asked = self._tokens.pop(effect.token)
        answer: Any = effect.response
        if isinstance(answer, m.FetchAnswer) and answer.read_from is not None:
            answer = replace(answer, records=cast(bytes, self.log.read(answer.read_from, 3)))
        elif isinstance(answer, m.FetchSnapshotAnswer) and answer.snapshot is not None:
            assert self.log.taken is not None
            content = [*self.log.taken.values, self.log.taken.changes]
            part = cast(bytes, tuple(content[answer.position : answer.position + 4]))
            answer = replace(answer, size=len(content), data=part)
        if asked.source != self.id:
            self.sent.append(asked._replace(body=answer))

    def _apply(self, high_watermark: int) -> None:
        """The state machine takes what is committed and never goes back."""
        done = len(self.committed)
        if high_watermark > done:
            self.committed += self.log.all_values()[done:high_watermark]


def static_voters(ids: Iterable[int]) -> VoterSet:
    """As configured: by id alone."""
    return VoterSet.of(Voter(ReplicaKey(node_id), endpoints_of(node_id)) for node_id in ids)


def dynamic_voters(keys: Iterable[ReplicaKey]) -> VoterSet:
    return VoterSet.of(Voter(key, endpoints_of(key.id)) for key in keys)


def formatted_with(voters: VoterSet) -> MemoryLog:
    """The log of a node that was formatted with the first voters: they are in its bootstrap snapshot, at offset 0."""
    log = MemoryLog()
    log.taken = Snapshot(OffsetAndEpoch(0, 0), (), (VoterChange(-1, voters, 1),))
    return log


# --- As text ----------------------------------------------------------------------------------------------------------


def described(thing: Any) -> str:
    """An effect or a message in a few words."""
    match thing:
        case m.Send():
            return f"to {thing.node_id}: {described(thing.request)}"
        case m.Answer():
            return f"answer: {described(thing.response)}"
        case m.Persist():
            voted = "nobody" if thing.voted is None else thing.voted.id
            return f"persist epoch={thing.epoch} leader={thing.leader_id} voted={voted}"
        case m.AppendLeaderChange():
            voters = "" if thing.voters is None else f", then voters {ids(thing.voters)}"
            return f"append leader-change of epoch {thing.epoch}, granted by {list(thing.granting_ids)}{voters}"
        case m.AppendVoters():
            return f"append voters {ids(thing.voters)}"
        case m.AppendFetched():
            return f"append fetched {shown(cast(Any, thing.records))}"
        case m.Truncate():
            return f"truncate to {thing.offset}"
        case m.WriteSnapshot():
            return f"write snapshot {end(thing.snapshot)} from {thing.position}{', the last part' * thing.is_last}"
        case m.Committed():
            return f"committed up to {thing.high_watermark}"
        case m.BecameLeader():
            return f"leads epoch {thing.epoch} from offset {thing.start_offset} on"
        case m.LostLeadership():
            return f"leads epoch {thing.epoch} no more"
        case m.LeaderKnown():
            who = "unknown" if thing.leader_id == m.NO_NODE else thing.leader_id
            return f"leader of epoch {thing.epoch} is {who}"
        case m.Fatal():
            return f"fatal: {thing.message}"
        case m.Vote():
            return f"{'PreVote' if thing.pre_vote else 'Vote'} epoch={thing.epoch} last={end(thing.last)}"
        case m.BeginQuorumEpoch():
            return f"BeginQuorumEpoch epoch={thing.epoch} leader={thing.leader_id}"
        case m.EndQuorumEpoch():
            return f"EndQuorumEpoch epoch={thing.epoch} successors={[key.id for key in thing.successors]}"
        case m.Fetch():
            known = "?" if thing.high_watermark < 0 else thing.high_watermark
            return f"Fetch epoch={thing.epoch} from={thing.offset} after epoch={thing.last_fetched_epoch} hw={known}"
        case m.FetchSnapshot():
            return f"FetchSnapshot epoch={thing.epoch} {end(thing.snapshot)} from={thing.position}"
        case m.AddVoter():
            return f"AddRaftVoter {thing.voter.key.id}"
        case m.RemoveVoter():
            return f"RemoveRaftVoter {thing.voter.id}"
        case m.UpdateVoter():
            return f"UpdateRaftVoter {thing.voter.key.id}"
        case m.ProbeVoter():
            return f"ApiVersions, to be voter {thing.voter.key.id}"
        case m.Response():
            return _described_response(thing)
    raise TypeError(thing)


def _described_response(answer: m.Response) -> str:
    name = type(answer).__name__.removesuffix("Answer")
    error = "" if answer.error == ErrorCode.NONE else f" {answer.error.name}"
    leader = "?" if answer.leader_id == m.NO_NODE else answer.leader_id
    text = f"{name}{error} epoch={answer.epoch} leader={leader}"
    match answer:
        case m.VoteAnswer():
            return f"{text} {'granted' if answer.granted else 'refused'}"
        case m.FetchAnswer() if not error:
            text += f" hw={'?' if answer.high_watermark < 0 else answer.high_watermark}"
            if answer.diverging is not None:
                return f"{text} diverging after {end(answer.diverging)}"
            if answer.snapshot is not None:
                return f"{text} snapshot {end(answer.snapshot)}"
            if answer.records:
                return f"{text} {shown(cast(Any, answer.records))}"
            return f"{text} records from {answer.read_from}" if answer.read_from is not None else text
        case m.FetchSnapshotAnswer() if answer.snapshot is not None:
            return f"{text} {end(answer.snapshot)} from={answer.position}"
        case m.VoterAnswer() if answer.message:
            return f"{text}: {answer.message}"
    return text


def ids(voters: VoterSet) -> list[int]:
    return voters.ids


def end(last: OffsetAndEpoch) -> str:
    return f"{last.offset}@{last.epoch}"


def shown(records: Iterable[Record]) -> str:
    return "[" + " ".join(f"{value}@{epoch}" for epoch, value in records) + "]"
