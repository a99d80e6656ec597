"""What the code that runs now works on: set in each agent's own asyncio task."""

from __future__ import annotations

from contextvars import ContextVar

from ..engine.event import Event
from ..engine.task import Work

current_work: ContextVar[Work] = ContextVar("isthmus.streams.work")


def current_event() -> Event | None:
    """The event that the agent which calls this has in hand; None outside of agents."""
    work = current_work.get(None)
    return None if work is None else work.current
