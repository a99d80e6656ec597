"""Three to seven whole brokers, their controller among them, under idempotent producers, a group and raw readers.

Each run draws kinds of events (`cluster_faults.py`): brokers are killed, with and without the power, hang, are cut off
both ways or one way, restarted in turn, added, drained and removed; disks fill up, are slow or replaced; clocks jump;
answers come late; partitions move, voters change, old records are deleted; some clusters are upgraded from an older
release meanwhile. What holds: nothing that was acknowledged by all in-sync replicas is lost, nothing is there twice or
out of order, no committed offset of the group goes back, what a raw reader was given stays, what was deleted stays
away, and all that `cluster_watch.py` looks at. When the events end, everything is in sync and served within a bound.
"""

from __future__ import annotations

import asyncio

from ..brokers import Cluster, Coordinator
from ..cluster_faults import Faults
from ..cluster_watch import Watch
from ..members import Consumer, Seen
from ..rare_states import counted
from ..raw_reader import RawReader
from ..releases import OLDER, installed
from ..runner import Simulation
from ..trimming import Trimmer
from ..workload import Workload, check_acked, check_stored

TOPIC, LOOSE, OFFSETS = "events", "loose", "__consumer_offsets"
PARTITIONS = 2
MIN_INSYNC = 2
SETTLE_S = 300.0
EVENTS = (2, 6)
MOST_VALUES = 400  # of each producer, which sends in bursts until the faults are over
REST_S = 3.0
LIMIT_S = 1_500.0  # of simulated time: none has taken half of it


async def cluster(sim: Simulation) -> None:
    sim.loop.kernel.limit_s = LIMIT_S
    is_durable = sim.random.random() < 0.3
    brokers = new_cluster(sim, is_durable)
    if sim.random.random() < 0.2:
        level = sim.random.choice(OLDER)
        brokers.releases.level.update((host.name, level) for host in brokers.hosts.values())
    with counted(sim.counters), installed(brokers.releases):
        await run_cluster(sim, brokers, is_durable)


async def run_cluster(sim: Simulation, brokers: Cluster, is_durable: bool) -> None:
    chance = sim.random
    await brokers.form()
    await brokers.make_topic(TOPIC, PARTITIONS, {"min.insync.replicas": str(MIN_INSYNC)})
    topics = {TOPIC: PARTITIONS}
    if has_loose := chance.random() < 0.3:
        await brokers.make_topic(LOOSE, 1, {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"})
        topics[LOOSE] = 1
    watch = Watch(brokers, (LOOSE,), {TOPIC: MIN_INSYNC})
    workloads = [Workload(f"w{number}", TOPIC) for number in range(3)]
    running = [
        brokers.produce(workload, count=MOST_VALUES, partition=number % PARTITIONS, rest_s=REST_S)
        for number, workload in enumerate(workloads)
    ]
    loose = Workload("loose", LOOSE)
    if has_loose:
        running.append(brokers.produce(loose, count=MOST_VALUES, partition=0, rest_s=REST_S))
    readers = [RawReader(brokers, watch, TOPIC, index) for index in range(chance.choice((0, 1, PARTITIONS)))]
    seen, members = Seen(sim, TOPIC, PARTITIONS), []
    if chance.random() < 0.5:
        topics[OFFSETS] = 1
        for number in range(chance.randint(1, 2)):
            members.append(Consumer(sim, f"c{number}", Coordinator(brokers), seen, static=chance.random() < 0.4))
    faults = Faults(brokers, topics, is_durable=is_durable)
    trimmer = None
    if chance.random() < 0.3:
        writers = [workloads[index::PARTITIONS] for index in range(PARTITIONS)]
        trimmer = Trimmer(brokers, watch, TOPIC, writers, LOOSE if has_loose else None)
    for _ in range(chance.randint(*EVENTS)):
        await asyncio.sleep(chance.uniform(0.0, 3.0))
        await watch.unless_broken(faults.one())
    faults.end()
    await watch.unless_broken(brokers.up(SETTLE_S))
    if brokers.releases.level:
        await sim.within(SETTLE_S, "the upgrade ends", watch.unless_broken(faults.finish_upgrade()))
        await watch.unless_broken(brokers.up(SETTLE_S))
    for workload in (*workloads, loose):
        workload.is_enough = True
    if trimmer is not None:
        await watch.unless_broken(trimmer.stop(SETTLE_S))
    await sim.within(SETTLE_S, "all is acknowledged", watch.unless_broken(asyncio.gather(*running)))
    if members:
        await watch.unless_broken(sim.until(lambda: all_goes_on(seen, members), "the group goes on", SETTLE_S))
        for member in members:
            member.wanted, member.leaves = False, member.instance is None
        await sim.within(SETTLE_S, "the members end", asyncio.gather(*(member.keeper for member in members)))
    await watch.unless_broken(brokers.settled(topics, SETTLE_S))
    watch.check()
    stored = brokers.stored(TOPIC, PARTITIONS)
    check_stored(workloads, stored)
    check_acked(workloads, stored, deleted_values(workloads, watch))
    for index, reader in enumerate(readers):
        await reader.until(1 + max((each.offset for each in stored if each.partition == index), default=-1), SETTLE_S)


def deleted_values(workloads: list[Workload], watch: Watch) -> set[bytes]:
    """What somebody has asked to delete, which may be done or not."""
    ends = {index: offset for (_, index), offset in watch.to_delete.items()}
    acked = [sent for workload in workloads for sent in workload.acked]
    return {sent.value for sent in acked if sent.acked is not None and sent.acked[1] < ends.get(sent.partition, 0)}


def new_cluster(sim: Simulation, is_durable: bool) -> Cluster:
    chance = sim.random
    size = chance.choice((3, 3, 3, 4, 5, 5, 6, 7))
    voters = 3 if size < 5 else chance.choice((3, 5))
    # With 1, as in Kafka, the last in-sync replica may be the one that has lost its disk when all start again: those
    # that are back before it have left, and are not eligible.
    options = {
        "durability": "fsync" if is_durable else "page_cache",
        "min.insync.replicas": str(MIN_INSYNC),
    }
    if chance.random() < 0.6:  # a follower is soon one that lags
        options["replica.lag.time.max.ms"] = chance.choice(("1000", "2000"))
    if chance.random() < 0.3:  # a follower that was away has a part of what its leader has told it
        options["replica.fetch.max.bytes"] = chance.choice(("100", "4000"))
    if chance.random() < 0.4:
        options["metadata.log.max.record.bytes.between.snapshots"] = chance.choice(("300", "3000"))
        options["controller.quorum.fetch.snapshot.max.bytes"] = "1000"
    return Cluster(sim, size, options, voters=voters, is_dynamic=chance.random() < 0.4)


def all_goes_on(seen: Seen, members: list[Consumer]) -> bool:
    """Whether the members own all partitions, in one generation, and each has been committed."""
    owned = sorted(partition for member in members for partition in member.share)
    generations = [member.generation for member in members]
    is_stable = owned == list(range(PARTITIONS)) and len(dict.fromkeys(generations)) == 1
    return is_stable and all(partition in seen.acked for partition in owned)
