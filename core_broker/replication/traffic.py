"""What went in and out of a partition since it was opened: integers that only rise, read when somebody asks."""

from __future__ import annotations

from ._leading import Counts


class Traffic(Counts):
    """Counts of one partition, or of all that are gone. Whoever serves adds to them in place."""

    __slots__ = ()

    def __init__(self) -> None:
        self.appends = 0  # requests to append, failed ones too
        self.failed_appends = 0
        self.bytes_in = 0  # as on the wire: compressed
        self.bytes_refused = 0  # of batches that are too large
        self.messages_in = 0
        self.fetches = 0  # answers given, failed ones too
        self.failed_fetches = 0
        self.bytes_out = 0

    def add(self, other: Traffic) -> None:
        """Take in the counts of another."""
        for name in Counts.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))
