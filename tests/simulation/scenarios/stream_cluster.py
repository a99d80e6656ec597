"""A stream app on three brokers, whose coordinators and leaders die, with workers that come, go, hang and are killed.

The app and what must hold are those of `streams`; the topic without tables grows. What happens to the cluster is what
`cluster` has, and what happens to workers in a commit is what `zombies` has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

from isthmus.client import Admin
from isthmus.protocol.errors import KafkaError

from ..brokers import Cluster
from ..cluster_faults import Faults
from ..cluster_watch import Watch
from ..history import Batch, batches_of, log_bytes
from ..product import retried
from ..runner import Simulation
from ..stream_apps import (
    APP,
    EVENTS,
    GUARANTEES,
    NOTED,
    NOTES,
    TABLES,
    TALLIED,
    Audit,
    StreamHost,
    Writer,
    counted,
    new_app,
)
from .zombies import Hangs

PARTITIONS = {EVENTS: 2, NOTES: 1}
GROWN = 2  # partitions of the topic without tables, when it has grown
STATE, OFFSETS = "__transaction_state", "__consumer_offsets"
# Of coordinators, and of the app's topics.
LEADERS = (STATE, OFFSETS, STATE, OFFSETS, EVENTS, TALLIED, f"{APP}-{TABLES[0]}-changelog")
MIN_INSYNC = 2
SETTLE_S = 400.0
EVENTS_OF = (2, 5)  # a run
LIMIT_S = 2_000.0
FAULTS = ("kill", "kill", "worker", "worker", "hang", "hang", "leave", "cluster", "grow")
GLANCE_S = 20.0  # brokers may be down
HUNG_S = (8.0, 14.0)  # around the session's timeout


class Brokers:
    """Logs of a cluster: what its leaders have. One that has just begun to lead does not know its high watermark."""

    def __init__(self, brokers: Cluster) -> None:
        self.brokers = brokers
        self.bootstrap = ",".join(host.address for host in brokers.hosts.values())

    def batches(self, topic: str, index: int) -> list[Batch] | None:
        image = self.brokers.image()
        view = None if image is None else image.partition(topic, index)
        for number, name, place, held in self.brokers.partitions():
            if (name, place) == (topic, index) and held.leads and view is not None and view.leader == number:
                return batches_of(log_bytes(held.log))
        return None


async def stream_cluster(sim: Simulation) -> None:
    sim.loop.kernel.limit_s = LIMIT_S
    is_durable = sim.random.random() < 0.3
    brokers = new_cluster(sim, is_durable)
    hangs = Hangs(sim, [host.name for host in brokers.hosts.values()])
    with counted(sim), hangs.watched():
        await run_app(sim, brokers, hangs, is_durable)


def new_cluster(sim: Simulation, is_durable: bool, more: Mapping[str, str] | None = None) -> Cluster:
    options = {
        "durability": "fsync" if is_durable else "page_cache",
        "min.insync.replicas": str(MIN_INSYNC),
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": str(MIN_INSYNC),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
        "group.min.session.timeout.ms": "1000",
        **(more or {}),
    }
    return Cluster(sim, 3, options)


async def run_app(sim: Simulation, brokers: Cluster, hangs: Hangs, is_durable: bool) -> None:
    chance = sim.random
    guarantee = GUARANTEES[sim.seed % 2]
    await brokers.form()
    topics = {EVENTS: PARTITIONS[EVENTS], TALLIED: PARTITIONS[EVENTS], NOTES: PARTITIONS[NOTES], NOTED: GROWN}
    topics |= {f"{APP}-{table}-changelog": PARTITIONS[EVENTS] for table in TABLES}
    for name, count in topics.items():
        compacted = {"cleanup.policy": "compact"} if name.endswith("-changelog") else {}
        await brokers.make_topic(name, count, {"min.insync.replicas": str(MIN_INSYNC), **compacted})
    logs = Brokers(brokers)
    watch = Watch(brokers, (STATE, OFFSETS), dict.fromkeys(topics, MIN_INSYNC))
    audit = Audit(sim, brokers.admin, logs, guarantee, dict(PARTITIONS))
    await brokers.admin.outcome(retried(audit.client.start))
    make = partial(new_app, guarantee)
    hosts = [StreamHost(sim, f"worker{number}", logs.bootstrap, make) for number in range(chance.randint(2, 3))]
    audit.hosts = hosts
    hangs.names = [host.machine.name for host in hosts]
    writers = [
        Writer(sim, topic, logs.bootstrap, count, transactional=topic == EVENTS and chance.random() < 0.3)
        for topic, count in PARTITIONS.items()
    ]
    moved = {EVENTS: PARTITIONS[EVENTS], TALLIED: PARTITIONS[EVENTS], STATE: 1, OFFSETS: 1}
    faults = Faults(brokers, moved, is_durable=is_durable)
    await asyncio.sleep(chance.uniform(1.0, 3.0))
    for _ in range(chance.randint(*EVENTS_OF)):
        kind = chance.choice(FAULTS)
        sim.counters[f"fault_{kind}"] += 1
        if kind == "kill":
            await watch.unless_broken(kill_a_leader(brokers, LEADERS))
        elif kind == "worker":
            chance.choice(hosts).machine.kill()
        elif kind == "hang":
            await hangs.one_more(hosts)
            await asyncio.sleep(chance.uniform(*HUNG_S))
            hangs.end()
        elif kind == "leave":
            host = chance.choice(hosts)
            host.wanted = not host.wanted
            if not host.wanted:
                await host.leave()
        elif kind == "cluster":
            await watch.unless_broken(faults.one())
        elif audit.partitions[NOTES] < GROWN:
            await grow(sim, brokers, audit, writers)
        await asyncio.sleep(chance.uniform(0.0, 3.0))
        if chance.random() < 0.4:
            await watch.unless_broken(brokers.admin.outcome(audit.glance(GLANCE_S)))
    faults.end()
    hangs.end()
    await watch.unless_broken(brokers.up(SETTLE_S))
    for host in hosts:
        host.wanted = True
    ending = asyncio.gather(*(each.until(30, 0.5) for each in writers))
    await sim.within(SETTLE_S, "the input ends", watch.unless_broken(ending))
    await watch.unless_broken(brokers.admin.outcome(audit.until_complete(SETTLE_S)))
    watch.check()


async def kill_a_leader(brokers: Cluster, topics: Sequence[str]) -> None:
    """Of a partition of one of these; it starts again soon."""
    chance = brokers.sim.random
    wanted = chance.choice(topics)
    led = [number for number, name, _, held in brokers.partitions() if name == wanted and held.leads]
    if led:
        number = chance.choice(led)
        brokers.sim.counters[f"killed_leader_of_{wanted}"] += 1
        brokers.kill(number, power=False)
        await asyncio.sleep(chance.uniform(0.0, 6.0))
        brokers.begin(number)


async def grow(sim: Simulation, brokers: Cluster, audit: Audit, writers: list[Writer]) -> None:
    """The topic without tables has more partitions, which are written to at once."""
    try:
        await brokers.admin.outcome(Admin(audit.client).create_partitions(NOTES, GROWN))
    except (KafkaError, OSError):
        return
    except Exception as error:
        sim.notes.append(f"{sim.loop.time():.3f} growth: {error!r}")
        return
    sim.counters["grown"] += 1
    audit.partitions[NOTES] = GROWN
    for each in writers:
        if each.topic == NOTES:
            each.partitions = GROWN
