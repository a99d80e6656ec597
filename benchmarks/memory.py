"""Memory that the machine has promised and not given yet."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
from contextlib import ExitStack
from pathlib import Path

GIB = 1 << 30
A_SECOND_BYTES = 1 << 29  # about what a sample writes in a second
SPARE_BYTES = GIB >> 2  # of the free memory, what `touch` leaves alone
KEPT_EACH_BYTES = 1 << 20  # of so many, `touch` keeps a page: what a host is given back are free blocks of 2 MB
PIPE_PAGES = 256  # what a pipe may hold without rights of root
PIPES_MAX = 32  # and all pipes of somebody hold twice as much
MADV_POPULATE_WRITE = 23  # Linux 5.14; not named by the standard library


class Memory:
    """What a run does so that both sides write to memory that is there.

    A virtual machine's host may give memory page by page when it is first written, and take free pages back within
    seconds: a gigabyte written to the page cache cost 0.2 s of CPU where the pages were there and 2.4 s where not,
    whoever wrote it. `touch`, before each sample, takes memory and frees it but for a page here and there, which stays
    until the next: what is freed last is given first, and what is not free as a whole the host is not told of. These
    pages wait in pipes, for any that a process has for itself the system would move together at once. That
    reaches only so far while most of the memory is free, for the kernel prefers small pieces, which may be any. So
    `leave_bytes` takes the rest out of the run once and for all, and `touch` then goes through all that is left. A
    machine that has its memory loses nothing by either.
    """

    def __init__(self, held: ExitStack, leave_bytes: int = 0) -> None:
        self._all = bool(leave_bytes)
        self._kept = held.enter_context(ExitStack())
        if leave_bytes and (size := _meminfo("MemAvailable") - leave_bytes) > 0:
            memory = held.enter_context(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
            memory.madvise(mmap.MADV_DONTFORK)
            memory.madvise(mmap.MADV_HUGEPAGE)
            memory.madvise(MADV_POPULATE_WRITE)

    def touch(self, seconds: float) -> None:
        """Before a sample of so many seconds."""
        self._kept.close()
        free = _meminfo("MemFree") - SPARE_BYTES
        if (size := free if self._all else min(free, int(A_SECOND_BYTES * seconds))) <= 0:
            return
        with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
            memory.madvise(mmap.MADV_NOHUGEPAGE)
            memory.madvise(MADV_POPULATE_WRITE)
            for start in range(0, size, PIPE_PAGES * KEPT_EACH_BYTES)[:PIPES_MAX]:
                self._keep(memory, range(start, size, KEPT_EACH_BYTES)[:PIPE_PAGES])

    def _keep(self, memory: mmap.mmap, pages: range) -> None:
        """Let pages, by where they begin, stay when the rest of the memory goes."""
        out, into = os.pipe()
        self._kept.callback(os.close, out)
        self._kept.callback(os.close, into)
        fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, PIPE_PAGES * mmap.PAGESIZE)
        begin = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        vectors = (_Vector * len(pages))(*(_Vector(begin + page, 1) for page in pages))
        if _libc.vmsplice(into, vectors, len(pages), 0) != len(pages):
            error = ctypes.get_errno()
            raise OSError(error, f"a pipe takes no pages of memory: {os.strerror(error)}")


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


_libc = ctypes.CDLL(None, use_errno=True)


def _meminfo(name: str) -> int:
    [line] = [line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith(f"{name}:")]
    return int(line.split()[1]) << 10
