"""What a handler is given besides its request: the broker's rooms, and facts of the connection it came by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...runtime import Runtime
    from ..cluster.controller import Controller
    from ..cluster.image import MetadataImage
    from ..config import BrokerConfig
    from ..coordinators.groups import GroupCoordinator
    from ..purgatory import Purgatory
    from ..replication.manager import ReplicaManager
    from .dispatch import Route


@dataclass(slots=True)
class Services:
    """The rooms that handlers use. One for a broker."""

    config: BrokerConfig
    runtime: Runtime
    image: MetadataImage
    controller: Controller
    replicas: ReplicaManager
    groups: GroupCoordinator
    purgatory: Purgatory
    routes: dict[int, Route]  # by api key << 16 | version
    cluster_id: str
    node_id: int


class Context:
    """One for a connection, which has one request in flight; `version` and `client_id` are of that request."""

    __slots__ = ("client_host", "client_id", "listener", "services", "version")

    def __init__(self, services: Services, listener: str, client_host: str) -> None:
        self.services = services
        self.listener = listener  # name of the listener, which decides the addresses an answer tells
        self.client_host = client_host
        self.client_id = ""
        self.version = 0


class CloseConnection(Exception):
    """A handler's way to answer with the end of the connection, as an acks=0 produce that fails does."""


Handler = Callable[[Any, Context], Any]  # (request, context) -> Response | Pending | None
