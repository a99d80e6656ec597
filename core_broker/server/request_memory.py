"""The memory of requests that have not arrived whole, which is bounded for all connections together."""

from __future__ import annotations

from collections import deque
from typing import Protocol


class Holder(Protocol):
    """The connection of such a request."""

    def pause(self) -> None:
        """Read no more."""

    def resume(self) -> None:
        """Read on, unless something else holds up the next request."""


class RequestMemory:
    """A connection that takes more than the bound (`queued.max.request.bytes`) is paused until there is memory."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held_bytes = 0
        self._paused: deque[Holder] = deque()

    @property
    def held_bytes(self) -> int:
        """Memory of requests that are being read."""
        return self._held_bytes

    @property
    def free_bytes(self) -> int:
        """How much more there may be of it."""
        return max(self._max_bytes - self._held_bytes, 0)

    def changed(self, connection: Holder, delta_bytes: int) -> None:
        """A connection holds so many bytes more, or less."""
        self._held_bytes += delta_bytes
        if delta_bytes > 0:
            if self._held_bytes > self._max_bytes:
                connection.pause()
                self._paused.append(connection)
        elif self._paused and self._held_bytes <= self._max_bytes:
            paused, self._paused = self._paused, deque()
            for each in paused:
                each.resume()
