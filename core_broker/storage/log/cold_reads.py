"""Reads what is not in the page cache, so that a read need not wait for the disk."""

from __future__ import annotations

from ._ranges import NotCached
from .index_window import locate


async def bring(missing: NotCached) -> None:
    """Read what a read lacked: the same read then finds it in memory. Disk errors are left to that read."""
    ranges, segment = missing.ranges, missing.segment
    cuts = ranges.cuts
    try:
        window = await ranges.files.run_read(locate, ranges.files, segment, missing.offset)
    except OSError:
        return
    if window is not None and cuts == ranges.cuts:
        ranges.windows.keep(segment, window)
