"""A worker's process without its command line: the app's tasks, what runs beside them, and the web server, on one loop.

The order: the web server listens, the worker joins its group; when the tasks of its first assignment are restored,
services, tasks and timers begin. At the end they stop before the last checkpoint is written, so that what they sent is
acknowledged before the process ends.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from ...client import Client
from ...runtime import Runtime, system
from ..api.app import App
from .channels import ChannelAgents
from .global_tables import GlobalTables
from .services import Services, tell
from .state import State, partition_for_ever
from .worker import StreamWorker

if TYPE_CHECKING:
    from .webserver import WebServer

log = logging.getLogger("isthmus.streams")

Ready = Callable[[str], None]


async def serve(
    app: App,
    stopping: asyncio.Event,
    ready: Ready = lambda works: None,
    *,
    bootstrap: str | None = None,
    name: str | None = None,
    runtime: Runtime | None = None,
) -> None:
    """Run until `stopping`, then write a checkpoint and leave. If cancelled, or after an error, just leave.

    ready: told what the process works on, once it does. bootstrap: counts before the setting `broker`. name: of the
    worker, see `StreamWorker`. Raises the errors of the app, of the cluster and of the web server.
    """
    app.finalize()
    if bootstrap is not None:
        app.conf.update({"broker": bootstrap})
    for setting, instead in app.conf.ignored.items():
        log.warning("app %s: setting %s changes nothing here: %s", app.id, setting, instead)
    if not app.reads:
        await _serve_without_agents(app, stopping, ready, runtime)
        return
    client = Client(app.conf.bootstrap, client_id=app.conf.broker_client_id, runtime=runtime)
    try:
        await client.start()
        worker = StreamWorker(app, client, runtime, name)
        services = Services(app, worker.runtime)
        web = await _web(app, worker)
        stop = asyncio.get_running_loop().create_task(_stop_when(stopping, services, worker))
        beside = asyncio.get_running_loop().create_task(start_beside(worker.settled, services))
        try:
            await worker.start()
            ready(f"{app.id}: {', '.join(worker.inputs)}")
            await worker.run()
            await tell(app.on_before_shutdown)
            await _end(beside, services)
            await worker.close()
        except BaseException:
            await _end(beside, services)
            await worker.abandon()
            raise
        finally:
            stop.cancel()
            app.worker = app.outbox = None
            app.global_stores = {}
            if web is not None:
                await web.stop()
        services.check()
    finally:
        await client.close()


async def _serve_without_agents(app: App, stopping: asyncio.Event, ready: Ready, runtime: Runtime | None) -> None:
    """An app of channels, timers and pages alone is in no group."""
    services = Services(app, runtime)
    started = asyncio.Event()
    started.set()
    await app.start_client()
    views = await _views(app, runtime or system(), services)
    web = await _web(app, None)
    channels = ChannelAgents(app.id, app.agents)
    beside = asyncio.get_running_loop().create_task(start_beside(started, services))
    try:
        ready(f"{app.id}: no topics")
        await _first(stopping, services, channels.ends)
        channels.check()
        await tell(app.on_before_shutdown)
    finally:
        await _end(beside, services)
        await channels.close()
        if web is not None:
            await web.stop()
        if views is not None:
            await views.close()
        await app.stop()
    services.check()


class _Views:
    """Global tables of an app that reads nothing else: what pages and timers look at."""

    def __init__(self, app: App, runtime: Runtime) -> None:
        self._app = app
        self._client = Client(app.conf.bootstrap, client_id=app.conf.broker_client_id, runtime=runtime)
        changelog = partial(partition_for_ever, self._client)
        self._state = State(app.id, app.conf.tables_path, None, app.global_tables.values(), runtime, changelog)
        self.tables = GlobalTables(app, self._client, self._state.open)

    async def start(self) -> None:
        await self._client.start()
        await self.tables.start()
        await self.tables.caught_up()
        self._app.global_stores = self.tables.stores

    async def close(self) -> None:
        self._app.global_stores = {}
        await self.tables.close()
        self._state.close()
        await self._client.close()


async def _views(app: App, runtime: Runtime, services: Services) -> _Views | None:
    if not app.global_tables:
        return None
    views = _Views(app, runtime)
    try:
        await views.start()
    except BaseException:
        await views.close()
        raise
    views.tables.tell_failure(services.fail)
    return views


async def _web(app: App, worker: StreamWorker | None) -> WebServer | None:
    """The web server, which listens; None: the app wants none, or has another."""
    if not app.conf.web_enabled or app.web.is_replaced:
        return None
    from .webserver import WebServer  # aiohttp takes a tenth of a second to load

    server = WebServer(app, worker)
    await server.start()
    return server


async def start_beside(settled: asyncio.Event, services: Services) -> None:
    """Begin what runs beside the agents, when the tasks are settled."""
    await settled.wait()
    try:
        await services.start()
    except Exception as error:
        services.fail(error)
        return
    await tell(services.app.on_started)
    finished = services.app.on_startup_finished
    if finished is not None:
        result = finished()
        if inspect.isawaitable(result):
            await result


async def _end(beside: asyncio.Task[None], services: Services) -> None:
    beside.cancel()
    await asyncio.gather(beside, return_exceptions=True)
    await services.stop()


async def _stop_when(stopping: asyncio.Event, services: Services, worker: StreamWorker) -> None:
    await _first(stopping, services)
    await worker.stop()


async def _first(stopping: asyncio.Event, services: Services, others: Iterable[asyncio.Future[Any]] = ()) -> None:
    """Wait for a stop, or for an error of what runs beside the agents."""
    waiting = asyncio.get_running_loop().create_task(stopping.wait())
    ends: list[asyncio.Future[Any]] = [waiting, services.failed, *others]
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()


class Running:
    """A worker in a program that does other things, too."""

    def __init__(self, app: App) -> None:
        self.app = app
        self._stopping = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Returns when the worker has joined its group. Raises what keeps it from that."""
        loop = asyncio.get_running_loop()
        ready = loop.create_future()
        self._serving = loop.create_task(
            serve(self.app, self._stopping, lambda works: ready.set_result(None)), name=f"worker of {self.app.id}"
        )
        ends: list[asyncio.Future[None]] = [ready, self._serving]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._serving.cancel()
            await asyncio.wait([self._serving])
            raise
        if not ready.done():
            self._serving.result()
        self._serving.add_done_callback(self._ended)

    def _ended(self, serving: asyncio.Task[None]) -> None:
        """Whoever waits for nothing but requests is to hear of it before `stop`."""
        if not self._stopping.is_set() and not serving.cancelled() and (error := serving.exception()) is not None:
            log.error("app %s: its worker has ended: %s: %s", self.app.id, type(error).__name__, error)

    async def stop(self) -> None:
        """Write the last checkpoint, and leave. Raises the error by which it has ended."""
        self._stopping.set()
        if self._serving is not None:
            await self._serving
