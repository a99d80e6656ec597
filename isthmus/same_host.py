"""What is better otherwise where both ends of a connection are on one machine."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any

_NAME_BYTES = 16  # Linux' TCP_CA_NAME_MAX
PACED = b"bbr"  # bbr, and those that came after it
UNPACED = b"reno"  # the one congestion control that every Linux has and everybody may choose


def without_pacing(transport: asyncio.BaseTransport, far: bytes = b"") -> None:
    """Take congestion control that does not pace, if the other end is on this machine.

    far: what is taken if it is not, and the connection began without pacing, see `accept_unpaced`; what a route gives
    to its connections stays. Without it all others are left as they are.

    BBR, which many systems have for all connections, sends by a timer what its model of the network allows. Within a
    machine there is no network: each segment wakes a reader that has just fallen asleep, by an interrupt from one
    processor to another, and the sender pays up to four times the CPU for the same bytes. What is sent by this end is
    meant; the other end chooses for itself. Transports without a socket of the system's (the simulator's) are left.
    """
    peer, own = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
    if not peer or not own:
        return
    sock = transport.get_extra_info("socket")
    if peer[0] == own[0] or peer[0].startswith("127."):
        _choose(sock, UNPACED)
    elif far and _of(sock) == UNPACED:
        _choose(sock, far)


def accept_unpaced(listening: Any) -> bytes:
    """What this socket accepts begins without pacing, see `without_pacing`. The congestion control that it had, for
    what comes from other machines; empty where that does not pace, and is kept.

    For Linux does not let go of it: a connection that began with BBR goes on by a timer, at another pace, whatever
    congestion control it takes later.
    """
    had = _of(listening)
    if not had.startswith(PACED):
        return b""
    _choose(listening, UNPACED)
    return had


def _of(sock: Any) -> bytes:
    """Its congestion control; empty where that cannot be told."""
    if hasattr(sock, "getsockopt"):
        with contextlib.suppress(OSError):
            name: bytes = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _NAME_BYTES)
            return name.rstrip(b"\0")
    return b""


def _choose(sock: Any, name: bytes) -> None:
    if hasattr(sock, "setsockopt"):
        with contextlib.suppress(OSError):  # a kernel without it: slower, nothing else
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name)
