"""Memory that the machine has promised and not given yet."""

from __future__ import annotations

import mmap
from contextlib import ExitStack
from pathlib import Path

GIB = 1 << 30
A_SECOND_BYTES = 1 << 29  # about what a sample writes in a second
SPARE_BYTES = GIB >> 1  # of the free memory, what `touch` leaves alone
MADV_POPULATE_WRITE = 23  # Linux 5.14; not named by the standard library


class Memory:
    """What a run does so that both sides write to memory that is there.

    A virtual machine's host may give memory page by page when it is first written, and take free pages back within
    seconds: a gigabyte written to the page cache cost 0.2 s of CPU where the pages were there and 2.4 s where not,
    whoever wrote it. `touch`, before each sample, takes memory and frees it: what is freed last is given first. That
    reaches only so far while most of the memory is free, for the kernel prefers small pieces, which may be any. So
    `leave_bytes` takes the rest out of the run once and for all, and `touch` then goes through all that is left. A
    machine that has its memory loses nothing by either.
    """

    def __init__(self, held: ExitStack, leave_bytes: int = 0) -> None:
        self._all = bool(leave_bytes)
        if leave_bytes and (size := _meminfo("MemAvailable") - leave_bytes) > 0:
            memory = held.enter_context(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
            memory.madvise(mmap.MADV_DONTFORK)
            memory.madvise(mmap.MADV_HUGEPAGE)
            memory.madvise(MADV_POPULATE_WRITE)

    def touch(self, seconds: float) -> None:
        """Before a sample of so many seconds."""
        free = _meminfo("MemFree") - SPARE_BYTES
        if (size := free if self._all else min(free, int(A_SECOND_BYTES * seconds))) > 0:
            mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE).close()


def _meminfo(name: str) -> int:
    [line] = [line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith(f"{name}:")]
    return int(line.split()[1]) << 10
