"""One transaction, and the decisions about it: pure functions from a transaction and a request to an answer and the
next transaction.

A `Transaction` is what a transactional id's record says, one immutable value after the other. `states.py` has the table
that the decisions follow. Nothing here does I/O or asks a clock; who calls writes the next value, and answers once it
is committed. Epochs, in KIP-360's and KIP-890's terms: a producer that starts anew, and any that is fenced, makes the
epoch rise, and since transaction.version 2 every end of a transaction does. When the epochs of an id are used up,
another producer id follows.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ....protocol.errors import ErrorCode
from .states import COMPLETE, DECIDED, TABLE, Answer, Event, State

NO_ID, NO_EPOCH = -1, -1
LAST_EPOCH = 0x7FFF - 1  # that a producer is given: one more is left to fence it
BUMPING = 2  # the transaction.version from which on every end raises the epoch
OF_OLD_CLIENTS = 0  # the version of a client that does not know that
LONGER_RECORDS = 1  # the transaction.version from which on records name the ids before and after

Place = tuple[str, int]  # topic and partition


@dataclass(slots=True, frozen=True)
class Transaction:
    """What the record of a transactional id says.

    previous_producer_id: before the last change. next_producer_id: that follows once the transaction is over, as the
    epochs are used up. last_epoch: before the last rise, if the producer that asked for that is the one that had it; it
    is not in the records. start_ms: when the first partition was added, -1 in a new id. client_version: 2 where a
    client ended it that knows of transaction.version 2.
    """

    transactional_id: str
    producer_id: int
    epoch: int = NO_EPOCH
    timeout_ms: int = 0
    state: State = State.EMPTY
    partitions: frozenset[Place] = frozenset()
    start_ms: int = -1
    update_ms: int = -1
    previous_producer_id: int = NO_ID
    next_producer_id: int = NO_ID
    last_epoch: int = NO_EPOCH
    client_version: int = OF_OLD_CLIENTS

    @property
    def is_exhausted(self) -> bool:
        """Whether its producer id has no epoch left to give."""
        return self.epoch >= LAST_EPOCH

    @property
    def after(self) -> tuple[int, int]:
        """The producer id and epoch once the transaction is over."""
        if self.next_producer_id != NO_ID:
            return self.next_producer_id, 0
        return self.producer_id, self.epoch

    def has_timed_out(self, now_ms: int, known_ms: float) -> bool:
        """known_ms: for how long it has been known to be open, at least. The wall clock may have been set back since it
        began, or that of another coordinator was ahead."""
        return self.state is State.ONGOING and max(now_ms - self.start_ms, known_ms) > self.timeout_ms

    def moved(self, to: State, now_ms: int, **changes: Any) -> Transaction:
        """The next value."""
        return replace(self, state=to, update_ms=now_ms, previous_producer_id=self.producer_id, **changes)


class Given(NamedTuple):
    """The producer id and epoch that a request names."""

    producer_id: int
    epoch: int


class Decision(NamedTuple):
    """answer: to who asked, once `new` is committed, if there is one."""

    answer: ErrorCode
    new: Transaction | None = None


NEEDS_ID = Decision(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)  # to be asked again, with a fresh producer id
_BUSY = Decision(ErrorCode.CONCURRENT_TRANSACTIONS)


def init_producer_id(
    known: Transaction, given: Given | None, timeout_ms: int, *, busy: bool, level: int, fresh_id: int | None,
    now_ms: int,
) -> Decision:  # fmt: skip
    """A producer starts, or goes on after an error with the id and epoch that it has (KIP-360).

    known: without an epoch, if the transactional id is new. busy: whether its next record is on the way. level: the
    finalized transaction.version. fresh_id: a producer id that nobody has had, if one was fetched.
    """
    if busy or known.state in DECIDED:
        return _BUSY
    if given is not None and not _may_go_on(known, given):
        return Decision(ErrorCode.PRODUCER_FENCED)
    answer, to = TABLE[Event.INIT, known.state]
    assert isinstance(answer, ErrorCode)
    if to is None:
        return Decision(answer)
    if to is State.PREPARE_ABORT:
        return _fenced(known, answer, level, fresh_id, now_ms)
    changes: dict[str, Any] = {}
    if given is None:
        changes["last_epoch"] = NO_EPOCH
    elif known.epoch in (NO_EPOCH, given.epoch):
        changes["last_epoch"] = known.epoch
    elif given.epoch != known.last_epoch:
        return Decision(ErrorCode.PRODUCER_FENCED)
    if changes:  # else the answer was lost: nobody else has started since, or there would be no last epoch
        if known.is_exhausted:
            if fresh_id is None:
                return NEEDS_ID
            changes |= {"producer_id": fresh_id, "epoch": 0}
        else:
            changes["epoch"] = known.epoch + 1
    new = known.moved(to, now_ms, timeout_ms=timeout_ms, partitions=frozenset(), start_ms=-1, **changes)
    return Decision(answer, new)


def _may_go_on(known: Transaction, given: Given) -> bool:
    """Whether a producer id is one that the producer of this transactional id may have."""
    if known.epoch == NO_EPOCH or given.producer_id == known.producer_id:
        return True
    return given.producer_id == known.previous_producer_id and given.epoch >= LAST_EPOCH


def add_partitions(
    known: Transaction,
    given: Given,
    partitions: Collection[Place],
    *,
    busy: bool,
    version: int,
    level: int,
    now_ms: int,
) -> Decision:
    """version: 2 for a client that ends transactions by KIP-890's second part."""
    if busy or known.state in DECIDED:
        return _BUSY
    if error := _stranger(known, given):
        return Decision(error)
    event = Event.ADD_KNOWN if known.partitions.issuperset(partitions) else Event.ADD
    answer, to = TABLE[event, known.state]
    assert isinstance(answer, ErrorCode)
    if to is None:
        return Decision(answer)
    if not _has_records(version, level):
        return Decision(ErrorCode.UNSUPPORTED_VERSION)
    start_ms = known.start_ms if known.state is State.ONGOING else now_ms
    added = known.partitions.union(partitions)
    return Decision(answer, known.moved(to, now_ms, partitions=added, start_ms=start_ms, client_version=version))


def verify(known: Transaction, given: Given, partitions: Collection[Place]) -> dict[Place, ErrorCode]:
    """Whether partitions are in the transaction, for their leaders (KIP-890, first part)."""
    if error := _stranger(known, given):
        return dict.fromkeys(partitions, error)
    answer, _ = TABLE[Event.VERIFY, known.state]
    if isinstance(answer, ErrorCode):
        return dict.fromkeys(partitions, answer)
    assert answer is Answer.LOOK
    return {
        each: ErrorCode.NONE if each in known.partitions else ErrorCode.TRANSACTION_ABORTABLE for each in partitions
    }


def end(known: Transaction, given: Given, *, commit: bool, busy: bool, now_ms: int) -> Decision:
    """A client of before KIP-890's second part ends its transaction."""
    if error := _stranger(known, given):
        return Decision(error)
    if busy:
        return _BUSY
    answer, to = TABLE[Event.COMMIT if commit else Event.ABORT, known.state]
    assert isinstance(answer, ErrorCode)
    if to is None:
        return Decision(answer)
    return Decision(answer, known.moved(to, now_ms, next_producer_id=NO_ID, client_version=OF_OLD_CLIENTS))


def end_raising(
    known: Transaction, given: Given, *, commit: bool, busy: bool, level: int, fresh_id: int | None, now_ms: int
) -> Decision:
    """A client ends its transaction and gets the epoch of the next one. One whose answer was lost comes again with the
    epoch that it had, or with the last one of the producer id that it had."""
    if busy or known.state in DECIDED:
        return _BUSY
    used_up = given.producer_id == known.previous_producer_id and given.epoch == LAST_EPOCH and known.epoch == 0
    if given.producer_id != known.producer_id and not used_up:
        return Decision(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if given.epoch + 1 == known.epoch or (used_up and known.state in COMPLETE):
        event = Event.COMMIT_AGAIN if commit else Event.ABORT_AGAIN
    elif given.epoch == known.epoch:
        event = Event.COMMIT_RAISING if commit else Event.ABORT_RAISING
    else:
        return Decision(ErrorCode.PRODUCER_FENCED)
    answer, to = TABLE[event, known.state]
    assert isinstance(answer, ErrorCode)
    if to is None:
        return Decision(answer)
    if not _has_records(BUMPING, level):
        return Decision(ErrorCode.UNSUPPORTED_VERSION)
    return _raised(known, answer, to, fresh_id, now_ms)


def abort_timed_out(known: Transaction, *, level: int, fresh_id: int | None, now_ms: int) -> Decision:
    """A transaction has lasted longer than its producer allowed: it is aborted, and the producer fenced."""
    answer, to = TABLE[Event.TIMEOUT, known.state]
    assert isinstance(answer, ErrorCode) and to is State.PREPARE_ABORT
    return _fenced(known, answer, level, fresh_id, now_ms)


def completed(known: Transaction, now_ms: int) -> Transaction:
    """Every partition has its marker."""
    to = TABLE[Event.MARKED, known.state].to
    assert to is not None
    producer_id, epoch = known.after
    return known.moved(to, now_ms, partitions=frozenset(), producer_id=producer_id, epoch=epoch, next_producer_id=NO_ID)


def is_expired(known: Transaction, now_ms: int, expiration_ms: int) -> bool:
    """Whether a transactional id has not been used for so long that it is forgotten."""
    return (Event.EXPIRE, known.state) in TABLE and known.update_ms <= now_ms - expiration_ms


def _stranger(known: Transaction, given: Given) -> ErrorCode:
    """Why a request is not of the present producer; NONE if it is."""
    if given.producer_id != known.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if given.epoch != known.epoch:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.NONE


def _has_records(version: int, level: int) -> bool:
    """Whether records at a transaction.version can say that a client knows of version 2."""
    return level >= LONGER_RECORDS or version == OF_OLD_CLIENTS


def _fenced(known: Transaction, answer: ErrorCode, level: int, fresh_id: int | None, now_ms: int) -> Decision:
    """The ongoing transaction is aborted under an epoch that its producer does not have."""
    if level >= BUMPING:
        return _raised(known, answer, State.PREPARE_ABORT, fresh_id, now_ms)
    new = known.moved(
        State.PREPARE_ABORT, now_ms, epoch=min(known.epoch + 1, LAST_EPOCH + 1), last_epoch=NO_EPOCH,
        next_producer_id=NO_ID, client_version=OF_OLD_CLIENTS,
    )  # fmt: skip
    return Decision(answer, new)


def _raised(known: Transaction, answer: ErrorCode, to: State, fresh_id: int | None, now_ms: int) -> Decision:
    """The end of a transaction, under the next epoch. The markers carry it, so that the producer is fenced by them."""
    if known.is_exhausted and fresh_id is None:
        return NEEDS_ID
    new = known.moved(
        to, now_ms, epoch=min(known.epoch + 1, LAST_EPOCH + 1), last_epoch=known.epoch,
        next_producer_id=fresh_id if known.is_exhausted and fresh_id is not None else NO_ID,
        start_ms=known.start_ms if known.state is State.ONGOING else now_ms, client_version=BUMPING,
    )  # fmt: skip
    return Decision(answer, new)
