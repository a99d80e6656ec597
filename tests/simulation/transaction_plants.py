"""Planted bugs of transactions: rules of KIP-98, 360, 447 and 890 taken out; see `controls.py`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

Plant = Callable[[contextlib.ExitStack], None]


def _replace(stack: contextlib.ExitStack, target: object, attribute: str, value: object) -> None:
    stack.enter_context(mock.patch.object(target, attribute, value))


# --- What a coordinator decides ---------------------------------------------------------------------------------------


def old_producers_go_on(stack: contextlib.ExitStack) -> None:
    """A coordinator does not ask for the epoch of who adds partitions to a transaction or ends it."""
    from isthmus.core_broker.coordinators.transactions import transaction

    real_stranger, real_end = transaction._stranger, transaction.end_raising

    def stranger(known: Any, given: Any) -> Any:
        return real_stranger(known, given._replace(epoch=known.epoch))

    def end_raising(known: Any, given: Any, **rest: Any) -> Any:
        is_old = given.epoch + 1 < known.epoch
        return real_end(known, given._replace(epoch=known.epoch) if is_old else given, **rest)

    _replace(stack, transaction, "_stranger", stranger)
    _replace(stack, transaction, "end_raising", end_raising)


def new_producers_share_an_epoch(stack: contextlib.ExitStack) -> None:
    """A producer that starts anew gets the epoch of the one before."""
    from isthmus.core_broker.coordinators.transactions import transaction

    real = transaction.init_producer_id

    def init_producer_id(known: Any, *args: Any, **rest: Any) -> Any:
        found = real(known, *args, **rest)
        if found.new is None or known.epoch < 0:
            return found
        return found._replace(new=replace(found.new, producer_id=known.producer_id, epoch=known.epoch))

    _replace(stack, transaction, "init_producer_id", init_producer_id)


def timed_out_producers_are_not_fenced(stack: contextlib.ExitStack) -> None:
    """A transaction is aborted over its producer's head, and the producer keeps its epoch."""
    from isthmus.core_broker.coordinators.transactions import transaction
    from isthmus.core_broker.coordinators.transactions.states import State

    def fenced(known: Any, answer: Any, level: int, fresh_id: Any, now_ms: int) -> Any:
        return transaction.Decision(answer, known.moved(State.PREPARE_ABORT, now_ms, client_version=0))

    _replace(stack, transaction, "_fenced", fenced)


def transactions_never_time_out(stack: contextlib.ExitStack) -> None:
    from isthmus.core_broker.coordinators.transactions.host import TransactionHost

    _replace(stack, TransactionHost, "_abort_timed_out", lambda self, shard: None)


def open_transactions_expire(stack: contextlib.ExitStack) -> None:
    """A transactional id is forgotten that has not been used for long, though its transaction is open."""
    from isthmus.core_broker.coordinators.transactions import transaction

    def is_expired(known: Any, now_ms: int, expiration_ms: int) -> bool:
        return bool(known.update_ms <= now_ms - expiration_ms)

    _replace(stack, transaction, "is_expired", is_expired)


def new_producers_do_not_wait(stack: contextlib.ExitStack) -> None:
    """A producer begins while the last transaction of its id still has no markers."""
    from isthmus.core_broker.coordinators.transactions import transaction
    from isthmus.core_broker.coordinators.transactions.states import DECIDED, State

    real = transaction.init_producer_id

    def init_producer_id(known: Any, *args: Any, **rest: Any) -> Any:
        return real(replace(known, state=State.EMPTY) if known.state in DECIDED else known, *args, **rest)

    _replace(stack, transaction, "init_producer_id", init_producer_id)


def two_decisions_at_once(stack: contextlib.ExitStack) -> None:
    """Something is decided about a transaction while the last decision is not committed yet."""
    from isthmus.core_broker.coordinators.transactions.shard import Entry

    class Idle(Entry):
        __slots__ = ()
        pending = property(lambda self: None, lambda self, value: None)  # type: ignore[assignment]

    from isthmus.core_broker.coordinators.transactions import host, shard

    _replace(stack, host, "Entry", Idle)
    _replace(stack, shard, "Entry", Idle)


def decisions_count_before_they_are_committed(stack: contextlib.ExitStack) -> None:
    """Producers are answered, and markers sent, as soon as a coordinator has written what it has decided."""
    from isthmus.core_broker.coordinators.runtime import CoordinatorRuntime

    real = CoordinatorRuntime.when_committed

    def when_committed(self: Any, shard: Any, offset: int, callback: Any) -> None:
        if shard.failure is None and self._holds == "transactions":
            callback(None)
        else:
            real(self, shard, offset, callback)

    _replace(stack, CoordinatorRuntime, "when_committed", when_committed)


def added_partitions_are_not_written(stack: contextlib.ExitStack) -> None:
    """Which partitions are in a transaction is in a coordinator's memory alone."""
    from isthmus.core_broker.coordinators.transactions.host import TransactionHost
    from isthmus.core_broker.coordinators.transactions.states import State

    real = TransactionHost._store

    def store(self: Any, shard: Any, decision: Any, done: Any) -> None:
        if decision.new.state is not State.ONGOING:
            real(self, shard, decision, done)
            return
        shard.state.take(decision.new.transactional_id, decision.new)
        done(decision.answer, decision.new)

    _replace(stack, TransactionHost, "_store", store)


def cut_off_coordinators_go_on(stack: contextlib.ExitStack) -> None:
    """A coordinator that has no session any more says what it knows of transactions."""
    from isthmus.core_broker.coordinators.transactions.host import TransactionHost

    _replace(stack, TransactionHost, "sure_shard_of", lambda self, key: self.elections.shard_of(key))


def producer_ids_are_given_again(stack: contextlib.ExitStack) -> None:
    """An id that a producer has waited for is given to the next one, too."""
    from isthmus.core_broker.server.producer_ids import ProducerIds

    real = ProducerIds._given

    def given(self: Any, result: Any) -> None:
        real(self, result)
        if not result.error_code:
            self._next = result.first_producer_id

    _replace(stack, ProducerIds, "_given", given)


# --- Markers ----------------------------------------------------------------------------------------------------------


def over_without_all_markers(stack: contextlib.ExitStack) -> None:
    """A marker that cannot be written when it is sent counts as written."""
    from isthmus.core_broker.coordinators.transactions.markers import Markers

    real = Markers._park

    def park(self: Any, marking: Any, places: Any) -> None:
        marking.written(places)
        real(self, marking, [])

    _replace(stack, Markers, "_park", park)


def decided_transactions_are_left_to_others(stack: contextlib.ExitStack) -> None:
    """A new coordinator does not go on with what the last one has decided."""
    from isthmus.core_broker.coordinators.transactions.host import TransactionHost

    def loaded(self: Any, index: int) -> None:
        markers, self.markers = self.markers, mock.MagicMock()
        try:
            real(self, index)
        finally:
            self.markers = markers

    real = TransactionHost._loaded
    _replace(stack, TransactionHost, "_loaded", loaded)


def markers_wait_for_nobody(stack: contextlib.ExitStack) -> None:
    """A marker counts as written before all in-sync replicas have it."""
    from isthmus.core_broker.server.apis import write_txn_markers

    _replace(stack, write_txn_markers, "why_unacknowledged", lambda *_: None)
    _replace(stack, write_txn_markers, "when_acknowledged", lambda ends, acks, settle, *_: settle())


def markers_of_anybody(stack: contextlib.ExitStack) -> None:
    """A leader writes each marker that it is sent: of old epochs, and of coordinators that are none any more."""
    from isthmus.core_broker.replication.partition import ALL, Partition
    from isthmus.core_broker.storage.log.append import Origin
    from isthmus.core_broker.storage.log.transactions import end_marker

    def write_marker(
        self: Any, producer_id: int, epoch: int, committed: bool, coordinator_epoch: int, version: int, wall_ms: int
    ) -> Any:
        self.check_online()
        self.check_leads()
        self.check_clients_append(ALL)
        return self.append(
            end_marker(producer_id, epoch, committed, coordinator_epoch, wall_ms), Origin.COORDINATOR, wall_ms
        )

    _replace(stack, Partition, "write_marker", write_marker)


def compaction_takes_markers(stack: contextlib.ExitStack) -> None:
    """Compaction removes markers at once, while there is still something that they decide about."""
    from isthmus.core_broker.storage.upkeep import cleaning
    from isthmus.core_broker.storage.upkeep.compacted_transactions import CompactedTransactions

    real = CompactedTransactions.take_control

    def take_control(self: Any, *args: Any) -> bool:
        real(self, *args)
        return True

    _replace(stack, CompactedTransactions, "take_control", take_control)
    _replace(stack, cleaning, "delete_horizon_ms", lambda header: 0)


# --- What leaders take ------------------------------------------------------------------------------------------------


def nobody_is_verified(stack: contextlib.ExitStack) -> None:
    """A leader takes what it is sent for a transaction of which it does not know (KIP-890, first part)."""
    from isthmus.core_broker.coordinators.transactions import transaction
    from isthmus.protocol.errors import ErrorCode

    def verify(known: Any, given: Any, partitions: Any) -> Any:
        return dict.fromkeys(partitions, ErrorCode.NONE)

    _replace(stack, transaction, "verify", verify)


def partitions_are_not_added(stack: contextlib.ExitStack) -> None:
    """A leader writes a producer's first batch and does not tell the coordinator (KIP-890, second part)."""
    from isthmus.core_broker.server.verification import Verification

    real = Verification.ask

    def ask(self: Any, *args: Any, adds: bool, done: Any, **rest: Any) -> Any:
        if not adds:
            return real(self, *args, adds=adds, done=done, **rest)
        from isthmus.core_broker.purgatory import Pending

        pending = Pending(dict)
        pending.complete({})
        done({})
        return pending

    _replace(stack, Verification, "ask", ask)


def late_verifications_count(stack: contextlib.ExitStack) -> None:
    """A coordinator's answer that comes after the transaction has ended lets a batch in nevertheless."""
    from isthmus.core_broker.storage.log import log, transactions

    real = transactions.follow

    def follow(states: Any, *args: Any) -> Any:
        guards = dict(states.guards)
        found = real(states, *args)
        states.guards.update(guards)
        return found

    _replace(stack, log, "follow", follow)


# --- Readers ----------------------------------------------------------------------------------------------------------


def _slow_fetches(stack: contextlib.ExitStack) -> None:
    """The short way of a fetch, being compiled, would not ask."""
    from isthmus.core_broker.server.apis import fetch

    _replace(stack, fetch, "short_way", lambda version: None)


def open_transactions_are_read(stack: contextlib.ExitStack) -> None:
    """The last stable offset is the high watermark."""
    from isthmus.core_broker.replication.partition import Partition

    _slow_fetches(stack)
    _replace(stack, Partition, "last_stable_offset", property(lambda self: self.high_watermark))


def markers_count_before_they_are_committed(stack: contextlib.ExitStack) -> None:
    """The last stable offset passes a transaction whose marker may still be lost."""
    from isthmus.core_broker.replication.partition import Partition

    def stable(self: Any) -> int:
        return min(self.high_watermark, self.log.producers.unstable.first_open)

    _slow_fetches(stack)
    _replace(stack, Partition, "last_stable_offset", property(stable))


def aborted_transactions_are_not_told(stack: contextlib.ExitStack) -> None:
    from isthmus.core_broker.replication.partition import Partition

    _slow_fetches(stack)
    _replace(stack, Partition, "aborted_transactions", lambda self, offset, upper: [])


def followers_do_not_know_who_aborted(stack: contextlib.ExitStack) -> None:
    """Only a leader that writes an abort marker itself has it in its index."""
    from isthmus.core_broker.storage.log.append import Origin
    from isthmus.core_broker.storage.log.log import Log

    real_append, real_follow = Log.append, Log._follow_transaction
    follows = False

    def append(self: Any, records: Any, origin: Any, *args: Any, **rest: Any) -> Any:
        nonlocal follows
        follows = origin is Origin.REPLICATION
        return real_append(self, records, origin, *args, **rest)

    def follow_transaction(self: Any, segment: Any, base: int, last: int, *batch: Any) -> None:
        from isthmus.core_broker.storage.log import log

        if follows:
            log.follow(self.producers, base, last, *batch)
        else:
            real_follow(self, segment, base, last, *batch)

    _replace(stack, Log, "append", append)
    _replace(stack, Log, "_follow_transaction", follow_transaction)


def recovery_forgets_who_aborted(stack: contextlib.ExitStack) -> None:
    """The index of aborted transactions is not written again where a start has to look through a segment."""
    from isthmus.core_broker.storage.startup import recovery

    real = recovery.follow_batch
    _replace(stack, recovery, "follow_batch", lambda *args: real(*args[:-1], False))


def open_transactions_are_forgotten_by_a_start(stack: contextlib.ExitStack) -> None:
    """A start takes what producers wrote, but not which of their transactions are open."""
    from isthmus.core_broker.storage.log._producers import ProducerStates
    from isthmus.core_broker.storage.startup import recovery

    real = recovery.load_producers

    def load_producers(*args: Any) -> ProducerStates:
        loaded, found = real(*args), ProducerStates()
        for producer_id, entry in loaded.items():
            entry.transaction_start = -1
            found.borrow(loaded, producer_id)
        return found

    _replace(stack, recovery, "load_producers", load_producers)


# --- Offsets in transactions ------------------------------------------------------------------------------------------


def aborted_offsets_count(stack: contextlib.ExitStack) -> None:
    from isthmus.core_broker.coordinators.offsets import Offsets

    real = Offsets.end_transaction
    _replace(stack, Offsets, "end_transaction", lambda self, producer_id, is_committed: real(self, producer_id, True))


def offsets_count_at_once(stack: contextlib.ExitStack) -> None:
    """An offset counts as soon as it is written in a transaction."""
    from isthmus.core_broker.coordinators.offsets import Offsets

    real = Offsets.replay

    def replay(self: Any, key: Any, value: Any, offset: int, producer_id: int) -> None:
        real(self, key, value, offset, -1)

    _replace(stack, Offsets, "replay", replay)


def markers_are_not_read(stack: contextlib.ExitStack) -> None:
    """A new coordinator of groups reads offsets, and not whether their transactions were committed."""
    from isthmus.core_broker.coordinators.runtime import CoordinatorRuntime

    _replace(stack, CoordinatorRuntime, "_replay_marker", lambda self, *_: None)


def unstable_offsets_are_told(stack: contextlib.ExitStack) -> None:
    """Who wants stable offsets is told the last one that counts, though another is about to (KIP-447)."""
    from isthmus.core_broker.coordinators.offset_requests import offsets

    real = offsets.fetch_group
    _replace(stack, offsets, "fetch_group", lambda *args: real(*args[:-1], False))


PLANTS: dict[str, Plant] = {
    "aborted-offsets-count": aborted_offsets_count,
    "aborted-transactions-are-not-told": aborted_transactions_are_not_told,
    "added-partitions-are-not-written": added_partitions_are_not_written,
    "compaction-takes-markers": compaction_takes_markers,
    "cut-off-coordinators-go-on": cut_off_coordinators_go_on,
    "decided-transactions-are-left-to-others": decided_transactions_are_left_to_others,
    "decisions-count-before-they-are-committed": decisions_count_before_they_are_committed,
    "followers-do-not-know-who-aborted": followers_do_not_know_who_aborted,
    "late-verifications-count": late_verifications_count,
    "markers-are-not-read": markers_are_not_read,
    "markers-count-before-they-are-committed": markers_count_before_they_are_committed,
    "markers-of-anybody": markers_of_anybody,
    "markers-wait-for-nobody": markers_wait_for_nobody,
    "new-producers-do-not-wait": new_producers_do_not_wait,
    "new-producers-share-an-epoch": new_producers_share_an_epoch,
    "nobody-is-verified": nobody_is_verified,
    "offsets-count-at-once": offsets_count_at_once,
    "old-producers-go-on": old_producers_go_on,
    "open-transactions-are-forgotten-by-a-start": open_transactions_are_forgotten_by_a_start,
    "open-transactions-are-read": open_transactions_are_read,
    "open-transactions-expire": open_transactions_expire,
    "over-without-all-markers": over_without_all_markers,
    "partitions-are-not-added": partitions_are_not_added,
    "producer-ids-are-given-again": producer_ids_are_given_again,
    "recovery-forgets-who-aborted": recovery_forgets_who_aborted,
    "timed-out-producers-are-not-fenced": timed_out_producers_are_not_fenced,
    "transactions-never-time-out": transactions_never_time_out,
    "two-decisions-at-once": two_decisions_at_once,
    "unstable-offsets-are-told": unstable_offsets_are_told,
}
