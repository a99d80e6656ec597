"""The controller: commands are decided, written, synced, applied and answered, one at a time.

A decision sees an image with all earlier decisions applied. Subscribers get each delta before the command is answered:
when a client learns that something was created, it can be used.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from ....protocol.errors import ErrorCode, KafkaError
from ....runtime import Runtime
from ...config import BrokerConfig
from ...pauses import Pauses, RetryDelay
from ...storage.disk.errors import is_shortage
from ..image import Delta, MetadataImage
from ..metadata_log import MetadataLog
from .common import Command, View
from .quorum import Quorum, Voter
from .watch import Watch, now_ms

MAX_WAITING_COMMANDS = 10_000

Answered = Callable[[Any], None]
React = Callable[[Delta], Awaitable[None] | None]

logger = logging.getLogger(__name__)


class Controller:
    """image: already replayed from `log`. The type of a command's result is defined by its class; it never raises.

    If the metadata log cannot be synced, all later commands fail with KAFKA_STORAGE_ERROR. After a lack of disk space
    this ends when there is some. Then a command in doubt is decided: it is done if it is in the log.
    """

    def __init__(self, image: MetadataImage, log: MetadataLog, config: BrokerConfig, runtime: Runtime) -> None:
        self.image = image
        self.log = log
        self.config = config
        self.runtime = runtime
        self.watch = Watch(image, config, self.submit)
        self.failure: KafkaError | None = None
        self._waiting: deque[tuple[Command, Answered | None]] = deque()
        self._reactions: list[React] = []
        self._task: asyncio.Task[None] | None = None
        self._using_log = asyncio.Lock()  # held by a command until it is applied, or while the log is opened again
        self._coming_back: asyncio.Task[None] | None = None
        self._pauses = Pauses()
        self._closed = False
        log.on_shortage = self._wait_for_space

    @property
    def quorum(self) -> Quorum:
        """The quorum: this broker alone. What it appended is synced before anyone sees it."""
        node_id = self.config["node.id"]
        end = self.log.next_offset
        return Quorum(node_id, self.log.epoch, end, [Voter(node_id, end, self.runtime.wall_ms())])

    def subscribe(self, react: React) -> None:
        """Call `react(delta)` after each apply, in order of subscription; await it if it is awaitable.

        It must not wait for a command of its own, because the controller waits for it.
        """
        self._reactions.append(react)

    def submit(self, command: Command, callback: Answered | None = None) -> None:
        """Queue a command; `callback(result)` is called when its decision is applied, or when it failed."""
        if self._closed:
            _answer(callback, command.fail(KafkaError(ErrorCode.NOT_CONTROLLER, "the broker is stopping")))
            return
        if len(self._waiting) >= MAX_WAITING_COMMANDS:
            reason = f"{MAX_WAITING_COMMANDS} commands already wait for the controller"
            _answer(callback, command.fail(KafkaError(ErrorCode.REQUEST_TIMED_OUT, reason)))
            return
        self._waiting.append((command, callback))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work(), name="controller")

    async def submit_wait(self, command: Command) -> Any:
        """Submit a command and wait for its result."""
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.submit(command, lambda result: None if done.done() else done.set_result(result))
        return await done

    async def close(self) -> KafkaError | None:
        """Finish the current command, refuse the others, close the log. Returns the error if it could not be written.

        Everything that was answered is on disk in any case, and the next start reads it.
        """
        self._closed = True
        self.watch.stop()
        refused = KafkaError(ErrorCode.NOT_CONTROLLER, "the broker is stopping")
        while self._waiting:
            command, callback = self._waiting.popleft()
            _answer(callback, command.fail(refused))
        if self._task is not None:
            await self._task
        self._pauses.stop()
        if self._coming_back is not None:
            await asyncio.wait([self._coming_back])
        try:
            await self.log.close()
        except KafkaError as error:
            logger.error("closing: %s", error.message)
            return error
        return self.failure

    async def _work(self) -> None:
        try:
            while self._waiting:
                command, callback = self._waiting.popleft()
                async with self._using_log:
                    _answer(callback, await self._run(command))
                    await self._snapshot()
        finally:
            self._task = None

    def _wait_for_space(self) -> None:
        if self._coming_back is None and not self._pauses.is_stopping:
            task = asyncio.get_running_loop().create_task(self._come_back(), name="metadata log that lacks disk space")
            self._coming_back = task

    async def _come_back(self) -> None:
        """Open the log again when there is disk space."""
        delay = RetryDelay()
        try:
            while True:
                await self._pauses.pause(delay.next_s())
                if self._pauses.is_stopping:
                    return
                async with self._using_log:
                    if await self._try_again():
                        return
        finally:
            self._coming_back = None

    async def _try_again(self) -> bool:
        """Try once. True if it must not be tried again."""
        try:
            await self.log.open_again()
            for delta in self.log.catch_up(self.image):
                await self._react(delta)
        except Exception as error:
            if isinstance(error, KafkaError) and is_shortage(error):
                return False
            reason = f"the metadata log is offline until the broker starts again: {KafkaError.reason(error)}"
            self.failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, reason)
            logger.error("%s", reason)
            return True
        self.failure = None
        logger.info("the metadata log is online again, up to offset %d", self.image.offset)
        return True

    async def _run(self, command: Command) -> Any:
        if self.failure is not None:
            return command.fail(self.failure)
        view = View(self.image, self.config, self.runtime, self.log.next_offset, self.watch.sessions, now_ms())
        try:
            decision = command.decide(view)
        except KafkaError as error:
            return command.fail(error)
        except Exception:
            logger.exception("the controller could not decide %s", type(command).__name__)
            return command.fail(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the decision failed, see the broker's log"))
        if decision.records:
            try:
                last_offset = await self.log.append(decision.records)
            except Exception as error:
                if not self.log.in_doubt:
                    # It is too large, or the disk is full: nothing was written, and later commands may succeed.
                    logger.error("%s could not be written: %r", type(command).__name__, error)
                    code = error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
                    return command.fail(KafkaError(code, f"the metadata log refused it: {error}"))
                may_be_done = isinstance(error, KafkaError) and is_shortage(error)
                doubt = "; what was asked may be done once the shortage is over" if may_be_done else ""
                reason = f"the metadata log cannot be written: {error}{doubt}"
                self.failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, reason)
                logger.error("%s", reason)
                return command.fail(self.failure)
            await self._react(self.image.apply(decision.records, last_offset, self.log.epoch))
        return decision.result

    async def _snapshot(self) -> None:
        """Write a snapshot if enough was decided since the last one. No decision comes between."""
        bytes_between = self.config["metadata.log.max.record.bytes.between.snapshots"]
        interval_ms = self.config["metadata.log.max.snapshot.interval.ms"]
        if self.failure is None and self.log.wants_snapshot(bytes_between, interval_ms):
            try:
                await self.log.snapshot(self.image)
            except KafkaError as error:
                logger.error("%s; the next snapshot tries again", error.message)
            except Exception:
                logger.exception("cannot write a snapshot of the metadata")

    async def _react(self, delta: Delta) -> None:
        for react in self._reactions:
            try:
                waiting = react(delta)
                if inspect.isawaitable(waiting):
                    await waiting
            except Exception:
                logger.exception("a reaction to a metadata change failed")


def _answer(callback: Answered | None, result: Any) -> None:
    if callback is None:
        return
    try:
        callback(result)
    except Exception:
        logger.exception("cannot answer a controller command")
