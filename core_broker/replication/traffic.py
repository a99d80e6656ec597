"""Which errors do not count as failed appends and fetches: those that say what is wrong with a request, not with the
partition. Kafka does not count them: who is called when failures rise has something to do."""

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
