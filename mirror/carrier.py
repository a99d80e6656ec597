"""Copies batches: one loop for each source node fetches raw batches and starts appends in the target.

Batches are never decoded; only their headers are read. Exactly-once needs no lease and no clock: each append names the
offset at which it must land (`range_from`), and the target answers where its log ends. Appends follow each other in
order on one connection, without waiting for answers. After any error the partition is in doubt, and the target is asked
where its log ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ..client import Admin, Client, TopicPartition
from ..client.errors import ClientError
from ..client.raw import RawFetch, fetch_raw
from ..protocol.errors import ErrorCode, KafkaError, ProtocolError
from ..protocol.messages import mirror_append
from ..runtime import Runtime
from .discovery import recreated, way_out
from .link import MirrorLink
from .partition import PartitionMirror, Run, State, longer
from .verify import batch_at, difference

MODE_MIRROR = 0
LANE = "mirror"  # a connection of its own: a heartbeat must not wait behind an append of 16 MiB
# The target would give the same answer again: the partition is held until a person acts.
FINAL = {
    ErrorCode.CORRUPT_MESSAGE: State.FAILED,
    ErrorCode.MESSAGE_TOO_LARGE: State.FAILED,
    ErrorCode.RECORD_LIST_TOO_LARGE: State.FAILED,
    ErrorCode.INVALID_RECORD: State.FAILED,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: State.FAILED,
    ErrorCode.POLICY_VIOLATION: State.FAILED,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: State.FAILED,
    ErrorCode.FENCED_LEADER_EPOCH: State.DIVERGED,
    ErrorCode.INCONSISTENT_TOPIC_ID: State.SOURCE_RECREATED,
    ErrorCode.INCONSISTENT_CLUSTER_ID: State.SOURCE_RECREATED,
}
TROUBLE = (KafkaError, ClientError, ProtocolError, OSError, TimeoutError)
# Kafka calls these retriable, but a person must mostly mend what is behind them: a disk, or damaged records.
LASTING = (ErrorCode.CORRUPT_MESSAGE, ErrorCode.KAFKA_STORAGE_ERROR)


class Parcel(NamedTuple):
    """A run of one partition that is being appended; `doubts` and the source's log start are from the time of fetch."""

    partition: PartitionMirror
    run: Run
    log_start_offset: int
    doubts: int


class Carrier:
    """`partitions` and the link's epoch are shared with the worker, which fills them and shows their state."""

    def __init__(self, link: MirrorLink, source: Client, target: Client, runtime: Runtime) -> None:
        self.link = link
        self.source = source
        self.target = target
        self.runtime = runtime
        self.partitions: dict[TopicPartition, PartitionMirror] = {}  # by source topic and partition
        self.link_epoch = 0
        self.under_way_bytes = 0  # fetched or asked for, not yet acknowledged; bounded by limits.budget_bytes
        self.budget_freed = asyncio.Event()
        self.work = asyncio.Event()  # something became fetchable
        self.appends: dict[asyncio.Task[None], None] = {}
        self.mismatches_total = 0  # appends that found another end of the target's log
        self._served = 0  # how often a partition got data

    # --- Source ---------------------------------------------------------------------------------------

    async def run(self, node: int) -> None:
        """Copy what one source node leads, for ever."""
        limits = self.link.limits
        while True:
            mine = [each for tp, each in self.partitions.items() if self.source.leader(tp) == node]
            await self._probe(mine)
            await self._compare(node, [each for each in mine if each.probed and not each.held and not each.compared])
            ready = [each for each in mine if each.probed and not each.held and each.compared]
            free_bytes = limits.budget_bytes - self.under_way_bytes
            if not ready:
                await self._wait(self.work)
            elif free_bytes < min(limits.fetch_partition_max_bytes, limits.budget_bytes):
                await self._wait(self.budget_freed)
            else:
                ready.sort(key=lambda each: each.served)
                asked_bytes = min(limits.fetch_max_bytes, free_bytes)
                self.under_way_bytes += asked_bytes
                try:
                    parcels = await self._fetch(node, ready, asked_bytes)
                except TROUBLE as error:
                    for each in ready:
                        self._back_off_source(each, error)
                    await self._refresh_source({each.topic: error for each in ready})
                    continue
                finally:
                    self.under_way_bytes -= asked_bytes
                await self._dispatch(parcels)

    async def _compare(self, node: int, mine: list[PartitionMirror]) -> None:
        """Compare the target's last batch with the source's, and hold partitions where they differ."""
        for each in mine:
            doubts, last = each.doubts, each.next_offset - 1
            theirs = ours = None
            if last >= 0:
                try:
                    theirs = await batch_at(self.source, TopicPartition(each.topic, each.index), node, last)
                except TROUBLE as error:
                    self._back_off_source(each, error)
                    await self._refresh_source({each.topic: error})
                    continue
                tp = TopicPartition(each.target_topic, each.index)
                try:
                    leader = await self.target.leader_of(tp, self.link.limits.request_timeout_ms)
                    ours = await batch_at(self.target, tp, leader, last)
                except TROUBLE as error:
                    self._back_off_target(each, error)
                    await self._refresh_target()
                    continue
            if each.doubts != doubts or each.held:
                continue
            each.compared = True
            if reason := difference(ours, theirs, each):
                where = f"{each.topic}-{each.index}: "
                each.hold(State.DIVERGED, f"{where}{reason}; {way_out(each.target_topic)}", self.runtime.wall_ms())

    async def _fetch(self, node: int, ready: list[PartitionMirror], max_bytes: int) -> list[Parcel]:
        limits = self.link.limits
        asked = {TopicPartition(each.topic, each.index): (each, each.doubts, each.fetch_offset) for each in ready}
        asked_ms = self.runtime.wall_ms()
        answers = await fetch_raw(
            self.source,
            {tp: (offset, each.fetch_epoch) for tp, (each, _, offset) in asked.items()},
            node_id=node,
            max_wait_ms=limits.fetch_max_wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            partition_max_bytes=limits.fetch_partition_max_bytes,
        )
        parcels = []
        refused: dict[str, BaseException] = {}
        for answer in answers:
            each, doubts, offset = asked[answer.tp]
            if each.doubts != doubts or each.held or self.partitions.get(answer.tp) is not each:
                continue  # an append failed meanwhile: the fetched data does not continue the target's log
            if each.fetch_offset != offset:
                continue  # another node leads it by now, and has answered before
            if answer.records:
                self._served += 1
                each.served = self._served
            try:
                if run := await self._look_at(each, answer, asked_ms):
                    parcels.append(Parcel(each, run, answer.log_start_offset, doubts))
            except TROUBLE as error:  # only of this partition
                if each.doubts == doubts:
                    self._back_off_source(each, error)
                    refused[each.topic] = error
        await self._refresh_source(refused)
        return parcels

    async def _look_at(self, each: PartitionMirror, answer: RawFetch, asked_ms: int) -> Run | None:
        """What of a fetch answer goes to the target; problems become states. Raises the source's error."""
        now_ms = self.runtime.wall_ms()
        where = f"{each.topic}-{each.index}"
        if self.source.topic_id(each.topic) not in (each.topic_id, None):
            each.hold(State.SOURCE_RECREATED, recreated(each.topic, each.target_topic), now_ms)
        elif answer.diverging_epoch is not None:
            epoch, end = answer.diverging_epoch
            each.hold(
                State.DIVERGED,
                f"{where}: the target ends at offset {each.fetch_offset} of leader epoch {each.fetch_epoch}, but the "
                f"source's epoch {epoch} ends at offset {end}: records from offset {end} on are not in the source; "
                + way_out(each.target_topic),
                now_ms,
            )
        elif answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._out_of_range(each)
        elif answer.error_code:
            raise KafkaError.of(answer.error_code)
        else:
            each.source_backoff_ms = 0.0
            each.source_high_watermark, each.seen_ms = answer.high_watermark, asked_ms
            if answer.records:
                return self._run_of(each, answer, now_ms)
            if answer.high_watermark <= answer.log_start_offset and (run := each.begins_at(answer.log_start_offset)):
                return run
            each.observe(now_ms)
        return None

    def _run_of(self, each: PartitionMirror, answer: RawFetch, now_ms: int) -> Run | None:
        where = f"{each.topic}-{each.index}"
        expected, epoch, follows = each.fetch_offset, each.fetch_epoch, not each.target_is_empty
        try:
            run = each.fetched(memoryview(answer.records))
        except KafkaError as error:
            each.hold(State.FAILED, f"{where}: the source's data from offset {expected} on: {error}", now_ms)
            return None
        if run and follows and run.first_offset < expected:
            each.hold(
                State.DIVERGED,
                f"{where}: the target ends at offset {expected} of leader epoch {epoch}, inside a batch of the source "
                f"that begins at {run.first_offset}: the source's log was replaced; " + way_out(each.target_topic),
                now_ms,
            )
            return None
        return run

    async def _out_of_range(self, each: PartitionMirror) -> None:
        """The fetch offset is outside the source's log: before its start or past its end."""
        now_ms = self.runtime.wall_ms()
        tp = TopicPartition(each.topic, each.index)
        where = f"{each.topic}-{each.index}"
        doubts = each.doubts
        start = (await Admin(self.source).list_offsets({tp: "earliest"}))[tp][0]
        end = (await Admin(self.source).list_offsets({tp: "latest"}))[tp][0]
        if each.doubts != doubts:
            return
        if each.fetch_offset < start:
            if each.target_is_empty:
                each.fetch_offset = start  # a new mirror begins at the source's log start
            else:
                each.hold(
                    State.GAP,
                    f"{where}: the source deleted offsets {each.fetch_offset} to {start - 1} before they were "
                    f"mirrored; {way_out(each.target_topic)}",
                    now_ms,
                )
        elif each.fetch_offset > end:
            each.hold(
                State.DIVERGED,
                f"{where}: the target ends at offset {each.fetch_offset} of leader epoch {each.fetch_epoch}, but the "
                f"source ends at offset {end}: it lost records that were mirrored; {way_out(each.target_topic)}",
                now_ms,
            )

    # --- Target ---------------------------------------------------------------------------------------

    async def _dispatch(self, parcels: list[Parcel]) -> None:
        """Start to append what was fetched. Waits while the maximum number of appends is in flight."""
        by_target: dict[int | None, list[Parcel]] = {}
        for parcel in parcels:
            leader = self.target.leader(TopicPartition(parcel.partition.target_topic, parcel.partition.index))
            by_target.setdefault(leader, []).append(parcel)
        for leader, some in by_target.items():
            size_bytes = sum(len(parcel.run.data) for parcel in some)
            self.under_way_bytes += size_bytes
            try:
                sent = await self._send(leader, some, size_bytes)
            except TROUBLE as error:
                sent = False
                self._back_off_unsent(some, error)
                await self._refresh_target()
            if not sent:
                self._release(size_bytes)

    def _back_off_unsent(self, parcels: list[Parcel], error: BaseException) -> None:
        for each, _, _, doubts in parcels:
            if each.doubts == doubts:
                self._back_off_target(each, error)

    async def _send(self, leader: int | None, parcels: list[Parcel], size_bytes: int) -> bool:
        """Send one append request; requests of one connection keep their order. False: there was nothing to send."""
        while len(self.appends) >= self.link.limits.appends_in_flight:
            await asyncio.wait(self.appends, return_when=asyncio.FIRST_COMPLETED)
        connection = await self.target.connection(leader, LANE)
        await connection.writable()
        # Drop parcels whose partition was reset while this waited.
        parcels = [each for each in parcels if each.doubts == each.partition.doubts and not each.partition.held]
        if not parcels:
            return False
        request = self._request([(parcel.partition, self._part(parcel)) for parcel in parcels])
        answered = connection.send(mirror_append.API, request, self.link.limits.request_timeout_ms)
        for each, run, _, _ in parcels:
            each.append_offset, each.append_epoch = run.next_offset, run.epoch
            each.in_flight += 1
        task = asyncio.get_running_loop().create_task(self._append(answered, parcels, size_bytes))
        self.appends[task] = None
        task.add_done_callback(lambda done: self.appends.pop(done, None))
        return True

    def _part(self, parcel: Parcel) -> mirror_append.MirrorAppendPartition:
        each, run, log_start_offset, _ = parcel
        return mirror_append.MirrorAppendPartition(
            index=each.index,
            mode=MODE_MIRROR,
            source_leader_epoch=run.epoch,
            previous_leader_epoch=each.append_epoch,
            range_from=each.append_offset,
            source_log_start_offset=log_start_offset,
            records=run.data or None,
        )

    def _request(
        self, parts: Iterable[tuple[PartitionMirror, mirror_append.MirrorAppendPartition]]
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
        self, answered: asyncio.Future[mirror_append.Response], parcels: list[Parcel], size_bytes: int
    ) -> None:
        """Wait for the answer of one append request, and tell its partitions."""
        answers: dict[tuple[str, int], mirror_append.MirrorAppendPartitionResponse] = {}
        problem: BaseException = KafkaError.of(ErrorCode.UNKNOWN_SERVER_ERROR, "the target left it out of its answer")
        try:
            response = await answered
            answers = {(topic.name, p.index): p for topic in response.topics for p in topic.partitions}
            if response.error_code:
                problem = KafkaError.of(response.error_code, f"the target refuses link {self.link.name}")
        except TROUBLE as error:
            problem = error
        finally:
            self._release(size_bytes)
        now_ms = self.runtime.wall_ms()
        for each, run, _, doubts in parcels:
            if each.doubts != doubts:
                continue
            each.in_flight -= 1
            answer = answers.get((each.target_topic, each.index))
            if answer is None:
                self._back_off_target(each, problem)
            elif not answer.error_code:
                each.appended(answer.next_offset, run.epoch, now_ms)
            elif answer.error_code in FINAL:
                self._hold_refused(each, run, answer, now_ms)
            elif answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self.mismatches_total += 1  # another worker of the link has appended: the log ends elsewhere
                each.doubt()
                each.retry_at = self._retry_at(self.link.limits.backoff_min_ms)
            else:
                code = ErrorCode(answer.error_code).name
                self._back_off_target(each, KafkaError.of(answer.error_code, answer.error_message or code))
        self.work.set()

    def _release(self, size_bytes: int) -> None:
        """Give these bytes back to the budget."""
        self.under_way_bytes -= size_bytes
        self.budget_freed.set()

    def _hold_refused(
        self,
        each: PartitionMirror,
        run: Run | None,
        answer: mirror_append.MirrorAppendPartitionResponse,
        now_ms: int,
    ) -> None:
        code = ErrorCode(answer.error_code)
        what = "to report where its log ends"
        if run:
            last = run.next_offset - 1
            what = f"offsets {run.first_offset} to {last}" if run.data else f"to begin at offset {run.next_offset}"
        epochs = ""
        if code == ErrorCode.FENCED_LEADER_EPOCH and run:
            epochs = (
                f"the target ends at offset {answer.next_offset} of leader epoch {answer.next_epoch}, but the source "
                f"writes leader epoch {run.epoch}: "
            )
        reason = f"{each.target_topic}-{each.index}: {epochs}the target refused {what}: {code.name}: "
        each.hold(FINAL[code], reason + (answer.error_message or ""), now_ms)

    async def _probe(self, mine: list[PartitionMirror]) -> None:
        """Ask the target where the logs of partitions in doubt end, by an empty append."""
        now = asyncio.get_running_loop().time()
        wanted = [e for e in mine if not e.held and (e.asking or (not e.probed and e.retry_at <= now))]
        by_leader: dict[int | None, list[PartitionMirror]] = {}
        for each in wanted:
            leader = self.target.leader(TopicPartition(each.target_topic, each.index))
            by_leader.setdefault(leader, []).append(each)
        for leader, asked in by_leader.items():
            doubts = [each.doubts for each in asked]
            request = self._request(
                (each, mirror_append.MirrorAppendPartition(index=each.index, mode=MODE_MIRROR, range_from=-1))
                for each in asked
            )
            try:
                timeout_ms = self.link.limits.request_timeout_ms
                response = await self.target.request(request, leader, timeout_ms, LANE)
                if response.error_code:
                    raise KafkaError.of(response.error_code, f"the target refuses link {self.link.name}")
            except TROUBLE as error:
                for each in asked:
                    self._back_off_target(each, error)
                await self._refresh_target()
                continue
            answers = {(topic.name, p.index): p for topic in response.topics for p in topic.partitions}
            for each, before in zip(asked, doubts, strict=True):
                if each.doubts == before:
                    self._take_probe(each, answers.get((each.target_topic, each.index)))

    def _take_probe(self, each: PartitionMirror, answer: mirror_append.MirrorAppendPartitionResponse | None) -> None:
        if answer is None:
            self._back_off_target(each, ClientError("the target left it out of its answer"))
        elif answer.error_code in FINAL:
            self._hold_refused(each, None, answer, self.runtime.wall_ms())
        elif answer.error_code:
            code = ErrorCode(answer.error_code).name
            self._back_off_target(each, KafkaError.of(answer.error_code, answer.error_message or code))
        else:
            self.link_epoch = max(self.link_epoch, answer.link_epoch)
            if each.probed and (answer.next_offset, answer.next_epoch) == (each.append_offset, each.append_epoch):
                each.asking = False  # as it was thought to be; a fetch under way stays good
            elif each.probed and each.in_flight:
                each.asking = False  # its log is growing: the answers to the appends show its end
            else:
                if each.probed:
                    each.doubt()
                each.probe_answered(answer.next_offset, answer.next_epoch)

    # --- Trouble --------------------------------------------------------------------------------------

    def mark_source_unreachable(self, error: BaseException) -> None:
        """Show it on all partitions. Nothing is doubted: their fetches find out for themselves."""
        now_ms = self.runtime.wall_ms()
        for each in self.partitions.values():
            if not each.held:
                each.turn(State.SOURCE_UNAVAILABLE, f"the source does not answer: {error}", now_ms)

    def _back_off_source(self, each: PartitionMirror, error: BaseException) -> None:
        """The source does not give this partition: show it, doubt, and ask again after a back-off that grows.

        The back-off may grow long where a person must mend something (rights, disks), and stays short otherwise.
        """
        if each.held:
            return
        limits, now_ms = self.link.limits, self.runtime.wall_ms()
        refused = isinstance(error, KafkaError)
        passes = not isinstance(error, KafkaError) or (error.retriable and error.code not in LASTING)
        most_ms = limits.backoff_max_ms if passes else limits.refused_backoff_max_ms
        each.source_backoff_ms = longer(each.source_backoff_ms, limits.backoff_min_ms, most_ms)
        each.retry_at = self._retry_at(each.source_backoff_ms)
        what = "refuses to give its records" if refused else "does not answer"
        reason = f"{each.topic}-{each.index}: the source {what}: {error}"
        next_try_ms = -1 if passes else now_ms + round(each.source_backoff_ms)
        each.turn(State.SOURCE_UNAVAILABLE, reason, now_ms, next_try_ms)
        each.compared = False  # the source may have been replaced when it comes back
        each.doubt()

    def mark_target_unreachable(self, error: BaseException) -> None:
        """Show it on all partitions. Nothing is doubted: their appends find out for themselves."""
        now_ms = self.runtime.wall_ms()
        for each in self.partitions.values():
            if not each.held:
                each.turn(State.CATCHING_UP, f"the target does not answer: {error}", now_ms)

    def _back_off_target(self, each: PartitionMirror, error: BaseException) -> None:
        """Whether pending appends arrived is not known: show it, doubt, and probe again after a back-off."""
        if not each.held:
            each.turn(State.CATCHING_UP, f"{each.target_topic}-{each.index}: {error}", self.runtime.wall_ms())
        limits = self.link.limits
        each.backoff_ms = longer(each.backoff_ms, limits.backoff_min_ms, limits.backoff_max_ms)
        each.retry_at = self._retry_at(each.backoff_ms)
        each.doubt()

    def _retry_at(self, backoff_ms: float) -> float:
        return asyncio.get_running_loop().time() + self.runtime.jittered(backoff_ms) / 1000

    async def _wait(self, event: asyncio.Event) -> None:
        """Wait until the event, or until the back-off of a partition may be over."""
        event.clear()
        try:
            async with asyncio.timeout(self.link.limits.backoff_min_ms / 1000):
                await event.wait()
        except TimeoutError:
            pass

    async def _refresh_source(self, refused: Mapping[str, BaseException]) -> None:
        """Refresh the metadata of these topics, if they may have been refused because it is outdated."""
        topics = sorted(t for t, error in refused.items() if not isinstance(error, KafkaError) or error.retriable)
        if not topics:
            return
        try:
            await self.source.refresh_metadata(topics, timeout_ms=self.link.limits.request_timeout_ms)
        except TROUBLE:
            pass  # the next fetch reports it

    async def _refresh_target(self) -> None:
        try:
            topics = sorted({each.target_topic for each in self.partitions.values()})
            await self.target.refresh_metadata(topics, timeout_ms=self.link.limits.request_timeout_ms)
        except TROUBLE:
            pass  # the next probe reports it
