"""One file's content: volatile bytes, and how to get back to the durable ones."""

from __future__ import annotations

import os
import random

PAGE_BYTES = 4096

Buffer = bytes | bytearray | memoryview


class Inode:
    """`data` is what readers see. `undo` holds durable pages changed since the last sync, `durable_size` the size.

    Bytes below `durable_size` outside `undo` are equal in both. `forgotten` are the pages of `undo` that a failed sync
    has left unwritten: the system takes them for written, and what is written to them later for lasting; but they have
    blocks that, as ext4 keeps its books, nothing was ever written to. Only a truncation takes these blocks away.
    """

    __slots__ = ("data", "durable_size", "error", "forgotten", "number", "path", "undo")

    def __init__(self, number: int, path: str) -> None:
        self.number = number
        self.path = path  # where it was created; for reports only
        self.data = bytearray()
        self.durable_size = 0
        self.undo: dict[int, bytes] = {}
        self.forgotten: dict[int, None] = {}
        self.error = 0  # of a sync of the volume, that the file's own next sync will tell

    def raise_error(self, path: str) -> None:
        """What the system has kept for the next sync of this file."""
        number, self.error = self.error, 0
        if number:
            raise OSError(number, os.strerror(number), path)

    @property
    def dirty(self) -> bool:
        return bool(self.undo) or self.durable_size != len(self.data)

    def _keep(self, start: int, end: int) -> None:
        end = min(end, self.durable_size)
        for page in range(start // PAGE_BYTES, -(-end // PAGE_BYTES) if end > start else start // PAGE_BYTES):
            if page not in self.undo:
                low = page * PAGE_BYTES
                self.undo[page] = bytes(self.data[low : min(low + PAGE_BYTES, self.durable_size)])

    def write(self, position: int, data: Buffer) -> None:
        self._keep(position, position + len(data))
        if position > len(self.data):
            self.data.extend(bytes(position - len(self.data)))
        self.data[position : position + len(data)] = data

    def truncate(self, size: int) -> None:
        self._keep(size, self.durable_size)
        for page in [page for page in self.forgotten if page * PAGE_BYTES >= size]:
            del self.forgotten[page]
        if size > len(self.data):
            self.data.extend(bytes(size - len(self.data)))
        else:
            del self.data[size:]

    def sync(self) -> None:
        self.durable_size = size = len(self.data)
        self.undo = {
            page: old for page, old in self.undo.items() if page in self.forgotten and page * PAGE_BYTES < size
        }
        self.forgotten = dict.fromkeys(self.undo)

    def lost_by_failed_sync(self) -> None:
        """Nothing was written, and what should have been is not known any more."""
        for page in range(self.durable_size // PAGE_BYTES, -(-len(self.data) // PAGE_BYTES)):
            self.undo.setdefault(page, bytes(self.data[page * PAGE_BYTES : self.durable_size]).ljust(PAGE_BYTES, b"\0"))
        self.forgotten = dict.fromkeys(self.undo)

    def durable(self) -> bytes:
        """The content that no crash can take."""
        durable = bytearray(self.data[: self.durable_size])
        durable.extend(bytes(self.durable_size - len(durable)))
        for page, old in sorted(self.undo.items()):
            durable[page * PAGE_BYTES : page * PAGE_BYTES + len(old)] = old
        return bytes(durable[: self.durable_size])

    def crash(self, chance: random.Random) -> tuple[str, int]:
        """Lose what was not synced, in a way drawn from `chance`; the way, and the bytes at the end that are gone."""
        if not self.dirty:
            return "clean", 0
        volatile, durable = bytes(self.data), self.durable()
        how = chance.choices(("lost", "kept", "torn", "mixed"), (4, 2, 4, 2))[0]
        if how == "lost":
            content = durable
        elif how == "kept":
            content = volatile
        elif how == "torn":
            content = _torn(durable, volatile, chance)
        else:
            content = _mixed(durable, volatile, chance)
        self.data = bytearray(content)
        self.durable_size = len(content)
        self.undo.clear()
        self.forgotten.clear()
        self.error = 0
        return how, max(0, len(volatile) - len(content))


def _torn(durable: bytes, volatile: bytes, chance: random.Random) -> bytes:
    """A prefix of what was appended, cut at any byte; half of the time at one near the end of the page before."""
    if len(volatile) <= len(durable):
        return _mixed(durable, volatile, chance)
    cut = chance.randint(len(durable), len(volatile))
    if chance.random() < 0.3:
        cut = max(len(durable), cut // PAGE_BYTES * PAGE_BYTES)
    base = durable if chance.random() < 0.5 else volatile[: len(durable)]
    return base + volatile[len(durable) : cut]


def _mixed(durable: bytes, volatile: bytes, chance: random.Random) -> bytes:
    """Each page is the old one or the new one; pages past the old end that were not written read as zeros."""
    size = chance.choice((len(durable), len(volatile), chance.randint(*sorted((len(durable), len(volatile))))))
    content = bytearray(size)
    for low in range(0, size, PAGE_BYTES):
        source = volatile if chance.random() < 0.5 else durable
        page = source[low : min(low + PAGE_BYTES, size)]
        content[low : low + len(page)] = page
    return bytes(content)
