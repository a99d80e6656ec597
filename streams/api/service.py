"""`Service`: something of the app's own that a worker starts and stops with itself, with mode's names.

@app.service
class Prices(Service):
    async def on_start(self):
        self.session = aiohttp.ClientSession()

    async def on_stop(self):
        await self.session.close()

    @Service.timer(60.0)
    async def refresh(self):
        ...
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ..engine.lengths import Seconds
from . import absent
from .background import Ending, Job, once, periodic

F = TypeVar("F", bound=Callable[..., Any])
_JOB = "_isthmus_job"


class Service:
    """Made by the worker. app: the `App`; set before `on_start`."""

    app: Any

    def __init__(self, *, loop: Any = None, beacon: Any = None) -> None:
        self.log = logging.getLogger(f"{type(self).__module__}.{type(self).__qualname__}")
        self._ending = Ending()

    if not TYPE_CHECKING:  # type checkers know what there is

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(absent.said("Service", name, dir(type(self))))

    # --- For subclasses -----------------------------------------------------------------------------

    async def on_start(self) -> None:
        """Called before its tasks begin."""

    async def on_started(self) -> None:
        """Called when its tasks have begun."""

    async def on_stop(self) -> None:
        """Called when the worker ends, after its tasks."""

    @classmethod
    def task(cls, function: F) -> F:
        """Decorates a method that runs once, while the service does."""
        setattr(function, _JOB, once(function))
        return function

    @classmethod
    def timer(cls, interval: Seconds, *, name: str | None = None) -> Callable[[F], F]:
        """Decorates a method that runs every `interval` seconds."""

        def declare(function: F) -> F:
            setattr(function, _JOB, periodic(function, interval, name=name))
            return function

        return declare

    @property
    def should_stop(self) -> bool:
        return self._ending.is_set()

    async def sleep(self, length: Seconds) -> None:
        """Until then, or until the service ends."""
        await self._ending.sleep(length)

    # --- For the worker -----------------------------------------------------------------------------

    def end(self) -> list[asyncio.Task[Any]]:
        """Returns what it wakes."""
        return self._ending.set()

    def jobs(self) -> list[Job]:
        """Its tasks and timers, as methods."""
        found = []
        for name in dir(type(self)):
            job = getattr(getattr(type(self), name, None), _JOB, None)
            if isinstance(job, Job):
                found.append(job.of(getattr(self, name)))
        return found
