"""The controller: commands are decided, written, committed, applied and answered, one at a time.

A decision sees an image with all earlier decisions applied, of earlier leaders, too. Only the leader of the metadata
quorum decides; elsewhere commands fail with NOT_CONTROLLER. Subscribers get each delta before the command is answered:
when a client learns that something was created, it can be used.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.metadata_records import PartitionChangeRecord
from ....runtime import Runtime
from ...config import BrokerConfig
from ...pauses import Pauses, RetryDelay
from ...storage.disk.errors import is_shortage
from ..image import MetadataImage
from ..partition_image import RECOVERING
from ..quorum.applying import React
from ..quorum.quorum import MetadataQuorum
from .common import Command, View
from .probe import is_gone
from .watch import Watch, now_ms

MAX_WAITING_COMMANDS = 10_000
GIVES_UP_APART_MS = 30_000  # least time between two, so that controllers with full disks do not take turns

Answered = Callable[[Any], None]
logger = logging.getLogger(__name__)


class Controller:
    """image: that of `metadata`. between_brokers: the name of the listeners by which brokers reach each other. The type
    of a command's result is defined by its class; it never raises.

    If the metadata log cannot be written, all later commands fail with KAFKA_STORAGE_ERROR. After a lack of disk space
    this ends when there is some. Then a command in doubt is decided: it is done if it is in the log.
    """

    def __init__(self, metadata: MetadataQuorum, config: BrokerConfig, runtime: Runtime, between_brokers: str) -> None:
        self.metadata = metadata
        self.image: MetadataImage = metadata.image
        self.log = metadata.log
        self.config = config
        self.runtime = runtime
        self.watch = Watch(metadata.image, config, self.submit, partial(is_gone, between_brokers))
        self.failure: KafkaError | None = None
        self.unwritten: Exception | None = None  # why the last decision was not written; None if it was
        self.on_broken: Callable[[str], None] = lambda reason: None  # the log is offline until the broker starts again
        self.unclean_elections = 0  # that this node has decided
        self.elections_from_elr = 0
        self._waiting: deque[tuple[Command, Answered | None]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._using_log = asyncio.Lock()  # held by a command until it is applied, or while the log is opened again
        self._coming_back: asyncio.Task[None] | None = None
        self._pauses = Pauses()
        self._closed = False
        metadata.on_failure = self._wait_for_space
        metadata.subscribe(self._snapshot_soon)
        self._snapshotting: asyncio.Task[None] | None = None
        self._gave_up_ms = float("-inf")

    def subscribe(self, react: React) -> None:
        """Call `react(delta)` after each change of the image, on every node; see `MetadataQuorum.subscribe`.

        It must not wait for a command, because the controller waits for it.
        """
        self.metadata.subscribe(react)

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
        task = self._task
        if task is not None:
            await self.metadata.unless(lambda: self.metadata.is_cut_off, task)
            if not task.done():
                await self.metadata.resign()  # ends its command, whose records nobody else will take
            await task
        self._pauses.stop()
        others = [each for each in (self._coming_back, self._snapshotting) if each is not None]
        if others:
            await asyncio.wait(others)
        await self.metadata.resign()
        try:
            await self.metadata.close()
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
        """The metadata log cannot be written."""
        error = self.metadata.failure
        assert error is not None
        if self.failure is None:
            doubt = "; what was asked may be done once the shortage is over" if is_shortage(error) else ""
            reason = f"the metadata log cannot be written: {error}{doubt}"
            self.failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, reason)
            logger.error("%s", reason)
        if not is_shortage(error):
            self.on_broken(self.failure.message)
            return
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
            await self.metadata.open_again()
        except Exception as error:
            if isinstance(error, KafkaError) and is_shortage(error):
                return False
            reason = f"the metadata log is offline until the broker starts again: {KafkaError.reason(error)}"
            self.failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, reason)
            logger.error("%s", reason)
            self.on_broken(reason)
            return True
        self.failure = None
        logger.info("the metadata log is online again, up to offset %d", self.image.offset)
        return True

    async def _run(self, command: Command) -> Any:
        if self.failure is not None:
            return command.fail(self.failure)
        if not self.metadata.is_leader:
            return command.fail(self.metadata.not_leader())
        view = View(self.image, self.config, self.runtime, self.log.end_offset, self.watch.sessions, now_ms())
        try:
            decision = command.decide(view)
        except KafkaError as error:
            return command.fail(error) if self.metadata.is_confirmed else command.fail(_unconfirmed())
        except Exception:
            logger.exception("the controller could not decide %s", type(command).__name__)
            return command.fail(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the decision failed, see the broker's log"))
        if decision.records:
            try:
                unclean = sum(is_unclean(each, self.image) for each in decision.records)
                from_elr = sum(is_from_elr(each, self.image) for each in decision.records)
                await self.metadata.append(decision.records)
                self.unwritten = None
                self.unclean_elections += unclean
                self.elections_from_elr += from_elr
            except Exception as error:
                self.unwritten = error
                if self.failure is not None:
                    return command.fail(self.failure)
                if isinstance(error, KafkaError) and error.code == ErrorCode.NOT_CONTROLLER:
                    return command.fail(error)
                if self._gives_up(error):
                    return command.fail(KafkaError(ErrorCode.NOT_CONTROLLER, f"another node is to lead: {error}"))
                # It is too large, or the disk is full: nothing was written, and later commands may succeed.
                logger.error("%s could not be written: %r", type(command).__name__, error)
                code = error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
                return command.fail(KafkaError(code, f"the metadata log refused it: {error}"))
        elif not self.metadata.is_confirmed:
            return command.fail(_unconfirmed())
        return decision.result

    def _gives_up(self, error: Exception) -> bool:
        """Whether another node is to lead the quorum, because this one's disk is full: nothing was written."""
        if not isinstance(error, KafkaError) or not is_shortage(error):
            return False
        if now_ms() - self._gave_up_ms < GIVES_UP_APART_MS or not self.metadata.give_up():
            return False
        self._gave_up_ms = now_ms()
        logger.error("another node is to lead the metadata quorum: %s", error.message)
        return True

    def _snapshot_soon(self, _: object) -> None:
        """Another node has decided something: here snapshots are written by themselves."""
        if self._snapshotting is None and not self._closed and not self.metadata.is_leader:
            task = asyncio.get_running_loop().create_task(self._snapshot_then(), name="metadata snapshot")
            self._snapshotting = task

    async def _snapshot_then(self) -> None:
        try:
            await self._snapshot()
        finally:
            self._snapshotting = None

    async def _snapshot(self) -> None:
        """Write a snapshot if enough was decided since the last one. No decision comes between."""
        if self.failure is None:
            await self.metadata.snapshot_if_due(
                self.config["metadata.log.max.record.bytes.between.snapshots"],
                self.config["metadata.log.max.snapshot.interval.ms"],
            )


def _unconfirmed() -> KafkaError:
    """Of a decision that needs no write, whose commit would have told that this node is still the controller."""
    return KafkaError(ErrorCode.NOT_CONTROLLER, "another node may lead the metadata quorum: no majority fetches")


def is_unclean(record: Any, image: MetadataImage) -> bool:
    """Whether a record lets a replica lead that may lack what was committed: it was neither in sync nor eligible.

    One that a move has brought, and that is in sync by the same record, lacks nothing.
    """
    if not isinstance(record, PartitionChangeRecord) or record.leader < 0:
        return False
    before = image.partition_by_key((record.topic_id, record.partition_id))[1]
    if record.leader in (before.leader, *before.isr, *before.elr):
        return False
    return before.merged(record).leader_recovery_state == RECOVERING


def is_from_elr(record: Any, image: MetadataImage) -> bool:
    """Whether a record lets an eligible leader replica lead, which was not in sync (KIP-966)."""
    if not isinstance(record, PartitionChangeRecord) or record.leader < 0:
        return False
    before = image.partition_by_key((record.topic_id, record.partition_id))[1]
    return record.leader != before.leader and record.leader in before.elr


def _answer(callback: Answered | None, result: Any) -> None:
    if callback is None:
        return
    try:
        callback(result)
    except Exception:
        logger.exception("cannot answer a controller command")
