"""What the active controller does without being asked: it fences brokers whose sessions are over, and has preferred
replicas lead again. The timers of `sessions.py` and `balance_leaders.py`, and the probes of brokers that may be gone;
nothing is decided here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from ...config import BrokerConfig, certain_session_ms
from ..image import BrokerInfo, MetadataImage
from .balance_leaders import Balanced, BalanceLeaders, ElectUncleanLeaders
from .broker_heartbeat import BrokerHeartbeat, HeartbeatResult
from .common import Command, Item
from .fence_broker import FenceBroker
from .sessions import Sessions
from .update_features import Activate, is_active

UNCLEAN_CHECK_S = 300.0  # between two looks for partitions that only an unclean election can help
SESSIONS = "sessions"  # the timer of the next session that ends
RETRY_S = 1.0  # until what could not be decided is tried again: that a broker is fenced, or the levels of features

IsGone = Callable[[BrokerInfo], Awaitable[bool]]
Submit = Callable[[Command, Callable[[Any], None]], None]

log = logging.getLogger(__name__)


class Watch:
    """It runs from `start` to `stop`, while this node is the active controller.

    submit: the controller's. is_gone: whether the process of a broker is gone, for certain; see `probe.py`.
    """

    def __init__(self, image: MetadataImage, config: BrokerConfig, submit: Submit, is_gone: IsGone) -> None:
        self.sessions = Sessions(
            config["broker.session.timeout.ms"], config["broker.lost.connection.timeout.ms"], certain_session_ms(config)
        )
        self._image = image
        self._config = config
        self._submit = submit
        self._is_gone = is_gone
        self._probes: dict[int, asyncio.Task[None]] = {}  # by broker id
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self.is_running = False

    def follow(self, is_active: bool) -> None:
        """Whether this node is the active controller now."""
        if is_active != self.is_running:
            self.start() if is_active else self.stop()

    def start(self) -> None:
        """This node became the active controller: all sessions start anew."""
        self.stop()
        self.is_running = True
        self.sessions.start(self._image.brokers.values(), now_ms(), self._config["node.id"])
        self._activate()
        for broker_id in self.sessions.ids:
            self._probe(broker_id)
        self._arm()
        self._later("balance", self._config["leader.imbalance.check.interval.seconds"], self._balance)
        self._later("unclean", UNCLEAN_CHECK_S, self._elect_unclean)

    def stop(self) -> None:
        """Another node is the active controller, or this one stops."""
        self.is_running = False
        for timer in self._timers.values():
            timer.cancel()
        self._timers = {}
        for probe in self._probes.values():
            probe.cancel()
        self._probes = {}

    def heartbeat(
        self, command: BrokerHeartbeat, answer: Callable[[HeartbeatResult], None], via: object = None
    ) -> None:
        """A heartbeat came. It counts from now on, whenever it is decided. via: the connection that it came by."""
        broker = self._image.brokers.get(command.broker_id)
        if broker is not None and broker.epoch == command.broker_epoch:
            self.sessions.heard(broker, now_ms(), via, command.metadata_offset)
            if SESSIONS not in self._timers:
                self._arm()

        def decided(result: HeartbeatResult) -> None:
            if not result.error_code:
                offset = self._image.offset
                self.sessions.answered(
                    command.broker_id, result.is_fenced, result.in_controlled_shutdown, offset
                )  # fmt: skip
            answer(result)

        self._submit(command, decided)

    def connection_lost(self, via: object) -> None:
        """A connection was closed. If the last heartbeat of a broker came by it, the broker may be gone."""
        lost = self.sessions.lost(via, now_ms())
        for broker_id in lost:
            self._probe(broker_id)
        if lost:
            self._arm()

    def _probe(self, broker_id: int) -> None:
        """Find out whether the process of a broker is gone. One probe at a time to a broker."""
        broker = self._image.brokers.get(broker_id)
        if broker is None or broker_id in self._probes or not self.is_running:
            return

        async def ask() -> None:
            if await self._is_gone(broker) and self.sessions.gone(broker):
                self._expire()

        def done(task: asyncio.Task[None]) -> None:
            if self._probes.get(broker_id) is task:
                del self._probes[broker_id]

        task = self._probes[broker_id] = asyncio.get_running_loop().create_task(ask(), name="probe of a broker")
        task.add_done_callback(done)

    def _arm(self) -> None:
        """Look again when the next session ends."""
        deadline_ms = self.sessions.next_deadline_ms()
        if deadline_ms is not None:
            # A little after it, since a session is valid up to its deadline.
            self._later(SESSIONS, (deadline_ms - now_ms()) / 1000 + 0.001, self._expire)

    def _expire(self) -> None:
        for broker_id, epoch in self.sessions.expired(now_ms()):
            broker = self._image.brokers.get(broker_id)
            if broker is not None and broker.epoch == epoch and not broker.fenced:
                log.info("broker %d at epoch %d is fenced: nothing was heard of it", broker_id, epoch)
                self._fence(broker_id, epoch)
        self._arm()

    def _fence(self, broker_id: int, epoch: int) -> None:
        def decided(result: Item) -> None:
            if result.error_code and self.is_running:
                log.error("broker %d cannot be fenced: %s", broker_id, result.error_message)
                self._later(f"fence {broker_id}", RETRY_S, lambda: self._fence(broker_id, epoch))

        self._submit(FenceBroker(broker_id, epoch), decided)

    def _activate(self) -> None:
        """Finalize the levels of a new cluster's features."""
        if is_active(self._image):
            return

        def decided(result: Item) -> None:
            if result.error_code and self.is_running:
                log.info("the levels of the cluster's features cannot be finalized: %s", result.error_message)
                self._later("activate", RETRY_S, self._activate)

        self._submit(Activate(), decided)

    def _balance(self) -> None:
        def decided(result: Balanced) -> None:
            wait_s = 0 if result.is_rest else self._config["leader.imbalance.check.interval.seconds"]
            self._later("balance", wait_s, self._balance)

        if self._image.index.imbalanced and self._config["auto.leader.rebalance.enable"]:
            self._submit(BalanceLeaders(), decided)
        else:
            decided(Balanced())

    def _elect_unclean(self) -> None:
        def decided(result: Balanced) -> None:
            self._later("unclean", 0 if result.is_rest else UNCLEAN_CHECK_S, self._elect_unclean)

        if self._image.index.leaderless:
            self._submit(ElectUncleanLeaders(), decided)
        else:
            decided(Balanced())

    def _later(self, name: str, seconds: float, do: Callable[[], None]) -> None:
        """Do something once, in the place of what is still to be done under that name: by an earlier term, too."""
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()
        if self.is_running:
            self._timers[name] = asyncio.get_running_loop().call_later(seconds, self._due, name, do)

    def _due(self, name: str, do: Callable[[], None]) -> None:
        del self._timers[name]
        do()


def now_ms() -> float:
    return asyncio.get_running_loop().time() * 1000
