"""What a worker runs beside its agents: tasks, timers, crontabs and services, in its own loop.

Timers go by the loop's time, crontabs by the wall clock. An error is logged with its traceback, and a timer goes on at
its next time; with on_task_error='fail' it ends the worker.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from typing import Any

from ...runtime import Runtime, system
from ..api.app import App
from ..api.background import Ending, Job
from ..api.service import Service
from ..api.signals import Signal
from ..engine.failures import FAIL
from ..errors import AppError, StreamsError

log = logging.getLogger("isthmus.streams")

WOKEN_S = 1.0  # for tasks that slept until the end
STOP_S = 2.0  # for tasks that were cancelled, and again for each service that ends
LOOK_S = 60.0  # a crontab looks at the wall clock at least so often: it may have been set


class Services:
    """Those of one app. `failed` is done when an error ends the worker."""

    def __init__(self, app: App, runtime: Runtime | None = None) -> None:
        self.app = app
        self.runtime = runtime or system()
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._services: list[Service] = []
        self._running: dict[asyncio.Task[None], None] = {}
        app.background.ending = Ending()

    async def start(self) -> None:
        """Start services, then everything else. Raises AppError for what needs a leader in an app without agents, and
        what a service raises at its start."""
        if not self.app.reads:
            for job in self.app.background:
                if job.on_leader:
                    raise AppError(
                        f"app {self.app.id}: {job.name} runs on the leader, which is the worker with a certain "
                        "partition: an app without agents has no leader"
                    )
        for each in self.app.background.services:
            service = each() if isinstance(each, type) else each
            service.app = self.app
            self._services.append(service)
            await service.on_start()
            for job in service.jobs():
                self._begin(job)
            await service.on_started()
        for job in self.app.background:
            self._begin(job)

    async def stop(self) -> None:
        """Wake what sleeps until the end, cancel what runs on, then stop services, the last one first. Errors are
        logged."""
        woken = [] if self.app.background.ending is None else self.app.background.ending.set()
        for service in self._services:
            woken += service.end()
        if own := [each for each in woken if each in self._running]:
            await asyncio.wait(own, timeout=WOKEN_S)
        running = list(self._running)
        for each in running:
            each.cancel()
        if running:
            await asyncio.wait(running, timeout=STOP_S)
        for each in running:
            if not each.done():
                log.warning(
                    "app %s: %s runs on after it was cancelled, and is left alone", self.app.id, each.get_name()
                )
        for service in reversed(self._services):
            try:
                async with asyncio.timeout(STOP_S):
                    await service.on_stop()
            except Exception:
                log.exception("app %s: service %s did not stop well", self.app.id, type(service).__name__)

    def fail(self, error: Exception) -> None:
        """End the worker, with the first such error."""
        if not self.failed.done():
            self.failed.set_exception(error)
            self.failed.exception()  # else asyncio logs it, should the worker end by another error

    def check(self) -> None:
        """Raise the error that has ended the worker, if any."""
        if self.failed.done():
            self.failed.result()

    def _begin(self, job: Job) -> None:
        task = asyncio.get_running_loop().create_task(self._run(job), name=job.name)
        self._running[task] = None
        task.add_done_callback(lambda each: self._running.pop(each, None))

    async def _run(self, job: Job) -> None:
        if job.interval_s is not None:
            await self._every(job, job.interval_s)
        elif job.crontab is not None:
            await self._at_times(job)
        else:
            await self._call(job)

    async def _every(self, job: Job, interval_s: float) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + interval_s
        while True:
            await asyncio.sleep(due - loop.time())
            await self._call(job)
            missed = max(0, int((loop.time() - due) // interval_s))
            due += interval_s * (missed + 1)

    async def _at_times(self, job: Job) -> None:
        assert job.crontab is not None
        while True:
            due_ms = job.crontab.after(self.runtime.wall_ms(), self.app.conf.timezone)
            while (ahead_ms := due_ms - self.runtime.wall_ms()) > 0:
                await asyncio.sleep(min(ahead_ms / 1000, LOOK_S))
            await self._call(job)

    async def _call(self, job: Job) -> None:
        if job.on_leader and not self.app.is_leader():
            return
        try:
            await job.call(self.app)
        except Exception as error:
            log.exception("app %s: %s failed", self.app.id, job.name)
            if self.app.conf.on_task_error == FAIL:
                self.fail(StreamsError(f"app {self.app.id}: {job.name} failed: {type(error).__name__}: {error}"))


async def tell_recovered(app: App) -> None:
    """Call what the app has given its tables as `on_recover`; what raises is logged, and the worker goes on."""
    for table in app.tables.values():
        for function in table.recover_callbacks:
            try:
                result = function()
                if inspect.isawaitable(result):
                    await result
            except Exception:
                log.exception("on_recover of table %s failed", table.name)


async def tell(signal: Signal, *told: Any) -> None:
    """Send a signal of a worker; what a receiver raises is logged, and the worker goes on."""
    for receiver in list(signal.receivers):
        try:
            await signal.call(receiver, *told)
        except Exception:
            log.exception("%s, which receives %s, failed", getattr(receiver, "__name__", receiver), signal.name)
