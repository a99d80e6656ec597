"""The pages that every worker has: a live view at /, its JSON, tables by key, health and metrics.

`/table` and `/router` are Faust's, with its answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from aiohttp import web

from ..api.app import App
from ..api.routing import ROUTED
from ..api.web import NotFound, ServiceUnavailable, ValidationError, dumped
from .lookup import Forward, Lookup, NoRow, Row
from .status import CONTENT_TYPE, metrics, shown, state, tables, why_not_ready
from .worker import StreamWorker

ROWS_MAX = 1_000  # of a table, in one answer
DIGITS_MAX = 18  # of a number in a request
PAGE = Path(__file__).with_name("page.html")


class Pages:
    """Handlers of aiohttp's, for the pages of one worker."""

    def __init__(self, app: App, worker: StreamWorker | None) -> None:
        self.app = app
        self.worker = worker

    def routes(self) -> Iterator[tuple[str, Any]]:
        """(path, handler); all are GET."""
        conf = self.app.conf
        yield "/", self.index
        yield "/api/status", self.status
        yield "/health", self.health
        if conf.web_metrics_enabled:
            yield "/metrics", self.metrics
        if conf.web_tables_enabled:
            yield "/tables", self.tables
            yield "/tables/{name}", self.table
            yield "/table/", self.table_names
            yield "/table/{name}/", self.table_name
            yield "/table/{name}/{key}/", self.value
            yield "/router/", self.changelogs
            yield "/router/topics", self.inputs
            yield "/router/{name}/", self.changelog
            yield "/router/{name}/{key}/", self.owner

    async def index(self, request: web.Request) -> web.Response:
        return web.Response(body=PAGE.read_bytes(), content_type="text/html", charset="utf-8")

    async def status(self, request: web.Request) -> web.Response:
        return _json(shown(self.app, self.worker))

    async def health(self, request: web.Request) -> web.Response:
        """200 if all tasks run, 503 with the reason otherwise."""
        why = why_not_ready(self.worker)
        return web.Response(text=f"{why or 'ready'}\n", status=503 if why else 200)

    async def metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=metrics(self.app, self.worker).encode(), headers={"Content-Type": CONTENT_TYPE})

    async def tables(self, request: web.Request) -> web.Response:
        return _json(list(tables(self.app, self.worker)))

    async def table(self, request: web.Request) -> web.Response:
        """With ?key=: the row, from the worker that has it, or from a copy that is at most ?max_staleness_ms= old. Else
        rows of this worker, up to ?limit=."""
        name = self._table(request)
        key = request.query.get("key")
        if key is None:
            return self._rows(name, request)
        try:
            found = await self._row(name, key, request)
        except NoRow as error:
            raise NotFound(
                f"table {name} has no row {key}", table=name, key=key, staleness_ms=error.staleness_ms
            ) from None
        return _json({"table": name, **found._asdict(), "worker": self._url()}) if isinstance(found, Row) else found

    async def value(self, request: web.Request) -> web.Response:
        """The value of a key alone; where there is no row, the table's default."""
        name, key = self._table(request), request.match_info["key"]
        try:
            found = await self._row(name, key, request)
        except NoRow:
            default = self.app.all_tables()[name].default
            if default is None:
                raise NotFound("key not found", table=name, key=key) from None
            return _json(default())
        return _json(found.value) if isinstance(found, Row) else found

    async def _row(self, name: str, key: str, request: web.Request) -> Row | web.Response:
        """The row of a key, or what another worker has answered. Raises NoRow."""
        bound_ms = self._bound_ms(request)
        if self.worker is None:
            raise NoRow(0)
        forward = None if ROUTED in request.headers else self._forward(request)
        found: Row | web.Response = await Lookup(self.worker).row(name, key, bound_ms, forward)
        return found

    def _forward(self, request: web.Request) -> Forward | None:
        forward = self.app.router.forward
        return None if forward is None else lambda url: forward(url, request)

    def _bound_ms(self, request: web.Request) -> int | None:
        said = request.query.get("max_staleness_ms")
        if said is None or _is_number(said):
            return None if said is None else int(said)
        raise ValidationError(f"max_staleness_ms is {said!r}, but must be a number of milliseconds")

    def _rows(self, name: str, request: web.Request) -> web.Response:
        said = request.query.get("limit", "100")
        if not _is_number(said) or not 0 < int(said) <= ROWS_MAX:
            raise ValidationError(f"limit is {said!r}, but must be from 1 to {ROWS_MAX}")
        if self.worker is not None:
            Lookup(self.worker).check_session()
        stores = self.worker.stores(name) if self.worker is not None else []
        rows = (
            {"key": key, "value": store.rows[key]} for store in stores for key in list(islice(store.rows, int(said)))
        )
        return _json(
            {
                "table": name,
                "worker": self._url(),
                "state": state(self.worker),
                "rows_here": sum(len(store.rows) for store in stores),
                "rows": list(islice(rows, int(said))),
            }
        )

    async def table_names(self, request: web.Request) -> web.Response:
        return _json([self._named(name) for name in self.app.all_tables()])

    async def table_name(self, request: web.Request) -> web.Response:
        return _json(self._named(self._table(request)))

    def _named(self, table: str) -> dict[str, str]:
        return {"name": table, "help": self.app.all_tables()[table].help}

    async def changelogs(self, request: web.Request) -> web.Response:
        """Which partitions of changelogs each worker has."""
        return _json(self.app.router.tables_metadata())

    async def changelog(self, request: web.Request) -> web.Response:
        return _json(self.app.router.table_metadata(self._table(request)))

    async def inputs(self, request: web.Request) -> web.Response:
        """Which partitions of its input each worker reads."""
        return _json(self.app.router.external_topics_metadata())

    async def owner(self, request: web.Request) -> web.Response:
        """The URL of the worker that has a key."""
        try:
            return _json(self.app.router.key_store(self._table(request), request.match_info["key"]))
        except LookupError as error:
            raise ServiceUnavailable(str(error)) from error

    def _table(self, request: web.Request) -> str:
        name = request.match_info["name"]
        if name not in (known := self.app.all_tables()):
            raise NotFound(f"app {self.app.id} has no table {name}", tables=sorted(known))
        return name

    def _url(self) -> str:
        return self.app.conf.canonical_url


def _is_number(said: str) -> bool:
    return said.isdecimal() and len(said) <= DIGITS_MAX


def _json(value: Any, status: int = 200) -> web.Response:
    return web.Response(body=dumped(value), status=status, content_type="application/json", charset="utf-8")


__all__ = ["ROUTED", "Pages"]
