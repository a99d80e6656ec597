"""Rare branches of the quorum, of partitions and of the controller, by name, and counted where a run reaches them.

Those of the coordinators are in `rare_group_states.py` and `rare_transaction_states.py`.
`python -m tests.simulation --scenario cluster --states` prints in how many runs each was seen.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

from isthmus.core_broker.cluster.controller import partition_change
from isthmus.core_broker.cluster.controller.alter_partition import AlterPartition
from isthmus.core_broker.cluster.controller.broker_heartbeat import BrokerHeartbeat, ControlState
from isthmus.core_broker.cluster.controller.register_broker import RegisterBroker
from isthmus.core_broker.cluster.controller.sessions import Sessions
from isthmus.core_broker.cluster.quorum.applying import Applying
from isthmus.core_broker.cluster.raft import changes
from isthmus.core_broker.cluster.raft import messages as m
from isthmus.core_broker.cluster.raft.leader import Leader
from isthmus.core_broker.cluster.raft.links import Links
from isthmus.core_broker.cluster.raft.raft import Raft
from isthmus.core_broker.cluster.raft.roles import Candidate, Follower, Resigned
from isthmus.core_broker.coordinators.runtime import CoordinatorRuntime
from isthmus.core_broker.replication import fetching
from isthmus.core_broker.replication._core import TOO_FEW_IN_SYNC
from isthmus.core_broker.replication.fetching import Fetcher
from isthmus.core_broker.replication.isr_changes import IsrChanges
from isthmus.core_broker.replication.leadership import Leadership
from isthmus.core_broker.replication.manager import ReplicaManager
from isthmus.core_broker.replication.partition import Partition
from isthmus.protocol.errors import ErrorCode, KafkaError

from .probes import Probes, Seen
from .rare_group_states import GROUPS, watch_groups
from .rare_transaction_states import TRANSACTIONS, watch_transactions


@contextlib.contextmanager
def counted(counters: Counter[str], states: tuple[str, ...] = ()) -> Iterator[None]:
    """Count the rare states that are reached meanwhile. states: RAFT for a quorum alone."""
    with contextlib.ExitStack() as stack:
        probes = Probes(stack, counters)
        _watch_raft(probes)
        if states is not RAFT:
            _watch_partitions(probes)
            _watch_controller(probes)
            watch_groups(probes)
            watch_transactions(probes)
        yield


# --- The quorum -------------------------------------------------------------------------------------------------------

RAFT = (
    "raft: a pre-vote is lost",
    "raft: a pre-vote is lost, and the old leader is followed again",
    "raft: a pre-vote is refused, as the leader lives",
    "raft: a vote is refused to a log that lacks something",
    "raft: a vote is refused, as another has it",
    "raft: the same candidate asks twice, and gets its vote twice",
    "raft: an election is lost",
    "raft: an election runs out of time",
    "raft: a leader hears of a later epoch",
    "raft: a leader is deposed with records that are not committed",
    "raft: a leader is deposed before it knows what is committed",
    "raft: a leader is deposed while fetches wait",
    "raft: a leader has lost its majority",
    "raft: a leader stops, and names successors",
    "raft: a successor hurries",
    "raft: a node starts in an epoch that it has led",
    "raft: a follower suspects its leader, whose connection broke",
    "raft: a log is cut off",
    "raft: a log is cut off in more than one step",
    "raft: a snapshot is fetched",
    "raft: a snapshot is fetched in parts",
    "raft: a snapshot is gone while it is fetched",
    "raft: a voter is added",
    "raft: a voter is removed",
    "raft: a leader removes itself",
    "raft: a leader that is no voter leads on until that is committed",
    "raft: a change of the voters runs out of time",
    "raft: a change of the voters is refused, as another is under way",
    "raft: a change of the voters is refused to a new leader",
    "raft: a change of the voters is lost with its leader",
    "raft: a voter is refused that has not caught up",
    "raft: a node with another disk has a voter's id",
    "raft: an observer looks for another leader",
    "raft: an answer comes too late to count",
)


def _watch_raft(probes: Probes) -> None:
    cuts: Counter[tuple[Any, int]] = Counter()  # by node and epoch

    def pre_vote(raft: Any) -> Seen:
        yield "raft: a pre-vote is lost"
        if raft.leader_id not in (m.NO_NODE, raft.me.id) and raft.leader_endpoints:
            yield "raft: a pre-vote is lost, and the old leader is followed again"

    def vote(granted: Any, raft: Any, candidate: Any, has_enough: bool, pre_vote: bool) -> Seen:
        role = raft.role
        if pre_vote and isinstance(role, Follower) and role.has_fetched:
            yield "raft: a pre-vote is refused, as the leader lives"
        if not granted and not has_enough:
            yield "raft: a vote is refused to a log that lacks something"
        if not pre_vote and raft.voted is not None:
            if granted:
                yield "raft: the same candidate asks twice, and gets its vote twice"
            elif has_enough and not raft.voted.matches(candidate):
                yield "raft: a vote is refused, as another has it"

    def lost(raft: Any, role: Any) -> Seen:
        if isinstance(role, Candidate) and role.votes.is_lost and role.backoff_ms is None:
            yield "raft: an election is lost"

    def poll_candidate(raft: Any, role: Any) -> Seen:
        if role.backoff_ms is None and raft._now_ms >= role.deadline_ms and raft.may_lead:
            yield "raft: an election runs out of time"

    def enters(raft: Any, epoch: int) -> Seen:
        if isinstance(raft.role, Leader) and epoch > raft.epoch:
            yield "raft: a leader hears of a later epoch"

    def changes_role(raft: Any, role: Any) -> Seen:
        before = raft.role
        if isinstance(before, Leader):
            if raft.log.end_offset > (raft.high_watermark or 0):
                yield "raft: a leader is deposed with records that are not committed"
            if raft.high_watermark is None:
                yield "raft: a leader is deposed before it knows what is committed"
            if before.held:
                yield "raft: a leader is deposed while fetches wait"
            if before.change is not None:
                yield "raft: a change of the voters is lost with its leader"

    def resigns(raft: Any, role: Any) -> Seen:
        if raft.is_stopping:
            yield "raft: a leader stops, and names successors"
        elif raft._is_removed:
            yield "raft: a leader removes itself"
        else:
            yield "raft: a leader has lost its majority"

    def starts(_: Any, raft: Any, now_ms: int) -> Seen:
        if isinstance(raft.role, Resigned):
            yield "raft: a node starts in an epoch that it has led"

    def suspects(raft: Any, node_id: int) -> Seen:
        if isinstance(raft.role, Follower) and node_id == raft.leader_id:
            yield "raft: a follower suspects its leader, whose connection broke"

    def successor(delay_ms: Any, raft: Any, successors: Any) -> Seen:
        if delay_ms == 0:
            yield "raft: a successor hurries"

    def diverges(raft: Any, leaders: Any) -> Seen:
        yield "raft: a log is cut off"
        cuts[raft.me, raft.epoch] += 1
        if cuts[raft.me, raft.epoch] > 1:
            yield "raft: a log is cut off in more than one step"

    def part(raft: Any, answer: Any) -> Seen:
        if isinstance(raft.role, Follower) and raft.role.snapshot is not None:
            if answer.error == ErrorCode.SNAPSHOT_NOT_FOUND:
                yield "raft: a snapshot is gone while it is fetched"
            elif answer.error == ErrorCode.NONE and raft.role.position > 0:
                yield "raft: a snapshot is fetched in parts"

    def ends_change(raft: Any, role: Any, error: ErrorCode, message: str | None = None) -> Seen:
        request = role.change.request
        if error == ErrorCode.NONE:
            if isinstance(request, m.AddVoter):
                yield "raft: a voter is added"
            elif isinstance(request, m.RemoveVoter):
                yield "raft: a voter is removed"
        elif error == ErrorCode.REQUEST_TIMED_OUT and raft._now_ms >= role.change.deadline_ms:
            yield "raft: a change of the voters runs out of time"

    def possible(error: Any, role: Any, voters: Any, high_watermark: Any) -> Seen:
        if isinstance(error, changes.Refused):
            if role.change is not None:
                yield "raft: a change of the voters is refused, as another is under way"
            elif high_watermark is None:
                yield "raft: a change of the voters is refused to a new leader"

    def probed(error: Any, *_: Any) -> Seen:
        yield isinstance(error, changes.Refused) and "raft: a voter is refused that has not caught up"

    def steps(effects: Any, raft: Any, event: Any) -> Seen:
        if isinstance(raft.role, Leader) and not raft.is_voter:
            yield "raft: a leader that is no voter leads on until that is committed"

    def serves(raft: Any, token: int, request: Any) -> Seen:
        if isinstance(raft.role, Leader) and request.replica.id in raft.role.voters:
            if not raft.role.is_voter(request.replica):
                yield "raft: a node with another disk has a voter's id"

    def fetches_from_any(raft: Any) -> Seen:
        yield isinstance(raft.role, Follower) and "raft: an observer looks for another leader"

    def ended(sent: Any, *_: Any) -> Seen:
        yield sent is None and "raft: an answer comes too late to count"

    probes.before(Raft, "_lose_pre_vote", pre_vote)
    probes.after(Raft, "_may_vote", vote)
    probes.before(Raft, "_check_lost", lost)
    probes.before(Raft, "_poll_candidate", poll_candidate)
    probes.before(Raft, "_become_unattached", lambda raft, epoch, *_: enters(raft, epoch))
    probes.before(Raft, "_become_follower", lambda raft, epoch, *_: enters(raft, epoch))
    probes.before(Raft, "_change_role", changes_role)
    probes.before(Raft, "_resign", resigns)
    probes.after(Raft, "start", starts)
    probes.before(Raft, "_suspect", suspects)
    probes.after(Raft, "_successor_delay_ms", successor)
    probes.before(Raft, "_diverge", diverges)
    probes.before(Raft, "_take_snapshot", lambda raft, event: ["raft: a snapshot is fetched"])
    probes.before(Raft, "_take_snapshot_part", part)
    probes.before(Raft, "_end_change", ends_change)
    probes.after(changes, "check_possible", possible)
    probes.after(changes, "probed", probed)
    probes.after(Raft, "step", steps)
    probes.before(Raft, "_serve_fetch", serves)
    probes.before(Raft, "_fetch_from_any", fetches_from_any)
    probes.after(Links, "end", ended)


# --- Partitions -------------------------------------------------------------------------------------------------------

PARTITIONS = (
    "partition: a log is cut off",
    "partition: more than one epoch is cut off",
    "partition: a leader names an epoch that the follower does not have",
    "partition: all epochs of a follower are newer than its leader's",
    "partition: a follower begins anew, as its leader begins later",
    "partition: a follower ends after its leader",
    "partition: a new leader does not know what is committed",
    "partition: a leader is deposed with records that are not committed",
    "partition: a follower that is not in sync is waited for",
    "partition: the high watermark waits for in-sync replicas",
    "partition: appends are refused, as too few are in sync",
    "partition: a follower joins",
    "partition: a follower lags, and leaves",
    "partition: a change of in-sync replicas is asked for again",
    "partition: a follower of an older epoch is refused",
    "partition: a follower of a newer epoch is refused",
    "partition: a batch is sent again, and is there",
    "partition: another disk error takes it offline",
    "partition: it comes back, as there is room again",
    "partition: a replica is deleted, as it has left",
    "coordinator: it resigns while it reads",
    "coordinator: it resigns with commits that are not replicated",
    "coordinator: it reads more than nothing",
)


def _watch_partitions(probes: Probes) -> None:
    def truncates(partition: Any, offset: int) -> Seen:
        if offset < partition.log.log_end_offset:
            yield "partition: a log is cut off"
            if sum(start >= offset for _, start in partition.log.epochs.entries()) > 1:
                yield "partition: more than one epoch is cut off"

    def common(_: Any, log: Any, diverging: Any) -> Seen:
        epoch, end = log.end_offset_for_epoch(diverging.epoch)
        if end < 0:
            yield "partition: all epochs of a follower are newer than its leader's"
        elif epoch != diverging.epoch:
            yield "partition: a leader names an epoch that the follower does not have"

    def closes(partition: Any, error: Any) -> Seen:
        if partition.leads and partition.high_watermark < partition.log.log_end_offset:
            yield "partition: a leader is deposed with records that are not committed"

    def recovers(_: Any, partition: Any, high_watermark: int) -> Seen:
        yield partition.is_behind_epoch and "partition: a new leader does not know what is committed"

    def commits(end: Any, leadership: Any, kept_end: int, leader_end: int) -> Seen:
        held = min((leadership.followers[each].end_offset for each in leadership.maximal_isr
                    if each in leadership.followers), default=kept_end)  # fmt: skip
        yield end < min(held, kept_end) and "partition: a follower that is not in sync is waited for"

    def advances(partition: Any) -> Seen:
        too_few = partition.leads and partition.core.obstacles & TOO_FEW_IN_SYNC
        yield bool(too_few) and "partition: the high watermark waits for in-sync replicas"

    def checks_append(error: Any, partition: Any, acks: int) -> Seen:
        is_refused = isinstance(error, KafkaError) and error.code == ErrorCode.NOT_ENOUGH_REPLICAS
        yield is_refused and "partition: appends are refused, as too few are in sync"

    def checks_epoch(error: Any, partition: Any, epoch: int) -> Seen:
        code = error.code if isinstance(error, KafkaError) else ErrorCode.NONE
        yield code == ErrorCode.FENCED_LEADER_EPOCH and "partition: a follower of an older epoch is refused"
        yield code == ErrorCode.UNKNOWN_LEADER_EPOCH and "partition: a follower of a newer epoch is refused"

    def appends(info: Any, *_: Any, **__: Any) -> Seen:
        yield getattr(info, "duplicate", False) and "partition: a batch is sent again, and is there"

    def leaves(replicas: Any, keys: Any) -> Seen:
        yield bool(keys) and "partition: a replica is deleted, as it has left"

    def resigns(runtime: Any, index: int) -> Seen:
        shard = runtime.shards.get(index)
        if shard is not None and shard.failure is not None:
            yield "coordinator: it resigns while it reads"
        elif shard is not None and shard.written > shard.partition.high_watermark:
            yield "coordinator: it resigns with commits that are not replicated"

    probes.before(Partition, "truncate_to", truncates)
    probes.after(fetching, "common_end", common)
    probes.before(
        Partition, "begin_again_at", lambda *_: ["partition: a follower begins anew, as its leader begins later"]
    )
    probes.before(Fetcher, "_begin_again", lambda *_: ["partition: a follower ends after its leader"])
    probes.before(Partition, "close", closes)
    probes.after(Partition, "recover", recovers)
    probes.after(Leadership, "committed_end", commits)
    probes.before(Partition, "advance", advances)
    probes.after(Partition, "check_clients_append", checks_append)
    probes.after(Partition, "check_epoch", checks_epoch)
    probes.after(Partition, "append", appends)
    probes.after(Leadership, "joins", lambda change, *_: [change is not None and "partition: a follower joins"])
    probes.after(
        Leadership, "leave", lambda change, *_: [change is not None and "partition: a follower lags, and leaves"]
    )
    probes.before(
        IsrChanges, "_again",
        lambda _, asked: [bool(asked) and "partition: a change of in-sync replicas is asked for again"],
    )  # fmt: skip
    probes.before(ReplicaManager, "_take_out", lambda *_: ["partition: another disk error takes it offline"])
    probes.before(ReplicaManager, "_open_again", lambda *_: ["partition: it comes back, as there is room again"])
    probes.before(ReplicaManager, "_delete_logs", leaves)
    probes.before(CoordinatorRuntime, "resign", resigns)
    probes.before(CoordinatorRuntime, "_replay_one", lambda *_: ["coordinator: it reads more than nothing"])


# --- The controller ---------------------------------------------------------------------------------------------------

# Not INVALID_REQUEST: one leader epoch has one leader, and a leader of ours asks for its own replicas only. It
# is for other software, and for `tests/core_broker/cluster/test_alter_partition.py`.
REFUSED = ("NOT_CONTROLLER", "FENCED_LEADER_EPOCH", "INVALID_UPDATE_VERSION", "INELIGIBLE_REPLICA")
CONTROLLER = (
    *(f"controller: a change of in-sync replicas is refused with {code}" for code in REFUSED),
    "controller: an eligible replica leads that was not in sync",
    "controller: a partition that may lose records is led by whoever is there",
    "controller: the last leader leads, though it may lack something",
    "controller: a partition has no leader",
    "controller: a reassignment ends",
    "controller: a reassignment waits",
    "controller: it is deposed with decisions that wait",
    "controller: a session ends",
    "controller: a broker registers that is taken for alive",
    "controller: a broker comes back and has lost nothing",
    "controller: a broker comes back and may have lost something",
    "controller: a broker is unfenced again that never stopped",
    "controller: a broker that stops waits for the others",
    "controller: a broker stops that is fenced",
)


def _watch_controller(probes: Probes) -> None:
    def alters(code: Any, *_: Any) -> Seen:
        yield bool(code) and f"controller: a change of in-sync replicas is refused with {ErrorCode(code).name}"

    def elects(result: Any, partition: Any, replicas: Any, isr: Any, elr: Any, rules: Any) -> Seen:
        leader, is_unclean = result
        if leader < 0:
            yield "controller: a partition has no leader"
        elif not isr and leader in elr:
            yield "controller: an eligible replica leads that was not in sync"
        elif is_unclean and rules.election is not partition_change.ElectionPolicy.UNCLEAN:
            yield "controller: the last leader leads, though it may lack something"
        elif is_unclean:
            yield "controller: a partition that may lose records is led by whoever is there"

    def moves(ended: Any, *_: Any) -> Seen:
        yield "controller: a reassignment waits" if ended is None else "controller: a reassignment ends"

    def fails(applying: Any, reason: Any) -> Seen:
        yield bool(applying._decided) and "controller: it is deposed with decisions that wait"

    def registers(decision: Any, command: Any, view: Any) -> Seen:
        existing = view.image.brokers.get(command.broker_id)
        if isinstance(decision, KafkaError):
            yield (
                decision.code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
                and "controller: a broker registers that is taken for alive"
            )
        elif existing is not None:
            was_clean = command.previous_epoch == existing.epoch
            yield was_clean and "controller: a broker comes back and has lost nothing"
            yield not was_clean and "controller: a broker comes back and may have lost something"

    known: dict[tuple[int, int], None] = {}  # brokers by epoch that were unfenced

    def beats(after: Any, command: Any, now: Any, broker: Any, view: Any, is_caught_up: bool) -> Seen:
        if after is ControlState.UNFENCED:
            if now is ControlState.FENCED and (broker.id, broker.epoch) in known:
                yield "controller: a broker is unfenced again that never stopped"
            known[broker.id, broker.epoch] = None
        if now is after is ControlState.CONTROLLED_SHUTDOWN:
            yield "controller: a broker that stops waits for the others"
        if now is ControlState.FENCED and after is ControlState.SHUTDOWN_NOW:
            yield "controller: a broker stops that is fenced"

    probes.after(AlterPartition, "_why_not", alters)
    probes.after(partition_change, "_elect", elects)
    probes.after(partition_change, "_ended_reassignment", moves)
    probes.before(Applying, "fail_decided", fails)
    probes.after(Sessions, "expired", lambda over, *_: [bool(over) and "controller: a session ends"])
    probes.after(RegisterBroker, "decide", registers)
    probes.after(BrokerHeartbeat, "_next", beats)


# scenario -> the states that its runs count
STATES: dict[str, tuple[str, ...]] = {
    "cluster": (*RAFT, *PARTITIONS, *CONTROLLER),
    "consumer-groups": GROUPS,
    "quorum": RAFT,
    "transactions": TRANSACTIONS,
}
