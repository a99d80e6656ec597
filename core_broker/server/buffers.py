"""A pool of buffers for requests that do not arrive in one read.

A fresh buffer of a megabyte is zeroed and its pages are mapped before a byte is read into it, which costs as much as
the read itself. Buffers that are given back are kept by size. The last one is used first, since its bytes are still in
the processor's cache. What was not needed since the last tick of the server is freed.
"""

from __future__ import annotations

SMALL_BYTES = 64 * 1024  # up to here a fresh buffer is cheap, and none is kept
CLASSES_BYTES = (256 * 1024, 1024 * 1024 + 4096, 4 * 1024 * 1024)  # librdkafka's and Java's requests are up to 1 MB
KEPT_BYTES = 8 * 1024 * 1024  # of buffers that wait to be used


class Buffers:
    """The buffers of one server. A buffer that was given back must not be used any more."""

    __slots__ = ("_kept", "_kept_bytes", "_least_bytes")

    def __init__(self) -> None:
        self._kept: dict[int, list[bytearray]] = {size: [] for size in CLASSES_BYTES}
        self._kept_bytes = 0
        self._least_bytes = 0  # the least that was kept since the last `trim`: so much was not needed

    @property
    def kept_bytes(self) -> int:
        return self._kept_bytes

    def take(self, size: int) -> bytearray:
        """A buffer of at least `size` bytes, with any content."""
        if SMALL_BYTES < size <= CLASSES_BYTES[-1]:
            for whole in CLASSES_BYTES:
                if size <= whole:
                    kept = self._kept[whole]
                    if not kept:
                        return bytearray(whole)
                    self._kept_bytes -= whole
                    self._least_bytes = min(self._least_bytes, self._kept_bytes)
                    return kept.pop()
        return bytearray(size)

    def give(self, buffer: bytearray) -> None:
        """Give back a buffer of `take`."""
        size = len(buffer)
        kept = self._kept.get(size)
        if kept is not None and self._kept_bytes + size <= KEPT_BYTES:
            kept.append(buffer)
            self._kept_bytes += size

    def trim(self) -> None:
        """Free what was not needed since the last call."""
        idle = self._least_bytes
        for size, kept in self._kept.items():
            while kept and idle >= size:
                kept.pop(0)
                self._kept_bytes -= size
                idle -= size
        self._least_bytes = self._kept_bytes
