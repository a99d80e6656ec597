"""What a transactional producer may do next: its states as a table, and what each refusal means. No I/O.

Errors are of three kinds (KIP-1050). After an abortable one the transaction is aborted, and the producer goes on. A
fenced producer is over: another one took its transactional id. After a fatal one only a new producer can go on.
"""

from __future__ import annotations

from enum import Enum, auto

from ..protocol.errors import ErrorCode, KafkaError
from .errors import (
    ClientError,
    ConnectionLost,
    DataLost,
    ProducerFailed,
    ProducerFenced,
    TransactionAborted,
    UnsupportedVersion,
)


class State(Enum):
    """Of a producer."""

    NEW = auto()  # it has no producer id yet
    READY = auto()  # no transaction is open
    OPEN = auto()  # records and offsets are taken
    FLUSHING = auto()  # to be committed, once all records are acknowledged
    COMMITTING = auto()  # the commit was asked for; its outcome is not known
    DOOMED = auto()  # it failed: it can only be aborted
    ABORTING = auto()  # the abort is not answered yet
    FENCED = auto()  # another producer took the transactional id
    FAILED = auto()  # a new producer is needed


class Event(Enum):
    """What a user asks for, or a broker's word."""

    START = auto()
    BEGIN = auto()
    COMMIT = auto()
    HOLD = auto()  # the commit was given up before it was asked for
    FLUSHED = auto()
    COMMITTED = auto()
    ABORT = auto()
    ABORTED = auto()
    DOOM = auto()
    FENCE = auto()
    FAIL = auto()


TABLE: dict[tuple[State, Event], State] = {
    (State.NEW, Event.START): State.READY,
    (State.READY, Event.BEGIN): State.OPEN,
    (State.READY, Event.DOOM): State.READY,  # word of a transaction that has ended
    (State.OPEN, Event.COMMIT): State.FLUSHING,
    (State.OPEN, Event.ABORT): State.ABORTING,
    (State.OPEN, Event.DOOM): State.DOOMED,
    (State.FLUSHING, Event.HOLD): State.OPEN,
    (State.FLUSHING, Event.FLUSHED): State.COMMITTING,
    (State.FLUSHING, Event.DOOM): State.DOOMED,
    (State.COMMITTING, Event.COMMITTED): State.READY,
    (State.COMMITTING, Event.DOOM): State.DOOMED,
    (State.DOOMED, Event.HOLD): State.DOOMED,
    (State.DOOMED, Event.DOOM): State.DOOMED,
    (State.DOOMED, Event.ABORT): State.ABORTING,
    (State.ABORTING, Event.DOOM): State.ABORTING,
    (State.ABORTING, Event.ABORT): State.ABORTING,  # once more, after the time was over
    (State.ABORTING, Event.ABORTED): State.READY,
    **{(state, Event.FENCE): State.FENCED for state in State if state is not State.FAILED},
    **{(state, Event.FAIL): State.FAILED for state in State if state is not State.FENCED},
    **{(State.FENCED, event): State.FENCED for event in (Event.HOLD, Event.DOOM, Event.FAIL)},
    **{(State.FAILED, event): State.FAILED for event in (Event.HOLD, Event.DOOM, Event.FENCE)},
}

# What a user must hear who asks for something that the state does not allow.
MISUSE = {
    State.NEW: "the producer is not started",
    State.READY: "no transaction is open: begin one first",
    State.OPEN: "a transaction is open: commit or abort it first; a producer has one at a time",
    State.FLUSHING: "the transaction is being committed",
    State.COMMITTING: "the outcome of the commit is not known yet: commit_transaction() waits for it",
    State.ABORTING: "the transaction is being aborted",
}


class Step(Enum):
    """The requests of a transaction, as errors name them."""

    INIT = "getting a producer id"
    ADD_PARTITIONS = "adding partitions"
    ADD_OFFSETS = "adding a group's offsets"
    COMMIT_OFFSETS = "committing a group's offsets"
    WRITE = "writing"
    COMMIT = "commit"
    ABORT = "abort"


class Verdict(Enum):
    """What an error that is not worth another attempt means for the producer."""

    DOOM = auto()  # abort and go on
    RENEW = auto()  # likewise, with a new epoch; who asks for that hears whether it was fenced (KIP-360)
    FENCE = auto()
    FAIL = auto()


# The epoch is not this producer's any more. Another producer has it, or the coordinator has aborted a transaction that
# lasted for too long: InitProducerId with this epoch tells.
LOST_EPOCH = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)
# Where an abort cannot tell what there is to abort, a new epoch settles it.
_RENEWS = LOST_EPOCH | {ErrorCode.INVALID_TXN_STATE}
_FATAL = frozenset(
    {
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)
# The same transaction again may do better than the last time.
_WORTH_AGAIN = _RENEWS | {
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,  # also of members of KIP-848
}


def verdict(step: Step, error: Exception) -> Verdict:
    """What an error means that was not, or not in time, overcome by trying again."""
    if not isinstance(error, KafkaError):
        return Verdict.FAIL if isinstance(error, DataLost | UnsupportedVersion) else Verdict.DOOM
    if error.code in _FATAL:
        return Verdict.FAIL
    if step is Step.INIT:
        return Verdict.FENCE if error.code in LOST_EPOCH else Verdict.FAIL
    if error.code in _RENEWS:
        return Verdict.RENEW
    if error.code == ErrorCode.TRANSACTION_ABORTABLE:
        return Verdict.RENEW if step is Step.ABORT else Verdict.DOOM
    return Verdict.FAIL if step in (Step.COMMIT, Step.ABORT) else Verdict.DOOM


def is_time_over(error: Exception) -> bool:
    """Whether an operation has ended without an answer that settles it."""
    return error.retriable if isinstance(error, KafkaError) else isinstance(error, ConnectionLost)


class Progress:
    """One producer's state, and the error that brought it there."""

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.state = State.NEW
        self.is_open = False  # records and offsets are taken
        self.has_epochs = False  # of its own each transaction: then one that lasted for too long does not look fenced
        self.error: ClientError | None = None  # of DOOMED, FENCED and FAILED

    def move(self, event: Event) -> None:
        """Go on to the next state. Raises the error that brought it to a state which does not allow that, or
        ClientError with what to do instead."""
        after = TABLE.get((self.state, event))
        if after is None:
            raise self.refusal()
        self.state, self.is_open = after, after is State.OPEN
        if after in (State.READY, State.OPEN):
            self.error = None

    def refusal(self) -> ClientError:
        """Why the state does not allow what was asked for."""
        if self.error is not None:
            return self.error.with_traceback(None)  # it may be raised many times
        return ClientError(f"transactional id {self.transactional_id}: {MISUSE[self.state]}")

    def failed(self, step: Step, cause: Exception) -> tuple[Verdict, ClientError]:
        """Take an error in. Returns what it means, and the error for what it concerns."""
        told = verdict(step, cause)
        what = f"transactional id {self.transactional_id}, {step.value}: {KafkaError.reason(cause)}"
        error: ClientError
        match told:
            case Verdict.FENCE:
                why = "Another producer has started with the same transactional id"
                if not self.has_epochs:
                    why += ", or the transaction was open for longer than its timeout"
                left = (
                    "Whether its commit came first is not known"
                    if self.state is State.COMMITTING
                    else "What it had open is aborted"
                )
                error = ProducerFenced(f"{what}. {why}: this producer is over. {left}. Close it")
                event = Event.FENCE
            case Verdict.FAIL:
                error = ProducerFailed(
                    f"{what}. This producer cannot go on: close it. A new one with the same transactional id first "
                    "settles what is open"
                )
                event = Event.FAIL
            case _:
                error = TransactionAborted(
                    f"{what}. Nothing of the transaction counts: abort it, and begin another", _is_worth_again(cause)
                )
                event = Event.DOOM
        error.__cause__ = cause
        before = self.state
        self.move(event)
        if self.state is not before and self.state in (State.DOOMED, State.FENCED, State.FAILED):
            self.error = error
        return told, error


def _is_worth_again(cause: Exception) -> bool:
    if isinstance(cause, KafkaError):
        return cause.retriable or cause.code in _WORTH_AGAIN
    return isinstance(cause, ClientError)
