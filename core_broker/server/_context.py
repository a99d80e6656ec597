# cython: auto_pickle=False
"""What a handler is given besides its request."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import cython

if TYPE_CHECKING:
    from ...compiled import Public
    from .services import Services

COMPILED = cython.compiled


@cython.final
@cython.cclass
class Context:
    """The connection that a request came by, and the broker's services.

    One for a connection, which has one request in flight; client_id and version are of that request. listener: the
    name of the listener, which decides the addresses that an answer names. on_lost: called once when the connection is
    lost; None unless a handler has set it. The last one that is set counts.
    """

    services: Public[Services]
    listener: Public[str]
    client_host: Public[str]
    client_id: Public[str]
    version: Public[cython.int]
    on_lost: Public[Callable[[], None] | None]

    def __init__(self, services: Services, listener: str, client_host: str) -> None:
        self.services = services
        self.listener = listener
        self.client_host = client_host
        self.client_id = ""
        self.version = 0
        self.on_lost = None


class CloseConnection(Exception):
    """Raised or answered by a handler to end the connection, as for a produce with acks=0 that fails."""
