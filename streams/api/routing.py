"""Requests about a key are answered by the worker that has it: `@app.table_route` and `@app.topic_route`.

Each worker tells the others its URL, `canonical_url`, when it joins the group.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import AppError
from . import absent
from .web import Handler, ServiceUnavailable, ValidationError, View, named_as

if TYPE_CHECKING:
    from aiohttp.web import Request

log = logging.getLogger("isthmus.streams")

ROUTED = "X-Isthmus-Routed"  # a header: another worker has routed the request here, so that none goes round in circles


ByUrl = dict[str, dict[str, list[int]]]  # of a worker -> topic -> partitions


class NoOwner(LookupError):
    """No worker is known that has the key: a rebalance goes on, or the owner has no web server."""


class Owners(Protocol):
    """Finds who has a key. The URL of its worker; None: this one. Raises NoOwner."""

    def owner_url(self, table: str, key: Any) -> str | None: ...

    def topic_owner_url(self, topic: str, key: Any) -> str | None: ...

    def changelogs(self) -> ByUrl: ...

    def inputs(self) -> ByUrl: ...


class Forward(Protocol):
    """Has another worker answer a request."""

    async def __call__(self, url: str, request: Request) -> Any: ...


class Router:
    """`app.router`. owners, forward: set by the web server of a worker."""

    def __init__(self, app: Any) -> None:
        self.owners: Owners | None = None
        self.forward: Forward | None = None
        self._app = app

    def key_store(self, table_name: str, key: Any) -> str:
        """The URL of the worker that has the row of a key; of this one where no worker runs. Raises NoOwner."""
        return self.owner_url(table_name, key) or self._url

    def external_topic_key_store(self, topic: Any, key: Any) -> str:
        """The URL of the worker that reads the records of a key. Raises NoOwner."""
        return self.topic_owner_url(topic.get_topic_name(), key) or self._url

    def tables_metadata(self) -> ByUrl:
        """Which partitions of changelogs each worker has."""
        return {} if self.owners is None else self.owners.changelogs()

    def table_metadata(self, table_name: str) -> ByUrl:
        """`tables_metadata` of one table."""
        changelog = self._app.changelog_topic(table_name)
        found = {url: topics[changelog] for url, topics in self.tables_metadata().items() if changelog in topics}
        return {url: {changelog: partitions} for url, partitions in found.items()}

    def external_topics_metadata(self) -> ByUrl:
        """Which partitions of its input each worker reads."""
        return {} if self.owners is None else self.owners.inputs()

    if not TYPE_CHECKING:  # type checkers know what there is

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(absent.said("Router", name, dir(type(self))))

    @property
    def _url(self) -> str:
        url: str = self._app.conf.canonical_url
        return url

    def owner_url(self, table: str, key: Any) -> str | None:
        """`key_store`; None: this worker has it."""
        return None if self.owners is None else self.owners.owner_url(table, key)

    def topic_owner_url(self, topic: str, key: Any) -> str | None:
        """`external_topic_key_store` of the topic of this name; None: this worker reads them."""
        return None if self.owners is None else self.owners.topic_owner_url(topic, key)

    async def routed(self, find: Callable[[], str | None], request: Request) -> Any | None:
        """The answer of the owner; None: this worker is the owner. Raises ServiceUnavailable where none is known."""
        try:
            url = find()
        except NoOwner as error:
            raise ServiceUnavailable(str(error)) from error
        if url is None:
            return None
        if ROUTED in request.headers or self.forward is None:
            raise ServiceUnavailable(f"the key has gone to {url}: try again later")
        return await self.forward(url, request)


def key_of(
    shard_param: str | None, query_param: str | None, match_info: str | None, exact_key: str | None
) -> Callable[[Request], str]:
    """How to find the key in a request. Raises AppError unless one way is said."""
    query = query_param or shard_param
    ways = [each for each in (query, match_info, exact_key) if each]
    if len(ways) != 1 or (shard_param and query_param):
        raise AppError("a route needs one of query_param=, match_info= or exact_key=")

    def find(request: Request) -> str:
        if exact_key:
            return exact_key
        if match_info:
            return str(request.match_info[match_info])
        assert query is not None
        if query not in request.query:
            raise ValidationError(f"the request has no ?{query}=")
        return str(request.query[query])

    return find


def route(router: Router, find: Callable[[str], str | None], key: Callable[[Request], str]) -> Callable[[Handler], Any]:
    """Decorates a handler. find: whose a key is."""

    def decorate(function: Handler) -> Handler:
        async def called(view: View, request: Request, *args: Any, **matched: Any) -> Any:
            wanted = key(request)
            answer = await router.routed(lambda: find(wanted), request)
            return await function(view, request, *args, **matched) if answer is None else answer

        made: Handler = named_as(called, function)
        return made

    return decorate
