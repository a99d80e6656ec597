"""The mirror worker: finds what a link carries, fetches raw batches from the source, appends them in the target.

Batches are never decoded: only their headers are walked. Exactly once needs no lease and no clock: each append names
the offset at which it must land (`range_from`), and the target's log answers where it really ends. Two workers on one
link only waste each other's time. Design: the target log is the checkpoint.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable

from ..client import Admin, Client, Producer, TopicPartition
from ..client.errors import ClientError
from ..client.raw import RawFetch, fetch_raw
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages import mirror_append
from ..runtime import Runtime, system
from .discovery import Discovery
from .errors import MirrorError
from .link import MirrorLink
from .partition import PartitionMirror, Run, State

STATUS_TOPIC = "__mirror_status"
MODE_MIRROR = 0
EARLIEST = -2
# The target will say the same to the same bytes again: the partition is held until a person has looked.
FINAL = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)
TROUBLE = (KafkaError, ClientError, OSError, TimeoutError)


class MirrorWorker:
    """Carries one link. Clients are started and closed by the caller; `start` returns once the target is known to
    speak the mirror's requests, `stop` waits for what is under way."""

    def __init__(self, link: MirrorLink, source: Client, target: Client, runtime: Runtime | None = None) -> None:
        self.link = link
        self.source = source
        self.target = target
        self.runtime = runtime or system()
        self.partitions: dict[TopicPartition, PartitionMirror] = {}  # by source topic and partition
        self.link_epoch = 0
        self.under_way_bytes = 0  # fetched, not yet acknowledged; bounded by limits.budget_bytes
        self.room = asyncio.Event()
        self.work = asyncio.Event()  # something became fetchable
        self.fetchers: dict[int, asyncio.Task[None]] = {}
        self.appends: dict[asyncio.Task[None], None] = {}
        self.tasks: list[asyncio.Task[None]] = []
        self.told: dict[tuple[str, int], str] = {}
        self.source_lost_ms: int | None = None
        self.discovery = Discovery(link, source, target)

    async def start(self) -> None:
        if not self.target.supports(mirror_append.API.key):
            raise MirrorError(
                f"link {self.link.name}: the target is not an Isthmus cluster (it does not list request "
                f"{mirror_append.API.key}). Mirroring into stock Apache Kafka is not supported yet: use an Isthmus "
                "cluster as the target; the source may be any Kafka"
            )
        self.status_producer = Producer(self.target, linger_ms=0)
        await self.discovery.ensure_status_topic(STATUS_TOPIC)
        await self.status_producer.start()
        loop = asyncio.get_running_loop()
        self.tasks = [
            loop.create_task(self._discover(), name=f"{self.link.name} discovery"),
            loop.create_task(self._publish(), name=f"{self.link.name} status"),
        ]

    async def stop(self) -> None:
        """Stop fetching, let appends under way finish within the request timeout, publish the last status."""
        tasks = [*self.tasks, *self.fetchers.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.appends:
            await asyncio.gather(*self.appends, return_exceptions=True)
        try:
            await self._publish_changes()
            await self.status_producer.close()
        except TROUBLE:
            pass  # the status is for people; what counts is in the target's logs

    def status(self) -> list[dict[str, object]]:
        """The state of each partition, as `__mirror_status` has it, with its topic and partition."""
        now_ms = self.runtime.wall_ms()
        return [
            {"link": self.link.name, "topic": each.topic, "partition": each.index, **each.status(now_ms)}
            for each in self.partitions.values()
        ]

    # --- What there is to mirror --------------------------------------------------------------------

    async def _discover(self) -> None:
        limits = self.link.limits
        while True:
            try:
                for found in await self.discovery.look():
                    self._adopt(found.topic, found.target_topic, found.topic_id, found.partitions, found.problem)
                self._assign()
                self._doubt_the_quiet()
            except TROUBLE as error:
                self._source_trouble(error)
            self.room.set()
            self.work.set()
            await asyncio.sleep(limits.discovery_interval_ms / 1000)

    def _adopt(
        self,
        topic: str,
        target_topic: str,
        topic_id: bytes,
        partitions: Iterable[int],
        problem: tuple[State, str] | None,
    ) -> None:
        now_ms = self.runtime.wall_ms()
        for index in partitions:
            tp = TopicPartition(topic, index)
            if tp not in self.partitions:
                self.partitions[tp] = PartitionMirror(topic, index, target_topic, topic_id, now_ms)
            each = self.partitions[tp]
            if problem and each.state is not problem[0]:
                each.hold(*problem, now_ms)

    def _assign(self) -> None:
        """One fetch loop for each broker that leads something."""
        loop = asyncio.get_running_loop()
        for node in dict.fromkeys(self.source.leader(tp) for tp in self.partitions):
            if node is not None and (node not in self.fetchers or self.fetchers[node].done()):
                self.fetchers[node] = loop.create_task(self._fetch_loop(node), name=f"{self.link.name} fetch {node}")

    def _doubt_the_quiet(self) -> None:
        """A target that loses its power may lose what it acknowledged; where nothing is appended nobody would notice."""
        for each in self.partitions.values():
            if each.probed and not each.held and not each.in_flight and each.append_offset == each.quiet_at:
                each.doubt()
            each.quiet_at = each.append_offset

    # --- Source to target ---------------------------------------------------------------------------

    async def _fetch_loop(self, node: int) -> None:
        while True:
            mine = [each for tp, each in self.partitions.items() if self.source.leader(tp) == node]
            await self._probe(mine)
            ready = [each for each in mine if each.probed and not each.held]
            free_bytes = self.link.limits.budget_bytes - self.under_way_bytes
            if not ready or free_bytes <= 0:
                event = self.work if not ready else self.room
                event.clear()
                await self._wait(event)
                continue
            try:
                await self._fetch(node, ready, free_bytes)
            except TROUBLE as error:
                self._source_trouble(error)
                await self._pause(self.link.limits.backoff_min_ms)
                await self._refresh()

    async def _fetch(self, node: int, ready: list[PartitionMirror], free_bytes: int) -> None:
        limits = self.link.limits
        wanted = {TopicPartition(p.topic, p.index): (p.fetch_offset, p.fetch_epoch, -1) for p in ready}
        doubts = {TopicPartition(p.topic, p.index): p.doubts for p in ready}
        answers = await fetch_raw(
            self.source,
            wanted,
            node_id=node,
            max_wait_ms=limits.fetch_max_wait_ms,
            min_bytes=1,
            max_bytes=min(limits.fetch_max_bytes, free_bytes),
            partition_max_bytes=limits.fetch_partition_max_bytes,
        )
        self.source_lost_ms = None
        runs: list[tuple[PartitionMirror, Run, RawFetch]] = []
        for answer in answers:
            each = self.partitions[answer.tp]
            if each.doubts != doubts[answer.tp] or each.held:
                continue  # an append failed meanwhile: what was fetched does not follow the target's log
            if run := await self._look_at(each, answer):
                runs.append((each, run, answer))
        by_target: dict[int | None, list[tuple[PartitionMirror, Run, RawFetch]]] = {}
        for each, run, answer in runs:
            leader = self.target.leader(TopicPartition(each.target_topic, each.index))
            by_target.setdefault(leader, []).append((each, run, answer))
        for leader, batch in by_target.items():
            await self._send(leader, batch)

    async def _look_at(self, each: PartitionMirror, answer: RawFetch) -> Run | None:
        """What of a fetch answer goes to the target; problems become states."""
        now_ms = self.runtime.wall_ms()
        where = f"{each.topic}-{each.index}"
        if self.source.topic_id(each.topic) not in (each.topic_id, None):
            each.hold(State.SOURCE_RECREATED, f"{where}: the source topic was deleted and made anew", now_ms)
            return None
        if answer.diverging_epoch is not None:
            epoch, end = answer.diverging_epoch
            each.hold(
                State.DIVERGED,
                f"{where}: the target ends at offset {each.fetch_offset} of leader epoch {each.fetch_epoch}, but the "
                f"source's epoch {epoch} ends at offset {end}: records from offset {end} on are not in the source",
                now_ms,
            )
            return None
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._out_of_range(each)
            return None
        if answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID or answer.error_code == ErrorCode.INCONSISTENT_TOPIC_ID:
            await self._refresh()
            return None
        if answer.error_code:
            self._back_off(each)
            each.doubt()
            await self._refresh()
            return None
        each.source_high_watermark = answer.high_watermark
        if not answer.records:
            each.observe(now_ms)
            return None
        expected, follows = each.fetch_offset, not each.target_is_empty
        run = each.fetched(memoryview(answer.records))
        if run and follows and run.first_offset < expected:
            each.hold(
                State.DIVERGED,
                f"{where}: the target ends at offset {expected}, inside the source's batch that begins at "
                f"{run.first_offset}, leader epoch {run.epoch}: the source's log was written anew",
                now_ms,
            )
            return None
        return run

    async def _out_of_range(self, each: PartitionMirror) -> None:
        """The fetch offset is not in the source's log: before its start, or past its end."""
        now_ms = self.runtime.wall_ms()
        tp = TopicPartition(each.topic, each.index)
        where = f"{each.topic}-{each.index}"
        start = (await Admin(self.source).list_offsets({tp: "earliest"}))[tp][0]
        if each.fetch_offset < start:
            if each.target_is_empty:
                each.fetch_offset = start  # a new mirror begins where the source does
            else:
                reason = (
                    f"{where}: the source deleted offsets {each.fetch_offset} to {start - 1} before they were mirrored"
                )
                each.hold(State.GAP, reason, now_ms)
            return
        end = (await Admin(self.source).list_offsets({tp: "latest"}))[tp][0]
        if each.fetch_offset > end:
            each.hold(
                State.DIVERGED,
                f"{where}: the target ends at offset {each.fetch_offset} of leader epoch {each.fetch_epoch}, but the "
                f"source ends at offset {end}: it lost records that were mirrored",
                now_ms,
            )

    async def _send(self, leader: int | None, batch: list[tuple[PartitionMirror, Run, RawFetch]]) -> None:
        """Begin one append request; waits while as many as allowed are under way."""
        while len(self.appends) >= self.link.limits.appends_in_flight:
            await asyncio.wait(self.appends, return_when=asyncio.FIRST_COMPLETED)
        parts = []
        for each, run, answer in batch:
            part = mirror_append.MirrorAppendPartition(
                index=each.index,
                mode=MODE_MIRROR,
                source_leader_epoch=run.epoch,
                range_from=each.append_offset,
                range_to=run.next_offset,
                source_high_watermark=answer.high_watermark,
                source_last_stable_offset=answer.last_stable_offset,
                source_log_start_offset=answer.log_start_offset,
                source_time_ms=self.runtime.wall_ms(),
                records=run.data,
            )
            parts.append((each, part))
            each.append_offset = run.next_offset
            each.in_flight += 1
            self.under_way_bytes += len(run.data)
        doubts = [each.doubts for each, _, _ in batch]
        request = self._request(parts)
        task = asyncio.get_running_loop().create_task(self._append(leader, request, batch, doubts))
        self.appends[task] = None
        task.add_done_callback(lambda done: self.appends.pop(done, None))

    def _request(
        self, parts: list[tuple[PartitionMirror, mirror_append.MirrorAppendPartition]]
    ) -> mirror_append.Request:
        topics: dict[str, mirror_append.MirrorAppendTopic] = {}
        for each, part in parts:
            if each.target_topic not in topics:
                topics[each.target_topic] = mirror_append.MirrorAppendTopic(
                    name=each.target_topic, source_topic_id=each.topic_id, partitions=[]
                )
            topics[each.target_topic].partitions.append(part)
        return mirror_append.Request(
            link_id=self.link.name,
            link_epoch=self.link_epoch,
            source_cluster_id=self.source.cluster_id or "",
            timeout_ms=self.link.limits.request_timeout_ms,
            topics=list(topics.values()),
        )

    async def _append(
        self,
        leader: int | None,
        request: mirror_append.Request,
        batch: list[tuple[PartitionMirror, Run, RawFetch]],
        doubts: list[int],
    ) -> None:
        answers: dict[tuple[str, int], mirror_append.MirrorAppendPartitionResponse] = {}
        problem = "no answer"
        try:
            timeout_ms = self.link.limits.request_timeout_ms
            response = await self.target.request(request, node_id=leader, timeout_ms=timeout_ms)
            answers = {(topic.name, p.index): p for topic in response.topics for p in topic.partitions}
            if response.error_code:
                raise KafkaError.of(response.error_code, "the target refused the link")
        except TROUBLE as error:
            problem = str(error)
        finally:
            self.under_way_bytes -= sum(len(run.data) for _, run, _ in batch)
            self.room.set()
        now_ms = self.runtime.wall_ms()
        for (each, run, _), sent_before in zip(batch, doubts, strict=True):
            if each.doubts != sent_before:
                continue
            each.in_flight -= 1
            answer = answers.get((each.target_topic, each.index))
            if answer is not None and not answer.error_code:
                each.appended(answer.next_offset, run.epoch, now_ms)
            elif answer is not None and answer.error_code in FINAL:
                code = ErrorCode(answer.error_code).name
                each.hold(
                    State.FAILED,
                    f"{each.target_topic}-{each.index}: the target refused offsets {run.first_offset} to "
                    f"{run.next_offset - 1}: {code}: {answer.error_message or problem}",
                    now_ms,
                )
            else:
                self._back_off(each)
                each.doubt()  # the log ends elsewhere than thought, or nobody knows: ask
        self.work.set()

    async def _probe(self, mine: list[PartitionMirror]) -> None:
        """Ask the target where the logs of doubtful partitions end; an empty append is the question."""
        now = asyncio.get_running_loop().time()
        doubtful = [each for each in mine if not each.probed and not each.held and each.retry_at <= now]
        by_leader: dict[int | None, list[PartitionMirror]] = {}
        for each in doubtful:
            leader = self.target.leader(TopicPartition(each.target_topic, each.index))
            by_leader.setdefault(leader, []).append(each)
        for leader, asked in by_leader.items():
            parts = [
                (
                    each,
                    mirror_append.MirrorAppendPartition(index=each.index, mode=MODE_MIRROR, range_from=-1, range_to=-1),
                )
                for each in asked
            ]
            try:
                timeout_ms = self.link.limits.request_timeout_ms
                response = await self.target.request(self._request(parts), node_id=leader, timeout_ms=timeout_ms)
            except TROUBLE:
                for each in asked:
                    self._back_off(each)
                await self._refresh_target()
                continue
            answers = {(topic.name, p.index): p for topic in response.topics for p in topic.partitions}
            for each in asked:
                self._probed(each, answers.get((each.target_topic, each.index)))

    def _probed(self, each: PartitionMirror, answer: mirror_append.MirrorAppendPartitionResponse | None) -> None:
        if answer is None or answer.error_code:
            if answer is not None and answer.error_code in FINAL:
                where = f"{each.target_topic}-{each.index}"
                code = ErrorCode(answer.error_code).name
                reason = f"{where}: the target refused: {code}: {answer.error_message}"
                each.hold(State.FAILED, reason, self.runtime.wall_ms())
            else:
                self._back_off(each)
            return
        self.link_epoch = max(self.link_epoch, answer.link_epoch)
        each.probe_answered(answer.next_offset, answer.next_epoch)

    # --- Trouble ------------------------------------------------------------------------------------

    def _back_off(self, each: PartitionMirror) -> None:
        limits = self.link.limits
        each.backoff_ms = min(max(2 * each.backoff_ms, limits.backoff_min_ms), limits.backoff_max_ms)
        jitter = 0.5 + self.runtime.random.random() / 2
        each.retry_at = asyncio.get_running_loop().time() + each.backoff_ms * jitter / 1000

    async def _pause(self, ms: float) -> None:
        await asyncio.sleep(ms * (0.5 + self.runtime.random.random()) / 1000)

    async def _wait(self, event: asyncio.Event) -> None:
        """Until the event, or until a back-off of some partition may be over."""
        try:
            async with asyncio.timeout(self.link.limits.backoff_min_ms / 1000):
                await event.wait()
        except TimeoutError:
            pass

    def _source_trouble(self, error: BaseException) -> None:
        now_ms = self.runtime.wall_ms()
        self.source_lost_ms = self.source_lost_ms or now_ms
        for each in self.partitions.values():
            if not each.held:
                each.turn(State.SOURCE_UNAVAILABLE, f"the source does not answer: {error}", now_ms)

    async def _refresh(self) -> None:
        try:
            await self.source.refresh_metadata(sorted({each.topic for each in self.partitions.values()}))
        except TROUBLE:
            pass  # the next fetch says so

    async def _refresh_target(self) -> None:
        try:
            await self.target.refresh_metadata(sorted({each.target_topic for each in self.partitions.values()}))
        except TROUBLE:
            pass  # the next probe says so

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
        now_ms = self.runtime.wall_ms()
        futures = []
        for each in self.partitions.values():
            status = each.status(now_ms)
            what = json.dumps({k: v for k, v in status.items() if k not in ("updated_ms", "lag_ms")})
            if self.told.get((each.topic, each.index)) == what:
                continue
            self.told[each.topic, each.index] = what
            key = f"{self.link.name}/{each.topic}/{each.index}".encode()
            await self.status_producer.room()
            futures.append(self.status_producer.send(STATUS_TOPIC, json.dumps(status).encode(), key, partition=0))
        for future in futures:
            await future
