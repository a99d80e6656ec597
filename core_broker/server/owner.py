"""What a connection needs of the listener and the server that it belongs to, by types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from .buffers import Buffers
from .closings import Closings
from .context import Context, Services
from .dispatch import Route


class ConnectionOwner(Protocol):
    """The server of a connection. Production has `listener.Server`, whose fields these are."""

    services: Services
    scratch: memoryview
    buffers: Buffers
    closings: Closings
    unsupported_api_versions: Route
    far_congestion_control: bytes
    turn_bytes: int
    tick: int
    is_draining: bool
    clock: Callable[[], int] | None
    tell: Callable[[Route, int, Context, int], None] | None

    def add(self, connection: Any) -> bool:
        """Take a new connection; False when there are as many as may be."""

    def remove(self, connection: Any) -> None:
        """The connection has ended."""

    def held(self, connection: Any, delta_bytes: int) -> None:
        """The memory of half-read requests grew or shrank."""


class ConnectionListener(Protocol):
    """The listener that a connection came by."""

    connections: int  # open ones
    taken: int  # all so far

    @property
    def name(self) -> str: ...

    @property
    def server(self) -> ConnectionOwner: ...
