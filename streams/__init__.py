"""Stream processing in Python with the names of Faust: apps, agents, tables with changelogs, windows by event time.

Where to look:

* what a user writes: `api/app.py` (apps, topics, agents), `api/tables.py` (tables and their windows);
* the format of the changelog, and when a checkpoint counts: `engine/changelog.py`; which records hold a row:
  `engine/places.py`; a task's state: `engine/task.py`, `engine/tables.py`;
* writing checkpoints, and the life of a task: `runtime/worker.py`; feeding agents: `runtime/agents.py`; reading the
  changelog at a start: `runtime/loading.py`;
* reading an app's tables from outside: `table_reader.py`; testing an app without a broker: `driver.py`.
"""

from .api.app import App, Stream, Topic
from .engine.task import Event
from .errors import AppError, ChangelogError, RecordError, StreamsError

__all__ = ["App", "AppError", "ChangelogError", "Event", "RecordError", "Stream", "StreamsError", "Topic"]
