"""BrokerHeartbeat: a broker says that it lives, up to where it knows the metadata, and what it means to do.

It is unfenced once it knows its own registration, and that it was fenced: one that hung would otherwise take itself for
the leader of what it led, and its session for one that goes on. In Kafka its registration is enough. One that wants to
stop is asked to wait until it leads nothing and until the others know that (KIP-631, KIP-841). `_next` is the table of
Kafka's BrokerHeartbeatManager.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ....protocol.errors import KafkaError
from ....protocol.messages.metadata_records import BrokerRegistrationChangeRecord
from ..features import CORDONED, LATEST, METADATA_VERSION
from ..image import BrokerInfo
from .common import Decision, Item, View, registered
from .leadership import directories_lost, fenced, shutting_down, unfenced


class ControlState(Enum):
    """Where a broker stands with the controller."""

    FENCED = "it may not lead"
    UNFENCED = "it may lead"
    CONTROLLED_SHUTDOWN = "it gives away what it leads"
    SHUTDOWN_NOW = "it leads nothing and may stop"


@dataclass(slots=True)
class HeartbeatResult(Item):
    """is_caught_up: the broker knows its own registration. It stops as soon as should_shut_down is true."""

    is_caught_up: bool = False
    is_fenced: bool = True
    in_controlled_shutdown: bool = False
    should_shut_down: bool = False


@dataclass(slots=True, frozen=True)
class BrokerHeartbeat:
    """metadata_offset: of the last metadata record that the broker has applied. Result: a HeartbeatResult.

    cordoned_log_dirs: None if the broker does not say.
    """

    broker_id: int
    broker_epoch: int
    metadata_offset: int
    want_fence: bool = False
    want_shut_down: bool = False
    offline_log_dirs: Sequence[bytes] = ()
    cordoned_log_dirs: Sequence[bytes] | None = None

    def decide(self, view: View) -> Decision:
        broker = registered(view.image, self.broker_id, self.broker_epoch)
        is_caught_up = self.metadata_offset >= broker.epoch
        now = _state(broker, view)
        after = self._next(now, broker, view, is_caught_up)
        records: list[Any] = []
        if after is not now:
            match after:
                case ControlState.FENCED | ControlState.SHUTDOWN_NOW:
                    records += fenced(view, broker)
                case ControlState.UNFENCED:
                    records += unfenced(view, broker)
                case ControlState.CONTROLLED_SHUTDOWN:
                    records += shutting_down(view, broker)
        records += self._directories(view, broker)
        result = HeartbeatResult(
            is_caught_up=is_caught_up,
            is_fenced=after in (ControlState.FENCED, ControlState.SHUTDOWN_NOW),
            in_controlled_shutdown=after is ControlState.CONTROLLED_SHUTDOWN,
            should_shut_down=after is ControlState.SHUTDOWN_NOW,
        )
        return Decision(result, records)

    def _next(self, now: ControlState, broker: BrokerInfo, view: View, is_caught_up: bool) -> ControlState:
        leads = broker.id in view.image.index.led
        match now:
            case ControlState.FENCED:
                if self.want_shut_down:
                    return ControlState.SHUTDOWN_NOW
                knows = is_caught_up and self.metadata_offset >= broker.fenced_at
                return ControlState.UNFENCED if knows and not self.want_fence else ControlState.FENCED
            case ControlState.UNFENCED:
                if self.want_fence:
                    return ControlState.SHUTDOWN_NOW if self.want_shut_down else ControlState.FENCED
                if self.want_shut_down:
                    return ControlState.CONTROLLED_SHUTDOWN if leads else ControlState.SHUTDOWN_NOW
                return ControlState.UNFENCED
            case _:
                offset = view.sessions.shutdown_offset(broker)
                all_know = offset is not None and offset <= _known_to_all(view)
                return ControlState.SHUTDOWN_NOW if all_know and not leads else ControlState.CONTROLLED_SHUTDOWN

    def _directories(self, view: View, broker: BrokerInfo) -> list[Any]:
        """What changes for directories that went offline, or that shall get no more partitions (KIP-858, KIP-1066)."""
        records: list[Any] = []
        offline = [each for each in broker.log_dirs if each in self.offline_log_dirs]
        if offline:
            records += directories_lost(view, broker, offline)
            online = [each for each in broker.log_dirs if each not in offline]
            records.append(
                BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, log_dirs=online)
            )
        level = view.image.features.get(METADATA_VERSION, LATEST)
        cordoned = self.cordoned_log_dirs if level >= CORDONED else None
        if cordoned is not None and tuple(sorted(cordoned)) != broker.cordoned_log_dirs:
            records.append(
                BrokerRegistrationChangeRecord(
                    broker_id=broker.id, broker_epoch=broker.epoch, cordoned_log_dirs=list(cordoned)
                )
            )
        return records

    def fail(self, error: KafkaError) -> HeartbeatResult:
        return HeartbeatResult(error.code, error.message)


def _state(broker: BrokerInfo, view: View) -> ControlState:
    if broker.fenced:
        return ControlState.FENCED
    stops = view.sessions.shutdown_offset(broker) is not None
    return ControlState.CONTROLLED_SHUTDOWN if stops else ControlState.UNFENCED


def _known_to_all(view: View) -> float:
    """The offset up to which every broker that may lead has applied the metadata log."""
    sessions = view.sessions
    active = (
        sessions.metadata_offset(each)
        for each in view.image.brokers.values()
        if not each.fenced and sessions.shutdown_offset(each) is None
    )
    return min(active, default=float("inf"))
