"""Errors of a stream app; each names the app, topic, partition or table, and the solution."""


class StreamsError(Exception):
    """Base class of the errors of this package."""


class AppError(StreamsError):
    """The app's code or configuration is wrong, so it cannot run."""


class ChangeRefused(AppError):
    """The app's code has changed, and its state does not go with it."""


class RecordError(StreamsError):
    """A record could not be decoded or processed; the message has its coordinates. at: topic, partition and offset,
    where a record is to blame; must_stop: the policy is that the worker ends."""

    at: tuple[str, int, int] | None = None
    must_stop = False


class ChangelogError(StreamsError):
    """A changelog does not have what its markers say."""


class CommitRefused(StreamsError):
    """A transaction was aborted: its tasks go on from their last checkpoint."""


class StoreError(StreamsError):
    """Rows on disk cannot be opened, read or written; the message has the directory."""


class OtherChangelog(StoreError):
    """Rows on disk are of a topic that was deleted, or made anew, since they were written."""


class StoreCorrupt(StoreError):
    """Files of a store are damaged or missing: whoever opens it next deletes it and has its rows restored."""
