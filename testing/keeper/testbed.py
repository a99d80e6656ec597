"""A running topology as a test sees it: remembers which parts are paused or killed and which lines are cut, refuses
what makes no sense, and waits. How a fault is made is the backend's business.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Protocol

from ...client import Admin, Client, TopicPartition
from ...deploy.nodes import KIND
from ...deploy.topology import Topology
from ..errors import IsthmusTestingError
from ..status import MirrorStatus
from .mirrors import Observer
from .parts import Part, Parts

if TYPE_CHECKING:
    from ...deploy.topology import Mirror

POLL_S = 0.05
ASK_TIMEOUT_MS = 30_000  # for a cluster that may be choosing leaders anew
WAYS = {"both": (False, False), "in": (False, True), "out": (True, False)}  # whether it hears others, and is heard


class Backend(Protocol):
    """How a topology is run and broken. addresses: HOST:PORT of a datacenter's brokers with commas between, known after
    `start`."""

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
    async def reach(self, part: Part, hears: bool, is_heard: bool) -> None:
        """Whether a broker hears the others of its cluster, and they hear it."""

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
        self._cut_off: dict[Part, None] = {}  # brokers

    async def start(self) -> dict[str, str]:
        """HOST:PORT of each datacenter's brokers, with commas between."""
        await self._backend.start()
        return self._backend.addresses

    async def stop(self) -> None:
        await self._backend.stop()

    async def wait_ready(self, timeout_s: float) -> None:
        running = [part for part in self._parts.all if part not in self._killed and part not in self._paused]
        await asyncio.gather(*(self._backend.ready(part, timeout_s) for part in running))

    # --- Faults -------------------------------------------------------------------------------------

    async def pause(self, name: str, broker: int | None = None) -> None:
        """What is paused or killed already stays so; something must be left to pause."""
        running = [part for part in self._parts.find(name, broker) if part not in self._killed]
        if not running:
            raise IsthmusTestingError(f"{self._parts.find(name, broker)[0].process} is killed: restart it first")
        for part in running:
            await self._backend.pause(part)
            self._paused[part] = None

    async def unpause(self, name: str, broker: int | None = None) -> None:
        found = self._parts.find(name, broker)
        paused = [part for part in found if part in self._paused]
        if not paused:
            raise IsthmusTestingError(f"{found[0].process} is not paused")
        for part in paused:
            await self._backend.unpause(part)
            del self._paused[part]

    async def kill(self, name: str, broker: int | None = None) -> None:
        found = self._parts.find(name, broker)
        alive = [part for part in found if part not in self._killed]
        if not alive:
            raise IsthmusTestingError(f"{found[0].process} is killed already: restart brings it back")
        await asyncio.gather(*(self._kill(part) for part in alive))

    async def _kill(self, part: Part) -> None:
        await self._backend.kill(part)
        self._paused.pop(part, None)
        self._killed[part] = None

    async def restart(self, name: str, broker: int | None = None) -> None:
        """All at once: brokers of a cluster are ready only when most of them are."""
        await asyncio.gather(*(self._restart(part) for part in self._parts.find(name, broker)))

    async def _restart(self, part: Part) -> None:
        await self._backend.restart(part)
        self._paused.pop(part, None)
        self._killed.pop(part, None)

    async def kill_leader(self, datacenter: str, topic: str, partition: int) -> int:
        """Gives its node id."""
        node_id = await self.leader(datacenter, topic, partition)
        await self._kill(self._parts.broker(datacenter, node_id))
        return node_id

    async def kill_controller(self, datacenter: str) -> int:
        """Gives its node id."""
        node_id = await self.controller(datacenter)
        await self._kill(self._parts.broker(datacenter, node_id))
        return node_id

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

    async def cut(self, name: str, broker: int | None, way: str) -> None:
        """One that is cut off already is cut off in this way from now on."""
        part = self._parts.one(name, broker)
        if part.node_id is None:
            way_out = "give its datacenter several brokers" if part.kind == KIND else "cut_wan cuts mirrors off"
            raise IsthmusTestingError(f"{part.process} is no broker that has others beside it: {way_out}")
        if way not in WAYS:
            raise IsthmusTestingError(f"there is no way '{way}' to cut a broker off: say {', '.join(WAYS)}")
        await self._backend.reach(part, *WAYS[way])
        self._cut_off[part] = None

    async def heal(self, name: str, broker: int | None) -> None:
        """Those that are cut off, where several brokers are meant."""
        for part in self._parts.find(name, broker):
            if part in self._cut_off:
                await self._backend.reach(part, True, True)
                del self._cut_off[part]

    async def repair(self, timeout_s: float) -> None:
        """Undo every fault, and wait until all is ready."""
        for part in list(self._cut_off):
            await self.heal(part.process, None)
        if self._cut:
            await self.heal_wan(list(self._cut))
        for part in list(self._paused):
            await self.unpause(part.process)
        await asyncio.gather(*(self._restart(part) for part in list(self._killed)))
        await self.wait_ready(timeout_s)

    # --- What is to be seen -------------------------------------------------------------------------

    async def log(self, name: str, broker: int | None = None) -> str:
        return await self._backend.log(self._parts.one(name, broker))

    async def logs(self) -> dict[str, str]:
        """The log of each part, by the name of its process."""
        return {part.process: await self._backend.log(part) for part in self._parts.all}

    async def brokers(self, datacenter: str) -> dict[str, str]:
        """HOST:PORT by node id, as text."""
        ids = self._parts.broker_ids(datacenter)
        addresses = self._backend.addresses[datacenter].split(",")
        return {str(node_id): address for node_id, address in zip(ids, addresses, strict=True)}

    async def leader(self, datacenter: str, topic: str, partition: int) -> int:
        """Node id of a partition's leader, once it has one."""
        async with self._admin(datacenter) as admin:
            return await admin.client.leader_of(TopicPartition(topic, partition), ASK_TIMEOUT_MS)

    async def controller(self, datacenter: str) -> int:
        """Node id of the controller, once there is one."""
        async with self._admin(datacenter) as admin:
            quorum, _ = await admin.describe_quorum()
            return int(quorum.leader_id)

    async def wait_in_sync(self, datacenter: str, timeout_s: float) -> None:
        """Until each partition has a leader and all its replicas in sync; IsthmusTestingError names those that have
        not."""
        lacking = ["nothing was answered"]
        async with self._admin(datacenter) as admin:
            try:
                async with asyncio.timeout(timeout_s):
                    while lacking := await _lacking(admin):
                        await asyncio.sleep(POLL_S)
            except TimeoutError:
                raise IsthmusTestingError(f"not in sync within {timeout_s:g} s: {', '.join(lacking)}") from None

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
        """Datacenters of which no broker answers, as they were told."""
        return {name for name in self._backend.addresses if not self._answering(name)}

    def _answering(self, datacenter: str) -> list[str]:
        """The addresses of brokers that are neither paused nor killed, nor cut off, for these know no news."""
        parts = self._parts.brokers(datacenter)
        addresses = self._backend.addresses[datacenter].split(",")
        away = {*self._paused, *self._killed, *self._cut_off}
        return [address for part, address in zip(parts, addresses, strict=True) if part not in away]

    @contextlib.asynccontextmanager
    async def _admin(self, datacenter: str) -> AsyncIterator[Admin]:
        """Asks the brokers that run. IsthmusTestingError: none does."""
        addresses = self._answering(self._parts.datacenter(datacenter))
        if not addresses:
            raise IsthmusTestingError(f"no broker of {datacenter} can tell: unpause, restart or heal one first")
        client = Client(",".join(addresses), "isthmus-testing")
        try:
            await client.start(ASK_TIMEOUT_MS)
            yield Admin(client)
        finally:
            await client.close()

    def _observer(self, mirrors: list[str]) -> Observer:
        answering = {name: self._answering(name) for name in self._backend.addresses}
        addresses = {name: ",".join(each) for name, each in answering.items() if each}
        return Observer(self._parts.mirrors(mirrors), addresses)


async def _lacking(admin: Admin) -> list[str]:
    return [
        f"{topic.name}-{each.partition_index}"
        for topic in await admin.all_topics()
        for each in topic.partitions
        if each.leader_id < 0 or len(each.isr_nodes) < len(each.replica_nodes)
    ]


def _place(each: MirrorStatus) -> tuple[str, str, int]:
    return each.mirror, each.topic, each.partition


def _behind(now: list[MirrorStatus], wanted: dict[tuple[str, str, int], int]) -> list[MirrorStatus]:
    return [each for each in now if (each.target_end or 0) < wanted.get(_place(each), 0)]


def _words(each: MirrorStatus) -> str:
    where = "does not answer" if each.target_end is None else f"has {each.target_end} of {each.source_end}"
    said = f" ({each.state}{': ' if each.reason else ''}{each.reason})" if each.state else ""
    return f"{each.mirror}: {each.target_topic}-{each.partition} {where}{said}"
