"""The web server of a worker: the app's pages, and those that every worker has (`pages.py`), by aiohttp."""

from __future__ import annotations

import errno
import logging
from typing import Any, cast

from aiohttp import ClientError, ClientSession, ClientTimeout, web

from ...same_host import bound
from ..api.app import App
from ..api.routing import ROUTED
from ..api.web import ServiceUnavailable, View, WebError, dumped, served
from ..errors import AppError
from .owners import GroupOwners
from .pages import Pages
from .worker import StreamWorker

log = logging.getLogger("isthmus.streams")

FORWARD_S = 10.0  # for the answer of another worker
RETRY_AFTER_S = 1  # told to who asks for a row that nobody can answer now
SHUTDOWN_S = 1.0  # for answers under way at the end
# Of a connection, not to be passed on with a request or its answer (RFC 9110, 7.6.1).
HOP_BY_HOP = frozenset(
    "connection keep-alive proxy-authenticate proxy-authorization te trailer transfer-encoding upgrade host "
    "content-length content-encoding".split()
)


class WebServer:
    """`start` listens; from then on `app.conf.canonical_url` has the port. worker: None in an app without agents."""

    def __init__(self, app: App, worker: StreamWorker | None) -> None:
        self.app = app
        self.worker = worker
        self._runner: web.AppRunner | None = None
        self._session: ClientSession | None = None

    async def start(self) -> None:
        """Raises AppError if the port that was asked for is taken."""
        conf = self.app.conf
        made = application(self.app)
        for path, handler in Pages(self.app, self.worker).routes():
            if path not in self.app.web.views:
                made.router.add_get(path, handler)
        self._runner = web.AppRunner(made, access_log=None, shutdown_timeout=SHUTDOWN_S)
        await self._runner.setup()
        asked = "web_port" in conf.said
        try:
            await self._listen(conf.web_port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or asked:
                await self._runner.cleanup()
                raise AppError(self._why(error)) from None
            await self._listen(0)
            log.warning("port %d is taken, by another worker perhaps; this one has %d", conf.web_port, self.port)
        conf.web_port = self.port
        if self.worker is not None:
            self.worker.url = conf.canonical_url
            self.app.router.owners = GroupOwners(self.worker)
        self.app.router.forward = self._forward
        log.info("pages of app %s: %s", self.app.id, conf.canonical_url)

    async def stop(self) -> None:
        self.app.router.owners = self.app.router.forward = None
        if self._session is not None:
            await self._session.close()
        if self._runner is not None:
            await self._runner.cleanup()

    @property
    def port(self) -> int:
        assert self._runner is not None
        found: int = self._runner.addresses[0][1]
        return found

    async def _listen(self, port: int) -> None:
        conf = self.app.conf
        assert self._runner is not None
        runner, tls = self._runner, conf.web_ssl_context
        # The site passes on whatever the loop takes, a list too.
        await bound(lambda hosts: web.TCPSite(runner, cast(str, hosts), port, ssl_context=tls).start(), conf.web_bind)

    def _why(self, error: OSError) -> str:
        conf = self.app.conf
        where = f"{conf.web_bind or '*'}:{conf.web_port}"
        if error.errno == errno.EADDRINUSE:
            return (
                f"app {self.app.id}: its web server cannot listen on {where}: the port is taken. Give another one as "
                "--web-port or web_port=, 0 for any that is free, or none with --without-web"
            )
        return f"app {self.app.id}: its web server cannot listen on {where}: {error.strerror or error}"

    async def _forward(self, url: str, request: web.Request) -> web.Response:
        if self._session is None:
            self._session = ClientSession(timeout=ClientTimeout(FORWARD_S), auto_decompress=True)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP}
        try:
            async with self._session.request(
                request.method,
                f"{url.rstrip('/')}{request.raw_path}",
                headers={**headers, ROUTED: "1"},
                data=await request.read() if request.can_read_body else None,
                allow_redirects=False,
            ) as answer:
                kept = {name: value for name, value in answer.headers.items() if name.lower() not in HOP_BY_HOP}
                return web.Response(body=await answer.read(), status=answer.status, headers=kept)
        except (ClientError, TimeoutError, OSError) as error:
            raise ServiceUnavailable(f"{url}, which has the key, does not answer: {error}") from error


def application(app: App) -> web.Application:
    """The app's own pages and files, for aiohttp."""
    made = web.Application(middlewares=[_answered], **app.conf.web_application_options)
    for path, view in app.web.views.items():
        made.router.add_route("*", path, _handler(view))
    for prefix, folder in app.web.statics.items():
        made.router.add_static(prefix, folder)
    return made


def _handler(view: View) -> Any:
    async def handle(request: web.Request) -> Any:
        return await served(view, request)

    return handle


@web.middleware
async def _answered(request: web.Request, handler: Any) -> Any:
    """An error with a status is an answer in JSON; so is a path that nobody serves."""
    try:
        return await handler(request)
    except WebError as error:
        return _error(int(error.code), {"error": error.detail, **error.extra_context})
    except web.HTTPNotFound:
        if request.match_info.http_exception is None:  # it is what a page raises
            raise
        return _error(404, {"error": f"there is no page {request.path}"})


def _error(status: int, said: dict[str, Any]) -> web.Response:
    headers = {"Retry-After": str(RETRY_AFTER_S)} if status == ServiceUnavailable.code else None
    return web.Response(
        body=dumped(said), status=status, content_type="application/json", charset="utf-8", headers=headers
    )
