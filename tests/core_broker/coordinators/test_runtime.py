"""A shard whose partition has another replica: from when on it may be used, and until when."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isthmus.core_broker.coordinators.runtime import NO_PRODUCER, CoordinatorRuntime, Producer, Record, Shard
from isthmus.core_broker.purgatory import Pending, Purgatory
from isthmus.core_broker.storage.log.append import UNSEQUENCED
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.messages import metadata_records as r
from isthmus.runtime import system
from tests.core_broker.replication.worlds import ID, World, settle

EPOCH = -1  # of a broker that does not tell its own
Told = list[tuple[ErrorCode, list[bytes]]]


class Values:
    """A state that is the values of all records, and all that came with them."""

    def __init__(self, index: int) -> None:
        self.values: list[bytes] = []
        self.replayed: list[tuple[Any, ...]] = []
        self.is_loaded = False

    def encode(self, record: Record) -> tuple[bytes, bytes | None]:
        return record

    def decode(self, key: Any, value: Any) -> Record | None:
        return bytes(key), bytes(value)

    def replay(self, key: Any, value: Any, offset: int, producer_id: int) -> None:
        self.values.append(value)
        self.replayed.append((value, offset, producer_id))

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        self.replayed.append((producer_id, "commit" if committed else "abort"))

    def loaded(self) -> None:
        self.is_loaded = True

    def unloaded(self) -> None:
        self.is_loaded = False


class Coordinated(World):
    """Partition 0 of `t`, with replicas on this broker, 1, and on broker 2; and its coordinator."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.coordinator = CoordinatorRuntime("t", Values, self.replicas, system(), Purgatory(10))

    async def lead(
        self, leader: int, epoch: int, *, isr: tuple[int, ...] = (1, 2), records: tuple[Any, ...] = ()
    ) -> None:
        partition = r.PartitionRecord(
            partition_id=0, topic_id=ID, replicas=[1, 2], isr=list(isr), leader=leader, leader_epoch=epoch,
            partition_epoch=epoch, directories=[bytes(16)] * 2,
        )  # fmt: skip
        await self.feed(*records, partition)
        if leader == 1:
            self.coordinator.elect(0)
        else:
            self.coordinator.resign(0)
        await settle()

    async def create(self, *options: r.ConfigRecord, isr: tuple[int, ...] = (1, 2)) -> Shard[Values]:
        await self.lead(1, 0, isr=isr, records=(r.TopicRecord(name="t", topic_id=ID), *options))
        return self.shard

    @property
    def shard(self) -> Shard[Values]:
        return self.coordinator.active(0)

    def write(self, value: bytes) -> Any:
        """What a client is told, or the Pending that will have it."""
        self.coordinator.write(self.shard, [(b"k", value)])
        return self.coordinator.answer(self.shard, lambda code: code, 60_000)

    def write_by(self, producer: Producer, *records: Record) -> None:
        """Write in a producer's transaction, which its coordinator knows of."""
        guard = self.shard.partition.begin_verification(*producer, UNSEQUENCED, False, system().wall_ms())
        self.coordinator.write(self.shard, records, producer=producer, guard=guard)

    async def copied(self, offset: int) -> None:
        """Broker 2 has the log up to an offset."""
        self.replicas.get("t", 0).follower_fetched(2, offset, 0, EPOCH)
        await settle()

    def refusal(self, index: int = 0) -> KafkaError:
        with pytest.raises(KafkaError) as caught:
            self.coordinator.active(index)
        return caught.value


def coordinated(path: Path, history: Callable[[Coordinated], Any]) -> None:
    world = Coordinated(path)

    async def whole() -> None:
        await history(world)
        await world.coordinator.stop()

    world.run(whole)


def test_a_shard_is_used_once_all_that_was_read_of_it_is_committed(tmp_path: Path) -> None:
    async def history(world: Coordinated) -> None:
        await world.create()
        world.write(b"one")
        await world.lead(2, 1)
        await world.lead(1, 2)  # leads again, and broker 2 may not have the record
        assert world.refusal().code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        loading = world.coordinator.shards[0]
        assert loading.state.values == [b"one"] and not loading.state.is_loaded
        await world.copied(0)
        assert world.refusal().code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await world.copied(1)
        assert world.shard.state.values == [b"one"] and world.shard.state.is_loaded

    coordinated(tmp_path, history)


def test_a_shard_that_is_led_elsewhere_before_its_records_are_committed_is_never_used(tmp_path: Path) -> None:
    async def history(world: Coordinated) -> None:
        await world.create()
        world.write(b"one")
        await world.lead(2, 1)
        await world.lead(1, 2)
        loading = world.coordinator.shards[0]
        await world.lead(2, 3)
        assert world.refusal().code == ErrorCode.NOT_COORDINATOR
        assert not loading.state.is_loaded and loading.failure is not None

    coordinated(tmp_path, history)


def test_who_waits_for_a_commit_is_told_when_the_shard_is_led_elsewhere(tmp_path: Path) -> None:
    async def history(world: Coordinated) -> None:
        await world.create()
        waits = world.write(b"one")
        assert isinstance(waits, Pending) and not waits.done
        await world.lead(2, 1)
        assert waits.answer == ErrorCode.NOT_COORDINATOR

    coordinated(tmp_path, history)


def test_nothing_is_written_while_too_few_replicas_are_in_sync(tmp_path: Path) -> None:
    least = r.ConfigRecord(resource_type=2, resource_name="t", name="min.insync.replicas", value="2")

    async def history(world: Coordinated) -> None:
        shard = await world.create(least, isr=(1,))
        with pytest.raises(KafkaError) as caught:
            world.coordinator.write(shard, [(b"k", b"one")])
        assert caught.value.code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert shard.partition.log.log_end_offset == 0 and shard.state.values == []

    coordinated(tmp_path, history)


def test_what_is_written_in_transactions_is_replayed_as_such_then_and_later(tmp_path: Path) -> None:
    seven, eight = Producer(7, 0), Producer(8, 3)

    async def history(world: Coordinated) -> None:
        shard = await world.create(isr=(1,))
        end = world.coordinator.complete_transaction
        world.coordinator.write(shard, [(b"k", b"plain"), (b"k", b"second")])
        world.write_by(seven, (b"k", b"one"), (b"l", b"two"))
        world.write_by(eight, (b"k", b"three"))
        assert end(shard, seven, 0, True, 1) == shard.written == 6
        world.write_by(seven, (b"k", b"four"))
        end(shard, eight, 0, False, 1)
        expected = [
            (b"plain", 0, NO_PRODUCER), (b"second", 1, NO_PRODUCER), (b"one", 2, 7), (b"two", 3, 7), (b"three", 4, 8),
            (7, "commit"), (b"four", 6, 7), (8, "abort"),
        ]  # fmt: skip
        assert shard.state.replayed == expected
        await world.lead(2, 1)
        await world.lead(1, 2, isr=(1,))
        assert world.shard is not shard and world.shard.state.replayed == expected
        assert world.shard.partition.last_stable_offset == 6, "producer 7 has begun another transaction"

    coordinated(tmp_path, history)


def test_what_a_log_refuses_to_a_producer_changes_nothing(tmp_path: Path) -> None:
    seven = Producer(7, 1)

    async def history(world: Coordinated) -> None:
        shard = await world.create(isr=(1,))
        world.write_by(seven, (b"k", b"one"))
        end = world.coordinator.complete_transaction
        for code, attempt in (
            (ErrorCode.INVALID_PRODUCER_EPOCH, lambda: world.write_by(Producer(7, 0), (b"k", b"two"))),
            (
                ErrorCode.INVALID_TXN_STATE,
                lambda: world.coordinator.write(shard, [(b"k", b"three")], producer=Producer(8, 0)),
            ),
            (ErrorCode.INVALID_PRODUCER_EPOCH, lambda: end(shard, Producer(7, 0), 0, True, 1)),
        ):
            with pytest.raises(KafkaError) as caught:
                attempt()
            assert caught.value.code == code
        end(shard, seven, 3, True, 1)
        with pytest.raises(KafkaError) as caught:
            end(shard, seven, 2, False, 1)
        assert caught.value.code == ErrorCode.TRANSACTION_COORDINATOR_FENCED
        assert shard.state.replayed == [(b"one", 0, 7), (7, "commit")]
        assert shard.written == shard.partition.log.log_end_offset == 2

    coordinated(tmp_path, history)
