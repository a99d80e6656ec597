"""What a worker runs beside its agents: tasks, timers, crontabs and services. Declarations; `runtime/services.py` runs
them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from typing import Any, TypeVar

from cronsim import CronSim, CronSimError

from ..engine.crontab import in_debian_s
from ..engine.lengths import Seconds, seconds
from ..errors import AppError

F = TypeVar("F", bound=Callable[..., Any])
INTERVAL_MIN_S = 0.001


@dataclass(frozen=True)
class Crontab:
    """expression: minute, hour, day of month, month, day of week, as in Debian's cron; of six fields the first is the
    second. zone: None: the app's."""

    expression: str
    zone: tzinfo | None = None

    def after(self, now_ms: int, zone: tzinfo) -> int:
        """The next time after a time, both in ms since the epoch. Local times that a change of the clock leaves out or
        repeats are what Debian's cron makes of them: once."""
        begin = datetime.fromtimestamp(now_ms / 1000, self.zone or zone)
        return round(next(CronSim(self.expression, begin)).timestamp() * 1000)


@dataclass(frozen=True)
class Job:
    """A function, and when it runs. interval_s: every so often; crontab: at its times; neither: once, at the start.
    on_leader: in one worker of the app only."""

    name: str
    function: Callable[..., Awaitable[Any]]
    interval_s: float | None = None
    crontab: Crontab | None = None
    on_leader: bool = False

    def of(self, method: Callable[..., Awaitable[Any]]) -> Job:
        return replace(self, function=method)

    def call(self, app: Any) -> Awaitable[Any]:
        """Begin it, with the app if it takes an argument."""
        return self.function(app) if inspect.signature(self.function).parameters else self.function()


def _checked(function: Any, what: str) -> str:
    """The function's name."""
    name = str(getattr(function, "__name__", function))
    if not inspect.iscoroutinefunction(inspect.unwrap(function)):
        raise AppError(f"{what} needs an async function, and {name} is none: write async def")
    return name


def once(function: Any, on_leader: bool = False) -> Job:
    return Job(_checked(function, "@app.task"), function, on_leader=on_leader)


def periodic(function: Any, interval: Seconds, *, on_leader: bool = False, name: str | None = None) -> Job:
    own = _checked(function, "@app.timer")
    interval_s = seconds(interval)
    if interval_s < INTERVAL_MIN_S:
        raise AppError(f"timer {name or own}: its interval is {interval_s} s, but must be {INTERVAL_MIN_S} or more")
    return Job(name or own, function, interval_s=interval_s, on_leader=on_leader)


def at_times(function: Any, expression: str, zone: tzinfo | None, *, on_leader: bool = False) -> Job:
    own = _checked(function, "@app.crontab")
    if zone is not None and not isinstance(zone, tzinfo):
        raise AppError(f"crontab of {own}: timezone is {zone!r}, but must be a tzinfo, such as ZoneInfo('Asia/Tokyo')")
    try:
        wanted = in_debian_s(expression)
        CronSim(wanted, datetime(2000, 1, 1))
    except (CronSimError, ValueError) as error:
        raise AppError(f"crontab of {own}: '{expression}': {error}") from None
    return Job(own, function, crontab=Crontab(wanted, zone), on_leader=on_leader)


class Ending:
    """Whether what runs beside the agents ends, and what sleeps until then."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._sleeping: dict[asyncio.Task[Any], None] = {}

    def is_set(self) -> bool:
        return self._event.is_set()

    def set(self) -> list[asyncio.Task[Any]]:
        """Begin the end. Returns what it wakes."""
        self._event.set()
        return list(self._sleeping)

    async def sleep(self, length: Seconds) -> None:
        """Until then, or until the end. Who sleeps again after that is not woken: a loop that does nothing but sleep
        would hold up all others."""
        if self._event.is_set():
            await asyncio.sleep(seconds(length))
            return
        task = asyncio.current_task()
        assert task is not None
        self._sleeping[task] = None
        try:
            async with asyncio.timeout(seconds(length)):
                await self._event.wait()
        except TimeoutError:
            pass
        finally:
            self._sleeping.pop(task, None)


class Background:
    """All that an app has declared."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.services: list[Any] = []  # classes of services, or instances
        self.ending: Ending | None = None  # of the worker that runs them

    def __iter__(self) -> Iterator[Job]:
        return iter(self.jobs)

    def task(self, function: F | None, on_leader: bool) -> Any:
        def declare(function: F) -> F:
            self.jobs.append(once(function, on_leader))
            return function

        return declare if function is None else declare(function)

    def timer(self, interval: Seconds, on_leader: bool, name: str | None) -> Callable[[F], F]:
        def declare(function: F) -> F:
            self.jobs.append(periodic(function, interval, on_leader=on_leader, name=name))
            return function

        return declare

    def crontab(self, expression: str, zone: tzinfo | None, on_leader: bool) -> Callable[[F], F]:
        def declare(function: F) -> F:
            self.jobs.append(at_times(function, expression, zone, on_leader=on_leader))
            return function

        return declare

    def service(self, service: Any) -> Any:
        if not hasattr(service, "on_start"):
            raise AppError(f"@app.service needs a subclass of Service, not {service!r}")
        self.services.append(service)
        return service
