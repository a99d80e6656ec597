"""Which process has an end of a TCP connection of this machine, as Linux tells (proc(5): net/tcp, PID/fd)."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

Address = tuple[str, int]
_INODE = 9  # the column
_TABLE = Path("/proc/net/tcp")


def owner(own: Address, peer: Address, pids: Mapping[int, int]) -> int | None:
    """The key of the process, of these, that has the end `own` of the IPv4 connection from there to `peer`; None: none
    of them has, or it is closed by now."""
    inode = _inode(f" {_hexadecimal(own)} {_hexadecimal(peer)} ")
    if inode is None:
        return None
    wanted = f"socket:[{inode}]"
    return next((key for key, pid in pids.items() if _has_open(pid, wanted)), None)


def _inode(ends: str) -> str | None:
    for line in _TABLE.read_text().splitlines():
        if ends in line:
            return line.split()[_INODE]
    return None


def _hexadecimal(address: Address) -> str:
    """As the table has it: the address as a number of this machine's, the port as people write it."""
    host, port = address
    return f"{int.from_bytes(socket.inet_aton(host), sys.byteorder):08X}:{port:04X}"


def _has_open(pid: int, wanted: str) -> bool:
    folder = f"/proc/{pid}/fd"
    try:
        descriptors = os.listdir(folder)
    except OSError:  # it is gone
        return False
    return any(_leads_to(f"{folder}/{each}") == wanted for each in descriptors)


def _leads_to(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:  # closed meanwhile
        return ""
