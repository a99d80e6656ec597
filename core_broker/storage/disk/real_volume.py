"""syncfs(2): all that is dirty on a file system to the disk by one call, and whether that has worked.

Since Linux 5.8 the call tells of each write-back error since its descriptor was opened; before, and on file systems
that lie over others (an overlay), it says that all is well. So it is used on those alone that are known to tell.
"""

from __future__ import annotations

import ctypes
import logging
import os

logger = logging.getLogger(__name__)

TELLS_SINCE = (5, 8)  # Linux
TELLING = {0xEF53: "ext4", 0x58465342: "xfs", 0x9123683E: "btrfs"}  # f_type of statfs(2)
STATFS_BYTES = 512  # more than any Linux has; the type is the first word


def sync_volume(fd: int) -> bool:
    """Whether all of the file system that a descriptor is on is on disk now. Blocks."""
    libc = ctypes.CDLL(None, use_errno=True)
    about = (ctypes.c_ulong * (STATFS_BYTES // ctypes.sizeof(ctypes.c_ulong)))()
    if _release() < TELLS_SINCE or libc.fstatfs(fd, about) or about[0] & 0xFFFFFFFF not in TELLING:
        return False
    if libc.syncfs(fd):
        logger.warning("syncfs: %s; files are synced one by one", os.strerror(ctypes.get_errno()))
        return False
    return True


def _release() -> tuple[int, ...]:
    """Of the kernel; (0,) for one whose name does not say."""
    numbers = _kernel().split("-")[0].split(".")[:2]
    return tuple(map(int, numbers)) if all(each.isdigit() for each in numbers) else (0,)


def _kernel() -> str:
    return os.uname().release
