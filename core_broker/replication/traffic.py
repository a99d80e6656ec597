"""The errors that do not count as failed appends and fetches: those about the request, not the partition. Kafka does
not count them either: an operator who is alerted to rising failures must be able to do something."""

from __future__ import annotations

from ...protocol.errors import ErrorCode

NOT_FAILED_APPENDS = (ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
NOT_FAILED_FETCHES = (
    ErrorCode.OFFSET_OUT_OF_RANGE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.INCONSISTENT_TOPIC_ID,
)
