"""Rare branches of the coordinator of transactions, and of offsets in transactions, by name; see `rare_states.py`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from isthmus.core_broker.coordinators.group_shard import GroupShard
from isthmus.core_broker.coordinators.runtime import CoordinatorRuntime
from isthmus.core_broker.coordinators.transactions import transaction
from isthmus.core_broker.coordinators.transactions.host import TransactionHost
from isthmus.core_broker.coordinators.transactions.markers import Markers
from isthmus.core_broker.coordinators.transactions.shard import TransactionShard
from isthmus.core_broker.coordinators.transactions.states import COMPLETE, DECIDED, State
from isthmus.core_broker.coordinators.transactions.transaction import NO_EPOCH, NO_ID
from isthmus.core_broker.replication.partition import Partition
from isthmus.protocol.errors import ErrorCode, KafkaError

from .probes import Probes, Seen

TRANSACTIONS = (
    "transaction: an end is asked for again, and all is over",
    "transaction: an end is asked for again while markers are written",
    "transaction: an end comes after its timeout",
    "transaction: an end comes from a fenced producer",
    "transaction: it is aborted, as it has lasted too long",
    "transaction: a producer starts while that before it has one open",
    "transaction: a producer starts while markers are written",
    "transaction: a producer asks for an epoch again, whose answer was lost",
    "transaction: the epochs of a producer id are used up as one ends",
    "transaction: the epochs of a producer id are used up as a producer starts",
    "transaction: partitions are added while the last one ends",
    "transaction: a verification finds that it is over",
    "transaction: a verification is of a fenced producer",
    "transaction: a verification comes while markers are written",
    "transaction: an id is forgotten",
    "transaction: a coordinator resigns with a decision that is not committed",
    "transaction: a coordinator resigns with markers to write",
    "transaction: a new coordinator writes the markers of a decision before it",
    "transaction: a marker is refused, as another broker leads",
    "transaction: a marker is refused, as too few are in sync",
    "transaction: a marker is refused to a coordinator that there was before",
    "transaction: a marker is there, and later ones",
    "transaction: a broker that is to write markers does not answer",
    "transaction: all markers are there, and that cannot be written",
    "transaction: a new coordinator of groups reads offsets of open transactions",
    "transaction: offsets count that were read by a new coordinator",
    "transaction: offsets that were read by a new coordinator never count",
)


def watch_transactions(probes: Probes) -> None:
    _watch_decisions(probes)
    _watch_markers(probes)
    _watch_moves(probes)


def _watch_decisions(probes: Probes) -> None:
    timed_out: dict[tuple[int, int], None] = {}  # producer ids and epochs

    def ends(decision: Any, known: Any, given: Any, **_: Any) -> Seen:
        is_again = decision.new is None and not decision.answer and known.state in COMPLETE
        yield is_again and "transaction: an end is asked for again, and all is over"
        yield known.state in DECIDED and "transaction: an end is asked for again while markers are written"
        yield tuple(given) in timed_out and "transaction: an end comes after its timeout"
        is_fenced = decision.answer == ErrorCode.PRODUCER_FENCED
        yield is_fenced and "transaction: an end comes from a fenced producer"

    def times_out(decision: Any, known: Any, **_: Any) -> Seen:
        if decision.new is not None:
            timed_out[known.producer_id, known.epoch] = None
            yield "transaction: it is aborted, as it has lasted too long"

    def starts(decision: Any, known: Any, given: Any, *_: Any, **__: Any) -> Seen:
        new = decision.new
        yield known.state in DECIDED and "transaction: a producer starts while markers are written"
        if new is None:
            return
        if new.state is State.PREPARE_ABORT:
            yield "transaction: a producer starts while that before it has one open"
        elif known.epoch != NO_EPOCH and new.epoch == known.epoch:
            yield "transaction: a producer asks for an epoch again, whose answer was lost"
        elif known.epoch != NO_EPOCH and new.producer_id != known.producer_id:
            yield "transaction: the epochs of a producer id are used up as a producer starts"

    def raises(decision: Any, *_: Any) -> Seen:
        is_last = decision.new is not None and decision.new.next_producer_id != NO_ID
        yield is_last and "transaction: the epochs of a producer id are used up as one ends"

    def adds(decision: Any, known: Any, *_: Any, **__: Any) -> Seen:
        is_early = decision.answer == ErrorCode.CONCURRENT_TRANSACTIONS
        yield is_early and "transaction: partitions are added while the last one ends"

    def verifies(codes: Any, *_: Any) -> Seen:
        found = codes.values()
        yield ErrorCode.TRANSACTION_ABORTABLE in found and "transaction: a verification finds that it is over"
        yield ErrorCode.PRODUCER_FENCED in found and "transaction: a verification is of a fenced producer"
        yield (
            ErrorCode.CONCURRENT_TRANSACTIONS in found and "transaction: a verification comes while markers are written"
        )

    probes.after(transaction, "end", ends)
    probes.after(transaction, "end_raising", ends)
    probes.after(transaction, "abort_timed_out", times_out)
    probes.after(transaction, "init_producer_id", starts)
    probes.after(transaction, "_raised", raises)
    probes.after(transaction, "add_partitions", adds)
    probes.after(transaction, "verify", verifies)
    probes.after(transaction, "is_expired", lambda result, *_: [result and "transaction: an id is forgotten"])


def _watch_markers(probes: Probes) -> None:
    refusals = {
        ErrorCode.NOT_LEADER_OR_FOLLOWER: "transaction: a marker is refused, as another broker leads",
        ErrorCode.NOT_ENOUGH_REPLICAS: "transaction: a marker is refused, as too few are in sync",
        ErrorCode.INVALID_PRODUCER_EPOCH: "transaction: a marker is there, and later ones",
    }

    def answered(markers: Any, marking: Any, places: Any, codes: dict[Any, int]) -> Seen:
        for code, name in refusals.items():
            yield code in codes.values() and name

    def writes(result: Any, *_: Any, **__: Any) -> Seen:
        is_old = isinstance(result, KafkaError) and result.code == ErrorCode.TRANSACTION_COORDINATOR_FENCED
        yield is_old and "transaction: a marker is refused to a coordinator that there was before"

    def parks(markers: Any, batch: Any) -> Seen:
        yield bool(batch) and "transaction: a broker that is to write markers does not answer"

    def completes(refused: Any, *_: Any) -> Seen:
        yield bool(refused) and "transaction: all markers are there, and that cannot be written"

    def drops(markers: Any, state: Any) -> Seen:
        is_left = any(each.shard.state is state for each in markers._markings)
        yield is_left and "transaction: a coordinator resigns with markers to write"

    probes.before(Markers, "_take_in", answered)
    probes.after(Partition, "write_marker", writes)
    probes.before(Markers, "_park_all", parks)
    probes.after(TransactionHost, "_marked", completes)
    probes.before(Markers, "drop", drops)


def _watch_moves(probes: Probes) -> None:
    read: list[tuple[GroupShard, Collection[int]]] = []  # producers whose offsets were pending when a shard was read

    def resigns(runtime: Any, index: int) -> Seen:
        shard = runtime.shards.get(index)
        if shard is not None and isinstance(shard.state, TransactionShard):
            is_undecided = any(entry.pending is not None for entry in shard.state.entries.values())
            yield is_undecided and "transaction: a coordinator resigns with a decision that is not committed"

    def loads(transactions: Any, index: int) -> Seen:
        entries = transactions.shards.shards[index].state.entries.values()
        is_decided = any(entry.current.state in DECIDED for entry in entries)
        yield is_decided and "transaction: a new coordinator writes the markers of a decision before it"

    def reads(state: Any) -> Seen:
        producers = list(state.offsets.pending._producers)
        if producers:
            read.append((state, producers))
            yield "transaction: a new coordinator of groups reads offsets of open transactions"

    def counts(state: Any, producer_id: int, committed: bool) -> Seen:
        if any(each is state and producer_id in producers for each, producers in read):
            if committed:
                yield "transaction: offsets count that were read by a new coordinator"
            else:
                yield "transaction: offsets that were read by a new coordinator never count"

    probes.before(CoordinatorRuntime, "resign", resigns)
    probes.before(TransactionHost, "_loaded", loads)
    probes.before(GroupShard, "loaded", reads)
    probes.before(GroupShard, "end_transaction", counts)
