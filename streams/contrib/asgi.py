"""An app beside an ASGI application, such as one of FastAPI or Django, in one process and on one loop, as
`faust.contrib.asgi` has it.

Either the application's server begins, with the app in its lifespan: `FastAPI(lifespan=faust_lifespan(app))` by
`uvicorn module:api`; where there is no such argument, `FaustLifespanMiddleware` is put around the application. Or the
worker begins, and serves the application: `serve_asgi(app, api)`, for which uvicorn must be installed.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

from ..api import absent
from ..api.app import App
from ..api.service import Service
from ..command.interrupts import cancelling
from ..errors import AppError

__all__ = ["FaustLifespanMiddleware", "faust_app_running", "faust_lifespan", "serve_asgi"]

SHUTDOWN_S = 1.0  # for answers under way at the end

if not TYPE_CHECKING:
    __getattr__ = absent.of_module("contrib.asgi", __all__)


@asynccontextmanager
async def faust_app_running(app: App, *, stop_timeout: float | None = None) -> AsyncIterator[App]:
    """Run a worker in this loop for as long as the block runs, unless one runs already. stop_timeout: seconds for its
    last checkpoint; by default as long as it takes.

    The start takes as long as a topic that the app reads is missing; SIGTERM and SIGINT end it, which a server alone
    would only note until then.

    Raises AppError where they do, what keeps the worker from its start, TimeoutError after stop_timeout, and at the end
    the error by which the worker has ended meanwhile."""
    is_ours = await _started(app)
    try:
        yield app
    finally:
        if is_ours:
            async with asyncio.timeout(stop_timeout):
                await app.stop()


async def _started(app: App) -> bool:
    """Whether a worker runs that did not before."""
    starting = asyncio.get_running_loop().create_task(app.maybe_start())
    with cancelling(starting) as signals:
        try:
            return await starting
        except asyncio.CancelledError:
            if not signals:
                raise
            raise AppError(f"app {app.id}: its worker had not started when {signals[0]} came") from None


def faust_lifespan(app: App, *, stop_timeout: float | None = None) -> Callable[..., AbstractAsyncContextManager[None]]:
    """The `lifespan` of an ASGI application, as FastAPI and Starlette take one: `faust_app_running` for as long as the
    application is served."""

    @asynccontextmanager
    async def lifespan(*_: Any) -> AsyncIterator[None]:
        async with faust_app_running(app, stop_timeout=stop_timeout):
            yield

    return lifespan


class FaustLifespanMiddleware:
    """An ASGI application around another one that has no lifespan of its own, such as Django's: `faust_app_running` for
    as long as it is served. Requests go through as they are."""

    def __init__(self, asgi_app: Any, faust_app: App, *, stop_timeout: float | None = None) -> None:
        self.asgi_app = asgi_app
        self.faust_app = faust_app
        self.stop_timeout = stop_timeout

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            await self.asgi_app(scope, receive, send)
            return
        await receive()  # lifespan.startup
        phase = "startup"
        try:
            async with faust_app_running(self.faust_app, stop_timeout=self.stop_timeout):
                await send({"type": "lifespan.startup.complete"})
                await receive()  # lifespan.shutdown
                phase = "shutdown"
        except Exception as error:
            await send({"type": f"lifespan.{phase}.failed", "message": str(error)})
        else:
            await send({"type": "lifespan.shutdown.complete"})


def serve_asgi(
    app: App, asgi_app: Any, *, host: str | None = None, port: int | None = None, **uvicorn_options: Any
) -> None:
    """Have each worker serve an ASGI application, by uvicorn, from when its tasks are restored.

    host: address to listen on; the setting `web_bind`. port: of the application; without one it is served at
    `web_port`, in place of the worker's own pages, if `web_enabled`. uvicorn_options: of `uvicorn.Config`. The worker
    ends with AppError where uvicorn is not installed, or the application cannot be served."""
    app.web.is_replaced = app.web.is_replaced or port is None
    app.background.service(_Served(asgi_app, host, port, uvicorn_options))


class _Served(Service):
    def __init__(self, asgi_app: Any, host: str | None, port: int | None, options: dict[str, Any]) -> None:
        super().__init__()
        self._asgi_app = asgi_app
        self._host = host
        self._port = port
        self._options = options
        self._server: Any = None
        self._serving: asyncio.Task[None] | None = None

    async def on_start(self) -> None:
        conf = self.app.conf
        if self._port is None and not conf.web_enabled:
            return
        host = conf.web_bind if self._host is None else self._host
        port = conf.web_port if self._port is None else self._port
        try:
            uvicorn: Any = importlib.import_module("uvicorn")
        except ModuleNotFoundError:
            raise AppError(f"app {self.app.id}: serve_asgi needs uvicorn: pip install uvicorn") from None
        options = {"lifespan": "on", "log_config": None, "timeout_graceful_shutdown": SHUTDOWN_S, **self._options}
        config = uvicorn.Config(self._asgi_app, host=host, port=port, **options)
        config.load()
        server = uvicorn.Server(config)
        server.lifespan = config.lifespan_class(config)
        try:
            await server.startup()  # its `serve` would take the worker's signals
        except SystemExit:
            raise AppError(
                f"app {self.app.id}: its ASGI application cannot be served at {host}:{port}; uvicorn's log says why"
            ) from None
        self._server = server
        self._serving = asyncio.get_running_loop().create_task(server.main_loop())

    async def on_stop(self) -> None:
        if self._serving is not None:
            self._server.should_exit = True
            await self._serving
            await self._server.shutdown()
