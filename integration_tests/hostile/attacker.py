"""Hostile connections in waves, as a process of its own: `python -m integration_tests.hostile.attacker PORT`.

For each number on stdin it makes that many connections one after the other, holds them all, lets them end in every
way there is, and prints how many there were. Bounded: one wave at a time, loopback only.
"""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import struct
import sys
import time

HOLD_S = 0.1
RESET = struct.pack("ii", 1, 0)
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 7, -1)
SENT = (
    b"",
    b"\0\0",  # half a length
    API_VERSIONS[:9],  # half a header
    struct.pack(">i", 90_000_000) + b"\0" * 2_000,  # claims much, sends little
    struct.pack(">i", -1),
    b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 500,  # TLS
    struct.pack(">ihhih", 10, 29_999, 0, 1, -1),  # no such key
    struct.pack(">ihhihi", 14, 1, 99, 1, -1, 0),  # no such version
    struct.pack(">ihhih", 200, 3, 12, 1, -1) + b"\xff" * 190,  # fields that are none
    API_VERSIONS * 20,  # and never reads
)


def wave(port: int, count: int, pause_s: float) -> int:
    made: list[socket.socket] = []
    for n in range(count):
        sock = socket.socket()
        made.append(sock)
        with contextlib.suppress(ConnectionError):
            sock.connect(("127.0.0.1", port))
            if data := SENT[n % len(SENT)]:
                sock.sendall(data)
        time.sleep(pause_s)
    time.sleep(HOLD_S)
    for n, sock in enumerate(made):
        if n % 2:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        sock.close()
    return len(made)


def main() -> None:
    os.nice(19)  # its load should be the broker's to bear: on a machine of its own it would take nobody's processor
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    port, pause_s = int(sys.argv[1]), float(sys.argv[2])
    for line in sys.stdin:
        print(wave(port, int(line), pause_s), flush=True)


if __name__ == "__main__":
    main()
