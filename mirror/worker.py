"""The mirror worker: finds what a link carries, has it carried, and says in `__mirror_status` how far it came.

Any number of workers may run on one link: the target takes each batch once, whoever brings it (see `carrier`). What is
not as it should be becomes a state of its partition, with its reason, and never stops the others.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Coroutine
from typing import Any

from ..client import Client, Producer, TopicPartition
from ..protocol.messages import mirror_append
from ..protocol.primitives import ZERO_UUID
from ..runtime import Runtime, system
from .carrier import LANE, TROUBLE, Carrier
from .discovery import Discovery, Found
from .errors import MirrorError
from .link import MirrorLink
from .partition import HELD, PartitionMirror, State
from .status import STATUS_TOPIC, read_status, status_key

log = logging.getLogger("isthmus.mirror")


class MirrorWorker:
    """Carries one link. Clients are started and closed by the caller; `start` returns once the target is known to
    speak the mirror's requests, `stop` waits for what is under way. `failed` is done only by a defect of ours."""

    def __init__(self, link: MirrorLink, source: Client, target: Client, runtime: Runtime | None = None) -> None:
        self.link = link
        self.source = source
        self.target = target
        self.runtime = runtime or system()
        self.carrier = Carrier(link, source, target, self.runtime)
        self.partitions = self.carrier.partitions
        self.discovery = Discovery(link, source, target)
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._carriers: dict[int, asyncio.Task[None]] = {}  # by source node
        self._tasks: list[asyncio.Task[None]] = []
        self._troubled: dict[str, None] = {}  # topics whose last discovery found a problem
        self._told: dict[TopicPartition, dict[str, object]] = {}  # what `__mirror_status` has
        self._dropped: list[TopicPartition] = []  # what it still has, of a link that once selected more
        self._looked = asyncio.Event()  # what the source has is known
        self._producer: Producer | None = None

    async def start(self) -> None:
        await self.target.connection(None, LANE)
        if not self.target.supports(mirror_append.API.key):
            raise MirrorError(
                f"link {self.link.name}: the target is not an Isthmus cluster (it does not list request "
                f"{mirror_append.API.key}). Mirroring into stock Apache Kafka is not supported yet: use an Isthmus "
                "cluster as the target; the source may be any Kafka"
            )
        if self.source.cluster_id is not None and self.source.cluster_id == self.target.cluster_id:
            raise MirrorError(
                f"link {self.link.name}: source and target are one cluster, {self.source.cluster_id}: a cluster is not "
                "mirrored into itself"
            )
        await self.discovery.ensure_status_topic(STATUS_TOPIC)
        # A status doubled is harmless; a producer that stops because the target lost an older one would not be.
        self._producer = Producer(self.target, linger_ms=0, idempotent=False)
        await self._producer.start()
        self._tasks = [
            self._task(self._discover(), "discovery"),
            self._task(self._publish(), "status"),
            self._task(self._recall(), "recall"),
        ]

    def _task(self, work: Coroutine[Any, Any, None], what: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=f"{self.link.name} {what}")
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) and not self.failed.done():
            self.failed.set_exception(error)

    async def stop(self) -> None:
        """Stop fetching, let appends under way finish, publish the last status; all within the stop timeout."""
        tasks = [*self._tasks, *self._carriers.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        appends = list(self.carrier.appends)
        try:
            async with asyncio.timeout(self.link.limits.stop_timeout_ms / 1000):
                if appends:
                    await asyncio.wait(appends)
                if self._producer is not None:
                    await self._publish_changes()
                    await self._producer.close()
        except TROUBLE:
            pass  # the status is for people; what counts is in the target's logs
        for task in appends:
            task.cancel()
        await asyncio.gather(*appends, return_exceptions=True)
        if self.failed.done():
            self.failed.exception()  # seen

    def status(self) -> list[dict[str, object]]:
        """The state of each partition, as `__mirror_status` has it, with its topic and partition."""
        now_ms = self.runtime.wall_ms()
        return [
            {"link": self.link.name, "topic": each.topic, "partition": each.index, **each.status(now_ms)}
            for each in self.partitions.values()
        ]

    # --- What there is to mirror --------------------------------------------------------------------

    async def _discover(self) -> None:
        while True:
            await self._look()
            self.carrier.room.set()
            self.carrier.work.set()
            await asyncio.sleep(self.link.limits.discovery_interval_ms / 1000)

    async def _look(self) -> None:
        known = sorted({tp.topic for tp in self.partitions})
        try:
            topics = await self.discovery.source_topics(known)
        except TROUBLE as error:
            self.carrier.source_trouble(error)
            return
        for tp, each in self.partitions.items():
            if tp.topic not in topics and not each.held:
                each.turn(State.SOURCE_UNAVAILABLE, gone(tp.topic, each.target_topic), self.runtime.wall_ms())
        try:
            for found in await self.discovery.settle(topics):
                self._adopt(found)
        except TROUBLE as error:
            self.carrier.target_trouble(error)
            return
        self._assign()
        self._ask_the_quiet()
        self._looked.set()

    async def _recall(self) -> None:
        """Topics that went while no worker ran: what the last one said of them must not stand for ever."""
        while True:
            try:
                rows = await read_status(self.target)
                break
            except TROUBLE:
                await asyncio.sleep(self.link.limits.backoff_max_ms / 1000)
        await self._looked.wait()
        now_ms = self.runtime.wall_ms()
        for row in rows:
            tp = TopicPartition(row["topic"], row["partition"])
            if row["link"] != self.link.name or tp in self.partitions or self.discovery.has(tp.topic):
                continue
            if not self.link.selects(tp.topic):
                self._dropped.append(tp)
                continue
            each = PartitionMirror(tp.topic, tp.partition, row["target_topic"], ZERO_UUID, now_ms)
            each.next_offset, each.epoch = row["next_offset"], row["epoch"]
            each.turn(State.SOURCE_UNAVAILABLE, gone(tp.topic, each.target_topic), now_ms)
            self.partitions[tp] = each

    def _adopt(self, found: Found) -> None:
        """Take up the partitions of a topic; begin anew where source or target topic is another one than before."""
        now_ms = self.runtime.wall_ms()
        healed = found.topic in self._troubled and not found.problem
        self._troubled.pop(found.topic, None)
        if found.problem:
            self._troubled[found.topic] = None
        for index in found.partitions:
            tp = TopicPartition(found.topic, index)
            each = self.partitions.get(tp)
            changed = each is not None and (each.topic_id, each.target_id) != (found.topic_id, found.target_id)
            if each is None or healed or (changed and not found.problem):
                if each is not None:
                    each.doubt()  # whatever is under way for the old one
                each = self.partitions[tp] = PartitionMirror(
                    found.topic, index, found.target_topic, found.topic_id, now_ms, found.target_id
                )
            if found.problem and (each.state, each.reason) != found.problem:
                each.hold(*found.problem, now_ms)

    def _assign(self) -> None:
        """One carrier for each broker that leads something."""
        for node in dict.fromkeys(self.source.leader(tp) for tp in self.partitions):
            if node is not None and (node not in self._carriers or self._carriers[node].done()):
                self._carriers[node] = self._task(self.carrier.run(node), f"carrier {node}")

    def _ask_the_quiet(self) -> None:
        """A target that lost its power may have lost what it acknowledged; where nothing is appended nobody notices."""
        for each in self.partitions.values():
            if each.probed and not each.held and not each.in_flight and each.append_offset == each.quiet_at:
                each.asking = True
            each.quiet_at = each.append_offset

    # --- Status -------------------------------------------------------------------------------------

    async def _publish(self) -> None:
        while True:
            await asyncio.sleep(self.link.limits.status_interval_ms / 1000)
            try:
                await self._publish_changes()
            except TROUBLE:
                continue  # the target is away; the mirror itself notices that too

    async def _publish_changes(self) -> None:
        """Write the status of partitions whose status changed; time alone is no change."""
        assert self._producer is not None
        now_ms = self.runtime.wall_ms()
        sent = []
        for tp, each in list(self.partitions.items()):
            status = each.status(now_ms)
            what = {name: value for name, value in status.items() if name not in ("updated_ms", "lag_ms")}
            told = self._told.get(tp)
            if told == what:
                continue
            if told is None or (told["state"], told["reason"]) != (what["state"], what["reason"]):
                level = logging.WARNING if each.state in HELD or each.reason else logging.INFO
                because = f": {each.reason}" if each.reason else ""
                log.log(level, "link %s %s-%d: %s%s", self.link.name, *tp, each.state, because)
            self._told[tp] = what  # told in the log; in the topic only once it is acknowledged
            key = status_key(self.link.name, *tp)
            await self._producer.room()
            sent.append((tp, what, self._producer.send(STATUS_TOPIC, json.dumps(status).encode(), key, partition=0)))
        problem: BaseException | None = None
        for tp, what, future in sent:
            try:
                await future
            except TROUBLE as error:
                problem = error
                if self._told.get(tp) is what:
                    self._told[tp] = {**what, "updated_ms": None}  # differs from whatever comes next
        if problem is not None:
            raise problem
        while self._dropped:
            await self._producer.send(STATUS_TOPIC, None, status_key(self.link.name, *self._dropped[-1]), partition=0)
            self._dropped.pop()


def gone(topic: str, target_topic: str) -> str:
    return f"the source has no topic {topic} any more; {target_topic} keeps what was mirrored"
