"""The case of consumer groups: members of a few lines, so that what a rebalance costs is the broker's."""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time

import uvloop

from integration_tests.groups.members import Line, Member, coordinated, together

from .cases import Bench, Sample

MEMBERS = 50
_names = itertools.count()


class Rebalance(Bench):
    """A stable classic group of 50: its leader joins again; until all have an assignment of the next generation."""

    def prepare(self) -> None:
        self.loop = uvloop.new_event_loop()
        self.loop.run_until_complete(self._come())

    async def _come(self) -> None:
        group = f"bench-{next(_names)}"
        lines = await together(Line.to(self.side.address) for _ in range(MEMBERS))
        await coordinated(lines[0], [group])
        self.members = [Member(line, group) for line in lines]
        await together(member.take_part(self.members) for member in self.members)

    def measure(self, seconds: float) -> Sample:
        return self.loop.run_until_complete(self._measure(seconds))

    async def _measure(self, seconds: float) -> Sample:
        took_s = []
        cpu_s = self.side.cpu_seconds()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            leader = next(member for member in self.members if member.leads)
            started = time.perf_counter()
            await together(
                member.settle() if member is leader else member.rejoin_when_told() for member in self.members
            )
            took_s.append(time.perf_counter() - started)
            if len({member.generation for member in self.members}) != 1:
                raise RuntimeError(f"{self.side.name}: members of several generations")
        cpu_s = self.side.cpu_seconds() - cpu_s
        return {
            "p50": statistics.median(took_s) * 1000,
            "worst": max(took_s) * 1000,
            "cpu": cpu_s / len(took_s) * 1000,
        }

    def clean(self) -> None:
        for member in self.members:
            member.line.close()
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()
