"""Watches the frames on every connection: answers must come in the order of their requests, each exactly once.

It looks at the bytes as they leave, and knows nothing of either end's state.
"""

from __future__ import annotations

import struct
from collections import deque

SIZE = struct.Struct(">i")
REQUEST = struct.Struct(">hhi")
CORRELATION = struct.Struct(">i")


class FrameObserver:
    """`violations` says what was seen and must not be."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self.requests = 0
        self.answers = 0
        self._streams: dict[tuple[int, int], bytearray] = {}
        self._waiting: dict[int, deque[tuple[int, int, int]]] = {}

    def sent(self, connection: int, side: int, data: bytes) -> None:
        """`data` left on a connection; side 0 is who opened it."""
        stream = self._streams.setdefault((connection, side), bytearray())
        stream += data
        position = 0
        while len(stream) - position >= 4:
            (size,) = SIZE.unpack_from(stream, position)
            if size < 4 or len(stream) - position - 4 < size:
                break
            if side == 0:
                self._request(connection, stream, position + 4)
            else:
                self._answer(connection, CORRELATION.unpack_from(stream, position + 4)[0])
            position += 4 + size
        del stream[:position]

    def _request(self, connection: int, stream: bytearray, position: int) -> None:
        key, version, correlation = REQUEST.unpack_from(stream, position)
        self.requests += 1
        self._waiting.setdefault(connection, deque()).append((key, version, correlation))

    def _answer(self, connection: int, correlation: int) -> None:
        self.answers += 1
        waiting = self._waiting.get(connection)
        if not waiting:
            self.violations.append(f"connection {connection}: an answer {correlation} to no request")
            return
        key, version, expected = waiting.popleft()
        if correlation != expected:
            self.violations.append(
                f"connection {connection}: the answer to request {correlation} came before that to request {expected} "
                f"(key {key} version {version})"
            )

    def forget(self, connection: int) -> None:
        for side in (0, 1):
            self._streams.pop((connection, side), None)
        self._waiting.pop(connection, None)
