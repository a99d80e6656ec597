"""How far a log is on disk, and how far it is compacted; and the locks of those who work on its files."""

from __future__ import annotations

import asyncio

from .status import LogStatus


class LogProgress:
    """The two offsets that checkpoints hold of a log, and what of it a sync still has to put on disk."""

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
        self.unsynced_since_ms: int | None = None  # wall time of the first append that no sync has covered
        self.is_cut = False  # a truncation is not on disk yet
        self.is_unnamed = False  # the file that names the topic of the directory is not on disk yet
        self.has_new_names = False  # files made before this start may not have their names on disk

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
    """Two locks that keep apart what is awaited. Appends and reads need neither: they run in between.

    maintenance: held by whatever changes which files the log has, or what of it is on disk. cleaning: held by each step
    of a compaction, which only adds files. Each is made when it is first needed: most logs need none for long.
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
