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
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ....client.connection import host_and_port
from ....protocol.errors import DecodeError, ErrorCode, KafkaError
from ....protocol.messages import control_records
from ....protocol.records import CorruptBatch
from ....runtime import Runtime
from ...storage.disk.errors import StorageError
from ..features import LATEST, METADATA_VERSION
from ..image import InconsistentRecord, MetadataImage
from ..metadata_log import MetadataLog, voters_record
from ..raft import messages as m
from ..raft.leader import Leader, Progress
from ..raft.raft import Raft
from ..raft.voters import Endpoints, ReplicaKey, VoterSet
from . import state_file
from .applying import Applying, React
from .calls import Calls, now_ms
from .elections import Elections
from .member import Member
from .peers import Peers
from .served import Served
from .wire import QuorumWire

SPACE_BYTES = 64 << 10  # that there must be to take part again, or the next write would fail as the last one
# Voters fetch every 500 ms where nothing happens. It is less than the time in which they give a leader up, see
# `config.certain_session_ms`.
CONFIRMED_MS = 750
RESIGN_TIMEOUT_S = 1.0  # for another voter to be elected when a leader stops

logger = logging.getLogger(__name__)


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
        self._events: deque[m.Event] = deque()
        self._effects: deque[m.Effect] = deque()
        self._working: asyncio.Task[None] | None = None  # on an effect that must be awaited
        self._flushing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms: int | None = None
        self._leads_from: int | None = None  # the start of the epoch that this node leads
        self._elections = Elections()
        self._change = asyncio.Event()  # set, and replaced, for `changed`
        wire = QuorumWire(member.cluster_id, member.listener, member.fetch_max_bytes, member.snapshot_max_bytes)
        self._applying = Applying(log, image, self._tell, self._break)
        self._calls = Calls(member, wire, peers, lambda: self.epoch, self._feed, self._tell)
        self._served = Served(member, wire, log, self._receive)

    # --- Who leads ----------------------------------------------------------------------------------------------------

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
        return self._leads_from is not None and self._applying.applied > self._leads_from

    @property
    def is_confirmed(self) -> bool:
        """Whether a majority has fetched from this leader within CONFIRMED_MS, so that nobody else leads yet.

        One that is cut off leads its epoch on, and no write of it is committed. Without this it could still answer what
        needs none, while another one decides.
        """
        role = None if self.raft is None else self.raft.role
        if not isinstance(role, Leader):
            return False
        return not role.must_check_quorum or now_ms() - role.majority_heard_ms <= CONFIRMED_MS

    @property
    def high_watermark(self) -> int:
        return self._applying.committed

    @property
    def applied_offset(self) -> int:
        """All before it is in the image."""
        return self._applying.applied

    @property
    def applied_timestamp_ms(self) -> int:
        """When the last record in the image was written, by its leader's clock; -1 before the first."""
        return self._applying.applied_timestamp_ms

    @property
    def election_latencies_ms(self) -> list[int]:
        """How long the recent elections took that this node stood in."""
        return self._elections.latencies_ms(now_ms())

    @property
    def progress(self) -> tuple[dict[int, Progress], dict[ReplicaKey, Progress]]:
        """(voters, observers) as a leader sees them; nothing elsewhere. Times are those of `calls.now_ms`."""
        if self.raft is None or not isinstance(self.raft.role, Leader):
            return {}, {}
        self.raft.role.forget_observers(now_ms())
        return self.raft.role.voters, self.raft.role.observers

    @property
    def is_cut_off(self) -> bool:
        """Whether no majority can be there: by the last requests, the connections to too many voters broke."""
        return self._calls.are_most_lost(self.voters.ids)

    @property
    def why_no_leader(self) -> str:
        """Who is missing, in words, while no leader is known."""
        voters = self.voters
        if not voters.ids:
            where = ", ".join(host_and_port(each.host, each.port) for each in self.member.servers)
            return f"no controller answers at {where}: start one, or check controller.quorum.bootstrap.servers"
        lost = self._calls.lost(voters.ids)
        if not lost:
            return f"none of the voters {_listed(voters.ids)} leads the metadata quorum yet"
        at = [
            f"{each} at {' or '.join(host_and_port(end.host, end.port) for end in voters.endpoints(each))}"
            for each in lost
        ]
        return (
            f"of the voters {_listed(voters.ids)} more than half must run to elect a controller, and these cannot be "
            f"reached: {', '.join(at)}: start them, or check controller.quorum.voters"
        )

    @property
    def misfit(self) -> str:
        """Why this node, as it is configured, can be no member; empty if nothing is known against it."""
        return self._calls.misfit

    @property
    def voters(self) -> VoterSet:
        return self.member.configured if self.raft is None else self.raft.voters.last

    def subscribe(self, react: React) -> None:
        """Call `react(delta)` after each change of the image, in order of subscription; await it if it is awaitable.

        It must not wait for a later change, because that waits for it.
        """
        self._applying.subscribe(react)

    async def publish(self, take: Callable[[], Awaitable[None]]) -> None:
        """Await `take()` while the image does not change: whoever takes it in and subscribes there misses nothing."""
        await self._applying.publish(take)

    def take_removed(self) -> dict[bytes, None]:
        """Ids of the topics that were deleted, by what was applied until now. From now on nobody notes them."""
        return self._applying.take_removed()

    async def changed(self) -> None:
        """Wait until something was applied, or the leader, `is_cut_off` or `failure` has changed."""
        await self._change.wait()

    async def unless(self, is_over: Callable[[], bool], work: asyncio.Future[Any]) -> None:
        """Wait for some work, but no longer than until a change of the quorum has ended its chance."""
        while not work.done() and not is_over():
            changed = asyncio.ensure_future(self.changed())
            await asyncio.wait([work, changed], return_when=asyncio.FIRST_COMPLETED)
            changed.cancel()

    # --- Life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Read the snapshot, and take part. When it returns, a voter that is alone leads, and the image has all.

        Raises KafkaError, InconsistentRecord, CorruptBatch.
        """
        await self._applying.load()
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
        self._applying.begin()
        self.raft = Raft(
            member.key, self.log, voters, member.options, lambda n: random.randrange(n) if n > 0 else 0,
            member.endpoints, [(each,) for each in member.servers], state, member.grows, member.joins,
        )  # fmt: skip
        self._effects.extend(self.raft.start(now_ms()))
        self._flush_soon()
        self._work_off()
        if voters.last.has_only(member.key):
            while not self.is_leader or self._applying.applied < self.log.end_offset:
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
        await self.log.log.syncing.try_space(SPACE_BYTES)
        if self.log.end_offset < self._applying.applied:
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
        self._feed(m.Resign(now_ms()))
        try:
            async with asyncio.timeout(RESIGN_TIMEOUT_S):
                while self.raft is raft and raft.leader_id in (m.NO_NODE, raft.me.id) and not self.is_cut_off:
                    await self.changed()
        except TimeoutError:
            pass

    def give_up(self) -> bool:
        """If this node leads others, let one of them lead. Returns whether it did."""
        raft = self.raft
        if raft is None or not raft.is_leader or len(raft.voters.last) == 1:
            return False
        self._feed(m.Resign(now_ms(), stops=False))
        return True

    async def close(self) -> None:
        """Take no part any more, and close the log. Raises StorageError."""
        self._stop(KafkaError(ErrorCode.NOT_CONTROLLER, "the broker is stopping"))
        await self._end_tasks()
        await self._calls.close()
        await self.log.close()

    async def _end_tasks(self) -> None:
        running = [each for each in (self._working, self._flushing, self._applying.task) if each is not None]
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
        self._calls.cancel()
        self._served.refuse_all()
        self._applying.stop(reason)
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
        self.log.in_doubt = self._applying.has_decided
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
        level = self.image.features.get(METADATA_VERSION, LATEST)
        info = self.log.append(records, raft.epoch, level)
        done = self._applying.decide(info, records, raft.epoch)
        self._feed(m.LogChanged(now_ms()))
        self._flush_soon()
        return await done

    def not_leader(self) -> KafkaError:
        leader = self.leader_id
        if leader == self.member.key.id:
            where = "this node has just been elected, or stops"
        else:
            where = f"node {leader} leads" if leader >= 0 else "no node is known to lead"
        return KafkaError(ErrorCode.NOT_CONTROLLER, f"this node does not lead the metadata quorum: {where}")

    # --- Events and effects -------------------------------------------------------------------------------------------

    def handle(self, request: Any) -> Any:
        """Answer a request of another node: a response, or a Pending if that takes a while."""
        return self._served.handle(request, self.raft is not None)

    def _receive(self, token: int, request: m.Request) -> None:
        if isinstance(request, m.Fetch):
            self._calls.heard_of(request.replica.id)
        self._feed(m.Received(now_ms(), token, request))

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
                    self._elections.look(self.raft.role, now_ms())
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
        self._feed(m.Tick(max(at_ms, now_ms())))

    def _carry_out(self, effect: m.Effect) -> Awaitable[None] | None:
        """Carry out an effect, or return what must be awaited for it."""
        match effect:
            case m.Persist():
                return self._persist(effect)
            case m.Send():
                self._calls.begin(effect)
            case m.Answer():
                self._served.answer(effect.token, effect.response)
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
                self._applying.commit(effect.high_watermark)
            case m.BecameLeader():
                self._leads_from = effect.start_offset
                logger.info("node %d leads the metadata quorum in epoch %d", self.member.key.id, effect.epoch)
                self._tell()
            case m.LostLeadership():
                self._leads_from = None
                logger.info("node %d does not lead the metadata quorum any more", self.member.key.id)
                reason = "another node may lead now, and this may be done or not"
                self._applying.fail_decided(KafkaError(ErrorCode.NOT_CONTROLLER, f"leadership was lost: {reason}"))
                self._tell()
            case m.LeaderKnown():
                self._tell()
            case m.Fatal():
                raise InconsistentRecord(effect.message)
        return None

    def _tell(self) -> None:
        self._change.set()
        self._change = asyncio.Event()

    def _appended(self, changes: list[Any]) -> None:
        """The log has more; its bytes are not on disk yet."""
        self._events.appendleft(m.LogChanged(now_ms(), changes))
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
        self._events.appendleft(m.LogChanged(now_ms()))
        self._flush_soon()  # the cut itself is not on disk yet

    async def _write_snapshot(self, effect: m.WriteSnapshot) -> None:
        files, directory = self.log.log.files, self.log.log.directory
        try:
            await files.run(self.log.write_part, effect.position, effect.data)
        except OSError as error:
            raise StorageError(error, directory, "cannot write a snapshot in") from error
        if effect.is_last:
            changes = await self._applying.take_fetched(effect.snapshot)
            self._events.appendleft(m.SnapshotLoaded(now_ms(), changes))

    # --- The disk -----------------------------------------------------------------------------------------------------

    def _flush_soon(self) -> None:
        if self._flushing is None and self.log.flushed_offset < self.log.end_offset:
            self._flushing = asyncio.get_running_loop().create_task(self._flush(), name="flush of the metadata log")

    async def _flush(self) -> None:
        """Sync until all is on disk; what is appended meanwhile goes with the next sync."""
        try:
            while self.raft is not None and self.log.flushed_offset < self.log.end_offset:
                await self.log.sync()
                self._feed(m.LogChanged(now_ms()))
        except Exception as error:
            self._break(error)
        finally:
            self._flushing = None

    async def snapshot_if_due(self, bytes_between: int, interval_ms: int) -> None:
        """Write a snapshot if this many bytes were applied since the last one, or any and it is this old.

        The image does not change meanwhile.
        """
        if self.raft is None or not self.log.wants_snapshot(bytes_between, interval_ms):
            return
        await self._applying.take_snapshot(self.raft.voters)
        self._feed(m.LogChanged(now_ms()))


def _listed(node_ids: Sequence[int]) -> str:
    return ", ".join(map(str, node_ids))


def _leader_change(node_id: int, effect: m.AppendLeaderChange) -> control_records.LeaderChangeMessage:
    return control_records.LeaderChangeMessage(
        leader_id=node_id,
        voters=[control_records.LeaderVoter(voter_id=each) for each in effect.voter_ids],
        granting_voters=[control_records.LeaderVoter(voter_id=each) for each in effect.granting_ids],
    )
