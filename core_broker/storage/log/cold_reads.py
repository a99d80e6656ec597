"""Brings into memory what a read would have had to wait for."""

from __future__ import annotations

from ._ranges import NotCached
from .index_window import locate


async def bring(missing: NotCached) -> None:
    """Wait for what a read needed: the same read finds it then. Errors of the disk are left to that read."""
    ranges, segment = missing.ranges, missing.segment
    cuts = ranges.cuts
    try:
        window = await ranges.files.run_read(locate, ranges.files, segment, missing.offset)
    except OSError:
        return
    if window is not None and cuts == ranges.cuts:
        ranges.windows.keep(segment, window)
