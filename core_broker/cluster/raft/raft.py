"""The metadata quorum: Raft in which followers fetch, as in Kafka's KRaft (KIP-595, 853, 996), as a step function.

`Raft.step(event)` takes one event and returns what to do, in order. There is no I/O, no clock and no task here: events
carry the time, and `deadline_ms` says when the next `Tick` is due. The host (`quorum/`) carries out all effects of a
step before the next step, so that `log` is always as the effects left it; only the flush of what was appended may end
later, and is told by `LogChanged`.

    Unattached    no leader is known
    Prospective   asks whether it would be elected, without a new epoch (pre-vote)
    Candidate     asks for votes in a new epoch
    Follower      fetches from the leader
    Leader        appends, answers fetches, knows what is committed
    Resigned      has led this epoch and will not any more

    from          to            when
    any           Unattached    a higher epoch is seen
    any           Follower      the leader of this epoch, or of a higher one, is seen
    Unattached    Prospective   no leader came within the election timeout
    Follower      Prospective   no answer came within the fetch timeout, or the connection to the leader broke
    Prospective   Candidate     a majority would vote for it
    Prospective   Follower      no majority would, and a leader was known
    Prospective   Unattached    no majority would, and no leader was known
    Candidate     Leader        a majority has voted for it
    Candidate     Prospective   no majority has, and the pause after that is over
    Leader        Resigned      it stops, gives up, is no voter any more, or no majority fetches from it
    Resigned      Unattached    the election timeout has passed; in the next epoch, as it has led this one

A replica that is no voter (an observer) is Unattached or a Follower. A quorum of one voter leads from its start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ....protocol.errors import ErrorCode
from . import changes
from . import messages as m
from .leader import CHECK_QUORUM_FACTOR, HeldFetch, Leader, PendingChange
from .links import Links
from .log_view import LogView, check_position, end_of, has_all_of, truncation_offset
from .messages import NO_NODE, UNKNOWN, OffsetAndEpoch
from .roles import Candidate, Follower, Prospective, Resigned, Role, Unattached, Votes
from .voters import BEFORE_LOG, Endpoints, ReplicaKey, Voter, VoterChange, VoterHistory, VoterSet

MAX_BACKOFF_DOUBLINGS = 20
BACKOFF_BASE_MS = 100
LOST_LEADER_DELAY_MS = 10  # at most, from the loss of the connection to the leader to the pre-vote of the first voter
LOST_LEADER_TURN_MS = 30  # later, the next voter, so that they do not ask for each other's votes at once
FIND_LEADER_MS = 100  # between requests that ask the voters in turn who leads
UPDATE_VOTER_FETCH_TIMEOUTS = 3  # between requests to correct what the voters' record says of this node
FIRST_SERVER_ID = -2  # of servers known by address alone; the next is one less


@dataclass(slots=True, frozen=True)
class RaftOptions:
    """Kafka's `controller.quorum.*` options by the ends of their names, with Kafka's defaults."""

    election_timeout_ms: int = 1_000
    fetch_timeout_ms: int = 2_000
    election_backoff_max_ms: int = 1_000
    request_timeout_ms: int = 2_000
    retry_backoff_ms: int = 20
    fetch_max_wait_ms: int = 500


@dataclass(slots=True)
class Raft:
    """One node's part in the quorum. Call `start` once, then `step` for each event.

    me: this node, with endpoints for the voters' record. servers: addresses at which voters may be found.
    persisted: the last state that was; None at the first start. chance(n): a random number from 0 to n - 1.
    grows: as the only voter that is configured, it puts the voters into the log, so that others can be added (KIP-853).
    joins: as an observer, it asks to be a voter (controller.quorum.auto.join.enable, KIP-1186).
    """

    me: ReplicaKey
    log: LogView
    voters: VoterHistory
    options: RaftOptions
    chance: Callable[[int], int]
    endpoints: Endpoints = ()
    servers: Sequence[Endpoints] = ()
    persisted: m.Persist | None = None
    grows: bool = False
    joins: bool = False

    epoch: int = 0
    leader_id: int = NO_NODE
    leader_endpoints: Endpoints = ()
    voted: ReplicaKey | None = None
    high_watermark: int | None = None  # a new leader does not know it, see leader.py
    role: Role = field(default_factory=lambda: Unattached(None))
    is_stopping: bool = False

    _now_ms: int = 0
    _links: Links = field(init=False)
    _next_server: int = 0
    _find_at_ms: int = 0  # when to ask the next one
    _lost_pre_votes: int = 0  # in this epoch, since this node last heard from a leader
    _log_changes: bool = False  # by an effect of this step
    _effects: list[m.Effect] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._links = Links(self.options.request_timeout_ms, self.options.retry_backoff_ms)

    # --- What the host asks -------------------------------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        return isinstance(self.role, Leader)

    @property
    def is_voter(self) -> bool:
        return self.voters.last.has(self.me)

    @property
    def may_lead(self) -> bool:
        """Whether it stands for election: a voter, or one whose removal may not be committed. Then nobody else may have
        its log, and the voters that remain would wait for it for ever."""
        return self.voters.may_have(self.me, self.high_watermark)

    @property
    def deadline_ms(self) -> int | None:
        """When the next Tick is due; None if only another event can change anything."""
        times: list[int] = []
        match self.role:
            case Unattached(deadline_ms=deadline) | Resigned(deadline_ms=deadline):
                if deadline is not None and not self.is_stopping:
                    times.append(deadline)
            case Prospective(deadline_ms=deadline):
                times.append(deadline)
            case Candidate() as role:
                times.append(role.deadline_ms if role.backoff_ms is None else role.backoff_ms)
            case Follower() as role:
                if self.may_lead and not self.is_stopping:
                    times.append(role.deadline_ms)
            case Leader() as role:
                if role.must_check_quorum:
                    times += [role.check_deadline_ms, role.begin_at_ms]
                times += [held.deadline_ms for held in role.held.values()]
                if role.change is not None:
                    times.append(role.change.deadline_ms)
        if self._find_at_ms > self._now_ms and not isinstance(self.role, Leader):
            times.append(self._find_at_ms)
        times += self._links.deadlines(self._now_ms)
        return min(times, default=None)

    def start(self, now_ms: int) -> list[m.Effect]:
        """Take up the role in which the last life ended, as Kafka's QuorumState.initialize does."""
        self._now_ms = now_ms
        last, election = self.log.last_epoch, self.persisted
        if election is None or election.epoch < last:
            election = m.Persist(last, NO_NODE, None)
        self.epoch, self.voted = election.epoch, election.voted
        if self.log.snapshot is not None:
            self.high_watermark = self.log.snapshot.offset
        if election.leader_id == self.me.id:
            # Records that were not on disk may be gone, so this epoch must not have another record from here.
            self.leader_id, self.leader_endpoints = self.me.id, self.endpoints
            self.role = Resigned(self._election_deadline(), {}, ())
        elif election.leader_id != NO_NODE and self.voters.last.endpoints(election.leader_id):
            self._become_follower(election.epoch, election.leader_id, self.voters.last.endpoints(election.leader_id))
        else:
            self.leader_id = election.leader_id
            self.role = Unattached(self._election_deadline())
        if self.voters.last.has_only(self.me):
            self._become_candidate(1)
        self._poll()
        return self._flushed_effects()

    def step(self, event: m.Event) -> list[m.Effect]:
        """Take one event; returns what to do, in order."""
        self._now_ms = event.now_ms
        match event:
            case m.Received():
                self._receive(event.token, event.request)
            case m.Answered():
                self._take_answer(event.id, event.response)
            case m.Failed():
                self._fail(event.id, event.is_lost)
            case m.ConnectionLost():
                self._suspect(event.node_id)
            case m.LogChanged():
                self._take_log(event)
            case m.SnapshotLoaded():
                self._take_snapshot(event)
            case m.Resign(stops=True):
                self.is_stopping = True
            case m.Resign():
                if isinstance(self.role, Leader) and not self.voters.last.has_only(self.me):
                    self._resign(self.role)
            case m.Tick():
                pass
        self._poll()
        return self._flushed_effects()

    def _flushed_effects(self) -> list[m.Effect]:
        """The effects of this step. Of states to persist between which nothing leaves the node, the last is enough."""
        effects, self._effects, self._log_changes = self._effects, [], False
        kept: list[m.Effect] = []
        is_covered = False  # by a later Persist
        for effect in reversed(effects):
            if not isinstance(effect, m.Persist):
                is_covered = is_covered and isinstance(effect, (m.LeaderKnown, m.LostLeadership))
                kept.append(effect)
            elif not is_covered:
                is_covered = True
                kept.append(effect)
        return kept[::-1]

    def _do(self, effect: m.Effect) -> None:
        self._effects.append(effect)

    def _answer(self, token: int, answer: m.Response) -> None:
        self._do(m.Answer(token, answer))

    @property
    def _who_leads(self) -> tuple[int, int, Endpoints]:
        """What every answer says of it."""
        return self.epoch, self.leader_id, self.leader_endpoints

    # --- Roles --------------------------------------------------------------------------------------------------------

    def _persist(self) -> None:
        state = m.Persist(self.epoch, self.leader_id, self.voted)
        if state != self.persisted:
            self.persisted = state
            self._do(state)

    def _change_role(self, role: Role) -> None:
        """Take a role. Answers to what an earlier role has asked do not count any more."""
        before, self.role = self.role, role
        self._links.reset()
        if isinstance(before, Leader):
            for token in before.held:
                self._answer(token, m.FetchAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER, *self._who_leads))
            if before.change is not None:
                self._answer(before.change.token, m.VoterAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER, *self._who_leads))
            self._do(m.LostLeadership(self.epoch))

    def _set_leader(self, leader_id: int, endpoints: Endpoints = ()) -> None:
        if leader_id != self.leader_id:
            self._do(m.LeaderKnown(self.epoch, leader_id))
        self.leader_id, self.leader_endpoints = leader_id, endpoints

    def _enter_epoch(self, epoch: int) -> None:
        if epoch > self.epoch:
            self.epoch, self.voted, self._lost_pre_votes = epoch, None, 0

    def _become_unattached(self, epoch: int, leader_id: int = NO_NODE) -> None:
        """In a new epoch, or after a pre-vote that was lost. The time to wait goes on, so that an election in which
        nobody wins is not prolonged by whoever starts the next epoch."""
        match self.role:
            case Candidate(deadline_ms=deadline) | Unattached(deadline_ms=deadline) | Resigned(deadline_ms=deadline):
                pass
            case Prospective(deadline_ms=deadline, votes=votes) if not votes.is_lost and self._now_ms < deadline:
                pass
            case _:
                deadline = None
        if not self.may_lead:
            deadline = None
        elif deadline is None or deadline <= self._now_ms:
            deadline = self._election_deadline()
        self._change_role(Unattached(deadline))
        self._enter_epoch(epoch)
        self._set_leader(leader_id)
        self._persist()

    def _become_follower(self, epoch: int, leader_id: int, endpoints: Endpoints) -> None:
        assert leader_id != self.me.id, f"node {self.me} would follow itself in epoch {epoch}"
        self._change_role(
            Follower(
                self._now_ms + self.options.fetch_timeout_ms,
                self._now_ms + UPDATE_VOTER_FETCH_TIMEOUTS * self.options.fetch_timeout_ms,
            )
        )
        self._enter_epoch(epoch)
        self._set_leader(leader_id, endpoints)
        self._persist()

    def _become_prospective(self) -> None:
        retries = self.role.retries + 1 if isinstance(self.role, Candidate) else 1
        self._change_role(Prospective(self._required_deadline(), self._own_vote(), retries))
        if self._votes.is_won:
            self._become_candidate(retries)

    def _become_candidate(self, retries: int) -> None:
        self._change_role(Candidate(self._required_deadline(), self._own_vote(), retries))
        self._enter_epoch(self.epoch + 1)
        self.voted = self.me
        self._set_leader(NO_NODE)
        self._persist()
        if self._votes.is_won:
            self._become_leader()

    def _become_leader(self) -> None:
        """The record that begins the epoch goes first, since only records of its own epoch tell a leader what is
        committed."""
        granted = tuple(node_id for node_id, vote in self._votes.granted.items() if vote)
        check_ms = round(CHECK_QUORUM_FACTOR * self.options.fetch_timeout_ms)
        role = Leader(self.me, self.log.end_offset, check_ms, self._now_ms + check_ms, self._now_ms)
        role.take_voters(self.voters.last)
        role.progress_of(self.me).end_offset = self.log.flushed_offset
        self.high_watermark = None
        self._change_role(role)
        self._set_leader(self.me.id, self.endpoints)
        self._persist()
        voters, version, own = None, self.voters.kraft_version, Voter(self.me, self.endpoints)
        if version < changes.RECONFIGURABLE and self.grows and self.voters.last.has_only(self.me):
            voters, version = VoterSet.of([own]), changes.RECONFIGURABLE
        elif version >= changes.RECONFIGURABLE and (
            self.voters.last_offset == BEFORE_LOG or self.voters.last.get(self.me.id) not in (None, own)
        ):
            voters = self.voters.last.with_voter(own) if self.is_voter else self.voters.last
        self._do(m.AppendLeaderChange(self.epoch, self.voters.last.ids, granted, voters, version))
        self._log_changes = True
        self._do(m.BecameLeader(self.epoch, role.start_offset))

    def _resign(self, role: Leader) -> None:
        """Nothing to persist: a node that has led an epoch starts as Resigned in it."""
        others = {node_id: None for node_id in self.voters.last.ids if node_id != self.me.id}
        self._change_role(Resigned(self._election_deadline(), others, role.by_progress()))

    # --- Elections ----------------------------------------------------------------------------------------------------

    @property
    def _votes(self) -> Votes:
        assert isinstance(self.role, (Prospective, Candidate))
        return self.role.votes

    def _own_vote(self) -> Votes:
        return Votes({node_id: True if node_id == self.me.id else None for node_id in self.voters.last.ids})

    def _required_deadline(self) -> int:
        timeout_ms = self.options.election_timeout_ms
        return self._now_ms + timeout_ms + self.chance(max(timeout_ms, 1))

    def _election_deadline(self) -> int | None:
        return self._required_deadline() if self.may_lead else None

    def _backoff_ms(self, retries: int) -> int:
        most = BACKOFF_BASE_MS * self.chance(2 << min(MAX_BACKOFF_DOUBLINGS, retries - 1))
        return min(most, self.options.election_backoff_max_ms)

    def _may_vote(self, candidate: ReplicaKey, has_enough: bool, pre_vote: bool) -> bool:
        match self.role:
            case Leader():
                return False
            case Follower(has_fetched=has_fetched):
                return pre_vote and has_enough and not has_fetched
            case Candidate() | Resigned():
                return pre_vote and has_enough
        if pre_vote:
            return has_enough
        if self.voted is not None:
            return self.voted.matches(candidate)
        return has_enough and self.leader_id == NO_NODE

    def _vote(self, token: int, request: m.Vote) -> None:
        last = request.last
        too_late = last.epoch > request.epoch or (last.epoch == request.epoch and not request.pre_vote)
        if request.epoch < self.epoch:
            self._answer(token, m.VoteAnswer(ErrorCode.FENCED_LEADER_EPOCH, *self._who_leads))
            return
        if last.offset < 0 or last.epoch < 0 or too_late or request.candidate.id < 0:
            self._answer(token, m.VoteAnswer(ErrorCode.INVALID_REQUEST, *self._who_leads))
            return
        if request.epoch > self.epoch:
            self._become_unattached(request.epoch)
        if not request.voter.matches(self.me):
            self._answer(token, m.VoteAnswer(ErrorCode.INVALID_VOTER_KEY, *self._who_leads))
            return
        granted = self._may_vote(request.candidate, has_all_of(last, self.log), request.pre_vote)
        if granted and not request.pre_vote and self.voted is None:
            self.voted = request.candidate
            if isinstance(self.role, Unattached):
                # It is as likely to win as this node, so it gets the time.
                self.role.deadline_ms = self._election_deadline()
            self._persist()
        self._answer(token, m.VoteAnswer(ErrorCode.NONE, *self._who_leads, granted))

    def _take_vote(self, node_id: int, request: m.Vote, answer: m.VoteAnswer) -> None:
        role = self.role
        if not isinstance(role, Prospective if request.pre_vote else Candidate) or node_id not in role.votes.granted:
            return
        if request.pre_vote and answer.error == ErrorCode.UNSUPPORTED_VERSION:
            self._become_candidate(role.retries)  # it knows no pre-vote: ask for its vote
            return
        if answer.error != ErrorCode.NONE:
            return
        role.votes.answered(node_id, answer.granted)
        if role.votes.is_won:
            if isinstance(role, Prospective):
                self._become_candidate(role.retries)
            else:
                self._become_leader()
        else:
            self._check_lost(role)

    def _check_lost(self, role: Prospective | Candidate) -> None:
        """If there can be no majority, try again after a pause. Do not wait for voters that cannot be reached."""
        if not role.votes.is_lost:
            return
        if isinstance(role, Prospective):
            self._lose_pre_vote()
        elif role.backoff_ms is None:
            role.backoff_ms = self._now_ms + self._backoff_ms(role.retries)

    def _lose_pre_vote(self) -> None:
        self._lost_pre_votes += 1
        if self.leader_id not in (NO_NODE, self.me.id) and self.leader_endpoints:
            self._become_follower(self.epoch, self.leader_id, self.leader_endpoints)
        else:
            self._become_unattached(self.epoch, self.leader_id)

    def _suspect(self, node_id: int) -> None:
        """The connection to a node broke. If it is the leader it may be dead, and all followers will have seen it; the
        pre-vote finds out. If it lives, the next fetch ends the suspicion."""
        if isinstance(self.role, Follower) and node_id == self.leader_id:
            self.role.has_fetched = False
            others = [each for each in self.voters.last.ids if each != self.leader_id]
            turn = others.index(self.me.id) if self.me.id in others else len(others)
            delay_ms = turn * LOST_LEADER_TURN_MS + self.chance(LOST_LEADER_DELAY_MS)
            if self._lost_pre_votes:
                pause_ms = BACKOFF_BASE_MS << min(MAX_BACKOFF_DOUBLINGS, self._lost_pre_votes - 1)
                delay_ms += min(pause_ms, self.options.election_backoff_max_ms)
            self._hurry(delay_ms)

    def _hurry(self, delay_ms: int) -> None:
        assert isinstance(self.role, Follower)
        self.role.deadline_ms = min(self.role.deadline_ms, self._now_ms + delay_ms)

    # --- Who leads ----------------------------------------------------------------------------------------------------

    def _take_leader(self, epoch: int, leader_id: int, endpoints: Endpoints) -> None:
        """A message says who leads an epoch that is not before this node's."""
        endpoints = endpoints or self.voters.last.endpoints(leader_id)
        if leader_id == self.me.id:
            return
        if epoch > self.epoch:
            if leader_id != NO_NODE and endpoints:
                self._become_follower(epoch, leader_id, endpoints)
            else:
                self._become_unattached(epoch, leader_id)
        elif leader_id != NO_NODE and endpoints and not self._knows_leader(len(endpoints)):
            self._become_follower(epoch, leader_id, endpoints)

    def _knows_leader(self, endpoints_count: int) -> bool:
        """Whether the leader is known, with as many endpoints."""
        return self.leader_id != NO_NODE and (
            self.leader_id == self.me.id or len(self.leader_endpoints) >= endpoints_count
        )

    def _contradicts(self, epoch: int, leader_id: int) -> bool:
        """Whether a message says that an epoch has another leader than it has."""
        if leader_id == NO_NODE or epoch != self.epoch:
            return False
        if leader_id == self.me.id:
            return self.leader_id != self.me.id
        return self.leader_id not in (NO_NODE, leader_id)

    def _begin(self, token: int, request: m.BeginQuorumEpoch) -> None:
        error = self._check_leader(request.epoch, request.leader_id)
        if error == ErrorCode.NONE:
            self._take_leader(request.epoch, request.leader_id, request.endpoints)
            if not request.voter.matches(self.me):
                error = ErrorCode.INVALID_VOTER_KEY
        self._answer(token, m.BeginQuorumEpochAnswer(error, *self._who_leads))

    def _end_epoch(self, token: int, request: m.EndQuorumEpoch) -> None:
        error = self._check_leader(request.epoch, request.leader_id)
        if error == ErrorCode.NONE:
            self._take_leader(request.epoch, request.leader_id, request.endpoints)
            if isinstance(self.role, Follower) and self.leader_id == request.leader_id:
                self.role.has_fetched = False  # it will not lead any more, so any pre-vote may be granted
                self._hurry(self._successor_delay_ms(request.successors))
        self._answer(token, m.EndQuorumEpochAnswer(error, *self._who_leads))

    def _check_leader(self, epoch: int, leader_id: int) -> ErrorCode:
        if epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if leader_id < 0 or self._contradicts(epoch, leader_id):
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.NONE

    def _successor_delay_ms(self, successors: Sequence[ReplicaKey]) -> int:
        """None for the voter that has most of the log; the others leave it some time."""
        most = self.options.election_backoff_max_ms
        place = next((index for index, key in enumerate(successors) if key.matches(self.me)), len(successors))
        if place == 0:
            return 0
        if place >= len(successors):
            return most
        return min(most, (most >> (len(successors) - 1)) << (place - 1))

    # --- Requests that come -------------------------------------------------------------------------------------------

    def _receive(self, token: int, request: m.Request) -> None:
        match request:
            case m.Vote():
                self._vote(token, request)
            case m.BeginQuorumEpoch():
                self._begin(token, request)
            case m.EndQuorumEpoch():
                self._end_epoch(token, request)
            case m.Fetch():
                self._serve_fetch(token, request)
            case m.FetchSnapshot():
                self._serve_snapshot(token, request)
            case m.AddVoter() | m.RemoveVoter() | m.UpdateVoter():
                self._change_voters(token, request)

    def _leader_error(self, epoch: int) -> ErrorCode:
        if epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > self.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if not self.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    def _serve_fetch(self, token: int, request: m.Fetch) -> None:
        if request.offset < 0 or request.max_wait_ms < 0 or not 0 <= request.last_fetched_epoch <= request.epoch:
            self._answer(token, m.FetchAnswer(ErrorCode.INVALID_REQUEST, *self._who_leads))
            return
        error = self._leader_error(request.epoch)
        if error != ErrorCode.NONE:
            self._answer(token, m.FetchAnswer(error, *self._who_leads))
            return
        role = self.role
        assert isinstance(role, Leader)
        if request.replica.id == self.me.id:
            self._answer(token, m.FetchAnswer(ErrorCode.INVALID_REQUEST, *self._who_leads))
            return
        diverging, snapshot = check_position(self.log, request.offset, request.last_fetched_epoch)
        if diverging is None and snapshot is None and request.replica.id >= 0:
            progress = role.progress_of(request.replica)
            progress.fetched(request.offset, self.log.end_offset, self._now_ms)
            role.heard_from(request.replica, self._now_ms)
            self._advance_high_watermark(role)
        if diverging is not None or snapshot is not None or request.max_wait_ms == 0 or self._has_news(request):
            self._answer_fetch(token, request, diverging, snapshot)
        else:
            role.held[token] = HeldFetch(request, self._now_ms + request.max_wait_ms)

    @property
    def _known_high_watermark(self) -> int:
        """As messages have it: UNKNOWN if it is not known."""
        return UNKNOWN if self.high_watermark is None else self.high_watermark

    def _has_news(self, request: m.Fetch) -> bool:
        return self.log.end_offset > request.offset or self._known_high_watermark > request.high_watermark

    def _answer_fetch(
        self,
        token: int,
        request: m.Fetch,
        diverging: OffsetAndEpoch | None = None,
        snapshot: OffsetAndEpoch | None = None,
    ) -> None:
        has_records = diverging is None and snapshot is None and self.log.end_offset > request.offset
        answer = m.FetchAnswer(
            ErrorCode.NONE,
            *self._who_leads,
            self._known_high_watermark,
            self.log.start_offset,
            diverging,
            snapshot,
            request.offset if has_records else None,
        )
        self._answer(token, answer)

    def _serve_snapshot(self, token: int, request: m.FetchSnapshot) -> None:
        error = self._leader_error(request.epoch)
        snapshot: OffsetAndEpoch | None = None
        if error == ErrorCode.NONE:
            assert isinstance(self.role, Leader)
            if request.snapshot != self.log.snapshot:
                error = ErrorCode.SNAPSHOT_NOT_FOUND
            else:
                snapshot = request.snapshot
                self.role.heard_from(request.replica, self._now_ms)
        self._answer(token, m.FetchSnapshotAnswer(error, *self._who_leads, snapshot, 0, request.position))

    def _commit(self, offset: int) -> bool:
        """Raise the high watermark; returns whether it was lower. It does not go back, even if new voters have less."""
        if self.high_watermark is not None and offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        self._do(m.Committed(offset))
        return True

    # --- The leader's log ---------------------------------------------------------------------------------------------

    def _take_log(self, event: m.LogChanged) -> None:
        self.voters.add(event.changes)
        self.voters.truncate_start(self.log.start_offset)
        match self.role:
            case Leader() as role:
                if event.changes:
                    self._note_change(role, event.changes)
                    role.take_voters(self.voters.last)
                role.progress_of(self.me).end_offset = self.log.flushed_offset
                self._advance_high_watermark(role)
                self._release_fetches(role)
            case Follower() as role:
                self._follow_high_watermark(role)

    def _advance_high_watermark(self, role: Leader) -> None:
        """Raise it to what a majority has on disk."""
        offset = role.high_watermark()
        if offset is not None and self._commit(offset):
            self._complete_change(role)
            self._release_fetches(role)

    def _release_fetches(self, role: Leader) -> None:
        for token, held in list(role.held.items()):
            if self._has_news(held.request) or self._now_ms >= held.deadline_ms:
                del role.held[token]
                self._answer_fetch(token, held.request)

    # --- The follower's log -------------------------------------------------------------------------------------------

    def _follow_high_watermark(self, role: Follower) -> None:
        """The leader's, as far as this log goes."""
        offset = min(role.told_high_watermark, self.log.end_offset)
        if offset >= 0:
            self._commit(offset)

    def _take_fetch(self, request: m.Fetch, answer: m.FetchAnswer) -> None:
        role = self.role
        if not isinstance(role, Follower) or answer.error != ErrorCode.NONE:
            return
        if request.offset != self.log.end_offset:
            return  # it was asked twice, by id and by address, and this is the second answer
        if answer.diverging is not None:
            self._diverge(answer.diverging)
        elif answer.snapshot is not None:
            role.snapshot, role.position = answer.snapshot, 0
        else:
            role.told_high_watermark = answer.high_watermark
            if answer.records:
                self._do(m.AppendFetched(answer.records, self.epoch))
                self._log_changes = True
            else:
                self._follow_high_watermark(role)
        self._hear_from_leader(role)

    def _hear_from_leader(self, role: Follower) -> None:
        role.has_fetched = True
        self._lost_pre_votes = 0
        role.deadline_ms = self._now_ms + self.options.fetch_timeout_ms

    def _diverge(self, leaders: OffsetAndEpoch) -> None:
        """Cut off what the leader's log does not have (KIP-595's truncation in Fetch)."""
        offset = truncation_offset(self.log, leaders)
        if self.high_watermark is not None and offset < self.high_watermark:
            self._do(
                m.Fatal(
                    f"leader {self.leader_id} of epoch {self.epoch} has nothing after offset {offset}, but offsets up "
                    f"to {self.high_watermark} were committed: the disk of a voter has lost records"
                )
            )
            return
        self._do(m.Truncate(offset))
        self._log_changes = True
        self.voters.truncate_end(offset)

    def _take_snapshot_part(self, answer: m.FetchSnapshotAnswer) -> None:
        role = self.role
        if not isinstance(role, Follower) or role.snapshot is None:
            return
        if answer.error == ErrorCode.NONE and (answer.snapshot, answer.position) == (role.snapshot, role.position):
            role.position += len(answer.data)
            is_last = role.position >= answer.size
            if answer.data or is_last:
                self._do(m.WriteSnapshot(role.snapshot, answer.position, answer.data, is_last))
            if is_last:
                self._log_changes = True
        elif answer.error not in (ErrorCode.NONE, ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE):
            return
        else:
            role.snapshot = None  # the leader has a newer one: ask again
        self._hear_from_leader(role)

    def _take_snapshot(self, event: m.SnapshotLoaded) -> None:
        self.voters.reset(event.changes)
        if isinstance(self.role, Follower):
            self.role.snapshot = None
        if self.log.snapshot is not None:
            self._commit(self.log.snapshot.offset)

    # --- Answers that come --------------------------------------------------------------------------------------------

    def _take_answer(self, request_id: int, answer: m.Response) -> None:
        sent = self._links.end(request_id)
        if sent is None:
            return
        if isinstance(sent.request, m.ProbeVoter):
            self._take_probe(request_id, answer)
            return
        if answer.error == ErrorCode.BROKER_NOT_AVAILABLE:
            self._suspect(sent.node_id)  # it stops, or its disk is broken
        if self._take_common(answer):
            self._pause_after(sent.node_id, answer)
            return
        match answer:
            case m.VoteAnswer():
                assert isinstance(sent.request, m.Vote)
                self._take_vote(sent.node_id, sent.request, answer)
            case m.FetchAnswer():
                assert isinstance(sent.request, m.Fetch)
                self._take_fetch(sent.request, answer)
            case m.FetchSnapshotAnswer():
                self._take_snapshot_part(answer)
            case m.EndQuorumEpochAnswer() if answer.error == ErrorCode.NONE and isinstance(self.role, Resigned):
                self.role.unacknowledged.pop(sent.node_id, None)
        self._pause_after(sent.node_id, answer)

    def _pause_after(self, node_id: int, answer: m.Response) -> None:
        if answer.error != ErrorCode.NONE:
            self._links.pause(node_id, self._now_ms)

    def _take_common(self, answer: m.Response) -> bool:
        """Take what an answer says of epoch and leader. True if there is nothing else to take from it."""
        error, epoch, leader_id = answer.error, answer.epoch, answer.leader_id
        if error == ErrorCode.UNSUPPORTED_VERSION:
            return False
        if epoch < self.epoch or error == ErrorCode.UNKNOWN_LEADER_EPOCH or self._contradicts(epoch, leader_id):
            return True
        if epoch > self.epoch or error in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER):
            self._take_leader(epoch, leader_id, answer.endpoints)
            return True
        if leader_id not in (NO_NODE, self.me.id) and not self._knows_leader(len(answer.endpoints)):
            # An observer finds the leader by a fetch, whose answer has records already.
            self._take_leader(epoch, leader_id, answer.endpoints)
            return error != ErrorCode.NONE or not isinstance(self.role, Follower)
        return error in (ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.INVALID_VOTER_KEY, ErrorCode.INVALID_REQUEST)

    def _fail(self, request_id: int, is_lost: bool) -> None:
        sent = self._links.end(request_id)
        if sent is None:
            return
        self._links.pause(sent.node_id, self._now_ms)
        if isinstance(sent.request, m.ProbeVoter):
            self._take_probe(request_id, None)
        if is_lost and isinstance(sent.request, m.Vote) and isinstance(self.role, (Prospective, Candidate)):
            self.role.votes.not_reached(sent.node_id)
            self._check_lost(self.role)
        elif is_lost:
            self._suspect(sent.node_id)

    # --- What to do now -----------------------------------------------------------------------------------------------

    def _poll(self) -> None:
        """Do what the role has to do now. A change of the role is followed by what the new one has to do."""
        for request_id in self._links.overdue(self._now_ms):
            self._fail(request_id, False)
        while True:
            role = self.role
            match role:
                case Unattached():
                    self._poll_unattached(role)
                case Prospective():
                    self._poll_prospective(role)
                case Candidate():
                    self._poll_candidate(role)
                case Follower():
                    self._poll_follower(role)
                case Leader():
                    self._poll_leader(role)
                case Resigned():
                    self._poll_resigned(role)
            if self.role is role:
                return

    def _poll_unattached(self, role: Unattached) -> None:
        if not self.may_lead:
            self._fetch_from_any()
            return
        if role.deadline_ms is None:
            role.deadline_ms = self._required_deadline()  # it has just become a voter
        if self.is_stopping:
            return
        if self._now_ms >= role.deadline_ms:
            self._become_prospective()
        else:
            self._fetch_from_any()

    def _poll_prospective(self, role: Prospective) -> None:
        if self._now_ms >= role.deadline_ms or not self.may_lead or self.is_stopping:
            self._lose_pre_vote()
        else:
            self._ask_for_votes(role.votes, True)

    def _poll_candidate(self, role: Candidate) -> None:
        if not self.may_lead:
            self._become_unattached(self.epoch)
        elif role.backoff_ms is not None:
            if self._now_ms >= role.backoff_ms:
                self._become_prospective()
        elif self._now_ms >= role.deadline_ms:
            role.backoff_ms = self._now_ms + self._backoff_ms(role.retries)
        else:
            self._ask_for_votes(role.votes, False)

    def _ask_for_votes(self, votes: Votes, pre_vote: bool) -> None:
        for voter in self.voters.last.voters:
            if votes.granted.get(voter.key.id, False) is None:
                self._send(
                    voter.key.id, voter.endpoints, m.Vote(self.me, voter.key, self.epoch, end_of(self.log), pre_vote)
                )  # fmt: skip

    def _poll_follower(self, role: Follower) -> None:
        if self.may_lead and not self.is_stopping and self._now_ms >= role.deadline_ms:
            self._become_prospective()
            return
        if not self._may_fetch:
            return
        is_failing = self._now_ms >= role.deadline_ms or self._links.is_pausing(self.leader_id, self._now_ms)
        if not self.is_voter and is_failing:
            self._fetch_from_any()  # another leader may have been elected
            return
        if self._now_ms >= role.update_at_ms:
            request = self._own_change()  # it is not sent while a fetch is under way, but after it
            if request is None or self._send(self.leader_id, self.leader_endpoints, request) is not None:
                role.update_at_ms = self._now_ms + UPDATE_VOTER_FETCH_TIMEOUTS * self.options.fetch_timeout_ms
        if role.snapshot is not None:
            part = m.FetchSnapshot(self.me, self.epoch, role.snapshot, role.position)
            self._send(self.leader_id, self.leader_endpoints, part)
        else:
            self._send(self.leader_id, self.leader_endpoints, self._fetch())

    @property
    def _may_fetch(self) -> bool:
        """Whether all is on disk: a leader takes the offset of a fetch for what is on this disk."""
        return not self._log_changes and self.log.flushed_offset >= self.log.end_offset

    def _fetch(self) -> m.Fetch:
        end, epoch = self.log.end_offset, self.log.last_epoch
        return m.Fetch(self.me, self.epoch, end, epoch, self.options.fetch_max_wait_ms, self._known_high_watermark)

    def _fetch_from_any(self) -> None:
        """Ask the voters in turn who leads, and the one that was said to lead."""
        if not self._may_fetch or self._now_ms < self._find_at_ms or self._links.is_any_in_flight:
            return
        known = [(voter.key.id, voter.endpoints) for voter in self.voters.last.voters if voter.key.id != self.me.id]
        known += [(FIRST_SERVER_ID - n, each) for n, each in enumerate(self.servers) if each != self.endpoints]
        if self.leader_id not in (NO_NODE, self.me.id) and self.voters.last.get(self.leader_id) is None:
            known.append((self.leader_id, self.leader_endpoints))
        for turn in range(len(known)):
            node_id, endpoints = known[(self._next_server + turn) % len(known)]
            if endpoints and self._send(node_id, endpoints, self._fetch()):
                self._next_server = (self._next_server + turn + 1) % len(known)
                self._find_at_ms = self._now_ms + FIND_LEADER_MS
                return

    def _poll_leader(self, role: Leader) -> None:
        if self.is_stopping or self._is_removed or self._has_lost_quorum(role):
            self._resign(role)
            return
        if role.change is not None and self._now_ms >= role.change.deadline_ms:
            self._end_change(role, ErrorCode.REQUEST_TIMED_OUT)
        self._release_fetches(role)
        if self._now_ms < role.begin_at_ms:
            return
        interval_ms = self.options.fetch_timeout_ms // 2
        role.begin_at_ms = self._now_ms + interval_ms
        for voter in self.voters.last.voters:
            fetched_ms = role.voters[voter.key.id].fetched_ms if voter.key.id in role.voters else -1
            if voter.key.id != self.me.id and (fetched_ms < 0 or self._now_ms - fetched_ms >= interval_ms):
                request = m.BeginQuorumEpoch(self.me.id, voter.key, self.epoch, self.endpoints)
                self._send(voter.key.id, voter.endpoints, request)

    @property
    def _is_removed(self) -> bool:
        """Whether this node is no voter any more, by a record that is committed."""
        is_committed = self.high_watermark is not None and self.voters.last_offset < self.high_watermark
        return is_committed and not self.is_voter

    def _has_lost_quorum(self, role: Leader) -> bool:
        return role.must_check_quorum and self._now_ms >= role.check_deadline_ms

    def _poll_resigned(self, role: Resigned) -> None:
        if role.deadline_ms is None:
            role.deadline_ms = self._required_deadline()
        if not self.is_stopping and self._now_ms >= role.deadline_ms:
            # The others may still take this node for the leader of its epoch.
            self._become_unattached(self.epoch + 1)
            return
        for voter in self.voters.last.voters:
            if voter.key.id in role.unacknowledged:
                self._send(
                    voter.key.id,
                    voter.endpoints,
                    m.EndQuorumEpoch(self.me.id, self.epoch, role.successors, self.endpoints),
                )

    def _send(self, node_id: int, endpoints: Endpoints, request: m.Request) -> int | None:
        """Send a request, unless one is under way or one has just failed. Returns its id."""
        request_id = self._links.begin(node_id, request, self._now_ms)
        if request_id is not None:
            self._do(m.Send(request_id, node_id, endpoints, request))
        return request_id

    # --- Changes of the voters (KIP-853): changes.py decides them -----------------------------------------------------

    def _own_change(self) -> m.Request | None:
        """What a follower asks of the leader for itself: to correct its endpoints, or to make it a voter."""
        if self.voters.kraft_version < changes.RECONFIGURABLE:
            return None
        own = Voter(self.me, self.endpoints)
        known = self.voters.last.get(self.me.id)
        if self.is_voter:
            return m.UpdateVoter(own, self.epoch) if known != own else None
        if not self.joins or self.is_stopping:
            return None
        if known is not None:
            return m.RemoveVoter(known.key)  # it had this node's id, and another disk
        # To wait for the commit would hold up the fetches that it needs.
        return m.AddVoter(own, self.options.request_timeout_ms, ack_when_committed=False)

    def _change_voters(self, token: int, request: m.AddVoter | m.RemoveVoter | m.UpdateVoter) -> None:
        error = self._leader_error(request.epoch if isinstance(request, m.UpdateVoter) else self.epoch)
        if error != ErrorCode.NONE:
            self._answer(token, m.VoterAnswer(error, *self._who_leads))
            return
        role = self.role
        assert isinstance(role, Leader)
        try:
            changes.check_possible(role, self.voters, self.high_watermark)
            if isinstance(request, m.AddVoter):
                changes.check_new(self.voters.last, request.voter.key)
                key = request.voter.key
                probe_id = self._send(key.id, request.voter.endpoints, m.ProbeVoter(request.voter))
                if probe_id is None:
                    raise changes.Refused(ErrorCode.REQUEST_TIMED_OUT, f"another request to node {key.id} is under way")
                role.change = PendingChange(token, request, self._now_ms + request.timeout_ms, probe_id)
                return
            voters = changes.voters_after(self.voters.last, request, self.voters.kraft_version)
        except changes.Refused as refused:
            self._answer(token, m.VoterAnswer(refused.error, *self._who_leads, refused.reason))
            return
        role.change = PendingChange(token, request, self._now_ms + self.options.request_timeout_ms)
        self._append_voters(role.change, voters)

    def _take_probe(self, request_id: int, answer: m.Response | None) -> None:
        """The node that is to be a voter has said what it supports; or it has not answered."""
        role = self.role
        if not isinstance(role, Leader) or role.change is None or role.change.probe_id != request_id:
            return
        request = role.change.request
        assert isinstance(request, m.AddVoter)
        role.change.probe_id = None
        try:
            voter = changes.probed(role, request.voter, answer, self.voters.kraft_version, self._now_ms)
        except changes.Refused as refused:
            self._end_change(role, refused.error, refused.reason)
            return
        self._append_voters(role.change, self.voters.last.with_voter(voter))

    def _append_voters(self, change: PendingChange, voters: VoterSet) -> None:
        change.is_written = True
        self._do(m.AppendVoters(self.epoch, voters))

    def _note_change(self, role: Leader, changes: Sequence[VoterChange]) -> None:
        """If the record of the change that is under way is among these, it is in the log."""
        change = role.change
        if change is None or not change.is_written or change.offset is not None:
            return
        change.offset = next((each.offset for each in changes if each.voters is not None), None)
        match change.request:
            case m.AddVoter(ack_when_committed=waits):
                pass
            case request:
                waits = isinstance(request, m.RemoveVoter)  # a voter that corrects its endpoints must fetch on
        if change.offset is not None and not waits:
            self._end_change(role, ErrorCode.NONE)

    def _complete_change(self, role: Leader) -> None:
        change = role.change
        if change is not None and change.offset is not None and (self.high_watermark or 0) > change.offset:
            self._end_change(role, ErrorCode.NONE)

    def _end_change(self, role: Leader, error: ErrorCode, message: str | None = None) -> None:
        assert role.change is not None
        self._answer(role.change.token, m.VoterAnswer(error, *self._who_leads, message))
        role.change = None
