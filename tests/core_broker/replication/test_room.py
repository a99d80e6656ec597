"""Partitions that want room come back when there is some; all of them cost what one costs while there is none."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from isthmus.core_broker.cluster.image import MetadataImage
from isthmus.core_broker.config import BrokerConfig
from isthmus.core_broker.replication.manager import ReplicaManager
from isthmus.core_broker.replication.room import OPENED_AT_ONCE, RETRY_FIRST_S, RETRY_MOST_S, WantOfRoom
from isthmus.core_broker.storage.log import Origin
from isthmus.core_broker.storage.manager import LogManager
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.messages import metadata_records as r
from isthmus.protocol.records import build_batch
from isthmus.runtime import system
from tests.core_broker.storage.support import BrokenFiles

ID, OTHER_ID = b"\1" * 16, b"\2" * 16
BATCH = build_batch([(system().wall_ms(), b"k", b"v", ())])


class World:
    """A replica manager on a disk to break. Time stands still: `tick` lets the next pause of the task be over."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self.files = BrokenFiles()
        self.image = MetadataImage("cluster")
        self.logs = LogManager(self.files, str(path), system())
        self.replicas = ReplicaManager(self.image, self.logs, BrokerConfig(), system(), 1)
        self.pauses: list[float] = []
        self.returned: list[tuple[str, int]] = []
        self.replicas.came_back = lambda topic, index: self.returned.append((topic, index))
        self._ticks: list[asyncio.Future[None]] = []

        async def pause(wanting: WantOfRoom, seconds: float) -> None:
            self.pauses.append(seconds)
            tick = asyncio.get_running_loop().create_future()
            self._ticks.append(tick)
            stopped = asyncio.ensure_future(wanting._stopping.wait())
            await asyncio.wait([tick, stopped], return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()

        monkeypatch.setattr(WantOfRoom, "_pause", pause)

    def run(self, history: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            await self.logs.open(1)
            await history()
            await self.replicas.close()
            await self.logs.close()

        asyncio.run(main())
        self.files.close()

    async def feed(self, *records: Any) -> None:
        await self.replicas.apply(self.image.apply(records, self.image.offset + len(records), 0))

    async def topic(self, *partitions: int, topic_id: bytes = ID) -> None:
        await self.feed(r.TopicRecord(name="t", topic_id=topic_id), *(partition(n, topic_id) for n in partitions))

    async def tick(self, times: int = 1) -> None:
        for _ in range(times):
            await settle()
            assert self._ticks, "nobody waits"
            self._ticks.pop(0).set_result(None)
            await settle()

    async def ended(self) -> None:
        """Nothing wants room any more."""
        while self.is_looking:
            assert not self._ticks, "it waits once more"
            await asyncio.sleep(0)

    @property
    def is_looking(self) -> bool:
        return self.replicas._room._task is not None

    def refuse(self, number: int, kinds: tuple[str, ...] = ("append",), part: str = "/t-") -> None:
        def trap(kind: str, path: str) -> None:
            if kind in kinds and part in path:
                raise OSError(number, os.strerror(number), path)

        self.files.trap = trap

    def heal(self) -> None:
        self.files.trap = lambda kind, path: None

    def append(self, index: int = 0) -> int:
        return self.replicas.get("t", index).append(BATCH, Origin.CLIENT, system().wall_ms()).first_offset

    def refusal(self, index: int = 0) -> KafkaError:
        with pytest.raises(KafkaError) as caught:
            self.append(index)
        assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        return caught.value


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def partition(index: int, topic_id: bytes = ID) -> r.PartitionRecord:
    return r.PartitionRecord(
        partition_id=index, topic_id=topic_id, replicas=[1], isr=[1], leader=1, leader_epoch=0, partition_epoch=0,
        directories=[bytes(16)],
    )  # fmt: skip


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


# Those that could not be opened


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize("kind", ["makedirs", "open", "append", "sync_directory"])
def test_partition_that_could_not_be_made_for_want_of_room_comes_back(
    world: World, kind: str, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    async def history() -> None:
        world.refuse(number, (kind,), part=str(world.path) if kind == "sync_directory" else "/t-")
        await world.topic(0)
        assert os.strerror(number) in world.refusal().message
        assert os.strerror(number) in world.replicas.offline()["t", 0]
        assert f"t-0 is offline until there is room: {world.refusal().message}" in caplog.text
        await world.tick()
        assert world.refusal() and not world.returned
        world.heal()
        await world.tick()
        assert world.append() == 0
        assert world.replicas.offline() == {} and world.returned == [("t", 0)]
        assert "t-0 is online again" in caplog.text
        assert caplog.text.count("is offline") == 1  # the second refusal said nothing new
        await settle()
        assert not world.is_looking

    world.run(history)


def test_control_what_is_broken_is_not_tried_again(world: World, caplog: pytest.LogCaptureFixture) -> None:
    async def history() -> None:
        world.refuse(errno.EIO)
        await world.topic(0)
        world.heal()
        await settle()
        assert not world.is_looking
        assert "Input/output error" in world.refusal().message
        assert "t-0 is offline until the broker starts again" in caplog.text

    world.run(history)


def test_a_log_that_is_there_and_could_not_be_opened_has_its_records_when_it_comes_back(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fill() -> None:
        await world.topic(0)
        assert [world.append() for _ in range(3)] == [0, 1, 2]

    world.run(fill)
    after = World(tmp_path, monkeypatch)

    async def history() -> None:
        after.refuse(errno.EMFILE, ("open",))
        await after.topic(0)
        assert "Too many open files" in after.refusal().message
        after.heal()
        await after.tick()
        assert after.replicas.get("t", 0).high_watermark == 3
        assert after.append() == 3

    after.run(history)


def test_name_of_a_directory_that_a_first_try_left_is_synced(world: World) -> None:
    """Else a power cut takes the partition with all that was synced in it."""

    async def history() -> None:
        world.refuse(errno.ENOSPC, ("sync_directory",), part=str(world.path))
        await world.topic(0)
        world.heal()
        before = len(world.files.calls)
        await world.tick()
        assert ("sync_directory", str(world.path)) in world.files.calls[before:]
        world.append()
        before = len(world.files.calls)
        await world.replicas.get("t", 0).log.sync()
        assert ("sync", f"{world.path}/t-0/partition.metadata") in world.files.calls[before:]

    world.run(history)


def test_thousand_partitions_cost_one_try_a_turn_and_come_back_together(world: World) -> None:
    async def history() -> None:
        world.refuse(errno.ENOSPC)
        await world.topic(*range(1000))
        assert len(world.replicas.offline()) == 1000
        for _ in range(3):
            before = len(world.files.calls)
            await world.tick()
            assert len([1 for kind, _ in world.files.calls[before:] if kind == "append"]) == 1
        world.heal()
        jobs = []
        pool = world.files.run

        async def counted(work: Any, *arguments: Any) -> Any:
            jobs.append(work)
            return await pool(work, *arguments)

        world.files.run = counted  # type: ignore[method-assign]
        await world.tick()
        await world.ended()
        assert world.replicas.offline() == {} and len(world.returned) == 1000
        assert len(jobs) == 1 + -(-999 // OPENED_AT_ONCE)

    world.run(history)


def test_one_that_finds_no_room_does_not_keep_others_from_being_tried(world: World) -> None:
    async def history() -> None:
        world.refuse(errno.ENOSPC)
        await world.topic(0, 1, 2)
        world.refuse(errno.ENOSPC, part="/t-0")  # a file system of its own, say
        await world.tick(2)
        assert list(world.replicas.offline()) == [("t", 0)]
        world.heal()
        await world.tick()
        assert world.replicas.offline() == {}

    world.run(history)


def test_tries_are_ever_rarer_but_never_end(world: World) -> None:
    async def history() -> None:
        world.refuse(errno.ENOSPC)
        await world.topic(0)
        await world.tick(9)
        assert world.pauses[0] == RETRY_FIRST_S
        assert world.pauses[1:6] == [2 * each for each in world.pauses[:5]] or RETRY_MOST_S in world.pauses[1:6]
        assert world.pauses[-3:] == [RETRY_MOST_S] * 3
        world.heal()
        await world.tick()
        assert world.replicas.offline() == {}

    world.run(history)


def test_options_and_epochs_that_changed_meanwhile_hold(world: World) -> None:
    async def history() -> None:
        world.refuse(errno.ENOSPC)
        await world.topic(0)
        await world.feed(r.ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="5"))
        world.heal()
        await world.tick()
        served = world.replicas.get("t", 0)
        assert (served.log.config.retention_ms, served.configs["retention.ms"]) == (5, 5)

    world.run(history)


# A change of the cluster's metadata beside a try


class Gate:
    """The pool's next job waits until it is opened."""

    def __init__(self, files: BrokenFiles) -> None:
        self.is_reached, self.is_open = asyncio.Event(), asyncio.Event()
        pool = files.run

        async def run(work: Any, *arguments: Any) -> Any:
            files.run = pool  # type: ignore[method-assign]
            self.is_reached.set()
            await self.is_open.wait()
            return await pool(work, *arguments)

        files.run = run  # type: ignore[method-assign]


async def during_a_try(world: World, change: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """The change comes while the partition is being opened once more."""
    world.refuse(errno.ENOSPC)
    await world.topic(0)
    world.heal()
    gate = Gate(world.files)
    await world.tick()
    assert gate.is_reached.is_set()
    changing = asyncio.ensure_future(change())
    await settle()
    assert not changing.done()  # it waits: two must not work in one directory
    gate.is_open.set()
    await changing
    await settle()


def test_topic_that_is_deleted_during_a_try_is_gone(world: World) -> None:
    async def history() -> None:
        await during_a_try(world, lambda: world.feed(r.RemoveTopicRecord(topic_id=ID)))
        assert world.replicas.offline() == {} and not world.is_looking and not world.returned
        assert world.logs.get("t", 0) is None
        assert not (world.path / "t-0").exists()

    world.run(history)


def test_topic_that_is_deleted_and_made_again_during_a_try_is_the_new_one(world: World) -> None:
    async def history() -> None:
        async def change() -> None:
            await world.feed(
                r.RemoveTopicRecord(topic_id=ID),
                r.TopicRecord(name="t", topic_id=OTHER_ID),
                partition(0, OTHER_ID),
            )

        await during_a_try(world, change)
        assert world.replicas.get("t", 0).topic_id == OTHER_ID
        assert not world.returned  # the old one's log was not served under the new one's id
        assert world.append() == 0 and world.replicas.offline() == {}

    world.run(history)


def test_leader_epoch_that_rises_during_a_try_is_taken(world: World) -> None:
    async def history() -> None:
        change = r.PartitionChangeRecord(partition_id=0, topic_id=ID, leader=1)
        await during_a_try(world, lambda: world.feed(change))
        assert world.replicas.get("t", 0).leader_epoch == 1
        assert world.append() == 0

    world.run(history)


def test_options_that_change_during_a_try_hold(world: World) -> None:
    async def history() -> None:
        world.refuse(errno.ENOSPC)
        await world.topic(0)
        world.heal()
        gate = Gate(world.files)
        await world.tick()
        assert gate.is_reached.is_set()
        await world.feed(r.ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="5"))
        gate.is_open.set()
        await world.ended()
        served = world.replicas.get("t", 0)
        assert (served.log.config.retention_ms, served.configs["retention.ms"]) == (5, 5)

    world.run(history)


def test_other_topics_do_not_wait_for_a_try(world: World) -> None:
    async def history() -> None:
        world.refuse(errno.ENOSPC)
        await world.topic(0)
        world.heal()
        gate = Gate(world.files)
        await world.tick()
        assert gate.is_reached.is_set()
        await world.feed(r.TopicRecord(name="u", topic_id=OTHER_ID), partition(0, OTHER_ID))
        assert world.replicas.get("u", 0).high_watermark == 0
        gate.is_open.set()

    world.run(history)


def test_deletion_takes_the_files_of_what_could_not_be_opened(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fill() -> None:
        await world.topic(0)
        world.append()

    world.run(fill)
    after = World(tmp_path, monkeypatch)

    async def history() -> None:
        after.refuse(errno.ENOSPC, ("open",))
        await after.topic(0)
        assert (tmp_path / "t-0").exists()
        after.heal()
        await after.feed(r.RemoveTopicRecord(topic_id=ID))
        assert not (tmp_path / "t-0").exists()

    after.run(history)


def test_stop_waits_for_the_try_that_is_under_way(world: World) -> None:
    async def history() -> None:
        world.refuse(errno.ENOSPC)
        await world.topic(0)
        world.heal()
        gate = Gate(world.files)
        await world.tick()
        stopping = asyncio.ensure_future(world.replicas.close())
        await settle()
        assert not stopping.done()
        gate.is_open.set()
        await stopping
        assert not world.is_looking

    world.run(history)


# Those that take no appends


def test_partition_that_takes_no_appends_is_told_as_offline_until_there_is_room(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    async def history() -> None:
        await world.topic(0, 1)
        world.append()
        world.refuse(errno.ENOSPC, part="/t-0")
        for _ in range(3):
            world.refusal()
        (key, reason), *others = world.replicas.offline().items()
        assert key == ("t", 0) and not others
        assert "takes no appends" in reason and "No space left on device" in reason
        assert caplog.text.count("t-0 is offline for appends while this lasts: cannot append to") == 1
        assert world.append(1) == 0
        assert world.replicas.get("t", 0).read(0, 1000).size_bytes == len(BATCH)  # it is read as ever
        await world.tick()
        assert list(world.replicas.offline()) == [("t", 0)]
        world.heal()
        await world.tick()  # nobody has appended
        assert world.replicas.offline() == {}
        assert "t-0 is online again for appends" in caplog.text
        assert world.append() == 1
        assert sorted(path.name for path in (world.path / "t-0").iterdir() if path.suffix == ".tmp") == []

    world.run(history)


def test_append_that_goes_through_ends_it_at_once(world: World) -> None:
    async def history() -> None:
        await world.topic(0)
        world.refuse(errno.EMFILE)
        world.refusal()
        world.heal()
        assert world.append() == 0
        assert world.replicas.offline() == {}
        await world.tick()
        assert not world.is_looking
        assert not [path for _, path in world.files.calls if path.endswith("room.tmp")]

    world.run(history)


def test_as_much_is_tried_as_was_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for less would only have the next append refused, and told, again."""
    tried = []

    async def try_room(log: Any, size_bytes: int) -> None:
        tried.append(size_bytes)

    monkeypatch.setattr("isthmus.core_broker.storage.upkeep.LogUpkeep.try_room", try_room)

    async def history() -> None:
        await world.topic(0)
        world.refuse(errno.ENOSPC)
        world.refusal()
        await world.tick()
        assert tried == [len(BATCH)]

    world.run(history)


def test_try_that_finds_the_disk_broken_takes_the_partition_offline(world: World) -> None:
    async def history() -> None:
        await world.topic(0)
        world.refuse(errno.ENOSPC)
        world.refusal()
        world.refuse(errno.EIO)
        await world.tick()
        world.heal()
        assert "Input/output error" in world.replicas.offline()["t", 0]
        assert "Input/output error" in world.refusal().message
        assert not world.is_looking

    world.run(history)


def test_broken_disk_is_told_once_and_not_as_want_of_room(world: World, caplog: pytest.LogCaptureFixture) -> None:
    async def history() -> None:
        await world.topic(0)
        world.refuse(errno.EIO)
        world.refusal()
        assert "for appends" not in caplog.text
        assert caplog.text.count("t-0 is offline until the broker starts again") == 1
        assert not world.is_looking

    world.run(history)


def test_thousand_that_take_no_appends_cost_one_try_a_turn(world: World) -> None:
    async def history() -> None:
        await world.topic(*range(1000))
        world.refuse(errno.ENOSPC)
        for index in range(1000):
            world.refusal(index)
        before = len(world.files.calls)
        await world.tick()
        assert len([1 for kind, _ in world.files.calls[before:] if kind == "append"]) == 1
        world.heal()
        await world.tick()
        await world.ended()
        assert world.replicas.offline() == {}

    world.run(history)


def test_deleted_partition_is_not_tried(world: World) -> None:
    async def history() -> None:
        await world.topic(0)
        world.refuse(errno.ENOSPC)
        world.refusal()
        world.heal()
        await world.feed(r.RemoveTopicRecord(topic_id=ID))
        await world.tick()
        assert not world.is_looking
        assert not [path for _, path in world.files.calls if path.endswith("room.tmp")]

    world.run(history)
