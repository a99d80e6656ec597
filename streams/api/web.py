"""Pages of an app: views, blueprints and answers, with Faust's names. Declarations; `runtime/web.py` serves them.

    @app.page("/count/{word}/")
    @app.table_route(table=word_counts, match_info="word")
    async def get_count(web, request, word):
        return web.json({word: word_counts[word]})

A handler gets its view, the request of aiohttp, and what the path matched. aiohttp is loaded with the first answer.
"""

from __future__ import annotations

import importlib
import inspect
import json
import logging
import math
import traceback
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from ..engine.codecs import json_default
from ..engine.key_text import bytes_text
from ..errors import AppError
from . import absent

if TYPE_CHECKING:
    from aiohttp.web import Request, Response

log = logging.getLogger("isthmus.streams")

METHODS = ("head", "get", "post", "patch", "delete", "put", "options", "search")
Handler = Callable[..., Awaitable[Any]]
_bytes = bytes  # `View` has a method of this name


class WebError(Exception):
    """An answer with a status: `raise self.NotFound("no such user")`. What is given by name goes into the answer."""

    code: int = 500
    detail: str = "Internal server error."

    def __init__(self, detail: str | None = None, *, code: int | None = None, **more: Any) -> None:
        super().__init__(detail or self.detail)
        self.detail = detail or self.detail
        self.code = code or self.code
        self.extra_context = more


class ServerError(WebError): ...


class ValidationError(WebError):
    code, detail = HTTPStatus.BAD_REQUEST, "Invalid input."


class ParseError(WebError):
    code, detail = HTTPStatus.BAD_REQUEST, "Malformed request."


class NotAuthenticated(WebError):
    code, detail = HTTPStatus.UNAUTHORIZED, "Authentication credentials were not provided."


class PermissionDenied(WebError):
    code, detail = HTTPStatus.FORBIDDEN, "You do not have permission to perform this action."


class NotFound(WebError):
    code, detail = HTTPStatus.NOT_FOUND, "Not found."


class MethodNotAllowed(WebError):
    code, detail = HTTPStatus.METHOD_NOT_ALLOWED, "Method not allowed."


class AuthenticationFailed(WebError):
    code, detail = HTTPStatus.UNAUTHORIZED, "Incorrect authentication credentials"


class NotAcceptable(WebError):
    code, detail = HTTPStatus.NOT_ACCEPTABLE, "Could not satisfy the request Accept header."


class UnsupportedMediaType(WebError):
    code, detail = HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Unsupported media type in request."


class Throttled(WebError):
    code, detail = HTTPStatus.TOO_MANY_REQUESTS, "Request was throttled."


class ServiceUnavailable(WebError):
    code, detail = HTTPStatus.SERVICE_UNAVAILABLE, "Service unavailable. Try again later."


# --- Answers ----------------------------------------------------------------------------------------


def dumped(value: Any) -> _bytes:
    """JSON; keys may be of any type, records are objects, and bytes are text."""
    try:
        return orjson.dumps(value, default=_plain, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_UTC_Z)
    except TypeError:  # an integer, a text or a key that JSON has and orjson does not
        return json.dumps(_parts(value)).encode()


def _plain(value: Any) -> Any:
    for name in ("to_representation", "asdict", "model_dump"):
        if hasattr(value, name):
            return getattr(value, name)()
    if isinstance(value, (_bytes, bytearray, memoryview)):
        return bytes_text(_bytes(value))
    if isinstance(value, Mapping):
        return {bytes_text(key) if isinstance(key, _bytes) else key: each for key, each in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=repr)
    return json_default(value)


def _parts(value: Any) -> Any:
    """What `json` writes. Raises TypeError for what JSON cannot hold."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (list, tuple)):
        return [_parts(each) for each in value]
    if isinstance(value, dict):
        return {_name(_parts(key)): _parts(each) for key, each in value.items()}
    try:
        return orjson.loads(orjson.dumps(value, option=orjson.OPT_UTC_Z))
    except TypeError:
        return _parts(_plain(value))


def _name(key: Any) -> str:
    return key if isinstance(key, str) else json.dumps(key)


def answer(
    body: _bytes, content_type: str, status: int, reason: str | None, headers: Any, charset: str | None = "utf-8"
) -> Response:
    from aiohttp.web import Response

    return Response(
        body=body, status=status, reason=reason, headers=headers, content_type=content_type, charset=charset
    )


class Answers:
    """What `web.json(…)` and its like make, of a view and of `app.web`."""

    def text(
        self,
        value: str,
        *,
        content_type: str | None = None,
        status: int = 200,
        reason: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        return answer(value.encode(), content_type or "text/plain", status, reason, headers)

    def html(
        self,
        value: str,
        *,
        content_type: str | None = None,
        status: int = 200,
        reason: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        return answer(value.encode(), content_type or "text/html", status, reason, headers)

    def json(
        self,
        value: Any,
        *,
        content_type: str | None = None,
        status: int = 200,
        reason: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        return answer(dumped(value), content_type or "application/json", status, reason, headers)

    def bytes(
        self,
        value: _bytes,
        *,
        content_type: str | None = None,
        status: int = 200,
        reason: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        return answer(value, content_type or "application/octet-stream", status, reason, headers, charset=None)


# --- Views ------------------------------------------------------------------------------------------


class View(Answers):
    """A page: methods `get`, `post` and so on, which are async and take the request and what the path matched."""

    ServerError = ServerError
    ValidationError = ValidationError
    ParseError = ParseError
    NotAuthenticated = NotAuthenticated
    PermissionDenied = PermissionDenied
    NotFound = NotFound

    view_name: str = ""
    view_path: str = ""

    @classmethod
    def from_handler(cls, function: Handler) -> type[View]:
        """A view whose `get` is this function."""
        if not callable(function):
            raise AppError(f"a page needs a view or an async function, not {function!r}")
        made = {"get": function, "__doc__": function.__doc__, "__module__": function.__module__}
        return type(function.__name__, (cls,), made)

    def __init__(self, app: Any, web: Web) -> None:
        self.app = app
        self.web = web
        self.__post_init__()

    def __post_init__(self) -> None:
        """For subclasses."""

    if not TYPE_CHECKING:  # type checkers know what there is

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(absent.said("View", name, dir(type(self))))

    def get_methods(self) -> set[str]:
        """The HTTP methods that it has."""
        found = {each.upper() for each in METHODS if getattr(self, each, None) is not None}
        return found | {"HEAD"} if "GET" in found else found

    async def __call__(self, request: Request) -> Any:
        return await self.dispatch(request)

    async def dispatch(self, request: Request) -> Any:
        """Answer a request."""
        name = request.method.lower()
        handler = getattr(self, name, None) if name in METHODS else None
        if handler is None and name == "head":
            handler = getattr(self, "get", None)
        try:
            if handler is None:
                raise MethodNotAllowed(f"Method {request.method} not allowed.")
            return await handler(request, **request.match_info)
        except WebError as error:
            return await self.on_request_error(request, error)

    async def on_request_error(self, request: Request, error: WebError) -> Any:
        """The answer for a WebError."""
        allowed = {"Allow": ",".join(sorted(self.get_methods()))} if isinstance(error, MethodNotAllowed) else None
        return self.error(error.code, error.detail, allowed, **error.extra_context)

    def error(self, status: int, reason: str, headers: Mapping[str, str] | None = None, **more: Any) -> Response:
        return self.json({"error": reason, **more}, status=int(status), headers=headers)

    def notfound(self, reason: str = "Not Found", **more: Any) -> Response:
        return self.error(404, reason, **more)

    def path_for(self, view_name: str, **matched: Any) -> str:
        """The path of a view."""
        return self.web.url_for(view_name, **matched)

    def url_for(self, view_name: str, _base_url: str | None = None, **matched: Any) -> str:
        """The URL of a view, at this worker unless another one's URL is given."""
        base = _base_url or self.app.conf.canonical_url
        return f"{base.rstrip('/')}/{self.path_for(view_name, **matched).lstrip('/')}"

    async def read_request_content(self, request: Request) -> _bytes:
        return await request.read()


def takes_model(model: Any) -> Callable[[Handler], Handler]:
    """Decorates a handler that gets the request's body as a record, after the request."""

    def decorate(function: Handler) -> Handler:
        async def called(view: View, request: Request, *args: Any, **matched: Any) -> Any:
            try:
                value = model.loads(await request.read(), serializer="json")
            except ValueError as error:
                raise ValidationError(str(error)) from error
            return await function(view, request, value, *args, **matched)

        return named_as(called, function)

    return decorate


def gives_model(model: Any) -> Callable[[Handler], Handler]:
    """Decorates a handler that returns a record."""

    def decorate(function: Handler) -> Handler:
        async def called(view: View, request: Request, *args: Any, **matched: Any) -> Any:
            return view.json(await function(view, request, *args, **matched))

        return named_as(called, function)

    return decorate


def named_as(called: Any, function: Any) -> Any:
    called.__name__ = function.__name__
    called.__doc__ = function.__doc__
    called.__module__ = function.__module__
    return called


# --- What an app has --------------------------------------------------------------------------------


class Blueprint:
    """Views that can be registered to an app, or to several, below a prefix."""

    def __init__(self, name: str, *, url_prefix: str | None = None) -> None:
        self.name = name
        self.url_prefix = url_prefix
        self._routes: list[tuple[str, str, Any, type[View]]] = []
        self._static: list[tuple[str, Path]] = []

    def route(
        self, uri: str, *, name: str | None = None, base: type[View] = View, cors_options: Any = None
    ) -> Callable[[Any], Any]:
        """Decorates a view or a handler."""
        no_cors(uri, cors_options)

        def decorate(handler: Any) -> Any:
            self._routes.append((uri, name or handler.__name__, handler, base))
            return handler

        return decorate

    def static(self, uri: str, file_or_directory: str | Path, *, name: str | None = None) -> None:
        """Serve a folder."""
        self._static.append((uri, Path(file_or_directory)))

    def register(self, app: Any, *, url_prefix: str | None = None) -> None:
        """Add its views to an app."""
        prefix = url_prefix or self.url_prefix or ""
        for uri, name, handler, base in self._routes:
            app.web.add_page(_joined(prefix, uri), handler, name=f"{self.name}:{name}", base=base)
        for uri, folder in self._static:
            app.web.add_static(_joined(prefix, uri), folder)

    if not TYPE_CHECKING:  # type checkers know what there is

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(absent.said("Blueprint", name, dir(type(self))))

    def __repr__(self) -> str:
        return f"<Blueprint {self.name}>"


def no_cors(path: str, options: Any) -> None:
    """Raises AppError for options that Faust's pages take."""
    if options:
        raise AppError(
            f"page {path}: cors_options= is not possible: set the headers in the view, or give a middleware by "
            "web_application_options"
        )


def _joined(prefix: str, uri: str) -> str:
    return f"{prefix.rstrip('/')}/{uri.lstrip('/')}" if prefix else uri


class Blueprints:
    """`app.web.blueprints`."""

    def __init__(self, app: Any) -> None:
        self._app = app

    def add(self, prefix: str, blueprint: Blueprint | str) -> None:
        """Register one, or the one of this name: `module:name`, `module.name`."""
        if isinstance(blueprint, str):
            module, _, name = blueprint.replace(":", ".").rpartition(".")
            blueprint = getattr(importlib.import_module(module), name)
        if not isinstance(blueprint, Blueprint):
            raise AppError(f"app.web.blueprints takes a Blueprint, not {blueprint!r}")
        blueprint.register(self._app, url_prefix=prefix)


class Web(Answers):
    """`app.web`: all pages that the app has declared."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.blueprints = Blueprints(app)
        self.views: dict[str, View] = {}  # by path
        self.statics: dict[str, Path] = {}
        self.is_replaced = False  # by an ASGI application, at the same port
        self._paths: dict[str, str] = {}  # by the name of the view

    @property
    def url(self) -> str:
        """Of this worker."""
        url: str = self.app.conf.canonical_url
        return url

    def add_page(self, path: str, handler: Any, *, name: str | None = None, base: type[View] = View) -> type[View]:
        """A view class, or a function that is the `get` of one. Raises AppError for a path that is taken."""
        if not path.startswith("/"):
            raise AppError(f"the path of a page begins with a slash: write '/{path}'")
        if path in self.views:
            raise AppError(f"app {self.app.conf.name} has two pages at {path}")
        if inspect.isclass(handler):
            if not issubclass(handler, View):
                raise AppError(f"@app.page takes a subclass of View or an async function, not {handler.__name__}")
            view = handler
        else:
            view = base.from_handler(handler)
        view.view_name, view.view_path = name or view.__name__, path
        self.views[path] = view(self.app, self)
        self._paths[view.view_name] = path
        return view

    def add_view(self, view: type[View], **_: Any) -> View:
        """Add a view class that knows its path."""
        self.add_page(view.view_path, view, name=view.view_name)
        return self.views[view.view_path]

    def add_static(self, prefix: str, path: Path | str, **_: Any) -> None:
        """Serve a folder below a prefix."""
        self.statics[prefix] = Path(path)

    def route(self, pattern: str, handler: Handler, **_: Any) -> None:
        """Call this with the request alone."""

        async def get(view: View, request: Request, **matched: Any) -> Any:
            return await handler(request)

        self.add_page(pattern, named_as(get, handler))

    def url_for(self, view_name: str, **matched: Any) -> str:
        """The path of a view. Raises KeyError for one that is not there."""
        if view_name not in self._paths:
            raise KeyError(f"there is no view {view_name!r}; there are {', '.join(sorted(self._paths))}")
        path = self._paths[view_name]
        for name, value in matched.items():
            path = path.replace(f"{{{name}}}", _quoted(value))
        return path


def _quoted(value: Any) -> str:
    from urllib.parse import quote

    return quote(str(value), safe="")


async def served(view: View, request: Request) -> Any:
    """The answer of a view; an error of its code is logged, and an answer, too."""
    from aiohttp.web import HTTPException

    try:
        return await view.dispatch(request)
    except HTTPException:
        raise
    except Exception as error:
        log.exception("page %s failed", request.path)
        more: dict[str, Any] = {"traceback": traceback.format_exc()} if view.app.conf.debug else {}
        return view.error(500, f"{type(error).__name__}: {error}" if more else ServerError.detail, **more)
