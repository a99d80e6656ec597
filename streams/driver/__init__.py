"""`TestDriver`: runs an app without a cluster, a clock or a network, for tests.

* what a test writes: `driver.py`; the app between two restarts, as a worker runs it: `running.py`; topics in memory:
  `topics.py`; the loop whose clock stands still: `clock.py`; pages and commands: `edges.py`.
"""

from __future__ import annotations

from .driver import TestDriver
from .topics import MemoryTopics, Sent, TestRecord

__all__ = ["MemoryTopics", "Sent", "TestDriver", "TestRecord"]
