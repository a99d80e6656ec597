"""What is committed goes into the image: batch after batch, in order, and whoever reacts is awaited.

What this node has decided is applied from memory, all else is read from the log.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ....protocol.errors import KafkaError
from ...storage.disk.errors import StorageError
from ...storage.log.log import AppendInfo
from ..image import Delta, InconsistentRecord, MetadataImage
from ..metadata_log import MetadataLog
from ..metadata_replay import Fold, replace_image
from ..raft.messages import OffsetAndEpoch
from ..raft.voters import VoterChange, VoterHistory

React = Callable[[Delta], Awaitable[None] | None]

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Decided:
    """Records that this node has appended as leader of the epoch, and that are not applied yet."""

    info: AppendInfo
    records: Sequence[Any]
    epoch: int
    done: asyncio.Future[int]


class Applying:
    """image: empty at first; only this writes to it. committed: the high watermark as far as it is known.

    applied: all before it is in the image. progressed: called after each step. failed: called if one cannot be done.
    """

    def __init__(
        self,
        log: MetadataLog,
        image: MetadataImage,
        progressed: Callable[[], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self.log = log
        self.image = image
        self.committed = 0
        self.applied = 0
        self.task: asyncio.Task[None] | None = None  # while there is something to apply
        self._progressed = progressed
        self._failed = failed
        self._is_stopped = True
        self._fold = Fold(image)
        self._reactions: list[React] = []
        self._decided: deque[_Decided] = deque()
        self._image_use = asyncio.Lock()  # held while the image changes, and while it must not

    # --- Life ---------------------------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Begin with the snapshot. Raises StorageError, InconsistentRecord, CorruptBatch."""
        files, directory = self.log.log.files, self.log.log.directory
        try:
            self.applied = self.committed = await files.run(self.log.fold_snapshot, self._fold)
        except OSError as error:
            raise StorageError(error, directory, "cannot read the snapshot in") from error

    def begin(self) -> None:
        """Go on with what is committed; a log that was opened again may be shorter."""
        self._is_stopped = False
        self.committed = min(self.committed, self.log.end_offset)
        self.commit(self.committed)

    def stop(self, reason: KafkaError) -> None:
        """Apply no more than the batch that is under way. What was decided fails."""
        self._is_stopped = True
        self.fail_decided(reason)

    def take_removed(self) -> dict[bytes, None]:
        """Ids of the topics that were deleted, by what was applied until now. From now on nobody notes them."""
        removed, self._fold.removed = self._fold.removed, None
        return removed or {}

    # --- Who reads ----------------------------------------------------------------------------------------------------

    def subscribe(self, react: React) -> None:
        self._reactions.append(react)

    async def publish(self, take: Callable[[], Awaitable[None]]) -> None:
        async with self._image_use:
            await take()

    async def _react(self, delta: Delta) -> None:
        for react in self._reactions:
            try:
                waiting = react(delta)
                if inspect.isawaitable(waiting):
                    await waiting
            except Exception:
                logger.exception("a reaction to a metadata change failed")

    # --- Batch after batch --------------------------------------------------------------------------------------------

    @property
    def applied_timestamp_ms(self) -> int:
        """When the last record in the image was written, by its leader's clock; -1 before the first."""
        return self._fold.timestamp_ms

    @property
    def has_decided(self) -> bool:
        """Whether something that this node has decided is not applied."""
        return bool(self._decided)

    def decide(self, info: AppendInfo, records: Sequence[Any], epoch: int) -> asyncio.Future[int]:
        """Records were appended: the future has the offset of the last one, once they are applied."""
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._decided.append(_Decided(info, records, epoch, done))
        return done

    def fail_decided(self, reason: KafkaError) -> None:
        decided, self._decided = self._decided, deque()
        for each in decided:
            if not each.done.done():
                each.done.set_exception(
                    KafkaError.of(reason.code, reason.message) if type(reason) is KafkaError else reason
                )

    def commit(self, high_watermark: int) -> None:
        self.committed = max(self.committed, high_watermark)
        if self.task is None:
            self.task = asyncio.get_running_loop().create_task(self._apply(), name="applying metadata")

    async def _apply(self) -> None:
        try:
            while not self._is_stopped and self.applied < self.committed:
                async with self._image_use:
                    if self._decided and self._decided[0].info.first_offset == self.applied:
                        await self._apply_decided(self._decided[0])
                    else:
                        await self._apply_read()
                self._progressed()
        except Exception as error:
            self._failed(error)
        finally:
            self.task = None

    async def _apply_decided(self, decided: _Decided) -> None:
        last_offset = decided.info.last_offset
        if last_offset >= self.committed:
            raise InconsistentRecord(f"the high watermark {self.committed} is in the middle of a batch")
        delta = self._fold.take(decided.records, last_offset, decided.epoch, decided.info.max_timestamp)
        self.log.applied(decided.info.size_bytes)
        self.applied = last_offset + 1
        await self._react(delta)
        if self._decided and self._decided[0] is decided:
            self._decided.popleft()
        if not decided.done.done():
            decided.done.set_result(last_offset)

    async def _apply_read(self) -> None:
        """Apply what another node has decided, or an earlier life of this one: as much as one read gives."""
        end = min(self._decided[0].info.first_offset if self._decided else self.committed, self.committed)
        for offset, delta in self.log.fold(self._fold, self.applied, end):
            self.applied = offset
            if delta is not None:
                await self._react(delta)

    # --- Snapshots ----------------------------------------------------------------------------------------------------

    async def take_snapshot(self, voters: VoterHistory) -> None:
        """Write one. The image does not change meanwhile."""
        async with self._image_use:
            if self._is_stopped:
                return
            try:
                await self.log.take_snapshot(self.image, voters)
            except KafkaError as error:
                logger.error("%s; the next snapshot tries again", error.message)
            except Exception:
                logger.exception("cannot write a snapshot of the metadata")

    async def take_fetched(self, snapshot: OffsetAndEpoch) -> list[VoterChange]:
        """A snapshot was fetched: it replaces the log, and the image. Returns the voters that it sets.

        Raises StorageError, KafkaError, InconsistentRecord, CorruptBatch.
        """
        async with self._image_use:
            changes = await self.log.take_fetched(snapshot)
            image = MetadataImage(self.image.cluster_id)
            fold = Fold(image)
            fold.removed = self._fold.removed
            end = await self.log.log.files.run(self.log.fold_snapshot, fold)
            delta = replace_image(self.image, image)
            fold.image = self.image
            self._fold = fold
            self.applied = end
            self.committed = max(self.committed, end)
            if fold.removed is not None:
                fold.removed.update((topic.id, None) for topic in delta.deleted.values())
            await self._react(delta)
        self._progressed()
        return changes
