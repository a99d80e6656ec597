"""What is better otherwise where both ends of a connection are on one machine."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

_NAME_BYTES = 16  # Linux' TCP_CA_NAME_MAX
PACED = b"bbr"  # bbr, and those that came after it
UNPACED = b"reno"  # the one congestion control that every Linux has and everybody may choose

_T = TypeVar("_T")


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


async def bound(bind: Callable[[str | list[str] | None], Awaitable[_T]], host: str | None) -> _T:
    """What `bind` gives for a server on `host`, or on those of its addresses that this machine has.

    A name may have addresses that no interface has: in a container `localhost` is often ::1 too, where IPv6 is switched
    off, and a server on the name would not start. Python's own servers leave such ones out from 3.13 on. `host`: None
    and "" are all interfaces. bind: called with it, and, if an address is not there, once more with those that are.
    """
    try:
        return await bind(host or None)
    except OSError as error:
        if error.errno != errno.EADDRNOTAVAIL:
            raise
        found = await asyncio.get_running_loop().getaddrinfo(
            host or None, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        here = [str(address[0]) for family, _, _, _, address in found if _is_here(family, address)]
        if not here:
            raise
        return await bind(here)


def _is_here(family: int, address: Any) -> bool:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as tried:
            tried.bind(address)
    except OSError as error:
        return error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
    return True
