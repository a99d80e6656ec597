"""What pages are made of: `from isthmus.streams import web`, as `faust.web`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .api.web import (
    Blueprint,
    MethodNotAllowed,
    NotAuthenticated,
    NotFound,
    ParseError,
    PermissionDenied,
    ServerError,
    ServiceUnavailable,
    ValidationError,
    View,
    Web,
    WebError,
    gives_model,
    takes_model,
)

if TYPE_CHECKING:
    from aiohttp.web import Request, Response

__all__ = [
    "Blueprint",
    "MethodNotAllowed",
    "NotAuthenticated",
    "NotFound",
    "ParseError",
    "PermissionDenied",
    "Request",
    "Response",
    "ServerError",
    "ServiceUnavailable",
    "ValidationError",
    "View",
    "Web",
    "WebError",
    "gives_model",
    "takes_model",
]


def __getattr__(name: str) -> Any:
    if name in ("Request", "Response"):  # aiohttp's, which is loaded when it is needed
        import aiohttp.web

        return getattr(aiohttp.web, name)
    raise AttributeError(f"isthmus.streams.web has no {name}")
