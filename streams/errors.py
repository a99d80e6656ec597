"""Errors of a stream app; each names the app, topic, partition or table, and the solution."""


class StreamsError(Exception):
    """Base class of the errors of this package."""


class AppError(StreamsError):
    """The app's code or configuration is wrong, so it cannot run."""


class RecordError(StreamsError):
    """A record could not be decoded or processed; the message has its coordinates."""


class ChangelogError(StreamsError):
    """A changelog does not have what its markers say."""
