"""Stream processing in Python with the names of Faust: apps, agents, tables with changelogs, windows by event time."""

from .api.app import App, Stream, Topic
from .engine.task import Event
from .errors import AppError, ChangelogError, RecordError, StreamsError

__all__ = ["App", "AppError", "ChangelogError", "Event", "RecordError", "Stream", "StreamsError", "Topic"]
