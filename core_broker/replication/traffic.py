"""What went in and out of a partition since it was opened: integers that only rise, read when somebody asks."""

from __future__ import annotations

from ...protocol.errors import ErrorCode
from ._leading import Counts

# What is wrong with a request, not with the partition. Kafka does not count these as failed: who is called for failures
# that rise has something to do.
OF_APPENDS = (ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
OF_FETCHES = (
    ErrorCode.OFFSET_OUT_OF_RANGE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.INCONSISTENT_TOPIC_ID,
)


class Traffic(Counts):
    """Counts of one partition, or of all that are gone. Whoever serves adds to them in place."""

    __slots__ = ()

    def __init__(self) -> None:
        self.appends = 0  # requests to append, failed ones too
        self.failed_appends = 0  # but for OF_APPENDS
        self.bytes_in = 0  # as on the wire: compressed
        self.bytes_refused = 0  # of batches that are too large
        self.messages_in = 0
        self.fetches = 0  # answers given, failed ones too
        self.failed_fetches = 0  # but for OF_FETCHES
        self.bytes_out = 0

    def add(self, other: Traffic) -> None:
        """Take in the counts of another."""
        for name in Counts.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))
