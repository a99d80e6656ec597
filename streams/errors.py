"""Errors of a stream app; each names the app, topic, partition or table concerned and what to do."""


class StreamsError(Exception):
    """Base of this room's errors."""


class AppError(StreamsError):
    """The app is written or configured in a way that cannot run."""


class RecordError(StreamsError):
    """A record could not be decoded or processed; the message has its coordinates."""


class ChangelogError(StreamsError):
    """A changelog does not hold what its markers say."""
