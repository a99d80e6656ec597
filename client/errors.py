"""Errors of the client; those with a Kafka error code are `KafkaError`s, these are the client's own.

Each message names the peer, topic or partition concerned, and the way out where there is one.
"""

from __future__ import annotations

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.topic_names import why_invalid


class ClientError(Exception):
    """Base of this room's errors. retriable: whether the same call may succeed later."""

    retriable = False


class ConnectionLost(ClientError):
    """A broker cannot be reached, or the connection broke with requests under way. Safe to try again for requests
    that may be done twice."""

    retriable = True


class RequestTimeout(ConnectionLost):
    """A broker did not answer in time; the connection is closed, since it may never answer again."""


class OperationTimeout(ConnectionLost):
    """An operation was not done within its caller's time; it names the operation and why its last attempt failed."""


class ClientClosed(ConnectionLost):
    """The client is closed, or was closed while the operation was under way."""

    retriable = False


class UnsupportedVersion(ClientError):
    """Client and broker share no version of a request, or the broker does not know it."""


class BufferFull(ClientError):
    """The producer holds as many bytes as it may: await `wait_for_space()`."""


class DeliveryTimeout(ClientError):
    """A batch could not be delivered within delivery_timeout_ms; it may or may not be in the log."""


class DataLost(ClientError):
    """The broker no longer holds records it had acknowledged: producer state or offsets say so."""


class NoOffset(ClientError):
    """There is no committed offset and the reset policy is `none`, or the position is out of range."""


class LogTruncated(ClientError):
    """The partition's log was cut below what this consumer has read, and the reset policy is `none`: what was read
    beyond `offset` is not in the log any more. Seek there to go on."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


def check_topic_name(name: str) -> None:
    """Raise INVALID_TOPIC_EXCEPTION for a name that no topic can have."""
    if reason := why_invalid(name):
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)


def no_topic(name: str) -> KafkaError:
    """Why a cluster has no topic of that name: none can be called so, or nobody has made it."""
    try:
        check_topic_name(name)
    except KafkaError as error:
        return error
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}: create it, or check the name")
