"""Records that were deleted stay deleted on all replicas, and replicas that come later do without them."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.core_broker.storage.log.append import Origin
from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import delete_records
from isthmus.protocol.records import build_batch
from tests.simulation.brokers import Cluster
from tests.simulation.runner import Simulation, run_checked
from tests.simulation.wire import ask
from tests.simulation.workload import Workload


async def formed(sim: Simulation, durability: str) -> tuple[Cluster, int]:
    """Three brokers that all have t-0, and who leads it."""
    cluster = Cluster(sim, options={"durability": durability})
    await cluster.form()
    await cluster.make_topic("t", 1, {"min.insync.replicas": "2"})
    await cluster.settled({"t": 1}, 60.0)
    return cluster, next(number for number, topic, _, held in cluster.partitions() if topic == "t" and held.leads)


async def fill(cluster: Cluster) -> None:
    """30 records."""
    await cluster.produce(Workload("w", "t"), count=30, partition=0)


async def delete_before(cluster: Cluster, leader: int, offset: int) -> None:
    row = delete_records.DeleteRecordsPartition(partition_index=0, offset=offset)
    topic = delete_records.DeleteRecordsTopic(name="t", partitions=[row])
    request = delete_records.Request(topics=[topic], timeout_ms=5_000)
    answer = await cluster.admin.outcome(ask(cluster.hosts[leader].address, delete_records.API, request))
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE


async def append(held: Any) -> None:
    """A record that no follower has."""
    held.append(build_batch([(0, b"k", b"v", ())]), Origin.CLIENT, 0)


def held_by(cluster: Cluster, broker_id: int) -> Any:
    return next(held for number, topic, _, held in cluster.partitions() if (number, topic) == (broker_id, "t"))


def starts(cluster: Cluster) -> dict[int, int]:
    """By broker."""
    return {number: held.log.log_start_offset for number, topic, _, held in cluster.partitions() if topic == "t"}


def test_followers_that_crash_do_not_bring_them_back() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster, leader = await formed(sim, "page_cache")
        await fill(cluster)
        await delete_before(cluster, leader, 17)
        for number in cluster.hosts:
            cluster.kill(number, power=number == leader)
        followers = [number for number in cluster.hosts if number != leader]
        for number in followers:
            cluster.begin(number)
        await sim.until(lambda: all(cluster.serves(number) for number in followers), "two are enough", 60.0)
        assert starts(cluster) == dict.fromkeys(followers, 17)

    run_checked(scenario)


@pytest.mark.parametrize("durability", ["page_cache", "fsync"])
def test_a_follower_that_has_nothing_after_them_begins_where_its_leader_does(durability: str) -> None:
    async def scenario(sim: Simulation) -> None:
        cluster, leader = await formed(sim, durability)
        cluster.kill(1 if leader != 1 else 2, power=False)
        await fill(cluster)
        await delete_before(cluster, leader, 30)
        await cluster.up(60.0)
        await cluster.settled({"t": 1}, 60.0)
        assert starts(cluster) == dict.fromkeys(cluster.hosts, 30)

    run_checked(scenario)


def test_a_follower_without_room_tells_where_it_begins_once_it_has_some() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster, leader = await formed(sim, "page_cache")
        await fill(cluster)
        disk = cluster.hosts[1 if leader != 1 else 2].machine.disk
        capacity_bytes, disk.capacity_bytes = disk.capacity_bytes, disk.used_bytes
        sim.loop.call_later(3.0, lambda: setattr(disk, "capacity_bytes", capacity_bytes))
        began_s = sim.loop.time()
        await delete_before(cluster, leader, 17)
        assert sim.loop.time() - began_s > 2.0

    run_checked(scenario)


def test_what_was_never_committed_does_not_stay_below_what_was_deleted() -> None:
    """A former leader ends where the new one begins, which has forgotten the epochs of what it has deleted."""

    async def scenario(sim: Simulation) -> None:
        cluster, former = await formed(sim, "page_cache")
        await fill(cluster)
        followers = [number for number in cluster.hosts if number != former]
        for number in followers:
            cluster.kill(number, power=False)
        process = cluster.hosts[former].machine.process
        assert process is not None
        await process.outcome(append(held_by(cluster, former)))
        end = held_by(cluster, former).log.log_end_offset
        cluster.kill(former, power=False)
        for number in followers:
            cluster.begin(number)
        await sim.until(lambda: all(cluster.serves(number) for number in followers), "two are enough", 60.0)
        await cluster.produce(Workload("v", "t"), count=20, partition=0)
        leader = next(number for number in followers if held_by(cluster, number).leads)
        await delete_before(cluster, leader, end)
        await cluster.up(60.0)
        await cluster.settled({"t": 1}, 60.0)
        assert starts(cluster) == dict.fromkeys(cluster.hosts, end)
        stored = [cluster.hosts[number].partition_bytes("t", 0) for number in (former, leader)]
        assert stored[1].endswith(stored[0]) and stored[0] != stored[1]

    run_checked(scenario)


def test_a_follower_that_begins_after_its_leaders_end_has_nothing_then() -> None:
    """As after an unclean election."""

    async def scenario(sim: Simulation) -> None:
        cluster, leader = await formed(sim, "page_cache")
        await fill(cluster)
        await delete_before(cluster, leader, 30)
        follower = 1 if leader != 1 else 2
        process = cluster.hosts[follower].machine.process
        held = held_by(cluster, follower)
        assert process is not None
        await process.outcome(held.truncate_to(10))
        assert (held.log.log_start_offset, held.log.log_end_offset, held.high_watermark) == (10, 10, 10)

    run_checked(scenario)
