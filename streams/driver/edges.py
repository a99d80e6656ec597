"""What people and programs reach an app by, called without a network: its pages, and its commands."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..api.app import App
from ..errors import AppError

if TYPE_CHECKING:
    from aiohttp import web


class Answer(NamedTuple):
    """What a page has answered."""

    status: int
    body: bytes
    headers: Mapping[str, str]

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return json.loads(self.body)


class Pages:
    """The app's own pages. Those that every worker has, such as /metrics, are not among them."""

    def __init__(self, app: App) -> None:
        from ..runtime.webserver import application  # aiohttp takes a tenth of a second to load

        self._app = app
        self._application = application(app)
        self._application.freeze()

    async def answer(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        from aiohttp import StreamReader, hdrs
        from aiohttp.base_protocol import BaseProtocol
        from aiohttp.test_utils import make_mocked_request

        loop = asyncio.get_running_loop()
        payload = StreamReader(BaseProtocol(loop), 2**16, loop=loop)
        payload.feed_data(body)
        payload.feed_eof()
        sent = {hdrs.CONTENT_LENGTH: str(len(body)), **headers} if body else headers
        request = make_mocked_request(method, path, dict(sent), app=self._application, payload=payload)
        return _answer(await self._application._handle(request), path)


def _answer(response: web.StreamResponse, path: str) -> Answer:
    body = getattr(response, "body", None)
    if body is None:
        body = b""
    if not isinstance(body, (bytes, bytearray)):
        raise AppError(f"page {path} answers with {type(response).__name__}, which only a web server can send")
    return Answer(response.status, bytes(body), dict(response.headers))


def run_command(app: App, arguments: Sequence[str], run: Callable[[Coroutine[Any, Any, Any]], Any]) -> str:
    """What a command prints. run: runs its function. Raises AppError for a command line that is refused, and what the
    function raises."""
    from click import ClickException
    from click.testing import CliRunner

    from ...readiness import Readiness
    from ..command.tree import group_of

    result = CliRunner().invoke(
        group_of(app, Readiness(""), lambda command, begin: run(begin())), list(arguments), standalone_mode=False
    )
    if isinstance(result.exception, ClickException):
        raise AppError(f"app {app.id}: {' '.join(arguments)}: {result.exception.format_message()}")
    if result.exception is not None:
        raise result.exception
    return result.output
