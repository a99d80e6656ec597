"""The mirror worker: finds the topics of a link, has them copied, and reports the progress in `__mirror_status`.

Any number of workers may run on one link: the target takes each batch once, whoever brings it (see `carrier`). A
problem becomes the state of its partition, with its reason, and never stops the others. A problem of no partition
becomes the state of the link.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from ..client import Client, TopicPartition
from ..protocol.messages import mirror_append
from ..protocol.primitives import ZERO_UUID
from ..runtime import Runtime, system
from .carrier import LANE, TROUBLE, Carrier
from .discovery import Discovery, Found
from .errors import MirrorError
from .link import MirrorLink
from .partition import HELD, PartitionMirror, State
from .status import LINK, StatusWriter, heartbeats, read_status

log = logging.getLogger("isthmus.mirror")


class MirrorWorker:
    """Carries one link. Clients are started and closed by the caller; `start` returns once the target is known to
    speak the mirror's requests, `stop` waits for appends under way. `failed` gets an exception only by a bug of this
    package."""

    def __init__(self, link: MirrorLink, source: Client, target: Client, runtime: Runtime | None = None) -> None:
        self.link = link
        self.source = source
        self.target = target
        self.runtime = runtime or system()
        self.carrier = Carrier(link, source, target, self.runtime)
        self.partitions = self.carrier.partitions
        self.discovery = Discovery(link, source, target, self.runtime)
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._carriers: dict[int, asyncio.Task[None]] = {}  # by source node
        self._tasks: list[asyncio.Task[None]] = []
        self._held_topics: dict[str, None] = {}  # their last discovery found a problem that holds their partitions
        self._link_problem: tuple[State, str] | None = None  # why the last discovery failed as a whole
        self._link_state: tuple[State, int] | None = None  # what the link's own status says, and since when
        self._logged: dict[TopicPartition, tuple[str, str]] = {}  # state and reason, as the log has them
        self._looked = asyncio.Event()  # what the source has is known
        self._status = StatusWriter(link.name, target)

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
                f"link {self.link.name}: source and target are one cluster, {self.source.cluster_id}: a cluster cannot "
                "be mirrored into itself"
            )
        await self._status.start()
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
        """Stop fetching, wait for appends in flight, write the last status; all within the stop timeout."""
        tasks = [*self._tasks, *self._carriers.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        appends = list(self.carrier.appends)
        try:
            async with asyncio.timeout(self.link.limits.stop_timeout_ms / 1000):
                if appends:
                    await asyncio.wait(appends)
                if tasks:
                    await self._publish_changes()
                await self._status.close()
        except TROUBLE:
            pass  # the status is only informative; the target's logs are what counts
        for task in appends:
            task.cancel()
        await asyncio.gather(*appends, return_exceptions=True)
        if self.failed.done():
            self.failed.exception()  # seen

    def status(self) -> list[dict[str, object]]:
        """The state of each partition as in `__mirror_status`, with topic and partition."""
        now_ms = self.runtime.wall_ms()
        return [
            {"link": self.link.name, "topic": each.topic, "partition": each.index, **each.status(now_ms)}
            for each in self.partitions.values()
        ]

    # --- Topics to mirror ---------------------------------------------------------------------------

    async def _discover(self) -> None:
        while True:
            await self._look()
            self.carrier.budget_freed.set()
            self.carrier.work.set()
            await asyncio.sleep(self.link.limits.discovery_interval_ms / 1000)

    async def _look(self) -> None:
        known = sorted({tp.topic for tp in self.partitions})
        try:
            topics = await self.discovery.source_topics(known)
        except TROUBLE as error:
            self.carrier.mark_source_unreachable(error)
            self._link_problem = State.SOURCE_UNAVAILABLE, f"the source does not say which topics it has: {error}"
            return
        for tp, each in self.partitions.items():
            # Metadata lists a topic still of which only Describe was denied: there the fetches' errors give the reason.
            if tp.topic not in topics and not self.source.partitions(tp.topic) and not each.held:
                each.turn(State.SOURCE_UNAVAILABLE, gone(tp.topic, each.target_topic), self.runtime.wall_ms())
        try:
            for found in await self.discovery.reconcile_target(topics):
                self._adopt(found)
        except TROUBLE as error:
            self.carrier.mark_target_unreachable(error)
            self._link_problem = State.CATCHING_UP, f"the target's topics cannot be looked at: {error}"
            return
        self._link_problem = None
        self._assign()
        self._ask_the_quiet()
        self._looked.set()

    async def _recall(self) -> None:
        """Correct the last worker's status of topics that were deleted, or left the link, while no worker ran."""
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
            if row["link"] != self.link.name:
                continue
            if tp == LINK or not self.link.selects(tp.topic):
                self._status.known(tp)  # the next `write` removes it, unless there is a status for it now
            elif tp not in self.partitions and not self.discovery.has(tp.topic):
                each = PartitionMirror(tp.topic, tp.partition, row["target_topic"], ZERO_UUID, now_ms)
                each.next_offset, each.epoch = row["next_offset"], row["epoch"]
                each.turn(State.SOURCE_UNAVAILABLE, gone(tp.topic, each.target_topic), now_ms)
                self.partitions[tp] = each

    def _adopt(self, found: Found) -> None:
        """Add the partitions of a topic; start over if the source or target topic was replaced."""
        now_ms = self.runtime.wall_ms()
        holds = found.problem is not None and found.problem[0] in HELD
        healed = found.topic in self._held_topics and found.problem is None
        if holds:
            self._held_topics[found.topic] = None
        elif healed:
            del self._held_topics[found.topic]
        for index in found.partitions:
            tp = TopicPartition(found.topic, index)
            each = self.partitions.get(tp)
            changed = each is not None and (each.topic_id, each.target_id) != (found.topic_id, found.target_id)
            if each is None or healed or (changed and found.problem is None):
                if each is not None:
                    each.doubt()  # appends in flight belong to the old topic
                each = self.partitions[tp] = PartitionMirror(
                    found.topic, index, found.target_topic, found.topic_id, now_ms, found.target_id
                )
                if found.problem is not None:
                    each.turn(*found.problem, now_ms)
            if found.problem is not None and holds:
                problem = (*found.problem, found.next_try_ms)
                if (each.state, each.reason, each.next_try_ms) != problem:
                    each.hold(*found.problem, now_ms, found.next_try_ms)

    def _assign(self) -> None:
        """Run one carrier for each source broker that leads a partition."""
        for node in dict.fromkeys(self.source.leader(tp) for tp in self.partitions):
            if node is not None and (node not in self._carriers or self._carriers[node].done()):
                self._carriers[node] = self._task(self.carrier.run(node), f"carrier {node}")

    def _ask_the_quiet(self) -> None:
        """Have partitions without appends probed: a target whose power was cut may have lost what it acknowledged."""
        for each in self.partitions.values():
            if each.probed and not each.held and not each.in_flight and each.append_offset == each.quiet_at:
                each.asking = True
            each.quiet_at = each.append_offset

    # --- Status -------------------------------------------------------------------------------------

    async def _publish(self) -> None:
        problem = ""
        while True:
            await asyncio.sleep(self.link.limits.status_interval_ms / 1000)
            try:
                await self._publish_changes()
                problem = ""
            except TROUBLE as error:
                if str(error) != problem:
                    problem = str(error)
                    log.warning("link %s: cannot write its status to the target: %s", self.link.name, problem)

    async def _publish_changes(self) -> None:
        """Log the states that changed, even if the target refuses the status; then write the status."""
        rows = self._rows()
        for tp, row in rows.items():
            said = row["state"], row["reason"]
            if self._logged.get(tp) != said:
                level = logging.WARNING if row["state"] in HELD or row["reason"] else logging.INFO
                because = f": {row['reason']}" if row["reason"] else ""
                what = "" if tp == LINK else f" {tp.topic}-{tp.partition}"
                log.log(level, "link %s%s: %s%s", self.link.name, what, row["state"], because)
        self._logged = {tp: (row["state"], row["reason"]) for tp, row in rows.items()}
        await self._status.write(rows)
        await self._status.beat(heartbeats(self.link, self.partitions.values(), self.runtime.wall_ms()))

    def _rows(self) -> dict[TopicPartition, dict[str, Any]]:
        """The status of each partition, and of the link if there is something to report."""
        now_ms = self.runtime.wall_ms()
        rows = {tp: each.status(now_ms) for tp, each in self.partitions.items()}
        problem = self._link_problem or self._unused()
        if problem is None:
            self._link_state = None
            return rows
        state, reason = problem
        if self._link_state is None or self._link_state[0] != state:
            self._link_state = state, now_ms
        rows[LINK] = {
            "state": str(state), "reason": reason, "since_ms": self._link_state[1], "updated_ms": now_ms
        }  # fmt: skip
        return rows

    def _unused(self) -> tuple[State, str] | None:
        """The state for expressions that match nothing."""
        if not self._looked.is_set():
            return None
        topics = {**dict.fromkeys(self.discovery.selected), **dict.fromkeys(tp.topic for tp in self.partitions)}
        unused = self.link.unused(topics)
        if not unused:
            return None
        quoted = ", ".join(f"'{pattern}'" for pattern in unused)
        return State.NO_TOPICS, f"the source lists no topic whose whole name matches {quoted}"


def gone(topic: str, target_topic: str) -> str:
    return (
        f"the source does not list topic {topic} any more: it was deleted, or the mirror may not describe it; "
        f"{target_topic} keeps what was mirrored"
    )
