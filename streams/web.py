"""What pages are made of: `from isthmus.streams import web`, as `faust.web`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .api import absent
from .api.web import (
    AuthenticationFailed,
    Blueprint,
    MethodNotAllowed,
    NotAcceptable,
    NotAuthenticated,
    NotFound,
    ParseError,
    PermissionDenied,
    ServerError,
    ServiceUnavailable,
    Throttled,
    UnsupportedMediaType,
    ValidationError,
    View,
    Web,
    WebError,
    gives_model,
    takes_model,
)

if TYPE_CHECKING:
    from aiohttp.web import Request, Response

__path__ = ()  # so that `absent.Modules` is asked for Faust's modules below this one
__all__ = [
    "AuthenticationFailed",
    "Blueprint",
    "MethodNotAllowed",
    "NotAcceptable",
    "NotAuthenticated",
    "NotFound",
    "ParseError",
    "PermissionDenied",
    "Request",
    "Response",
    "ServerError",
    "ServiceUnavailable",
    "Throttled",
    "UnsupportedMediaType",
    "ValidationError",
    "View",
    "Web",
    "WebError",
    "gives_model",
    "takes_model",
]


if not TYPE_CHECKING:
    _missing = absent.of_module("web", __all__)

    def __getattr__(name: str) -> Any:
        if name in ("Request", "Response"):  # aiohttp's, which is loaded when it is needed
            import aiohttp.web

            return getattr(aiohttp.web, name)
        return _missing(name)
