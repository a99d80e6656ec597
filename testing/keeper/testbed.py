"""A running topology as a test sees it: remembers which parts are paused or killed and which lines are cut, refuses
what makes no sense, and waits. How a fault is made is the backend's business.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Protocol

from ...deploy.topology import Topology
from ..errors import IsthmusTestingError
from ..status import MirrorStatus
from .mirrors import Observer
from .parts import Part, Parts

if TYPE_CHECKING:
    from ...deploy.topology import Mirror

POLL_S = 0.05


class Backend(Protocol):
    """How a topology is run and broken. addresses: HOST:PORT by datacenter, known after `start`."""

    addresses: dict[str, str]

    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    async def ready(self, part: Part, timeout_s: float) -> None: ...
    async def pause(self, part: Part) -> None: ...
    async def unpause(self, part: Part) -> None: ...
    async def kill(self, part: Part) -> None: ...
    async def restart(self, part: Part) -> None: ...
    async def cut(self, link: Mirror) -> None: ...
    async def heal(self, link: Mirror) -> None: ...
    async def log(self, part: Part) -> str: ...


class Testbed:
    """Its public coroutines are what a test may ask for, by name and with values that JSON holds (see `__main__`)."""

    __test__ = False  # of no pytest

    def __init__(self, topology: Topology, backend: Backend) -> None:
        self._backend = backend
        self._parts = Parts(topology)
        self._paused: dict[Part, None] = {}
        self._killed: dict[Part, None] = {}
        self._cut: dict[str, Mirror] = {}

    async def start(self) -> dict[str, str]:
        """HOST:PORT of each datacenter."""
        await self._backend.start()
        return self._backend.addresses

    async def stop(self) -> None:
        await self._backend.stop()

    async def wait_ready(self, timeout_s: float) -> None:
        running = [part for part in self._parts.all if part not in self._killed and part not in self._paused]
        await asyncio.gather(*(self._backend.ready(part, timeout_s) for part in running))

    # --- Faults -------------------------------------------------------------------------------------

    async def pause(self, name: str) -> None:
        part = self._parts.find(name)
        if part in self._killed:
            raise IsthmusTestingError(f"{part.process} is killed: restart it first")
        await self._backend.pause(part)
        self._paused[part] = None

    async def unpause(self, name: str) -> None:
        part = self._parts.find(name)
        if part not in self._paused:
            raise IsthmusTestingError(f"{part.process} is not paused")
        await self._backend.unpause(part)
        del self._paused[part]

    async def kill(self, name: str) -> None:
        part = self._parts.find(name)
        if part in self._killed:
            raise IsthmusTestingError(f"{part.process} is killed already: restart brings it back")
        await self._backend.kill(part)
        self._paused.pop(part, None)
        self._killed[part] = None

    async def restart(self, name: str) -> None:
        part = self._parts.find(name)
        await self._backend.restart(part)
        self._paused.pop(part, None)
        self._killed.pop(part, None)

    async def cut_wan(self, mirrors: list[str]) -> None:
        for link in self._parts.mirrors(mirrors):
            if link.name not in self._cut:
                await self._backend.cut(link)
                self._cut[link.name] = link

    async def heal_wan(self, mirrors: list[str]) -> None:
        for link in self._parts.mirrors(mirrors):
            if self._cut.pop(link.name, None):
                try:
                    await self._backend.heal(link)
                except BaseException:
                    self._cut[link.name] = link  # what could not be mended is still cut
                    raise

    async def repair(self, timeout_s: float) -> None:
        """Undo every fault, and wait until all is ready."""
        if self._cut:
            await self.heal_wan(list(self._cut))
        for part in list(self._paused):
            await self.unpause(part.process)
        for part in list(self._killed):
            await self.restart(part.process)
        await self.wait_ready(timeout_s)

    # --- What is to be seen -------------------------------------------------------------------------

    async def log(self, name: str) -> str:
        return await self._backend.log(self._parts.find(name))

    async def logs(self) -> dict[str, str]:
        """The log of each part, by the name of its process."""
        return {part.process: await self._backend.log(part) for part in self._parts.all}

    async def mirror_status(self, mirrors: list[str]) -> list[dict[str, Any]]:
        """The fields of each MirrorStatus."""
        async with self._observer(mirrors) as observer:
            return [asdict(each) for each in await observer.status()]

    async def wait_mirrored(self, mirrors: list[str], timeout_s: float) -> None:
        """Until the targets hold all that the sources hold now. IsthmusTestingError names what is missing."""
        links = self._parts.mirrors(mirrors)
        async with self._observer(mirrors) as observer:
            now = await observer.status()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0 if self._silent & {link.source for link in links} else timeout_s):
                    while observer.silent & {link.source for link in links}:
                        await asyncio.sleep(POLL_S)
                        now = await observer.status()
            if silent := [link.name for link in links if link.source in observer.silent]:
                raise IsthmusTestingError(
                    f"the source of {silent[0]} does not answer, so how much is to be awaited is not known: "
                    "unpause or restart it first"
                )
            wanted = {_place(each): each.source_end or 0 for each in now}
            behind = _behind(now, wanted)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    while behind:
                        await asyncio.sleep(POLL_S)
                        behind = _behind(await observer.status(), wanted)
        if behind:
            raise IsthmusTestingError(f"not mirrored within {timeout_s:g} s: {'; '.join(map(_words, behind))}")

    @property
    def _silent(self) -> set[str]:
        """Datacenters that do not answer, as they were told."""
        return {part.name for part in (*self._paused, *self._killed) if part.kind == "broker"}

    def _observer(self, mirrors: list[str]) -> Observer:
        addresses = {name: address for name, address in self._backend.addresses.items() if name not in self._silent}
        return Observer(self._parts.mirrors(mirrors), addresses)


def _place(each: MirrorStatus) -> tuple[str, str, int]:
    return each.mirror, each.topic, each.partition


def _behind(now: list[MirrorStatus], wanted: dict[tuple[str, str, int], int]) -> list[MirrorStatus]:
    return [each for each in now if (each.target_end or 0) < wanted.get(_place(each), 0)]


def _words(each: MirrorStatus) -> str:
    where = "does not answer" if each.target_end is None else f"has {each.target_end} of {each.source_end}"
    said = f" ({each.state}{': ' if each.reason else ''}{each.reason})" if each.state else ""
    return f"{each.mirror}: {each.target_topic}-{each.partition} {where}{said}"
