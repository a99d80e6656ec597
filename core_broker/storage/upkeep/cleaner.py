"""Chooses the log of a data directory that is compacted next, limits the speed, and records how far each log is clean.

As in Kafka's LogCleaner, the log with the largest dirty ratio comes first. A log is compacted when that ratio exceeds
min.cleanable.dirty.ratio, or when a dirty record is older than max.compaction.lag.ms. A round ends before the active
segment, before the last stable offset, and before segments younger than min.compaction.lag.ms. The work itself runs in
the files' pool.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ....protocol.compaction import new_offset_map
from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.records import CorruptBatch
from ....runtime import Runtime
from ...pauses import Pauses
from ..disk.errors import StorageError
from ..log._segment import Segment
from ..log.log import Log
from ..log.swap_files import Replacement
from .cleaning import Plan, Round

logger = logging.getLogger(__name__)

LOAD_FACTOR_MIN, LOAD_FACTOR_MAX = 0.01, 0.95  # a search in a full table would visit all of it

Key = tuple[str, int]  # topic, partition


@dataclass(slots=True, frozen=True, kw_only=True)
class CleanerConfig:
    """The broker options log.cleaner.*."""

    threads: int = 1  # rounds at once, which share the limits below; 0 for no compaction
    max_bytes_per_s: float = float("inf")  # bytes read plus bytes written
    map_bytes: int = 128 << 20  # log.cleaner.dedupe.buffer.size
    map_load_factor: float = 0.9
    buffer_bytes: int = 512 << 10  # log.cleaner.io.buffer.size
    backoff_ms: int = 15_000


class Candidate(NamedTuple):
    """A log that can be compacted."""

    plan: Plan
    dirty_bytes: int
    dirty_ratio: float  # dirty_bytes divided by all bytes that a round would read
    is_late: bool  # a dirty record is older than max.compaction.lag.ms

    def is_cleanable(self, min_ratio: float) -> bool:
        return self.dirty_bytes > 0 and (self.is_late or self.dirty_ratio > min_ratio)


def first_dirty_offset(log: Log) -> int:
    """The offset up to which a log is compacted. If the remembered one is outside the log: the log start offset."""
    offset = log.progress.first_dirty_offset
    return offset if log.log_start_offset <= offset <= log.log_end_offset else log.log_start_offset


def assess(log: Log, last_stable_offset: int, wall_ms: int) -> Candidate | None:
    """What a round over the log would read now; None if there is nothing to compact."""
    closed = log.closed_segments()
    if not closed or not log.config.compacts:
        return None
    config = log.config
    first = first_dirty_offset(log)
    end = min(last_stable_offset, log.active_segment.base_offset)
    young_after_ms = wall_ms - config.min_compaction_lag_ms
    late_before_ms = wall_ms - config.max_compaction_lag_ms
    count = clean_bytes = dirty_bytes = 0
    is_late = False
    for number, segment in enumerate(closed):
        following = closed[number + 1].base_offset if number + 1 < len(closed) else log.active_segment.base_offset
        is_dirty = following > first
        if following > end or (is_dirty and config.min_compaction_lag_ms > 0 and segment.newest_ms > young_after_ms):
            break
        count += 1
        if segment.base_offset < first:
            clean_bytes += segment.size_bytes
        if is_dirty:
            dirty_bytes += segment.size_bytes
            is_late |= 0 < segment.first_timestamp < late_before_ms
    total = clean_bytes + dirty_bytes
    if not total:
        return None
    later = (*closed[count:], log.active_segment)
    plan = Plan(tuple(closed[:count]), later, first, later[0].base_offset)
    return Candidate(plan, dirty_bytes, dirty_bytes / total, is_late)


class Cleaner:
    """See the module. last_stable_offset: returns a partition's. save: writes the cleaner's checkpoint."""

    def __init__(
        self,
        logs: Mapping[Key, Log],
        config: CleanerConfig,
        runtime: Runtime,
        last_stable_offset: Callable[[Key, Log], int],
        save: Callable[[], Awaitable[None]],
    ) -> None:
        self.config = config
        self.given_up: dict[Key, Log] = {}  # logs with corrupt bytes: not compacted until the next start
        self.rounds = 0
        self._logs = logs
        self._runtime = runtime
        self._last_stable_offset = last_stable_offset
        self._save = save
        self._busy: dict[Key, None] = {}
        self._complaints: dict[Key, str] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._started = False
        self._pauses = Pauses()

    def start(self) -> None:
        """Begin to compact logs; `stop` ends it."""
        self._started = True
        self.reconfigure(self.config)

    def reconfigure(self, config: CleanerConfig) -> None:
        """Take other options. A round that runs keeps its own."""
        self.config = config
        if self._started and not self._pauses.is_stopping:
            loop = asyncio.get_running_loop()
            for number in range(config.threads):
                if number not in self._tasks:
                    self._tasks[number] = loop.create_task(self._recur(number), name=f"log cleaner {number}")

    async def stop(self) -> None:
        """End after the steps that run now. The next start removes the files of unfinished rounds."""
        self._pauses.stop()
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()))
            self._tasks.clear()

    async def _recur(self, number: int) -> None:
        while not self._pauses.is_stopping and number < self.config.threads:
            if not await self.clean_filthiest():
                await self._pauses.pause(self.config.backoff_ms / 1000)
        del self._tasks[number]

    async def clean_filthiest(self) -> bool:
        """Compact the log that needs it most. Returns False if no log needs it, or if this one failed."""
        found = self._filthiest()
        if found is None:
            return False
        key, log, plan = found
        self._busy[key] = None
        try:
            await self._clean(log, plan)
        except CorruptBatch as error:
            if log.failure is None:
                self.given_up[key] = log
                logger.error("%s-%d cannot be compacted until the broker starts again: %s", *key, error.message)
            return False
        except KafkaError as error:
            if log.failure is None and self._complaints.get(key) != error.message:
                self._complaints[key] = error.message
                logger.error("%s-%d: %s; it is tried again", *key, error.message)
            return False
        finally:
            del self._busy[key]
        self._complaints.pop(key, None)
        return True

    def _filthiest(self) -> tuple[Key, Log, Plan] | None:
        wall_ms = self._runtime.wall_ms()
        best: tuple[Key, Log, Plan] | None = None
        best_ratio = -1.0
        for key, log in self._logs.items():
            if not log.config.compacts or log.failure is not None or key in self._busy:
                continue
            if self.given_up.get(key) is log:
                continue
            found = assess(log, self._last_stable_offset(key, log), wall_ms)
            if found is not None and found.is_cleanable(log.config.min_cleanable_dirty_ratio):
                if found.dirty_ratio > best_ratio:
                    best, best_ratio = (key, log, found.plan), found.dirty_ratio
        return best

    async def _clean(self, log: Log, plan: Plan) -> None:
        """Run one round. Raises KafkaError."""
        config, loop, cuts = self.config, asyncio.get_running_loop(), log.ranges.cuts
        share = max(config.threads, 1)
        # Compaction leaves holes at the ends of segments. After a crash, a start takes a hole behind the recovery point
        # for lost batches. So the recovery point must lie after all that is compacted.
        await log.sync()
        if log.recovery_point < plan.first_uncleanable_offset:
            raise KafkaError.of(ErrorCode.KAFKA_STORAGE_ERROR, "the segments to compact are not on disk yet")
        await log.status.save_points()
        try:
            offsets = new_offset_map(
                config.map_bytes // share,
                min(max(config.map_load_factor, LOAD_FACTOR_MIN), LOAD_FACTOR_MAX),
                plan.first_uncleanable_offset - plan.first_dirty_offset,
                self._runtime.random,
            )
        except ValueError as error:
            raise CorruptBatch(f"log.cleaner.dedupe.buffer.size is too small: {error}") from None
        buffer_bytes = config.buffer_bytes // share
        work = Round(log.files, log.config, plan, offsets, self._runtime.wall_ms(), buffer_bytes)
        work.last_records = log.compaction.last_records()
        steps = work.work()
        ahead = list(plan.segments)  # segments that no Replacement has replaced yet
        started, handled = loop.time(), 0
        try:
            while (step := await log.compaction.step(steps)) is not None:
                if isinstance(step, Replacement):
                    if not await log.compaction.replace(step.new, step.old, cuts):
                        break
                    work.last_records = log.compaction.last_records()
                    ahead = [each for each in ahead if each not in step.old]
                else:
                    handled += step
                    ahead_s = handled / (max(config.max_bytes_per_s, 1.0) / share) - (loop.time() - started)
                    if ahead_s > 0:
                        await self._pauses.pause(ahead_s)
                if self._pauses.is_stopping or not log.config.compacts:
                    break
            else:
                if work.end_offset <= plan.first_dirty_offset:
                    raise CorruptBatch(
                        f"the keys of one batch at offset {plan.first_dirty_offset} do not fit into "
                        f"log.cleaner.dedupe.buffer.size={config.map_bytes}"
                    )
                self._finished(log, work, loop.time() - started)
                if log.ranges.cuts == cuts:
                    log.progress.first_dirty_offset = work.end_offset
                    await self._save()
        except (CorruptBatch, StorageError):
            if log.failure is not None or not self._is_disturbed(log, cuts, ahead):
                raise  # else a truncation or retention removed what was being read
        finally:
            if work.unfinished is not None and not self._pauses.is_stopping:
                await log.compaction.end(work.unfinished)

    def _is_disturbed(self, log: Log, cuts: int, ahead: Sequence[Segment]) -> bool:
        """Whether the log was truncated, or lost one of these segments, since the round began."""
        return log.ranges.cuts != cuts or not all(log.ranges.has(segment) for segment in ahead)

    def _finished(self, log: Log, work: Round, seconds: float) -> None:
        self.rounds += 1
        logger.info(
            "%s compacted up to offset %d: %d of %d records kept, %.1f of %.1f MB, in %.1f s",
            log.name,
            work.end_offset,
            work.records_kept,
            work.records_read,
            log.size_bytes / 1e6,
            work.bytes_read / 1e6,
            seconds,
        )
