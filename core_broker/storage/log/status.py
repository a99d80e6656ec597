"""Whether a log is online, and what it reports to its owner.

A log goes offline if memory and disk may differ from then on, or if the disk is broken. It stays offline until it is
opened again. The owner (the log manager, or the metadata log) learns of this and of other changes by its LogHooks.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ....protocol.errors import ErrorCode, KafkaError
from ..disk.errors import StorageError, fresh_copy, is_passing, is_shortage
from ._tail import LogTail

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class LogHooks:
    """What the owner of logs wants to know. One object serves all logs of an owner.

    Calls name the log by its status: `log.status`.
    """

    save_points: Callable[[], Awaitable[None]] | None = None  # saves recovery points and first dirty offsets
    on_roll: Callable[[LogStatus], None] | None = None  # a segment was closed: `sync_closed` is due
    on_change: Callable[[LogStatus], None] | None = None  # periodic work may have something to do for this log
    # The log is offline for lack of disk space, descriptors or memory. The owner opens it again once there is some.
    # Without this hook such a log stays offline until the next start.
    on_failure: Callable[[LogStatus, StorageError], None] | None = None
    on_broken: Callable[[LogStatus], None] | None = None  # it is offline until the next start


NO_HOOKS = LogHooks()


class LogStatus:
    """See the module. The failure itself is in the log's tail, where each append looks at it."""

    __slots__ = ("_tail", "directory", "hooks", "name")

    def __init__(self, tail: LogTail, directory: str) -> None:
        self._tail = tail
        self.directory = directory
        self.name = directory.rpartition("/")[2]
        self.hooks = NO_HOOKS

    def check_online(self) -> None:
        """Raise the failure if the log is offline."""
        if self._tail.failure is not None:
            raise fresh_copy(self._tail.failure)

    def fail(self, error: OSError, doing: str) -> StorageError:
        """Take the log offline. Returns the error to raise."""
        failure = StorageError(error, self.directory, doing)
        if self._tail.failure is not None:
            return failure
        self._tail.failure = fresh_copy(failure)
        hooks = self.hooks
        if hooks.on_failure is not None and is_shortage(failure):
            logger.error("%s is offline until the shortage is over: %s", self.name, failure.message)
            hooks.on_failure(self, failure)
        else:
            logger.error("%s is offline until the broker starts again: %s", self.name, failure.message)
            if hooks.on_broken is not None:
                hooks.on_broken(self)
        return failure

    def refuse(self, error: OSError, doing: str) -> StorageError:
        """The error to raise for a call that failed and has changed nothing. If the error may pass, the log stays
        online, else it goes offline.

        Kafka takes all logs of the directory offline, whatever the error.
        """
        return StorageError(error, self.directory, doing) if is_passing(error) else self.fail(error, doing)

    def unreadable(self, error: OSError) -> None:
        """A range of this log could not be read after it was given out."""
        self.refuse(error, "cannot read from")

    def abandon(self) -> None:
        """The log is closed. Ranges that are being sent stay readable."""
        if self._tail.failure is None:
            self._tail.failure = KafkaError.of(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name} is closed")

    def changed(self) -> None:
        """Offsets or options that matter to periodic work have changed. Appends call this only now and then."""
        if self.hooks.on_change is not None:
            self.hooks.on_change(self)

    def rolled(self) -> None:
        """A segment was closed."""
        if self.hooks.on_roll is not None:
            self.hooks.on_roll(self)

    async def save_points(self) -> None:
        """Have the owner save the checkpoints of recovery points and first dirty offsets. Raises StorageError."""
        if self.hooks.save_points is not None:
            await self.hooks.save_points()
