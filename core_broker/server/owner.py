"""What a connection needs of its listener and its server, by types."""

from __future__ import annotations

from typing import Any, Protocol

from ._frames import Shared
from ._route import Route
from .closings import Closings
from .services import Services


class ConnectionOwner(Protocol):
    """The server of a connection. Production has `listener.Server`, whose fields these are."""

    services: Services
    closings: Closings
    unsupported_api_versions: Route
    far_congestion_control: bytes
    turn_bytes: int
    is_draining: bool

    def add(self, connection: Any) -> bool:
        """Take a new connection; False when there are as many as may be."""

    def remove(self, connection: Any) -> None:
        """The connection has ended."""


class ConnectionListener(Protocol):
    """The listener that a connection came by."""

    connections: int  # open ones
    taken: int  # all so far
    shared: Shared

    @property
    def name(self) -> str: ...

    @property
    def server(self) -> ConnectionOwner: ...
