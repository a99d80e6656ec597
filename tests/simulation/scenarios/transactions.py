"""Three or four whole brokers, under applications that write in transactions, and readers under read_committed.

Each transaction writes to partitions of two topics and mostly commits an offset. Brokers and applications are killed,
hang and are cut off, coordinators and leaders move, transactions last longer than they may, applications are replaced
while they still run, batches arrive when they have been given up; the logs of transactions and groups, and one of the
topics, are compacted meanwhile, unused ids expire, epochs are used up. What holds: of each transaction all counts or
nothing, in all partitions and as an offset; all of one that was told to be committed, nothing of one that was told to
be aborted, or that was never asked to be committed; an application's transactions count in order; a stable offset is
one of a transaction that was committed, it is there as soon as that is told, and never goes back; a reader under
read_committed is given just what counts by the markers in the log, and its last stable offset never goes back; no
producer id is given twice, and no epoch. When all ends, no transaction is open within a bound.
"""

from __future__ import annotations

import asyncio
from unittest import mock

from isthmus.core_broker.coordinators.transactions import transaction
from isthmus.core_broker.coordinators.transactions.transaction import LAST_EPOCH
from isthmus.protocol.messages import offset_fetch

from ..brokers import Cluster
from ..cluster_faults import Faults
from ..cluster_watch import Watch
from ..committed_reader import CommittedReader, committed_in
from ..history import Batch, batches_of, log_bytes
from ..late_messages import LateMessages
from ..rare_states import counted
from ..runner import Simulation
from ..transacting import ABORTED, COMMITTED, NO_OFFSET, PENDING, Application, Ledger, Place, Transaction
from ..wire import ask

TOPICS = {"orders": 2, "payments": 1}
MAY_BE_COMPACTED = "payments"
STATE, OFFSETS = "__transaction_state", "__consumer_offsets"
MIN_INSYNC = 2
SETTLE_S = 300.0
EVENTS = (1, 4)
LIMIT_S = 1_500.0
FEW_EPOCHS = 3
COMPACTED = {"cleanup.policy": "compact"}


async def transactions(sim: Simulation) -> None:
    sim.loop.kernel.limit_s = LIMIT_S
    chance = sim.random
    is_durable = chance.random() < 0.3
    compacts = chance.random() < 0.5
    compacted = [MAY_BE_COMPACTED] if compacts else []
    brokers = new_cluster(sim, is_durable, compacts=compacts)
    # Epochs of some seeds are soon used up; drawn by the seed, which leaves all else as it is.
    last_epoch = FEW_EPOCHS if sim.seed % 4 == 3 else LAST_EPOCH
    with counted(sim.counters), mock.patch.object(transaction, "LAST_EPOCH", last_epoch):
        await brokers.form()
        for topic, count in TOPICS.items():
            options = COMPACTED if topic in compacted else {}
            await brokers.make_topic(topic, count, {"min.insync.replicas": str(MIN_INSYNC), **options})
        whole = {topic: count for topic, count in TOPICS.items() if topic not in compacted}
        watch = Watch(brokers, (STATE, OFFSETS, *compacted), dict.fromkeys(whole, MIN_INSYNC))
        ledger = Ledger()
        applications = [Application(brokers, f"app{number}", TOPICS, ledger) for number in range(chance.randint(1, 3))]
        places = [(topic, index) for topic, count in TOPICS.items() for index in range(count)]
        readers = {place: CommittedReader(brokers, *place, has_gaps=place[0] in compacted) for place in places}
        moved = TOPICS | {STATE: 1, OFFSETS: 1}
        faults = Faults(brokers, moved if chance.random() < 0.7 else TOPICS, is_durable=is_durable)
        late = LateMessages(brokers, TOPICS, (STATE, OFFSETS))
        is_late = chance.random() < 0.5
        await asyncio.sleep(chance.uniform(0.5, 3.0))
        for _ in range(chance.randint(*EVENTS)):
            await asyncio.sleep(chance.uniform(0.0, 3.0))
            is_next = is_late and chance.random() < 0.6
            await watch.unless_broken(late.one() if is_next else faults.one())
        faults.end()
        await watch.unless_broken(brokers.up(SETTLE_S))
        for each in applications:
            each.is_enough = True
        ending = asyncio.gather(*(each.keeper for each in applications))
        await sim.within(SETTLE_S, "the applications end", watch.unless_broken(ending))
        await watch.unless_broken(sim.until(lambda: not still_open(brokers), "no transaction is open", SETTLE_S))
        await watch.unless_broken(brokers.settled(whole, SETTLE_S))
        watch.check()
        counting: dict[Place, list[tuple[int, bytes]]] = {}
        for place in places:
            batches = batches_in(brokers, place)
            counting[place] = committed_in(batches)
            await readers[place].until(batches[-1].last_offset + 1 if batches else 0, SETTLE_S)
            assert readers[place].read == counting[place], f"a reader of {place} was given something else"
        offsets: dict[str, int] = {}
        asking = read_offsets(brokers, applications, offsets)
        await sim.within(SETTLE_S, "all offsets are stable", watch.unless_broken(asking))
        check(ledger, counting, offsets)


def new_cluster(sim: Simulation, is_durable: bool, *, compacts: bool) -> Cluster:
    """compacts: logs are compacted while they are in use."""
    chance = sim.random
    options = {
        "durability": "fsync" if is_durable else "page_cache",
        "min.insync.replicas": str(MIN_INSYNC),
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": str(MIN_INSYNC),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    }
    if compacts:  # but markers stay, as brokers are away for longer than they might
        options |= {"log.roll.ms": "2000", "log.cleaner.backoff.ms": "2000", "log.cleaner.min.cleanable.ratio": "0.01"}
    if chance.random() < 0.3:  # ids that rest are forgotten, and are new ones when they are used again
        options |= {
            "transactional.id.expiration.ms": "1000",
            "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
        }
    return Cluster(sim, chance.choice((3, 3, 4)), options, voters=3)


def batches_in(brokers: Cluster, place: Place) -> list[Batch]:
    """As their leader has them."""
    for _, topic, index, held in brokers.partitions():
        if (topic, index) == place and held.leads:
            return batches_of(log_bytes(held.log))
    raise AssertionError(f"nobody leads {place}")


def still_open(brokers: Cluster) -> bool:
    """Whether a transaction is open for a leader, or may be: one that has just begun to lead does not know what of its
    log is committed; nor is there a leader at any time."""
    led = [(topic, held) for _, topic, _, held in brokers.partitions() if held.leads]
    if sum(topic in TOPICS for topic, _ in led) < sum(TOPICS.values()):
        return True
    return any(held.last_stable_offset < held.log.log_end_offset for _, held in led)


async def read_offsets(brokers: Cluster, applications: list[Application], offsets: dict[str, int]) -> None:
    for each in applications:
        offsets[each.name] = await offset_of(brokers, each)


async def offset_of(brokers: Cluster, application: Application) -> int:
    """The stable offset of an application's group: the number of its last transaction that has one and counts."""
    topic, index = application.places[0]
    asked = offset_fetch.OffsetFetchRequestTopic(name=topic, partition_indexes=[index])
    request = offset_fetch.Request(group_id=application.name, topics=[asked], require_stable=True)
    while True:
        address = await brokers.admin.outcome(brokers.coordinator(application.name))
        answer = await brokers.admin.outcome(ask(address, offset_fetch.API, request))
        if not answer.error_code:
            row = answer.topics[0].partitions[0]
            if not row.error_code:
                return int(row.committed_offset)
        await asyncio.sleep(0.3)


def check(ledger: Ledger, counting: dict[Place, list[tuple[int, bytes]]], offsets: dict[str, int]) -> None:
    """Raises AssertionError where a transaction counts in part, or other than its application was told."""
    where: dict[bytes, Place] = {}
    for place, rows in counting.items():
        last: dict[str, int] = {}
        for offset, value in rows:
            name, number, _ = value.decode().split("/")
            assert value not in where, f"{value!r} counts twice, at {where[value]} and {place}/{offset}"
            assert int(number) >= last.get(name, 0), f"{value!r} at {place}/{offset} comes after {last[name]}"
            where[value], last[name] = place, int(number)
    latest: dict[str, int] = {}
    for made in ledger.transactions.values():
        if counts(made, where) and made.has_offset:
            latest[made.application] = max(made.number, latest.get(made.application, NO_OFFSET))
    for name, offset in offsets.items():
        assert offset == latest.get(name, NO_OFFSET), f"{name} has committed offset {offset}, not {latest.get(name)}"


def counts(made: Transaction, where: dict[bytes, Place]) -> bool:
    """Whether a transaction counts, by its values."""
    there = [value for value, place in made.values.items() if where.get(value) == place]
    told = f"transaction {made.number} of {made.application} is {made.outcome}"
    assert len(there) in (0, len(made.values)), f"{told}, and counts in part: {there} of {list(made.values)}"
    if made.outcome == COMMITTED:
        assert there, f"{told}, and does not count"
    elif made.outcome in (ABORTED, PENDING):
        assert not there, f"{told}, and counts"
    return bool(there)
