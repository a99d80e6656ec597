"""The transactional side of a producer: the requests to its coordinator, around records that others batch and send.

Up to version 1 of a cluster's feature transaction.version, each partition and group is added before it is written to.
From version 2 on brokers do that, and each transaction has an epoch of its own, which the end of the last one has given
(KIP-890). What may follow what is `transactions`' table.

An end once asked for is never left half done: it goes on when its caller is cancelled, and the next call waits for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from typing import Any, Protocol

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages import add_offsets_to_txn, add_partitions_to_txn, end_txn, init_producer_id, txn_offset_commit
from .cluster import BACKOFF_MAX_MS, REQUEST_TIMEOUT_MS, Client
from .coordinator import GROUP, TRANSACTION, Coordinator
from .errors import ClientError, OperationTimeout
from .transactions import LOST_EPOCH, Event, Progress, State, Step, Verdict, is_time_over, verdict
from .types import GroupMetadata, TopicPartition

log = logging.getLogger("isthmus.client")

FEATURE = "transaction.version"
EPOCH_PER_TRANSACTION = 2  # its level from which part two of KIP-890 holds
# The last versions of requests that take no part in that:
PRODUCE_UP_TO, END_UP_TO, OFFSETS_UP_TO = 11, 4, 4
ADD_UP_TO = 3  # versions of AddPartitionsToTxn that clients may send
OFFSETS_BY_NAME_UP_TO = 5  # versions of TxnOffsetCommit that name topics
PAUSE_MS = 20.0  # the first, where the last transaction has not ended everywhere


class Records(Protocol):
    """The producer's part that has the records of a transaction."""

    async def flush(self) -> None:
        """Wait until all are acknowledged or failed."""

    def drop(self, error: Exception) -> None:
        """Fail all that are not acknowledged; they are sent no more."""

    async def until_idle(self) -> None:
        """Wait until nothing is in flight."""

    def is_in_doubt(self) -> bool:
        """Whether a broker may expect another sequence than the next one."""

    def renew(self, producer_id: int, epoch: int) -> None:
        """Write under this epoch from now on, from sequence 0."""

    def wake(self) -> None:
        """Partitions were added."""


class Transactions:
    """Of one producer. timeout_ms: after so long the coordinator aborts a transaction. Each call ends within
    max_block_ms."""

    def __init__(
        self, client: Client, records: Records, transactional_id: str, timeout_ms: int, max_block_ms: float
    ) -> None:
        self.client = client
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.max_block_ms = max_block_ms
        self.producer_id, self.epoch = -1, -1
        self.progress = Progress(transactional_id)
        self._lane = client.new_lane("transactions")
        self._coordinator = Coordinator(client, transactional_id, self._lane, TRANSACTION)
        self._groups: dict[str, Coordinator] = {}  # of the last group whose offsets were sent
        self._records = records
        self._is_begun = False  # the coordinator may know of it
        self._must_renew = False  # the next transaction needs another epoch
        self._added: dict[TopicPartition, None] = {}
        self._wanted: dict[TopicPartition, None] = {}  # to be added
        self._jobs: dict[asyncio.Task[None], None] = {}  # requests of the open transaction
        self._ending: asyncio.Task[None] | None = None  # until its outcome was told to a caller
        self._ends_by = Step.COMMIT

    # --- For the producer ---------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Whether nothing is left of a transaction."""
        return self.progress.state is State.READY

    @property
    def must_end(self) -> bool:
        """Whether there is something to abort."""
        return self.progress.state in (State.OPEN, State.DOOMED, State.ABORTING)

    async def start(self) -> None:
        """Get a producer id and epoch, which ends whatever an earlier producer with the transactional id had open."""
        if self.progress.state is not State.NEW:
            raise self.progress.refusal()
        try:
            await self._renew()
        except (KafkaError, ClientError) as error:
            if is_time_over(error):
                raise
            raise self.progress.failed(Step.INIT, error)[1] from error
        self.progress.move(Event.START)

    async def begin(self) -> None:
        """Open a transaction; one that is being aborted is waited for."""
        if self._ending is not None and self._ends_by is Step.COMMIT:
            raise ClientError(
                f"transactional id {self.transactional_id}: nobody was told the outcome of the last commit, since its "
                "caller was cancelled: commit_transaction() tells it"
            )
        if self._ending is not None:
            await self._ended(self._ending)
        if self.progress.state is State.ABORTING:
            await self.abort()
        self.progress.move(Event.BEGIN)
        self.progress.has_epochs = self.client.feature(FEATURE) >= EPOCH_PER_TRANSACTION
        self._is_begun = False
        self._added.clear()
        self._wanted.clear()

    async def commit(self) -> None:
        """Commit, when all records are acknowledged and all offsets taken. If that fails TransactionAborted is raised;
        if the commit was asked for and not answered in time, OperationTimeout: then another call goes on."""
        if self._ending is None and self.progress.state is not State.COMMITTING:
            self.progress.move(Event.COMMIT)
            try:
                await self._flush()
            except BaseException:
                self.progress.move(Event.HOLD)
                raise
            self.progress.move(Event.FLUSHED)
        await self._end(Step.COMMIT, self._commit)

    async def abort(self) -> None:
        """Abort: records that were not sent are dropped, and all others do not count."""
        if self._ending is None:
            self.progress.move(Event.ABORT)
            self._records.drop(ClientError(f"transactional id {self.transactional_id}: the transaction was aborted"))
        await self._end(Step.ABORT, self._abort)

    async def send_offsets(self, offsets: Mapping[TopicPartition, int], group: GroupMetadata) -> None:
        """Commit offsets of a group with the transaction."""
        if not self.progress.is_open:
            raise self.progress.refusal()
        if not offsets:
            return
        job = self._start(self._send_offsets(dict(offsets), group), "offsets")
        try:
            await asyncio.wait([job])
        except asyncio.CancelledError:
            # Whether the group has them is not known: they must not count in another transaction.
            job.cancel()
            self.failed(Step.COMMIT_OFFSETS, ClientError("it was cancelled"))
            raise
        if job.cancelled():
            raise ClientError(f"{self._what(Step.COMMIT_OFFSETS)}: the transaction was aborted meanwhile")
        job.result()

    @property
    def left_open(self) -> str:
        """What a producer that is closed may leave behind."""
        return (
            f"what transactional id {self.transactional_id} has open ends after its timeout, or with another producer"
        )

    async def end(self) -> None:
        """Before the producer is closed: abort what is open, or wait for the end under way."""
        try:
            if self._ending is not None:
                await asyncio.wait([self._ending])
            if self.must_end:
                await self.abort()
        except (KafkaError, ClientError) as error:
            log.warning("%s: %s", self.left_open, error)

    def stop(self) -> None:
        """Nothing is sent any more: what is not acknowledged by now must not be committed."""
        if self.progress.state in (State.OPEN, State.FLUSHING):
            self.failed(Step.WRITE, ClientError("the producer was closed"))

    async def close(self) -> None:
        """Release everything; an end under way is left as it is."""
        jobs = [*self._jobs, *([self._ending] if self._ending is not None else [])]
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
        await self.client.close_lane(self._lane)

    @property
    def _has_epochs(self) -> bool:
        """Whether the present transaction goes by part two of KIP-890."""
        return self.progress.has_epochs

    # --- For the sender -----------------------------------------------------------------------------

    @property
    def most_version(self) -> int | None:
        return None if self._has_epochs else PRODUCE_UP_TO

    def may_write(self, tp: TopicPartition) -> bool:
        if tp in self._added:
            return True
        if self._has_epochs:
            self._is_begun = True
            self._added[tp] = None
            return True
        if tp not in self._wanted:
            self._wanted[tp] = None
            if len(self._wanted) == 1:
                self._start(self._add_partitions(), "partitions")
        return False

    def refused(self, error: Exception) -> Exception:
        return self.failed(Step.WRITE, error)

    def failed(self, step: Step, cause: Exception) -> Exception:
        """Take in an error of the open transaction, which ends it. Returns the error for what it concerns."""
        told, error = self.progress.failed(step, cause)
        self._must_renew |= told is Verdict.RENEW
        self._records.drop(error)
        return error

    # --- Within a transaction -----------------------------------------------------------------------

    def _start(self, work: Coroutine[Any, Any, None], what: str) -> asyncio.Task[None]:
        """A request of the open transaction, which ends with it."""
        job = asyncio.get_running_loop().create_task(work, name=self._named(what))
        self._jobs[job] = None
        job.add_done_callback(self._done)
        return job

    def _done(self, job: asyncio.Task[None]) -> None:
        del self._jobs[job]
        if not job.cancelled():
            job.exception()  # retrieved: what was wrong has ended the transaction

    def _named(self, what: str) -> str:
        return f"{self.client.client_id} producer: {what} of {self.transactional_id}"

    async def _add_partitions(self) -> None:
        """All that are wanted by now, in one request."""
        try:
            while self._wanted:
                tps = list(self._wanted)
                topics: dict[str, Any] = {}
                for tp in tps:
                    topic = topics.setdefault(tp.topic, add_partitions_to_txn.AddPartitionsToTxnTopic(name=tp.topic))
                    topic.partitions.append(tp.partition)
                request = add_partitions_to_txn.Request(
                    v3_and_below_transactional_id=self.transactional_id,
                    v3_and_below_producer_id=self.producer_id,
                    v3_and_below_producer_epoch=self.epoch,
                    v3_and_below_topics=list(topics.values()),
                )
                self._is_begun = True
                await self._ask(Step.ADD_PARTITIONS, self._coordinator, request, _of_partitions_added, ADD_UP_TO)
                for tp in tps:
                    del self._wanted[tp]
                    self._added[tp] = None
                self._records.wake()
        except (KafkaError, ClientError) as error:
            self.failed(Step.ADD_PARTITIONS, error)

    async def _send_offsets(self, offsets: Mapping[TopicPartition, int], group: GroupMetadata) -> None:
        step = Step.ADD_OFFSETS
        try:
            if not self._has_epochs:
                self._is_begun = True
                await self._ask(
                    step,
                    self._coordinator,
                    add_offsets_to_txn.Request(
                        transactional_id=self.transactional_id,
                        producer_id=self.producer_id,
                        producer_epoch=self.epoch,
                        group_id=group.group_id,
                    ),
                    _of_answer,
                )
            step = Step.COMMIT_OFFSETS
            self._is_begun = True
            most_version = OFFSETS_BY_NAME_UP_TO if self._has_epochs else OFFSETS_UP_TO
            request = self._offsets_request(offsets, group)
            await self._ask(step, self._group(group.group_id), request, _of_offsets, most_version)
        except (KafkaError, ClientError) as error:
            raise self.failed(step, error) from error

    def _offsets_request(self, offsets: Mapping[TopicPartition, int], group: GroupMetadata) -> Any:
        topics: dict[str, Any] = {}
        for tp, offset in offsets.items():
            topic = topics.setdefault(tp.topic, txn_offset_commit.TxnOffsetCommitRequestTopic(name=tp.topic))
            topic.partitions.append(
                txn_offset_commit.TxnOffsetCommitRequestPartition(
                    partition_index=tp.partition, committed_offset=offset, committed_metadata=""
                )
            )
        return txn_offset_commit.Request(
            transactional_id=self.transactional_id,
            group_id=group.group_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            generation_id_or_member_epoch=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=list(topics.values()),
        )

    def _group(self, group_id: str) -> Coordinator:
        found = self._groups.get(group_id)
        if found is None:
            self._groups = {group_id: Coordinator(self.client, group_id, self._lane, GROUP)}
            found = self._groups[group_id]
        return found

    async def _flush(self) -> None:
        try:
            async with self.client.operation(self._what(Step.COMMIT), self.max_block_ms):
                await self._records.flush()
                while self._jobs:
                    await asyncio.wait(list(self._jobs))
        except OperationTimeout as error:
            raise self.failed(Step.WRITE, error) from error

    # --- The end ------------------------------------------------------------------------------------

    async def _end(self, step: Step, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do it in a task of its own, which cancellation of a caller does not end."""
        if self._ending is None:
            self._ends_by = step
            self._ending = asyncio.get_running_loop().create_task(work(), name=self._named(step.value))
            self._ending.add_done_callback(lambda done: done.cancelled() or done.exception())  # retrieved
        elif self._ends_by is not step:
            raise self.progress.refusal()
        ending = self._ending
        await self._ended(ending)
        if ending.cancelled():
            raise self._unknown(ClientError("the producer was closed"))
        ending.result()

    async def _ended(self, ending: asyncio.Task[None]) -> None:
        """Wait for it; from then on its outcome is known to somebody."""
        await asyncio.wait([ending])
        if self._ending is ending:
            self._ending = None

    async def _commit(self) -> None:
        try:
            if self._is_begun:
                await self._end_transaction(Step.COMMIT)
        except (KafkaError, ClientError) as error:
            if is_time_over(error):
                raise self._unknown(error) from error
            if isinstance(error, KafkaError) and error.code in LOST_EPOCH:
                raise await self._why_refused(error) from error
            raise self.failed(Step.COMMIT, error) from error
        self.progress.move(Event.COMMITTED)

    async def _why_refused(self, error: KafkaError) -> Exception:
        """The commit was refused: has another producer taken over, or was the transaction open for too long? In the
        first case an earlier attempt of the commit may have succeeded, in the second none has."""
        try:
            await self._renew()
        except (KafkaError, ClientError) as failed:
            return self._unknown(failed) if is_time_over(failed) else self.failed(Step.INIT, failed)
        self._is_begun = False
        return self.progress.failed(Step.COMMIT, error)[1]

    def _unknown(self, error: Exception) -> OperationTimeout:
        return OperationTimeout(
            f"transactional id {self.transactional_id}: whether the transaction is committed is not known: "
            f"{KafkaError.reason(error)}. Call commit_transaction() again, which goes on, or make a new Producer with "
            "the same transactional id and look at what is committed"
        )

    async def _abort(self) -> None:
        async with self.client.operation(self._what(Step.ABORT), self.max_block_ms):
            for job in list(self._jobs):
                job.cancel()
            if self._jobs:
                await asyncio.wait(list(self._jobs))
            await self._records.until_idle()
            self._must_renew |= self._records.is_in_doubt()
            step = Step.ABORT
            try:
                if self._is_begun:
                    await self._end_transaction(step)
                if self._must_renew:
                    step = Step.INIT
                    await self._renew()
            except (KafkaError, ClientError) as error:
                if is_time_over(error):
                    raise
                raise self.failed(step, error) from error
        self.progress.move(Event.ABORTED)

    async def _end_transaction(self, step: Step) -> None:
        request = end_txn.Request(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=step is Step.COMMIT,
        )
        most_version = None if self._has_epochs else END_UP_TO
        try:
            answer = await self._ask(step, self._coordinator, request, _of_answer, most_version)
        except KafkaError as error:
            if step is Step.COMMIT or is_time_over(error) or verdict(step, error) is not Verdict.RENEW:
                raise
            self._must_renew = True
        else:
            if answer.producer_epoch >= 0:
                self._take(answer)
                self._must_renew = False
        self._is_begun = False

    async def _renew(self) -> None:
        """Get an epoch, the first one or the next. Raises KafkaError with a code of LOST_EPOCH if another producer has
        taken over."""
        request = init_producer_id.Request(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.timeout_ms,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
        )
        answer = await self._ask(Step.INIT, self._coordinator, request, _of_answer)
        self._take(answer)
        self._must_renew = False

    def _take(self, answer: Any) -> None:
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self._records.renew(self.producer_id, self.epoch)

    # --- Requests -----------------------------------------------------------------------------------

    def _what(self, step: Step) -> str:
        return f"transactional id {self.transactional_id}, {step.value}"

    async def _ask(
        self,
        step: Step,
        coordinator: Coordinator,
        request: Any,
        code_of: Callable[[Any], tuple[int, str]],
        most_version: int | None = None,
    ) -> Any:
        """The answer, after as many attempts as there is time for. Raises what another attempt cannot help against.
        code_of: the error of an answer, and of which topic or partition it is."""
        pauses_ms = pauses()
        async with self.client.operation(self._what(step), self.max_block_ms) as operation:
            while True:
                error: KafkaError | ClientError
                pause_ms = None
                try:
                    answer = await coordinator.ask(request, REQUEST_TIMEOUT_MS, most_version)
                    code, what = code_of(answer)
                    coordinator.heard(code)
                    if not code:
                        return answer
                    error = KafkaError.of(code, what + KafkaError.of(code).message)
                    pause_ms = next(pauses_ms) if code == ErrorCode.CONCURRENT_TRANSACTIONS else None
                except (KafkaError, ClientError) as failed:
                    error = failed
                await operation.again(error, pause_ms)


def pauses() -> Iterator[float]:
    """In ms, while markers of the last transaction are being written, which takes a moment as a rule."""
    pause_ms = PAUSE_MS
    while True:
        yield pause_ms
        pause_ms = min(2 * pause_ms, BACKOFF_MAX_MS)


def _of_answer(answer: Any) -> tuple[int, str]:
    return answer.error_code, ""


def _of_partitions_added(answer: Any) -> tuple[int, str]:
    return _worst(
        (each.partition_error_code, f"{topic.name}-{each.partition_index}: ")
        for topic in answer.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    )


def _of_offsets(answer: Any) -> tuple[int, str]:
    return _worst(
        (each.error_code, f"{topic.name}-{each.partition_index}: ")
        for topic in answer.topics
        for each in topic.partitions
    )


def _worst(codes: Iterable[tuple[int, str]]) -> tuple[int, str]:
    """Of the errors of one answer one that no other attempt can help against, if there is one."""
    errors = [each for each in codes if each[0] and each[0] != ErrorCode.OPERATION_NOT_ATTEMPTED]
    lasting = [each for each in errors if not KafkaError.of(each[0]).retriable]
    return next(iter(lasting or errors), (0, ""))
