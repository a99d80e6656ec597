"""Errors of the client. Errors with a Kafka error code are `KafkaError`s; these are the client's own.

Each message names the peer, topic or partition, and the solution if there is one.
"""

from __future__ import annotations

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.topic_names import why_invalid
from .types import TopicPartition


class ClientError(Exception):
    """Base class of the errors of this package. retriable: whether the same call may succeed later. was_sent: whether a
    broker may have the request, and may have done it, though no answer came."""

    retriable = False
    was_sent = False


class ConnectionLost(ClientError):
    """A broker cannot be reached, or the connection broke before all answers arrived. A request that may be executed
    twice can be retried. was_sent is False where there was no connection for it."""

    retriable = True
    was_sent = True


class RequestTimeout(ConnectionLost):
    """A broker did not answer in time. The connection is closed, since an answer may never come."""


class OperationTimeout(ConnectionLost):
    """An operation did not finish within its time; names the operation and the error of its last attempt."""


class ClientClosed(ConnectionLost):
    """The client is closed, or was closed during the operation."""

    retriable = False


class UnsupportedVersion(ClientError):
    """Client and broker have no common version of a request, or the broker does not support it."""


class CannotCarry(ClientError):
    """A request says what its version that the broker supports has no place for."""


class BufferFull(ClientError):
    """The producer holds as many bytes as it may: await `wait_for_space()`."""


class DeliveryTimeout(ClientError):
    """A batch could not be delivered within delivery_timeout_ms; it may or may not be in the log."""


class DataLost(ClientError):
    """The broker does not have records any more that it had acknowledged; producer state or offsets show that."""


class NoOffset(ClientError):
    """There is no committed offset, or the position is out of range, and the reset policy is `none`."""


class LogTruncated(ClientError):
    """The log of `tp` was truncated below this consumer's position, and the reset policy is `none`. What was read from
    `offset` on is not in the log any more (KIP-320). Seek to `offset` to continue."""

    def __init__(self, message: str, tp: TopicPartition, offset: int) -> None:
        super().__init__(message)
        self.tp = tp
        self.offset = offset


class TransactionAborted(ClientError):
    """The open transaction failed: none of its records and offsets count, and it can only be aborted. The producer goes
    on with the next one. `__cause__` is what happened. retriable: whether the same transaction may succeed then."""

    def __init__(self, message: str, retriable: bool = True) -> None:
        super().__init__(message)
        self.retriable = retriable


class ProducerFenced(ClientError):
    """Another producer has started with the same transactional id: this one is over, and can only be closed. Below
    transaction.version 2 also after a transaction that was open for longer than its timeout."""


class ProducerFailed(ClientError):
    """A transactional producer cannot go on, for the reason in `__cause__`: a new one is needed, once that is gone."""


def check_topic_name(name: str) -> None:
    """Raise INVALID_TOPIC_EXCEPTION for an invalid topic name."""
    if reason := why_invalid(name):
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)


def no_topic(name: str) -> KafkaError:
    """The error for a topic that does not exist: its name is invalid, or it was not created."""
    try:
        check_topic_name(name)
    except KafkaError as error:
        return error
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}: create it, or check the name")
