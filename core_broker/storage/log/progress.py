"""How far a log is on disk, how far it is compacted, and the locks for work on its files."""

from __future__ import annotations

import asyncio

from .status import LogStatus


class LogProgress:
    """The two offsets of a log that are saved in checkpoints, and what the next sync has to put on disk."""

    __slots__ = (
        "_first_dirty_offset",
        "_recovery_point",
        "_status",
        "has_new_names",
        "is_cut",
        "is_unnamed",
        "unsynced_since_ms",
    )

    def __init__(self, status: LogStatus, recovery_point: int, first_dirty_offset: int) -> None:
        self._status = status
        self._recovery_point = recovery_point
        self._first_dirty_offset = first_dirty_offset
        self.unsynced_since_ms: int | None = None  # wall time of the first append since the last sync
        self.is_cut = False  # a truncation is not on disk yet
        self.is_unnamed = False  # the file with the topic id is not on disk yet
        self.has_new_names = False  # names of files created before this start may not be on disk

    @property
    def recovery_point(self) -> int:
        """All before it is on disk."""
        return self._recovery_point

    @recovery_point.setter
    def recovery_point(self, offset: int) -> None:
        self._recovery_point = offset
        self._status.changed()

    @property
    def first_dirty_offset(self) -> int:
        """All before it has been compacted."""
        return self._first_dirty_offset

    @first_dirty_offset.setter
    def first_dirty_offset(self, offset: int) -> None:
        self._first_dirty_offset = offset
        self._status.changed()


class LogLocks:
    """Two locks that keep awaited work apart. Appends and reads need neither: they run in between.

    maintenance: held by work that changes which files the log has, or how much of it is on disk. cleaning: held by each
    step of a compaction, which only adds files. Each is created when first needed: most logs rarely need one.
    """

    __slots__ = ("_cleaning", "_maintenance")

    def __init__(self) -> None:
        self._maintenance: asyncio.Lock | None = None
        self._cleaning: asyncio.Lock | None = None

    @property
    def maintenance(self) -> asyncio.Lock:
        if self._maintenance is None:
            self._maintenance = asyncio.Lock()
        return self._maintenance

    @property
    def cleaning(self) -> asyncio.Lock:
        if self._cleaning is None:
            self._cleaning = asyncio.Lock()
        return self._cleaning
