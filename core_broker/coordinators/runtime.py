"""One runtime for all coordinators: state in memory that is the replay of a partition's records.

Each partition of an internal topic that this broker leads is a shard. Its records are read when the broker becomes its
leader. From then on a handler makes records, they are appended and replayed, and the answer is given once the high
watermark has passed them. Only the shard's state knows what the records mean. When a shard cannot be read for lack of
descriptors or memory, reading is retried at growing intervals, and continues where it stopped.

Records may be written in a producer's transaction. They are replayed like others, with the producer's id, and count
once its commit marker is replayed: what that means is the state's, too.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from ...protocol import records as batches
from ...protocol.errors import DecodeError, ErrorCode, KafkaError
from ...runtime import Runtime
from ..pauses import RetryDelay
from ..purgatory import Pending, Purgatory
from ..replication.partition import Partition
from ..storage.disk.errors import StorageError, fresh_copy, is_passing
from ..storage.log._producers import VerificationGuard
from ..storage.log.append import Origin
from ..storage.log.transactions import ABORT, COMMIT

READ_BYTES = 1 << 20  # at a time while a shard is loaded
LOAD_SLICE = 200  # records replayed before the loop has a turn again: some milliseconds
RESERVED_BYTES = 1024  # of max.message.bytes, for a batch's header and a last record's overhead

Record = tuple[Any, Any]  # key and value as the shard's state decodes them; the value of a tombstone is None

NO_PRODUCER = -1  # the producer id of records outside of any transaction
_CONTROL_KEY = struct.Struct(">hh")  # version, type

logger = logging.getLogger(__name__)


class Producer(NamedTuple):
    """Whose transaction it is."""

    id: int
    epoch: int


class ShardState(Protocol):
    """The meaning of a shard's records."""

    def encode(self, record: Record) -> tuple[bytes, bytes | None]: ...

    def decode(self, key: Any, value: Any) -> Record | None:
        """Key and value; None for a record to skip. Raises DecodeError."""

    def replay(self, key: Any, value: Any, offset: int, producer_id: int) -> None:
        """offset: of the record. producer_id: whose transaction it is part of; NO_PRODUCER outside of one."""

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """What was replayed of the producer since its last marker counts from now on, or never will."""

    def loaded(self) -> None:
        """All records have been replayed; handlers may use the state from now on."""

    def unloaded(self) -> None:
        """The shard is not used here any more."""


class Replicas(Protocol):
    """Access to the partitions that this broker leads."""

    @property
    def leaderless(self) -> Mapping[str, Collection[int]]:
        """By topic, the partitions that no broker serves."""

    def partition(self, topic: str, index: int) -> Partition:
        """Raises KafkaError."""


S = TypeVar("S", bound=ShardState)


class Shard(Generic[S]):
    """A partition and the state that its records make.

    failure: why handlers may not use it, None when they may. written: the offset after the last record that was
    written. replayed: the offset before which all records have been read.
    """

    def __init__(self, index: int, partition: Partition, state: S) -> None:
        self.index = index
        self.partition = partition
        self.state = state
        self.written = 0
        self.replayed = 0
        self.failure: KafkaError | None = KafkaError(
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{partition.topic}-{index} is being read"
        )


class CoordinatorRuntime(Generic[S]):
    """The shards of one internal topic. `new_state(index)` returns the empty state of a shard.

    holds: what is in the topic, for the log.
    """

    def __init__(
        self,
        topic: str,
        new_state: Callable[[int], S],
        replicas: Replicas,
        runtime: Runtime,
        purgatory: Purgatory,
        holds: str = "groups",
    ) -> None:
        self.topic = topic
        self._holds = holds
        self.shards: dict[int, Shard[S]] = {}
        self._new_state = new_state
        self._replicas = replicas
        self._runtime = runtime
        self._purgatory = purgatory
        self._loading: list[Shard[S]] = []
        self._loader: asyncio.Task[None] | None = None
        self._wanting: list[Shard[S]] = []  # not readable for now, to be read again
        self._retry: asyncio.TimerHandle | None = None
        self._retry_delay = RetryDelay()
        self._is_stopped = False

    # --- Which shards there are ---------------------------------------------------------------------------------------

    def elect(self, index: int) -> None:
        """This broker leads the partition: read it in the background, unless that is done or under way.

        A shard in use is read again when its partition is a new one: the leader was another in between.
        """
        if self._is_stopped:  # an offline partition may be online again while the broker stops
            return
        try:
            partition = self._replicas.partition(self.topic, index)
        except KafkaError as error:
            logger.error("%s-%d cannot be coordinated: %s", self.topic, index, error.message)
            return
        known = self.shards.get(index)
        if known is not None:
            if known.partition is partition:
                return
            self.resign(index)
        shard = Shard(index, partition, self._new_state(index))
        self.shards[index] = shard
        self._load_soon(shard)

    def resign(self, index: int) -> None:
        """Drop the shard, if there is one: the partition is led elsewhere, deleted or offline."""
        shard = self.shards.pop(index, None)
        if shard is not None:
            shard.failure = KafkaError(ErrorCode.NOT_COORDINATOR, f"{self.topic}-{index} is led elsewhere")
            shard.state.unloaded()

    def resign_if_offline(self, index: int) -> None:
        """`resign` for a shard in use whose partition has failed. A shard that cannot be read is kept for `unread`."""
        shard = self.shards.get(index)
        if shard is not None and shard.failure is None and shard.partition.failure is not None:
            self.resign(index)

    async def stop(self) -> None:
        self._is_stopped = True
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        if self._loader is not None:
            self._loader.cancel()
            await asyncio.gather(self._loader, return_exceptions=True)
            self._loader = None
        for index in list(self.shards):
            self.resign(index)

    def active(self, index: int) -> Shard[S]:
        """The shard, ready for use. Raises KafkaError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, …"""
        shard = self.shards.get(index)
        if shard is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"{self.topic}-{index} is not led here")
        if shard.failure is not None:
            raise fresh_copy(shard.failure)
        return shard

    def unread(self) -> dict[int, str]:
        """Why shards that this broker leads cannot be used yet, by index."""
        return {index: shard.failure.message for index, shard in self.shards.items() if shard.failure is not None}

    # --- Loading ------------------------------------------------------------------------------------------------------

    def _load_soon(self, *shards: Shard[S]) -> None:
        self._loading += shards
        if self._loader is None:
            self._loader = asyncio.get_running_loop().create_task(self._load_all(), name=f"load {self.topic}")

    def _load_later(self, shard: Shard[S], error: OSError | StorageError) -> None:
        why = KafkaError.reason(error)
        reason = f"{shard.partition} cannot be read for now, its {self._holds} are unavailable: {why}"
        if shard.failure is None or shard.failure.message != reason:
            logger.error("%s", reason)
        shard.failure = KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, reason)
        self._wanting.append(shard)
        if self._retry is None:
            self._retry = asyncio.get_running_loop().call_later(self._retry_delay.next_s(), self._load_again)

    def _load_again(self) -> None:
        self._retry = None
        shards, self._wanting = self._wanting, []
        self._load_soon(*shards)

    async def _load_all(self) -> None:
        try:
            while self._loading:
                shard = self._loading.pop(0)
                if self.shards.get(shard.index) is shard:
                    await self._load(shard)
        finally:
            self._loader = None

    async def _load(self, shard: Shard[S]) -> None:
        try:
            count = await self._replay(shard)
        except Exception as error:  # whatever is wrong with a record, the other shards are read
            if isinstance(error, (OSError, StorageError)) and is_passing(error):
                self._load_later(shard, error)
                return
            known = isinstance(error, (KafkaError, DecodeError, OSError))
            logger.error(
                "%s cannot be read, its %s stay unavailable: %r",
                shard.partition, self._holds, error, exc_info=not known,
            )  # fmt: skip
            shard.failure = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{shard.partition}: {error}")
            return
        self._retry_delay.reset()

        def committed(error: KafkaError | None) -> None:
            if error is None and self.shards.get(shard.index) is shard:
                shard.failure = None
                shard.written = shard.partition.log.log_end_offset
                shard.state.loaded()
                if count:
                    logger.info("%s: %d records read", shard.partition, count)

        # A new leader may have records that are not committed yet: nothing may be answered from them before.
        self.when_committed(shard, shard.replayed, committed)

    async def _replay(self, shard: Shard[S]) -> int:
        partition_log = shard.partition.log
        offset, end, count = max(shard.replayed, partition_log.log_start_offset), partition_log.log_end_offset, 0
        while offset < end and self.shards.get(shard.index) is shard:
            ranges = partition_log.read(offset, READ_BYTES, end).ranges
            data = b"".join(await partition_log.files.run(_read_all, ranges))
            start = offset
            for position, header in batches.walk(data):
                if header.last_offset < offset:
                    continue
                if header.is_control:
                    self._replay_marker(shard, header.producer_id, data, position)
                else:
                    for record in batches.decode_batch(data, position):
                        self._replay_one(shard, record, header.producer_id)
                        count += 1
                        if not count % LOAD_SLICE:
                            await asyncio.sleep(0)  # others may run
                shard.replayed = offset = header.last_offset + 1
            if offset == start:
                raise DecodeError(f"no batch at offset {offset}, though the log ends at {end}")
        return count

    def _replay_one(self, shard: Shard[S], record: batches.Record, producer_id: int) -> None:
        try:
            found = None if record.key is None else shard.state.decode(record.key, record.value)
        except DecodeError as error:
            raise DecodeError(f"record at offset {record.offset}: {error}") from error
        if found is not None:
            shard.state.replay(*found, record.offset, producer_id)

    def _replay_marker(self, shard: Shard[S], producer_id: int, data: bytes, position: int) -> None:
        for record in batches.decode_batch(data, position):
            key = record.key or b""
            kind = _CONTROL_KEY.unpack_from(key)[1] if len(key) >= _CONTROL_KEY.size else None
            if kind in (ABORT, COMMIT):
                shard.state.end_transaction(producer_id, kind == COMMIT)

    # --- Writing ------------------------------------------------------------------------------------------------------

    def write(
        self,
        shard: Shard[S],
        records: Sequence[Record],
        *,
        replay: bool = True,
        atomic: bool = True,
        producer: Producer | None = None,
        guard: VerificationGuard | None = None,
    ) -> int:
        """Append records and replay them; gives the offset that the high watermark must reach. Raises KafkaError.

        atomic: all records go into one batch, or none is written. Otherwise there are as many batches as needed. When
        one is refused, those before it stay written, and their records are replayed. producer: in whose transaction.
        guard: what lets them be its first ones here, see `Partition.begin_verification`.
        """
        if not records:
            return shard.written
        shard.partition.check_in_sync()
        now = self._runtime.wall_ms()
        waiting = list(records)
        limit = max(shard.partition.log.config.max_message_bytes - RESERVED_BYTES, RESERVED_BYTES)
        while waiting:
            builder = batches.BatchBuilder(max_bytes=limit)
            if producer is not None:
                builder.producer_id, builder.producer_epoch = producer
                builder.base_sequence, builder.transactional = 0, True  # no sequence is kept, as in Kafka
            taken = 0
            while taken < len(waiting):
                key, value = shard.state.encode(waiting[taken])
                if not builder.append(now, key, value):
                    break
                taken += 1
            if atomic and taken < len(waiting):
                raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"{shard.partition}: {len(waiting)} records in one batch")
            info = shard.partition.append(builder.build(), Origin.COORDINATOR, now, guard=guard)
            shard.written = info.next_offset
            if replay:
                producer_id = NO_PRODUCER if producer is None else producer.id
                for offset, record in enumerate(waiting[:taken], info.first_offset):
                    shard.state.replay(*record, offset, producer_id)
            del waiting[:taken]
        return shard.written

    def complete_transaction(
        self, shard: Shard[S], producer: Producer, coordinator_epoch: int, committed: bool, transaction_version: int
    ) -> int:
        """Append a marker and replay it; gives the offset that the high watermark must reach. Raises KafkaError as
        `Partition.write_marker`."""
        info = shard.partition.write_marker(
            *producer, committed, coordinator_epoch, transaction_version, self._runtime.wall_ms()
        )
        shard.written = info.next_offset
        shard.state.end_transaction(producer.id, committed)
        return shard.written

    def when_committed(self, shard: Shard[S], offset: int, callback: Callable[[KafkaError | None], None]) -> None:
        """Call `callback(None)` once all before `offset` is committed, or with the error why it will not be."""

        def moved() -> None:
            if shard.partition.high_watermark >= offset:
                callback(None)
            else:
                callback(shard.partition.failure or KafkaError(ErrorCode.NOT_COORDINATOR))

        shard.partition.wait_for_high_watermark(offset, moved)

    def answer(self, shard: Shard[S], respond: Callable[[ErrorCode], Any], timeout_ms: int) -> Any:
        """`respond(NONE)` once all that this shard wrote is committed: at once, or a Pending. On failure its code."""
        offset = shard.written
        if shard.partition.high_watermark >= offset:
            return respond(ErrorCode.NONE)
        pending = Pending(lambda: respond(client_error(ErrorCode.REQUEST_TIMED_OUT)))

        def committed(error: KafkaError | None) -> None:
            pending.complete(respond(ErrorCode.NONE if error is None else client_error(error.code)))

        self.when_committed(shard, offset, committed)
        return self._purgatory.add(pending, timeout_ms)


def _read_all(ranges: Sequence[Any]) -> list[bytes]:
    return [each.read() for each in ranges]


_CLIENT_ERRORS: dict[int, ErrorCode] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,  # of which older producers know
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def client_error(code: int) -> ErrorCode:
    """The code for a client in place of the log's, so that it retries, or looks for the coordinator again."""
    return _CLIENT_ERRORS.get(code) or ErrorCode(code)
