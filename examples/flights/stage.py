"""Where a demo's topology runs: what the demo needs of it, be it processes under a supervisor or containers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from isthmus.deploy.supervisor import Status

TOPOLOGY = Path(__file__).with_name("topology.yaml")


class DemoError(Exception):
    """The demo cannot go on; the text says what to do."""


class Stage(Protocol):
    """The flights topology on whatever runs it."""

    folder: Path  # of what it keeps here
    look_every_s: float  # how often `processes` may be asked
    pace: float  # replays take so many times as long: what is slow to kill must be killed in mid-run all the same

    @property
    def addresses(self) -> Mapping[str, str]:
        """HOST:PORT of each datacenter for clients on this machine; known from `check` on."""

    @property
    def logs(self) -> str:
        """Where a person finds what the processes said."""

    def check(self) -> None:
        """DemoError or DeployError, before anything is started, when it could not be."""

    async def start(self, say: Callable[[str], None]) -> None:
        """Returns when all of it is ready. DemoError or DeployError; `stop` cleans up after that, too."""

    async def processes(self) -> Sequence[Status]:
        """Each process of the topology, by the name that the topology gives it. DeployError: it cannot be told now."""

    async def kill(self, name: str) -> str:
        """SIGKILL, which it is started again after; what was killed, such as `pid 17`. DemoError: it does not run."""

    async def stop(self) -> None:
        """Stop all of it. Nothing happens when nothing was started."""

    def next_steps(self) -> Sequence[str]:
        """Commands for a person whom it was kept for; the last one ends it."""
