"""The names of one directory: those that are on disk, and the changes that a power cut may take."""

from __future__ import annotations

import random
from collections.abc import Mapping

from .inode import Inode


class Directory:
    """`durable`: what is on disk under which name. `pending`: changes since, each name with what it stands for then.

    One change is one call: a rename changes two names, both or neither.
    """

    __slots__ = ("durable", "pending")

    def __init__(self) -> None:
        self.durable: dict[str, Inode | Directory] = {}
        self.pending: list[Mapping[str, Inode | Directory | None]] = []

    def change(self, names: Mapping[str, Inode | Directory | None]) -> None:
        """None: nothing has the name any more."""
        self.pending.append(names)

    def sync(self) -> None:
        for names in self.pending:
            self._apply(names)
        self.pending.clear()

    def _apply(self, names: Mapping[str, Inode | Directory | None]) -> None:
        for name, node in names.items():
            if node is None:
                self.durable.pop(name, None)
            else:
                self.durable[name] = node

    def crash(self, chance: random.Random) -> int:
        """Each change survives or not, by itself; none after one of the same name that did not. How many are lost."""
        share = chance.choice((0.0, 0.5, 0.5, 0.8, 1.0))  # of changes that survive
        lost_names: set[str] = set()
        lost = 0
        for names in self.pending:
            if chance.random() >= share or not lost_names.isdisjoint(names):
                lost_names.update(names)
                lost += 1
            else:
                self._apply(names)
        self.pending.clear()
        return lost
