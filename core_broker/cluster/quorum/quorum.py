"""The I/O of the metadata quorum: carries out what `raft/` decides, and gives the image what is committed.

One event is taken at a time, and all effects of its step are carried out before the next one is taken. What waits for
the disk (the state file, a truncation, a snapshot) holds up later events. A flush of what was appended does not: its
end is an event. Batches are applied to the image once they are committed, in order, and whoever reacts is awaited.

A quorum of one voter uses no connection and no timer: what it appends is committed when it is on disk.

If a write fails, this node takes no part any more, as if it had crashed, until the log is opened again: then it starts
as after a crash.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ....client.errors import ClientError, ConnectionLost, RequestTimeout, UnsupportedVersion
from ....protocol.errors import DecodeError, ErrorCode, KafkaError
from ....protocol.messages import control_records
from ....protocol.records import CorruptBatch
from ....runtime import Runtime
from ...purgatory import Pending
from ...storage.disk.errors import StorageError
from ..image import Delta, InconsistentRecord, MetadataImage
from ..metadata_log import MetadataLog, voters_record
from ..metadata_replay import Fold, replace_image
from ..raft import messages as m
from ..raft.leader import Leader, Progress
from ..raft.raft import Raft, RaftOptions
from ..raft.voters import Endpoint, Endpoints, ReplicaKey, Voter, VoterSet
from . import state_file
from .peers import Peers
from .wire import Invalid, QuorumWire, least_version

FETCH_MAX_BYTES = 1 << 20  # of one answer, by default: controller.quorum.fetch.max.bytes, .fetch.snapshot.max.bytes
MAX_HELD_REQUESTS = 10_000  # of other nodes, that wait for an answer
RESIGN_TIMEOUT_S = 1.0  # for another voter to be elected when a leader stops

React = Callable[[Delta], Awaitable[None] | None]

logger = logging.getLogger(__name__)


@dataclass(slots=True, frozen=True)
class Member:
    """This node in the quorum. configured: the voters of controller.quorum.voters; empty if the log has them.

    endpoints: where the others reach it. servers: where to find the voters (controller.quorum.bootstrap.servers).
    """

    key: ReplicaKey
    configured: VoterSet = field(default_factory=VoterSet)
    endpoints: Endpoints = ()
    servers: Sequence[Endpoint] = ()
    options: RaftOptions = field(default_factory=RaftOptions)
    cluster_id: str | None = None
    listener: str = "CONTROLLER"
    fetch_max_bytes: int = FETCH_MAX_BYTES
    snapshot_max_bytes: int = FETCH_MAX_BYTES
    grows: bool = False  # see `Raft`
    joins: bool = False


def alone(node_id: int) -> Member:
    """The only voter, by its id alone."""
    key = ReplicaKey(node_id)
    return Member(key, VoterSet.of([Voter(key)]))


@dataclass(slots=True)
class _Decided:
    """Records that this leader has appended and that are not applied yet."""

    first_offset: int
    last_offset: int
    records: Sequence[Any]
    size_bytes: int
    done: asyncio.Future[int]


class MetadataQuorum:
    """`start` it, and `close` it. image: empty at first; only this writes to it.

    failure: why this node takes no part; None while it does. on_failure: called when that begins.
    """

    def __init__(
        self, log: MetadataLog, image: MetadataImage, runtime: Runtime, member: Member, peers: Peers | None = None
    ) -> None:
        self.log = log
        self.image = image
        self.runtime = runtime
        self.member = member
        self.raft: Raft | None = None
        self.failure: KafkaError | None = None
        self.on_failure: Callable[[], None] = lambda: None
        log.on_offline = self._break
        self._peers = peers
        self._wire = QuorumWire(member.cluster_id, member.listener, member.fetch_max_bytes, member.snapshot_max_bytes)
        self._fold = Fold(image)
        self._reactions: list[React] = []
        self._events: deque[m.Event] = deque()
        self._effects: deque[m.Effect] = deque()
        self._working: asyncio.Task[None] | None = None  # on an effect that must be awaited
        self._flushing: asyncio.Task[None] | None = None
        self._applying: asyncio.Task[None] | None = None
        self._exchanges: dict[int, asyncio.Task[None]] = {}  # by request id
        self._lost: dict[int, None] = {}  # nodes to which the connection broke, or was refused, at the last request
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms: int | None = None
        self._tokens: dict[int, Callable[[m.Response], None]] = {}
        self._last_token = 0
        self._decided: deque[_Decided] = deque()
        self._leads_from: int | None = None  # the start of the epoch that this node leads
        self._committed = 0  # the high watermark as far as it is known
        self._applied = 0  # all before it is in the image
        self._progress = asyncio.Event()  # set, and replaced, when something was applied or the leader has changed
        self._image_use = asyncio.Lock()  # held while the image changes, and while it must not
        self._closed = False

    # --- Who leads ----------------------------------------------------------------------------------------------------

    def take_removed(self) -> dict[bytes, None]:
        """Ids of the topics that were deleted, by what was applied until now. From now on nobody notes them."""
        removed, self._fold.removed = self._fold.removed, None
        return removed or {}

    @property
    def epoch(self) -> int:
        return 0 if self.raft is None else self.raft.epoch

    @property
    def leader_id(self) -> int:
        """The leader as far as it is known, -1 if it is not."""
        return m.NO_NODE if self.raft is None else self.raft.leader_id

    @property
    def leader_endpoints(self) -> Endpoints:
        return () if self.raft is None else self.raft.leader_endpoints

    @property
    def is_leader(self) -> bool:
        """Whether this node may decide: it leads, and has applied all that was committed before its epoch."""
        return self._leads_from is not None and self._applied > self._leads_from

    @property
    def high_watermark(self) -> int:
        return self._committed

    @property
    def applied_offset(self) -> int:
        """All before it is in the image."""
        return self._applied

    @property
    def progress(self) -> tuple[dict[int, Progress], dict[ReplicaKey, Progress]]:
        """(voters, observers) as a leader sees them; nothing elsewhere. Times are those of `now_ms`."""
        if self.raft is None or not isinstance(self.raft.role, Leader):
            return {}, {}
        self.raft.role.forget_observers(self.now_ms())
        return self.raft.role.voters, self.raft.role.observers

    @property
    def is_cut_off(self) -> bool:
        """Whether no majority can be there: by the last requests, the connections to too many voters broke."""
        ids = self.voters.ids
        return 2 * len([each for each in ids if each not in self._lost]) <= len(ids)

    @property
    def voters(self) -> VoterSet:
        return self.member.configured if self.raft is None else self.raft.voters.last

    def subscribe(self, react: React) -> None:
        """Call `react(delta)` after each change of the image, in order of subscription; await it if it is awaitable.

        It must not wait for a later change, because that waits for it.
        """
        self._reactions.append(react)

    async def publish(self, take: Callable[[], Awaitable[None]]) -> None:
        """Await `take()` while the image does not change: whoever takes it in and subscribes there misses nothing."""
        async with self._image_use:
            await take()

    async def changed(self) -> None:
        """Wait until something was applied, or the leader has changed, or `is_cut_off`."""
        await self._progress.wait()

    async def unless_cut_off(self, work: asyncio.Future[Any]) -> None:
        """Wait for what needs a majority, until there can be none."""
        while not work.done() and not self.is_cut_off:
            changed = asyncio.ensure_future(self.changed())
            await asyncio.wait([work, changed], return_when=asyncio.FIRST_COMPLETED)
            changed.cancel()

    # --- Life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Read the snapshot, and take part. When it returns, a voter that is alone leads, and the image has all.

        Raises KafkaError, InconsistentRecord, CorruptBatch.
        """
        files, directory = self.log.log.files, self.log.log.directory
        try:
            self._applied = self._committed = await files.run(self.log.fold_snapshot, self._fold)
        except OSError as error:
            raise StorageError(error, directory, "cannot read the snapshot in") from error
        await self._take_part()

    async def _take_part(self) -> None:
        """Start as after a crash."""
        files, directory = self.log.log.files, self.log.log.directory
        try:
            state = await files.run(state_file.read, files, f"{directory}/{state_file.QUORUM_STATE}")
            voters = self.log.voters(self.member.configured)
        except OSError as error:
            raise StorageError(error, directory, "cannot read") from error
        except DecodeError as error:
            raise InconsistentRecord(f"{directory}: a control record: {error}") from error
        random = self.runtime.random
        member = self.member
        self.failure = None
        self._committed = min(self._committed, self.log.end_offset)
        self._apply_soon()
        self.raft = Raft(
            member.key, self.log, voters, member.options, lambda n: random.randrange(n) if n > 0 else 0,
            member.endpoints, [(each,) for each in member.servers], state, member.grows, member.joins,
        )  # fmt: skip
        self._effects.extend(self.raft.start(self.now_ms()))
        self._flush_soon()
        self._work_off()
        if voters.last.has_only(member.key):
            while not self.is_leader or self._applied < self.log.end_offset:
                await self.changed()
                if self.failure is not None:
                    raise self.failure

    async def open_again(self) -> None:
        """Take part again after a failure: opens the log again if it is offline. It may be tried again.

        Raises KafkaError, InconsistentRecord, CorruptBatch.
        """
        assert self.raft is None
        await self._end_tasks()
        if self.log.log.failure is not None:
            await self.log.open_again()
        if self.log.end_offset < self._applied:
            self.log.log.abandon()
            raise InconsistentRecord(
                f"{self.log.log.directory} ends at offset {self.log.end_offset}, but {self.image.offset} was decided"
            )
        await self._take_part()
        self.log.in_doubt = False

    async def resign(self) -> None:
        """If this node leads others, let one of them lead, and wait for that for a while."""
        raft = self.raft
        if raft is None or not raft.is_leader or len(raft.voters.last) == 1:
            return
        self._feed(m.Resign(self.now_ms()))
        try:
            async with asyncio.timeout(RESIGN_TIMEOUT_S):
                while self.raft is raft and raft.leader_id in (m.NO_NODE, raft.me.id) and not self.is_cut_off:
                    await self.changed()
        except TimeoutError:
            pass

    async def close(self) -> None:
        """Take no part any more, and close the log. Raises StorageError."""
        self._closed = True
        self._stop(KafkaError(ErrorCode.NOT_CONTROLLER, "the broker is stopping"))
        await self._end_tasks()
        if self._peers is not None:
            await self._peers.close()
        await self.log.close()

    async def _end_tasks(self) -> None:
        running = [each for each in (self._working, self._flushing, self._applying) if each is not None]
        if running:
            await asyncio.wait(running)

    def _stop(self, reason: KafkaError) -> None:
        """Forget the step function's state; what waits for it is answered."""
        self.raft = None
        self._leads_from = None
        self._events.clear()
        self._effects.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = self._timer_ms = None
        for task in self._exchanges.values():
            task.cancel()
        self._exchanges.clear()
        tokens, self._tokens = self._tokens, {}
        for answer in tokens.values():
            answer(m.Response(ErrorCode.BROKER_NOT_AVAILABLE, m.UNKNOWN))
        self._fail_decided(reason)
        self._tell()

    def _break(self, error: BaseException) -> None:
        """A write failed, or what must never happen has happened."""
        if self.raft is None:
            return
        reason = error if isinstance(error, KafkaError) else KafkaError.of(
            ErrorCode.KAFKA_STORAGE_ERROR, f"the metadata log: {KafkaError.reason(error)}"
        )  # fmt: skip
        if not isinstance(error, (KafkaError, InconsistentRecord, CorruptBatch)):
            logger.error("the metadata quorum failed", exc_info=error)
        self.failure = reason
        self.log.in_doubt = bool(self._decided)
        self._stop(reason)
        self.on_failure()

    # --- Deciding -----------------------------------------------------------------------------------------------------

    async def append(self, records: Sequence[Any]) -> int:
        """Append what was decided, as one batch; returns the offset of the last record, once it is committed and
        applied, and all have reacted.

        Raises KafkaError: NOT_CONTROLLER if this node does not lead, or no longer does (it may be done nevertheless, by
        the next leader); others if nothing was written, or, with `log.in_doubt`, if it is unknown whether it was.
        """
        raft = self.raft
        if self.failure is not None:
            raise self.failure
        if raft is None or not self.is_leader:
            raise self.not_leader()
        info = self.log.append(records, raft.epoch)
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        decided = _Decided(info.first_offset, info.last_offset, records, info.size_bytes, done)
        self._decided.append(decided)
        self._feed(m.LogChanged(self.now_ms()))
        self._flush_soon()
        return await done

    def not_leader(self) -> KafkaError:
        leader = self.leader_id
        if leader == self.member.key.id:
            where = "this node has just been elected, or stops"
        else:
            where = f"node {leader} leads" if leader >= 0 else "no node is known to lead"
        return KafkaError(ErrorCode.NOT_CONTROLLER, f"this node does not lead the metadata quorum: {where}")

    def _fail_decided(self, reason: KafkaError) -> None:
        decided, self._decided = self._decided, deque()
        for each in decided:
            if not each.done.done():
                each.done.set_exception(
                    KafkaError.of(reason.code, reason.message) if type(reason) is KafkaError else reason
                )

    # --- Requests of other nodes --------------------------------------------------------------------------------------

    def handle(self, request: Any) -> Any:
        """Answer one of the requests that `wire.py` names: a response, or a Pending if that takes a while."""
        try:
            asked = self._wire.received(request)
        except Invalid as invalid:
            return self._wire.refused(request, invalid.error, invalid.message)
        if self.raft is None or len(self._tokens) >= MAX_HELD_REQUESTS:
            return self._wire.refused(request, ErrorCode.BROKER_NOT_AVAILABLE)
        limit = request.max_bytes if isinstance(asked, (m.Fetch, m.FetchSnapshot)) else 0
        pending = Pending(lambda: self._wire.refused(request, ErrorCode.REQUEST_TIMED_OUT))

        def answer(response: m.Response) -> None:
            if type(response) is m.Response:
                pending.complete(self._wire.refused(request, response.error))
            elif isinstance(response, m.FetchSnapshotAnswer) and response.snapshot is not None:
                self._answer_snapshot(pending, request, response, limit)
            else:
                pending.complete(self._wire.reply(request, self._with_records(response, limit)))

        self.serve(asked, answer)
        return pending.answer if pending.done else pending

    def serve(self, request: m.Request, answer: Callable[[m.Response], None]) -> None:
        """Have a request answered; `answer` is called once."""
        self._last_token += 1
        self._tokens[self._last_token] = answer
        self._feed(m.Received(self.now_ms(), self._last_token, request))

    def _with_records(self, response: m.Response, limit: int) -> m.Response:
        if not isinstance(response, m.FetchAnswer) or response.read_from is None:
            return response
        try:
            return replace(response, records=self.log.read(response.read_from, min(limit, self.member.fetch_max_bytes)))
        except KafkaError as error:
            logger.error("cannot read the metadata for another node: %s", error.message)
            return replace(response, error=ErrorCode.UNKNOWN_SERVER_ERROR, read_from=None)

    def _answer_snapshot(self, pending: Pending, request: Any, response: m.FetchSnapshotAnswer, limit: int) -> None:
        async def read() -> None:
            answer = response
            try:
                size, data = await self.log.log.files.run(
                    self.log.read_snapshot, response.position, min(limit, self.member.snapshot_max_bytes)
                )
                if not 0 <= response.position < size:
                    answer = replace(response, error=ErrorCode.POSITION_OUT_OF_RANGE)
                else:
                    answer = replace(response, size=size, data=data)
            except OSError:  # another one has taken its place
                answer = replace(response, error=ErrorCode.SNAPSHOT_NOT_FOUND)
            pending.complete(self._wire.reply(request, answer))

        task = asyncio.get_running_loop().create_task(read(), name="reading a metadata snapshot")
        self._last_token += 1
        self._exchanges[-self._last_token] = task
        task.add_done_callback(partial(self._forget, -self._last_token))

    def _forget(self, key: int, task: asyncio.Task[None]) -> None:
        self._exchanges.pop(key, None)

    # --- Events and effects -------------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    def _feed(self, event: m.Event) -> None:
        if self.raft is not None:
            self._events.append(event)
            self._work_off()

    def _work_off(self) -> None:
        """Take events and carry out effects until one has to be awaited."""
        if self._working is not None:
            return
        try:
            while self.raft is not None and (self._effects or self._events):
                if not self._effects:
                    self._effects.extend(self.raft.step(self._events.popleft()))
                    continue
                work = self._carry_out(self._effects.popleft())
                if work is not None:
                    self._working = asyncio.get_running_loop().create_task(self._finish(work), name="metadata quorum")
                    return
        except Exception as error:
            self._break(error)
        self._arm()

    async def _finish(self, work: Awaitable[None]) -> None:
        try:
            await work
        except Exception as error:
            self._break(error)
        finally:
            self._working = None
        self._work_off()

    def _arm(self) -> None:
        at = None if self.raft is None else self.raft.deadline_ms
        if at == self._timer_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_ms = None, at
        if at is not None:
            self._timer = asyncio.get_running_loop().call_at(at / 1000, self._tick, at)

    def _tick(self, at_ms: int) -> None:
        self._timer = self._timer_ms = None
        self._feed(m.Tick(max(at_ms, self.now_ms())))

    def _carry_out(self, effect: m.Effect) -> Awaitable[None] | None:
        """Carry out an effect, or return what must be awaited for it."""
        match effect:
            case m.Persist():
                return self._persist(effect)
            case m.Send():
                task = asyncio.get_running_loop().create_task(self._exchange(effect), name="request to the quorum")
                self._exchanges[effect.id] = task
            case m.Answer():
                answer = self._tokens.pop(effect.token, None)
                if answer is not None:
                    answer(effect.response)
            case m.AppendLeaderChange():
                records: list[Any] = [_leader_change(self.member.key.id, effect)]
                if effect.voters is not None:
                    records.append(control_records.KRaftVersionRecord(kraft_version=effect.kraft_version))
                    records.append(voters_record(effect.voters))
                self._appended(self.log.append_control(records, effect.epoch))
            case m.AppendVoters():
                self._appended(self.log.append_control([voters_record(effect.voters)], effect.epoch))
            case m.AppendFetched():
                self._appended(self.log.append_fetched(effect.records))
            case m.Truncate():
                return self._truncate(effect.offset)
            case m.WriteSnapshot():
                return self._write_snapshot(effect)
            case m.Committed():
                self._committed = max(self._committed, effect.high_watermark)
                self._apply_soon()
            case m.BecameLeader():
                self._leads_from = effect.start_offset
                logger.info("node %d leads the metadata quorum in epoch %d", self.member.key.id, effect.epoch)
                self._tell()
            case m.LostLeadership():
                self._leads_from = None
                logger.info("node %d does not lead the metadata quorum any more", self.member.key.id)
                reason = "another node may lead now, and this may be done or not"
                self._fail_decided(KafkaError(ErrorCode.NOT_CONTROLLER, f"leadership was lost: {reason}"))
                self._tell()
            case m.LeaderKnown():
                self._tell()
            case m.Fatal():
                raise InconsistentRecord(effect.message)
        return None

    def _tell(self) -> None:
        self._progress.set()
        self._progress = asyncio.Event()

    def _appended(self, changes: list[Any]) -> None:
        """The log has more; its bytes are not on disk yet."""
        self._events.appendleft(m.LogChanged(self.now_ms(), changes))
        self._flush_soon()

    async def _persist(self, state: m.Persist) -> None:
        files, path = self.log.log.files, f"{self.log.log.directory}/{state_file.QUORUM_STATE}"
        try:
            await files.run(files.write_atomic, path, state_file.encode(state))
        except OSError as error:
            raise StorageError(error, path, "cannot write") from error

    async def _truncate(self, offset: int) -> None:
        logger.info("cutting off the metadata log at offset %d, as the leader's diverges there", offset)
        await self.log.truncate_to(offset)
        self._events.appendleft(m.LogChanged(self.now_ms()))
        self._flush_soon()  # the cut itself is not on disk yet

    async def _write_snapshot(self, effect: m.WriteSnapshot) -> None:
        files, directory = self.log.log.files, self.log.log.directory
        try:
            await files.run(self.log.write_part, effect.position, effect.data)
        except OSError as error:
            raise StorageError(error, directory, "cannot write a snapshot in") from error
        if effect.is_last:
            async with self._image_use:
                changes = await self.log.take_fetched(effect.snapshot)
                await self._reload()
            self._events.appendleft(m.SnapshotLoaded(self.now_ms(), changes))

    # --- The disk -----------------------------------------------------------------------------------------------------

    def _flush_soon(self) -> None:
        if self._flushing is None and self.log.flushed_offset < self.log.end_offset:
            self._flushing = asyncio.get_running_loop().create_task(self._flush(), name="flush of the metadata log")

    async def _flush(self) -> None:
        """Sync until all is on disk; what is appended meanwhile goes with the next sync."""
        try:
            while self.raft is not None and self.log.flushed_offset < self.log.end_offset:
                await self.log.sync()
                self._feed(m.LogChanged(self.now_ms()))
        except Exception as error:
            self._break(error)
        finally:
            self._flushing = None

    # --- The image ----------------------------------------------------------------------------------------------------

    def _apply_soon(self) -> None:
        if self._applying is None:
            self._applying = asyncio.get_running_loop().create_task(self._apply(), name="applying metadata")

    async def _apply(self) -> None:
        """Apply what is committed, batch after batch."""
        try:
            while self.raft is not None and self._applied < self._committed:
                async with self._image_use:
                    if self._decided and self._decided[0].first_offset == self._applied:
                        await self._apply_decided(self._decided[0])
                    else:
                        await self._apply_read()
                self._tell()
        except Exception as error:
            self._break(error)
        finally:
            self._applying = None

    async def _apply_decided(self, decided: _Decided) -> None:
        if decided.last_offset >= self._committed:
            raise InconsistentRecord(f"the high watermark {self._committed} is in the middle of a batch")
        assert self.raft is not None
        delta = self._fold.take(decided.records, decided.last_offset, self.raft.epoch)
        self.log.applied(decided.size_bytes)
        self._applied = decided.last_offset + 1
        await self._react(delta)
        if self._decided and self._decided[0] is decided:
            self._decided.popleft()
        if not decided.done.done():
            decided.done.set_result(decided.last_offset)

    async def _apply_read(self) -> None:
        """Apply what another node has decided, or an earlier life of this one: as much as one read gives."""
        end = min(self._decided[0].first_offset if self._decided else self._committed, self._committed)
        for offset, delta in self.log.fold(self._fold, self._applied, end):
            self._applied = offset
            if delta is not None:
                await self._react(delta)

    async def _reload(self) -> None:
        """Make the image what the snapshot says that has replaced the log."""
        image = MetadataImage(self.image.cluster_id)
        fold = Fold(image)
        fold.removed = self._fold.removed
        end = await self.log.log.files.run(self.log.fold_snapshot, fold)
        delta = replace_image(self.image, image)
        fold.image = self.image
        self._fold = fold
        self._applied = end
        self._committed = max(self._committed, end)
        if fold.removed is not None:
            fold.removed.update((topic.id, None) for topic in delta.deleted.values())
        await self._react(delta)

    async def snapshot_if_due(self, bytes_between: int, interval_ms: int) -> None:
        """Write a snapshot if this many bytes were applied since the last one, or any and it is this old.

        The image does not change meanwhile.
        """
        if self.raft is None or not self.log.wants_snapshot(bytes_between, interval_ms):
            return
        async with self._image_use:
            try:
                await self.log.take_snapshot(self.image, self.raft.voters)
            except KafkaError as error:
                logger.error("%s; the next snapshot tries again", error.message)
            except Exception:
                logger.exception("cannot write a snapshot of the metadata")
        self._feed(m.LogChanged(self.now_ms()))

    async def _react(self, delta: Delta) -> None:
        for react in self._reactions:
            try:
                waiting = react(delta)
                if inspect.isawaitable(waiting):
                    await waiting
            except Exception:
                logger.exception("a reaction to a metadata change failed")

    # --- Requests to other nodes --------------------------------------------------------------------------------------

    async def _exchange(self, send: m.Send) -> None:
        """Send a request and take its answer."""
        timeout_ms = self.member.options.request_timeout_ms
        event: m.Event
        try:
            assert self._peers is not None
            node = next((each for each in send.endpoints if each.listener == self.member.listener), send.endpoints[0])
            api, message = self._wire.sent(send.request)
            answer = await self._peers.request(node, api, message, timeout_ms, least_version(send.request))
            event = m.Answered(self.now_ms(), send.id, self._wire.answer(send.request, answer))
        except UnsupportedVersion as error:
            logger.warning("%s", error)
            if isinstance(send.request, m.Vote):
                event = m.Answered(self.now_ms(), send.id, m.VoteAnswer(ErrorCode.UNSUPPORTED_VERSION, m.UNKNOWN))
            else:
                event = m.Failed(self.now_ms(), send.id)
        except ClientError as error:
            is_lost = isinstance(error, ConnectionLost) and not isinstance(error, RequestTimeout)
            logger.debug("request to node %d of the quorum: %s", send.node_id, error)
            event = m.Failed(self.now_ms(), send.id, is_lost)
        except Exception:
            logger.exception("a request to node %d of the quorum failed", send.node_id)
            event = m.Failed(self.now_ms(), send.id)
        finally:
            self._exchanges.pop(send.id, None)
        self._note_reached(send.node_id, not (isinstance(event, m.Failed) and event.is_lost))
        self._feed(event)

    def _note_reached(self, node_id: int, is_reached: bool) -> None:
        was_cut_off = self.is_cut_off
        if is_reached:
            self._lost.pop(node_id, None)
        else:
            self._lost[node_id] = None
        if self.is_cut_off != was_cut_off:
            self._tell()


def _leader_change(node_id: int, effect: m.AppendLeaderChange) -> control_records.LeaderChangeMessage:
    return control_records.LeaderChangeMessage(
        leader_id=node_id,
        voters=[control_records.LeaderVoter(voter_id=each) for each in effect.voter_ids],
        granting_voters=[control_records.LeaderVoter(voter_id=each) for each in effect.granting_ids],
    )
