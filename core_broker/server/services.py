"""The parts of a broker that handlers use."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..loggers import Loggers
from .departed import Departed
from .encoded_topics import EncodedTopics

if TYPE_CHECKING:
    from ...runtime import Runtime
    from ..auto_creation import AutoCreation
    from ..broker_channels import BrokerChannels
    from ..cluster.controller import Controller
    from ..cluster.image import MetadataImage
    from ..cluster.quorum.quorum import MetadataQuorum
    from ..config import BrokerConfig
    from ..controller_channel import ControllerChannel
    from ..coordinators.groups import GroupCoordinator
    from ..coordinators.transactions.coordinator import TransactionCoordinator
    from ..purgatory import Purgatory
    from ..replication.manager import ReplicaManager
    from .cold_sends import ColdSends
    from .fetch_sessions import FetchSessions
    from .preparing import Preparing
    from .producer_ids import ProducerIds
    from .verification import Verification

NOBODY = -1

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Services:
    """One for a node. Every handler finds it in its Context.

    channel: the way to the active controller; None where there is no other node, so that it is here. has_session:
    whether what this node knows of its leadership counts, see `Lifecycle.has_session`. peers: the way to other brokers.
    verification: asks the coordinators of transactions, see there.
    """

    config: BrokerConfig
    runtime: Runtime
    image: MetadataImage
    controller: Controller
    replicas: ReplicaManager
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    purgatory: Purgatory
    producer_ids: ProducerIds
    creation: AutoCreation
    fetch_sessions: FetchSessions
    cold_sends: ColdSends
    preparing: Preparing
    quorum: MetadataQuorum
    cluster_id: str
    node_id: int
    has_session: Callable[[], bool]
    peers: BrokerChannels
    verification: Verification
    channel: ControllerChannel | None = None
    loggers: Loggers = field(default_factory=Loggers)
    tasks: dict[asyncio.Task[Any], None] = field(default_factory=dict)
    encoded_topics: EncodedTopics = field(init=False)
    departed: Departed = field(init=False)

    def __post_init__(self) -> None:
        self.encoded_topics = EncodedTopics(self.image)
        self.departed = Departed(self.image)

    def endpoints(self, listener: str, *, with_departed: bool = False) -> list[tuple[int, str, int, str | None]]:
        """(id, host, port, rack) of the living brokers, for clients of a listener. with_departed: see `departed.py`."""
        found = []
        for node, broker in sorted(self.image.brokers.items()):
            endpoint = broker.endpoints.get(listener)
            if endpoint is not None and (not broker.fenced or (with_departed and self.departed.is_named(node))):
                found.append((node, endpoint.host, endpoint.port, broker.rack))
        return found

    def some_broker(self) -> int:
        """A living broker, any: what clients are told as the controller, so that they do not all ask one (KIP-590)."""
        living = [node for node, broker in self.image.brokers.items() if not broker.fenced]
        if len(living) > 1:
            return self.runtime.random.choice(living)
        return living[0] if living else NOBODY

    def controllers(self, listener: str) -> list[tuple[int, str, int]]:
        """(id, host, port) of the controllers that vote, for those who came by a listener."""
        return [
            (voter.key.id, host, port)
            for voter in self.quorum.voters.voters
            for name, host, port in voter.endpoints
            if name == listener
        ]

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> None:
        """Run the work of a request that waits, as for the disk: at most one for a connection."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self.tasks[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        del self.tasks[task]
        if not task.cancelled() and task.exception() is not None:
            log.error("%s failed", task.get_name(), exc_info=task.exception())
