"""Pauses that a test ends: time stands still."""

from __future__ import annotations

from isthmus.core_broker.pauses import Pauses


class TickedPauses(Pauses):
    """`lengths_s`: what was asked for. A pause is over with `tick`, or by `stop` as any other."""

    def __init__(self) -> None:
        super().__init__()
        self.lengths_s: list[float | None] = []
        self.is_pausing = False

    async def pause(self, seconds: float | None) -> None:
        self.lengths_s.append(seconds)
        self.is_pausing = True
        await super().pause(None)
        self.is_pausing = False

    def tick(self) -> None:
        assert self.is_pausing, "nobody waits"
        self.is_pausing = False
        self.wake()
