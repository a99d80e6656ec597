"""Which brokers are alive, as the active controller knows it: when each was heard of last. Nothing of it is in the log.

Kafka's BrokerHeartbeatManager, and two things more. A process that dies closes its connections at once, but is missed
only after the session timeout. So the loss of the connection that brought the last heartbeat sets a second, short
deadline, which the next heartbeat clears; and a process that is found to be gone has no time left. Whoever becomes the
active controller starts all sessions anew. Brokers of Kafka's own have no short deadlines: they look for a new
controller with their next heartbeat only.

Times are loop time, and given by the caller.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from ..features import OUR_VERSION
from ..image import BrokerInfo

SESSION_TIMEOUT_MS = 9_000  # broker.session.timeout.ms
CERTAIN_MS = 2_000  # see `config.certain_session_ms`
LOST_CONNECTION_MS = 300  # in which a broker that lives connects again and sends a heartbeat


@dataclass(slots=True)
class Session:
    """metadata_offset: up to where the broker has applied the metadata log.

    shutdown_offset: the others must have applied the log up to there before the broker may shut down; None if it does
    not mean to. is_ours: by its registration. via: the connection that brought the last heartbeat; None if there is
    none, or none any more. soon_ms: the short deadline, inf while there is none. is_gone: its process is.
    """

    epoch: int
    heard_ms: float
    is_ours: bool
    via: object = None
    metadata_offset: int = -1
    shutdown_offset: int | None = None
    soon_ms: float = math.inf
    is_gone: bool = False


class Sessions:
    """At most one session a registered broker."""

    def __init__(
        self,
        timeout_ms: float = SESSION_TIMEOUT_MS,
        lost_connection_ms: float = LOST_CONNECTION_MS,
        certain_ms: float = CERTAIN_MS,
    ) -> None:
        self.timeout_ms = timeout_ms
        self.lost_connection_ms = lost_connection_ms
        self.certain_ms = certain_ms
        self._by_broker: dict[int, Session] = {}

    def start(self, brokers: Iterable[BrokerInfo], now_ms: float, own_id: int) -> None:
        """This node became the active controller. An earlier process of this node itself is certainly gone.

        The others have no connection to it yet: those that live make one at once, and the last controller may have died
        together with a broker. One that is cut off counts on what it was told last for certain_ms.
        """
        self._by_broker = {
            each.id: _session(each, now_ms, now_ms + self.certain_ms)
            for each in brokers
            if not each.fenced and each.id != own_id
        }

    def heard(self, broker: BrokerInfo, now_ms: float, via: object = None, metadata_offset: int = -1) -> None:
        """A heartbeat came from a registered broker. via: the connection that it came by."""
        session = self._by_broker.get(broker.id)
        if session is None or session.epoch != broker.epoch:
            session = self._by_broker[broker.id] = _session(broker, now_ms)
        session.heard_ms, session.via, session.soon_ms, session.is_gone = now_ms, via, math.inf, False
        session.metadata_offset = metadata_offset

    def lost(self, via: object, now_ms: float) -> list[int]:
        """A connection was closed by its peer, or broke. The ids of the brokers whose last heartbeats came by it."""
        found = [(broker_id, each) for broker_id, each in self._by_broker.items() if each.via is via]
        for _, session in found:
            session.via = None
            session.soon_ms = now_ms + self.lost_connection_ms if session.is_ours else math.inf
        return [broker_id for broker_id, _ in found]

    def gone(self, broker: BrokerInfo) -> bool:
        """The process of a broker is gone. False if a heartbeat has come by a connection that lasts."""
        session = self._of(broker)
        if session is None or session.via is not None:
            return False
        session.is_gone = True
        return True

    def answered(self, broker_id: int, is_fenced: bool, in_controlled_shutdown: bool, offset: int) -> None:
        """A heartbeat was decided. offset: of the last record of that decision."""
        session = self._by_broker.get(broker_id)
        if session is None:
            return
        if is_fenced:
            session.shutdown_offset = None
        elif in_controlled_shutdown and session.shutdown_offset is None:
            session.shutdown_offset = offset

    def is_valid(self, broker: BrokerInfo, now_ms: float) -> bool:
        """Whether a registered broker must be taken for alive."""
        session = self._of(broker)
        return session is not None and now_ms <= self._deadline_ms(session)

    def shutdown_offset(self, broker: BrokerInfo) -> int | None:
        """See Session."""
        session = self._of(broker)
        return None if session is None else session.shutdown_offset

    def metadata_offset(self, broker: BrokerInfo) -> int:
        """Up to where a broker has said that it applied the metadata log; -1 if it has not said so."""
        session = self._of(broker)
        return -1 if session is None else session.metadata_offset

    def next_deadline_ms(self) -> float | None:
        """When the next session ends if nothing is heard; None if there are none."""
        return min(map(self._deadline_ms, self._by_broker.values()), default=None)

    def expired(self, now_ms: float) -> list[tuple[int, int]]:
        """Ids and epochs of the brokers whose sessions are over. Told once; the next heartbeat starts another one."""
        over = [
            (broker_id, session.epoch)
            for broker_id, session in self._by_broker.items()
            if now_ms > self._deadline_ms(session)
        ]
        for broker_id, _ in over:
            del self._by_broker[broker_id]
        return over

    @property
    def ids(self) -> list[int]:
        return list(self._by_broker)

    def _of(self, broker: BrokerInfo) -> Session | None:
        session = self._by_broker.get(broker.id)
        return session if session is not None and session.epoch == broker.epoch else None

    def _deadline_ms(self, session: Session) -> float:
        return -math.inf if session.is_gone else min(session.heard_ms + self.timeout_ms, session.soon_ms)


def _session(broker: BrokerInfo, now_ms: float, soon_ms: float = math.inf) -> Session:
    is_ours = OUR_VERSION in broker.features
    return Session(broker.epoch, now_ms, is_ours, soon_ms=soon_ms if is_ours else math.inf)
