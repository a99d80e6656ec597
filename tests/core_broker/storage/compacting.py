"""A log that is compacted: what is written to it, its cleaner and a clock to set."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

from isthmus.core_broker.storage.log.append import Origin
from isthmus.core_broker.storage.log.log import Log
from isthmus.core_broker.storage.log.log_config import MAX_INT64, LogConfig
from isthmus.core_broker.storage.upkeep.cleaner import Cleaner, CleanerConfig
from isthmus.protocol.records import build_batch, iter_records
from isthmus.runtime import Runtime

from .support import NOW_MS, BrokenFiles, append, contents, open_log, run, spans

COMPACT = LogConfig(
    cleanup_policy="compact",
    segment_bytes=400,
    index_interval_bytes=100,
    retention_ms=-1,
    min_cleanable_dirty_ratio=0.0,
)
ROOMY = replace(COMPACT, segment_bytes=1 << 20)
SMALL_STEPS = CleanerConfig(buffer_bytes=200)


class Bench:
    """One log, its cleaner, and a clock to set."""

    def __init__(self, path: Path, config: LogConfig = COMPACT, cleaner: CleanerConfig = SMALL_STEPS) -> None:
        self.files = BrokenFiles()
        self.path = path
        self.now_ms = NOW_MS
        self.undecided = MAX_INT64
        self.runtime = Runtime(random.Random(7), lambda: self.now_ms, lambda: 0)
        self.saves = 0
        self.use(open_log(self.files, path, config), cleaner)

    def use(self, log: Log, cleaner: CleanerConfig = SMALL_STEPS) -> None:
        self.log = log
        self.cleaner = Cleaner(
            {("t", 0): log}, cleaner, self.runtime, lambda key, log: min(self.undecided, log.log_end_offset), self.save
        )

    async def save(self) -> None:
        self.saves += 1

    def put(
        self,
        *rows: tuple[bytes | None, bytes | None],
        codec: str = "none",
        age_ms: int = 0,
        origin: Origin = Origin.COORDINATOR,
        **head: Any,
    ) -> Any:
        stamp = self.now_ms - age_ms
        data = build_batch([(stamp, key, value, ()) for key, value in rows], codec, **head)
        return append(self.log, data, origin=origin)

    def close_segment(self) -> None:
        """The next append begins a segment."""
        self.log.rolling.roll(self.log.log_end_offset, self.now_ms)

    def clean(self) -> bool:
        return run(self.cleaner.clean_filthiest())

    def records(self) -> list[tuple[int, bytes | None, bytes | None]]:
        return [(r.offset, r.key, r.value) for r in iter_records(contents(self.log))]

    def spans(self) -> list[tuple[int, int]]:
        return spans(contents(self.log))
