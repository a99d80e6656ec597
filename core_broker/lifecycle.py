"""How this broker belongs to its cluster: it registers, says that it lives, and leads no more before it stops.

The controller gives each process of a broker an epoch of its own, by which all know an earlier process from it. It is
fenced, so that it leads nothing, until it serves and knows the cluster's state. Then heartbeats keep its session
(KIP-631). As long as nothing changes there is one in each broker.heartbeat.interval.ms, or two in a session.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages import broker_heartbeat, broker_registration
from .cluster.image import Endpoint, MetadataImage
from .config import BrokerConfig, certain_session_ms
from .pauses import Pauses

log = logging.getLogger(__name__)

SOON_S = 0.02  # between heartbeats while this broker waits to be unfenced, or to stop
RETRY_S = 0.5  # after a registration that was refused
LOST_REGISTRATION = (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED)
FATAL = (  # a registration that fails with these fails for ever, or until somebody has made room for the metadata log
    ErrorCode.INCONSISTENT_CLUSTER_ID,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.INVALID_REGISTRATION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.KAFKA_STORAGE_ERROR,
)

Ask = Callable[[Any, float], Awaitable[Any]]  # (request, timeout in ms) -> the controller's answer; raises KafkaError


def knows(image: MetadataImage, broker_epoch: int) -> bool:
    """Whether an image has a process's registration, before which what the last one led is led under another epoch."""
    return image.offset >= broker_epoch


class Lifecycle:
    """ask: sends to the active controller, on a channel of its own: no other request may hold up a heartbeat.
    metadata_changed: returns when more may have been applied.

    broker_epoch: of this process, -1 before it is registered. previous_epoch: of the process before it if nothing that
    it had written is lost, else -1. keep_epoch: saves the new one, and the incarnation's id, for the next start.
    directory_id: 16 bytes.
    """

    def __init__(
        self,
        node_id: int,
        image: MetadataImage,
        config: BrokerConfig,
        ask: Ask,
        *,
        metadata_changed: Callable[[], Awaitable[None]],
        incarnation_id: bytes,
        directory_id: bytes,
        endpoints: Mapping[str, Endpoint],
        features: Mapping[str, tuple[int, int]],
        previous_epoch: int,
        keep_epoch: Callable[[int, bytes], Awaitable[None]],
    ) -> None:
        self.broker_epoch = -1
        self._node_id = node_id
        self._image = image
        self._config = config
        self._ask = ask
        self._metadata_changed = metadata_changed
        self._incarnation_id = incarnation_id
        self._directory_id = directory_id
        self._endpoints = endpoints
        self._features = features
        self._previous_epoch = previous_epoch
        self._keep_epoch = keep_epoch
        self._wants_fence = True
        self._wants_shut_down = False
        self._is_fenced = True
        self._alive_until_s = -math.inf  # by the loop's clock: until then no controller fences it for its silence
        self._is_unwritten = False  # the controller's last answer: it cannot write its log
        self._answered = Pauses()  # of those who wait for an answer of the controller
        self._may_stop = False
        self._was_cordoned = False
        self._pauses = Pauses()
        self._task: asyncio.Task[None] | None = None

    async def register(self, timeout_ms: float) -> None:
        """Register this process, begin to send heartbeats, and wait until the metadata here has this process.

        Before, it may say that this broker leads, under the epoch of its last process: from what that had lost,
        followers under the same epoch would cut off what is committed. Raises KafkaError if the registration is refused
        for good, or if no controller answers in time.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        while (error := await self._register((deadline - loop.time()) * 1000)) is not None:
            if error.code in FATAL or loop.time() + RETRY_S >= deadline:
                raise error
            log.info("broker %d is not registered yet: %s", self._node_id, error.message)
            await self._pauses.pause(RETRY_S)
        self._task = loop.create_task(self._beat(), name="heartbeats")
        while not knows(self._image, self.broker_epoch):
            await self._metadata_changed()

    async def _register(self, timeout_ms: float) -> KafkaError | None:
        request = broker_registration.Request(
            broker_id=self._node_id,
            cluster_id=self._image.cluster_id,
            incarnation_id=self._incarnation_id,
            listeners=[
                broker_registration.Listener(
                    name=name, host=each.host, port=each.port, security_protocol=each.security_protocol
                )
                for name, each in self._endpoints.items()
            ],
            features=[
                broker_registration.Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in self._features.items()
            ],
            rack=self._config["broker.rack"],
            log_dirs=[self._directory_id],
            previous_broker_epoch=self._previous_epoch,
        )
        try:
            answer = await self._ask(request, timeout_ms)
        except KafkaError as error:
            return error
        if answer.error_code:
            return KafkaError.of(answer.error_code, self._why_refused(answer.error_code))
        self.broker_epoch = answer.broker_epoch
        self._is_fenced = True
        try:
            await self._keep_epoch(self.broker_epoch, self._incarnation_id)
        except KafkaError as error:
            log.warning("%s: after the next start this broker counts as one that has lost its end", error.message)
        return None

    def _why_refused(self, code: int) -> str:
        node, cluster = self._node_id, self._image.cluster_id
        said = f"the controller does not take broker {node}: "
        match code:
            case ErrorCode.DUPLICATE_BROKER_REGISTRATION:
                return (
                    f"{said}another process is registered as broker {node}, and lives, or has not been missed yet: "
                    "give each broker a node.id of its own, or wait for broker.session.timeout.ms"
                )
            case ErrorCode.INCONSISTENT_CLUSTER_ID:
                return (
                    f"{said}it belongs to cluster {cluster}, the controller to another one: check "
                    "controller.quorum.voters and cluster.id, or choose an empty log.dirs"
                )
            case ErrorCode.UNSUPPORTED_VERSION:
                return said + self._why_unsupported()
            case ErrorCode.INVALID_REGISTRATION:
                for other in self._image.brokers.values():
                    if other.id != node and self._directory_id in other.log_dirs:
                        return (
                            f"{said}its directory has the directory.id of broker {other.id}, of whose directory it is "
                            "a copy: choose an empty log.dirs"
                        )
            case ErrorCode.KAFKA_STORAGE_ERROR:
                return f"{said}it cannot write its metadata log, see its own log: its disk may be full, or broken"
        return f"{said}{ErrorCode(code).name}; the controller's log may say more"

    def _why_unsupported(self) -> str:
        """Names the features, and how to change them: this broker knows the cluster's metadata already."""
        levels, wanted = [], []
        for name, level in sorted(self._image.features.items()):
            low, high = self._features.get(name, (0, 0))
            if not low <= level <= high:
                levels.append(f"{name} at {level}")
                wanted.append(f"{name}={high}")
        if not levels:
            return "the cluster's finalized features are at a level that this version does not know"
        return (
            f"the cluster has finalized {', '.join(levels)}; this version supports {', '.join(wanted)} at most: lower "
            f"them by `isthmus cluster features downgrade {' '.join(wanted)}`, or by kafka-features, and start again"
        )

    def ready(self) -> None:
        """This broker serves, and knows the cluster's state: it may lead."""
        self._wants_fence = False
        self._pauses.wake()

    def controller_changed(self) -> None:
        """Another node is the active controller, or the connection to it is lost: it does not know that this broker
        lives, and will soon give it up."""
        self._alive_until_s = -math.inf
        self._pauses.wake()

    def options_changed(self) -> None:
        """Tell the controller what follows from options at once."""
        self._pauses.wake()

    async def unfenced(self) -> None:
        """Wait until the controller lets this broker lead. Raises KafkaError if it cannot write that."""
        while self._is_fenced:
            if self._is_unwritten:
                raise KafkaError.of(ErrorCode.KAFKA_STORAGE_ERROR, self._why_refused(ErrorCode.KAFKA_STORAGE_ERROR))
            await self._answered.pause(None)

    @property
    def has_session(self) -> bool:
        """Whether this process is certainly taken for alive: it sent a heartbeat less than its session ago by whose
        answer it was not fenced. Without a session others may lead what it led, and it not know of that.
        """
        return asyncio.get_running_loop().time() < self._alive_until_s

    async def leave(self, timeout_ms: float) -> bool:
        """Have other brokers lead what this one leads. False if that was not done in time, or by no controller."""
        if self._task is None:
            return False
        self._wants_shut_down = True
        self._pauses.wake()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while not self._may_stop:
                    await self._answered.pause(None)
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        self._pauses.stop()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _beat(self) -> None:
        while not self._pauses.is_stopping and not self._may_stop:
            session_s = certain_session_ms(self._config) / 1000
            interval_s = min(self._config["broker.heartbeat.interval.ms"] / 1000, session_s / 2)
            request = broker_heartbeat.Request(
                broker_id=self._node_id,
                broker_epoch=self.broker_epoch,
                current_metadata_offset=self._image.offset,
                want_fence=self._wants_fence,
                want_shut_down=self._wants_shut_down,
                cordoned_log_dirs=self._cordoned(),
            )
            timeout_ms = self._config["broker.session.timeout.ms"]
            alive_until_s = asyncio.get_running_loop().time() + session_s
            try:
                answer = await self._ask(request, timeout_ms)
                code = answer.error_code
            except KafkaError as error:
                log.info("a heartbeat has no answer: %s", error.message)
                await self._pauses.pause(SOON_S)
                continue
            self._is_unwritten = code == ErrorCode.KAFKA_STORAGE_ERROR
            if code in LOST_REGISTRATION:
                await self._register_again(code)
                continue
            if code:
                log.warning("the controller refuses a heartbeat: %s", ErrorCode(code).name)
                self._answered.wake()
                await self._pauses.pause(RETRY_S)
                continue
            if answer.is_fenced and not self._is_fenced and not self._wants_shut_down:
                log.warning("broker %d was fenced: the controller had not heard of it in time", self._node_id)
            self._is_fenced = answer.is_fenced
            self._alive_until_s = -math.inf if answer.is_fenced else alive_until_s
            self._may_stop = answer.should_shut_down
            self._answered.wake()
            waits = self._wants_shut_down or (answer.is_fenced and not self._wants_fence)
            await self._pauses.pause(min(SOON_S, interval_s) if waits else interval_s)

    def _cordoned(self) -> list[bytes] | None:
        """The directories that are to get no new partitions (KIP-1066). None, which changes nothing, while there was
        never one: older controllers do not know of that."""
        if self._config["cordoned.log.dirs"]:
            self._was_cordoned = True
            return [self._directory_id]
        return [] if self._was_cordoned else None

    async def _register_again(self, code: int) -> None:
        """The controller does not know this process: it was unregistered, or another one has taken its id."""
        log.error("the controller does not know this process of broker %d: %s", self._node_id, ErrorCode(code).name)
        error = await self._register(self._config["broker.session.timeout.ms"])
        if error is not None:
            log.error("%s", error.message)
            await self._pauses.pause(RETRY_S)
