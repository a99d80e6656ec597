"""syncfs(2): syncs a whole file system with one call, and reports whether that has worked.

Since Linux 5.8 the call reports every write-back error since its descriptor was opened. Older kernels, and file systems
that lie over others (overlay), always report success. So it is used only with file systems known to report errors.
"""

from __future__ import annotations

import ctypes
import logging
import os

logger = logging.getLogger(__name__)

REPORTS_SINCE = (5, 8)  # Linux
REPORTING = {0xEF53: "ext4", 0x58465342: "xfs", 0x9123683E: "btrfs"}  # f_type of statfs(2)
STATFS_BYTES = 512  # larger than on any Linux; the type is the first word


def sync_volume(fd: int) -> bool:
    """Sync the file system of a descriptor. True if all of it is on disk now. Blocks."""
    libc = ctypes.CDLL(None, use_errno=True)
    about = (ctypes.c_ulong * (STATFS_BYTES // ctypes.sizeof(ctypes.c_ulong)))()
    if _release() < REPORTS_SINCE or libc.fstatfs(fd, about) or about[0] & 0xFFFFFFFF not in REPORTING:
        return False
    if libc.syncfs(fd):
        logger.warning("syncfs: %s; files are synced one by one", os.strerror(ctypes.get_errno()))
        return False
    return True


def _release() -> tuple[int, ...]:
    """The kernel's release; (0,) if its name does not contain one."""
    numbers = _kernel().split("-")[0].split(".")[:2]
    return tuple(map(int, numbers)) if all(each.isdigit() for each in numbers) else (0,)


def _kernel() -> str:
    return os.uname().release
