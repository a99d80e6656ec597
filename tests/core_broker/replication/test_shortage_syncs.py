"""Partitions whose sync was refused for want of room come back by themselves, with all that was served and nothing that
is not on disk."""

from __future__ import annotations

import errno
import os

import pytest

from isthmus.core_broker.replication.states import State
from isthmus.core_broker.storage.disk.errors import StorageError
from isthmus.core_broker.storage.log.append import Origin
from isthmus.core_broker.storage.manager import LogManager
from isthmus.core_broker.storage.startup.last_process import NO_EPOCH, LastProcess
from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import metadata_records as r
from isthmus.runtime import system
from tests.running import run_by

from .worlds import BATCH, ID, World, heal_in_vain, in_world, partition, settle

NOTE = "sync-failed"
LOG = "00000000000000000000.log"
FSYNC = r.ConfigRecord(resource_type=2, resource_name="t", name="durability", value="fsync")


async def synced(world: World) -> None:
    """A topic with durability=fsync, and one record in it that is on disk."""
    await world.feed(r.TopicRecord(name="t", topic_id=ID), FSYNC, partition(0))
    world.append()
    await settle()
    assert world.replicas.get("t", 0).high_watermark == 1


async def refused(world: World, number: int) -> list[int]:
    """Two more records, whose sync is refused; the high watermark that those who wait for them see in the end."""
    served = world.replicas.get("t", 0)
    world.refuse(number, ("sync",))
    seen: list[int] = []
    for _ in range(2):
        end = world.append() + 1
        served.wait_for_high_watermark(end, lambda: seen.append(served.high_watermark))
    await settle()
    assert served.failure is not None and served.failure.code == ErrorCode.KAFKA_STORAGE_ERROR
    return seen


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@run_by(in_world)
async def test_partition_whose_sync_was_refused_for_want_of_room_comes_back(
    world: World, /, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    await synced(world)
    assert await refused(world, number) == [1, 1]  # nobody was told that it is on disk
    assert f"t-0 is offline until the shortage is over: {world.refusal().message}" in caplog.text
    assert os.strerror(number) in world.replicas.offline()["t", 0] and world.replicas.leaderless == {"t": {0}}
    await world.tick()
    assert os.strerror(number) in world.refusal().message and not world.returned
    world.heal()
    before = len(world.files.calls)
    await world.tick()
    assert world.returned == [("t", 0)] and world.replicas.offline() == world.replicas.leaderless == {}
    assert "t-0 is online again" in caplog.text
    assert not world.is_looking
    on_copy = [kind for kind, path in world.files.calls[before:] if path.endswith(f"{LOG}.tmp")]
    assert on_copy == ["open", "append", *on_copy[2:-2], "sync", "rename"]  # the system forgets the old pages
    assert not (world.path / "t-0" / NOTE).exists()
    again = world.replicas.get("t", 0)
    assert again.high_watermark == 3 and again.read(0, 10_000).size_bytes == 3 * len(BATCH)
    assert world.append() == 3
    await settle()
    assert again.high_watermark == 4


@run_by(in_world)
async def test_name_of_a_partition_whose_first_sync_was_refused_is_synced(world: World, /) -> None:
    """Else a power cut leaves a directory of no topic, with what was told to be on disk in it."""
    world.refuse(errno.ENOSPC, ("sync",))
    await world.feed(r.TopicRecord(name="t", topic_id=ID), FSYNC, partition(0))
    world.append()
    await settle()
    world.heal()
    before = len(world.files.calls)
    await world.tick()
    assert world.replicas.get("t", 0).high_watermark == 1
    assert ("sync", f"{world.path}/t-0/partition.metadata") in world.files.calls[before:]


@run_by(in_world)
async def test_control_broken_disk_at_a_sync_waits_for_a_start(
    world: World, /, caplog: pytest.LogCaptureFixture
) -> None:
    await synced(world)
    await refused(world, errno.EIO)
    await heal_in_vain(world, caplog)


@run_by(in_world)
async def test_disk_that_is_found_broken_at_a_try_waits_for_a_start(
    world: World, /, caplog: pytest.LogCaptureFixture
) -> None:
    await synced(world)
    await refused(world, errno.ENOSPC)
    world.refuse(errno.EIO, ("sync",))
    await world.tick()
    assert not world.is_looking
    assert "Input/output error" in world.replicas.offline()["t", 0]
    assert "t-0 is offline until the broker starts again: cannot open" in caplog.text


@run_by(in_world)
async def test_background_sync_that_finds_no_room_is_waited_out_too(world: World, /) -> None:
    await world.topic(0)
    world.append()
    served = world.replicas.get("t", 0)
    world.refuse(errno.ENOSPC, ("sync",))
    with pytest.raises(StorageError, match="No space left"):
        await served.log.sync()  # as flush.ms or a closed segment has it
    assert served.failure is not None and list(world.replicas.offline()) == [("t", 0)]
    world.heal()
    await world.tick()
    assert world.replicas.get("t", 0).high_watermark == 1 and world.append() == 1


@pytest.mark.parametrize("is_lost", [True, False])
@run_by(in_world)
async def test_less_than_was_served_waits_for_a_start_which_raises_the_epoch(
    world: World, /, is_lost: bool, caplog: pytest.LogCaptureFixture
) -> None:
    await synced(world)
    await refused(world, errno.ENOSPC)
    log = world.path / "t-0" / LOG
    data = bytearray(log.read_bytes())
    kept = 0 if is_lost else len(BATCH)  # of what the page cache had; the first record was served
    data[kept:] = bytes(len(data) - kept)
    log.write_bytes(data)
    world.heal()
    await world.tick()
    assert not world.is_looking
    if is_lost:
        assert "offsets 0 to 0 were here" in world.replicas.offline()["t", 0]
        assert "t-0 is offline until the broker starts again" in caplog.text
    else:
        assert world.replicas.get("t", 0).high_watermark == 1 and world.append() == 1


async def lost_as_a_follower(world: World, durability: str) -> None:
    """The log lost what its leader was told that it has."""
    created = r.PartitionRecord(
        partition_id=0, topic_id=ID, replicas=[1, 2], isr=[1, 2], leader=2, leader_epoch=0, partition_epoch=0,
        directories=[bytes(16), bytes(16)],
    )  # fmt: skip
    option = r.ConfigRecord(resource_type=2, resource_name="t", name="durability", value=durability)
    await world.feed(r.TopicRecord(name="t", topic_id=ID), option, created)
    followed = world.replicas.held("t", 0)
    followed.append(BATCH, Origin.REPLICATION, system().wall_ms())
    await settle()  # with fsync it is on disk by now; the leader has not told yet what is committed
    world.refuse(errno.ENOSPC, ("sync",))
    followed.append(bytes(7) + b"\1" + BATCH[8:], Origin.REPLICATION, system().wall_ms())
    if durability == "page_cache":
        with pytest.raises(StorageError):
            await followed.log.sync()
    await settle()
    assert world.replicas.is_offline("t", 0)
    log = world.path / "t-0" / LOG
    log.write_bytes(bytes(log.stat().st_size))
    world.heal()


def counting(isr: list[int], elr: list[int]) -> r.PartitionChangeRecord:
    return r.PartitionChangeRecord(partition_id=0, topic_id=ID, isr=isr, eligible_leader_replicas=elr)


@pytest.mark.parametrize("durability", ["fsync", "page_cache"])
@pytest.mark.parametrize("counts", [counting([1, 2], []), counting([2], [1])], ids=["in sync", "eligible"])
@run_by(in_world)
async def test_less_than_its_leader_was_told_is_not_led_from_while_it_counts(
    world: World, /, durability: str, counts: r.PartitionChangeRecord
) -> None:
    """It may be asked to lead at any time, and lacks what is committed."""
    await lost_as_a_follower(world, durability)
    await world.feed(counts)
    assert "offsets 0 to " in world.replicas.offline()["t", 0]
    await world.feed(counting([2], []))
    assert world.replicas.held("t", 0).state is State.FOLLOWING


@pytest.mark.parametrize("counts", [True, False])
@run_by(in_world)
async def test_next_process_is_not_taken_for_one_that_has_all(world: World, /, counts: bool) -> None:
    """The controller would leave it among the eligible ones (KIP-966)."""
    await world.logs.last_process.note(7, bytes(16))
    await lost_as_a_follower(world, "fsync")
    await world.feed(counting([2], [1] if counts else []))
    await world.replicas.close()
    await world.logs.close()
    left = LastProcess(world.files, str(world.path))
    left.take()
    assert left.was_clean and left.broker_epoch == (NO_EPOCH if counts else 7)


@run_by(in_world)
async def test_nothing_is_opened_before_the_failed_sync_is_noted(world: World, /) -> None:
    """A process that is killed then must not believe what the page cache shows either."""
    await synced(world)
    world.refuse(errno.ENOSPC, ("append", "sync"), part="/t-0/")
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    world.replicas.get("t", 0).log.status.fail(error, "cannot sync")
    before = len(world.files.calls)
    await world.tick()
    assert not [path for _, path in world.files.calls[before:] if path.endswith(".log")]
    assert "No space left" in world.replicas.offline()["t", 0]
    world.heal()
    await world.tick()
    assert world.replicas.get("t", 0).high_watermark == 1


async def opened_and_not_served(world: World) -> None:
    """There was room for the log, but none for the recovery points, of which its own fell: its epochs were lost."""
    await synced(world)
    await refused(world, errno.ENOSPC)
    (world.path / "t-0" / "leader-epoch-checkpoint").write_bytes(b"?")
    world.refuse(errno.ENOSPC, ("write_atomic",), part="/recovery-point-offset-checkpoint")
    await world.tick()
    assert world.logs.get("t", 0) is not None


@run_by(in_world)
async def test_checkpoint_that_finds_no_room_at_a_try_loses_no_partition(world: World, /) -> None:
    await opened_and_not_served(world)
    assert world.is_looking and "recovery-point" in world.refusal().message
    world.heal()
    await world.tick()
    assert world.returned == [("t", 0)] and world.replicas.get("t", 0).high_watermark == 3
    assert not world.is_looking and world.append() == 3


@run_by(in_world)
async def test_options_that_change_before_an_open_log_is_served_hold(world: World, /) -> None:
    await opened_and_not_served(world)
    world.heal()
    await world.feed(r.ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="5"))
    await world.feed(r.PartitionChangeRecord(partition_id=0, topic_id=ID, leader=1))
    served = world.replicas.get("t", 0)
    assert (served.log.config.retention_ms, served.configs["retention.ms"]) == (5, 5)
    await world.tick()
    assert not world.is_looking


@pytest.mark.parametrize("is_well", [True, False])
@run_by(in_world)
async def test_stop_meanwhile_leaves_no_word_that_all_is_well(world: World, /, is_well: bool) -> None:
    await synced(world)
    if not is_well:
        await refused(world, errno.ENOSPC)
        await world.tick()  # its log has been let go
        assert world.logs.get("t", 0) is None
    await world.replicas.close()
    await world.logs.close()
    assert (world.path / ".kafka_cleanshutdown").exists() is is_well
    again = LogManager(world.files, str(world.path), system())
    world.heal()
    await again.open(1)
    log = await again.create("t", 0, ID, world.replicas._log_config(world.image.topics["t"]))
    assert log.log_end_offset == (1 if is_well else 3)
    await again.close()


@run_by(in_world)
async def test_topic_that_is_deleted_meanwhile_is_gone(world: World, /) -> None:
    await synced(world)
    await refused(world, errno.ENOSPC)
    await world.tick()
    world.heal()
    await world.feed(r.RemoveTopicRecord(topic_id=ID))
    assert not (world.path / "t-0").exists() and world.replicas.offline() == {}
    await world.tick()
    assert not world.is_looking and world.logs.get("t", 0) is None


@run_by(in_world)
async def test_change_of_a_partition_meanwhile_opens_it_if_there_is_space(world: World, /) -> None:
    await synced(world)
    await refused(world, errno.ENOSPC)
    await world.feed(r.PartitionChangeRecord(partition_id=0, topic_id=ID, leader=1))
    assert "No space left" in world.refusal().message and world.is_looking
    world.heal()
    await world.feed(r.PartitionChangeRecord(partition_id=0, topic_id=ID, leader=1))
    assert world.append() == 3 and world.replicas.offline() == {}
    await world.tick()
    assert not world.is_looking
