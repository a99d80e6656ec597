"""What is better otherwise where both ends of a connection are on one machine."""

from __future__ import annotations

import asyncio
import contextlib
import socket

UNPACED = b"reno"  # the one congestion control that every Linux has and everybody may choose


def without_pacing(transport: asyncio.BaseTransport) -> None:
    """Take congestion control that does not pace, if the other end is on this machine; else leave all as it is.

    BBR, which many systems have for all connections, sends by a timer what its model of the network allows. Within a
    machine there is no network: each segment wakes a reader that has just fallen asleep, by an interrupt from one
    processor to another, and the sender pays up to four times the CPU for the same bytes. What is sent by this end is
    meant; the other end chooses for itself. Transports without a socket of the system's (the simulator's) are left.
    """
    peer, own = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
    if not peer or not own or not (peer[0] == own[0] or peer[0].startswith("127.")):
        return
    sock = transport.get_extra_info("socket")
    if hasattr(sock, "setsockopt"):
        with contextlib.suppress(OSError):  # a kernel without it: slower, nothing else
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, UNPACED)
