"""Consumers that read by fetch sessions while others write, records are deleted, connections cut and the broker killed.

What holds of each answer is in `sessions.py`. In the end every reader has read all there is, as it is stored, knows
where each partition begins and ends, and each life of the broker has written under a leader epoch of its own.
"""

from __future__ import annotations

import asyncio

from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import delete_records
from isthmus.protocol.records import decode_batch

from ..product import BrokerHost
from ..runner import Simulation
from ..sessions import Deleted, Reader
from ..wire import ask, make_topic, produce_by_wire
from ..workload import Workload

TOPIC = "events"
PARTITIONS = 4  # the last of which nobody writes to
SETTLE_S = 120.0


async def fetch_sessions(sim: Simulation, cold_share: float = 0.0) -> None:
    chance = sim.random
    fsync = chance.random() < 0.7
    options = {"durability": "fsync" if fsync else "page_cache"}
    host = BrokerHost(sim, "broker", options)
    host.machine.disk.cold_share = cold_share
    await host.up()
    admin = sim.machine("admin").start()
    await admin.outcome(make_topic(host.address, TOPIC, PARTITIONS))
    deleted = Deleted(PARTITIONS)
    readers = [Reader(sim, f"r{number}", host, TOPIC, PARTITIONS, deleted) for number in range(2)]
    running = []
    for number in range(PARTITIONS - 1):
        workload, machine = Workload(f"w{number}", TOPIC), sim.machine(f"w{number}")
        work = produce_by_wire(
            sim, machine, workload, host.address, count=chance.randint(5, 25), partition=number, pause_s=0.05
        )
        running.append(machine.start().outcome(work))
    epochs = Epochs(host)
    for _ in range(chance.randint(1, 3)):
        await asyncio.sleep(chance.uniform(0.1, 1.0))
        what = chance.choice(("cut", "broker", "delete"))
        sim.counters[f"fault_{what}"] += 1
        if what == "cut":
            sim.network.cut()
        elif what == "delete":
            await admin.outcome(delete(sim, host, readers, deleted))
        else:
            host.kill(power=fsync and chance.random() < 0.6)
            await asyncio.sleep(chance.uniform(0.0, 0.5))
            epochs.note()
            await host.up()
    await asyncio.gather(*running)
    for reader in readers:
        reader.holds_back = False
    await sim.until(lambda: all(has_read_all(reader, host, deleted) for reader in readers), "all is read", SETTLE_S)
    await admin.outcome(delete(sim, host, readers, deleted))  # what idle partitions tell of
    await asyncio.sleep(chance.uniform(0.0, 2.0))
    for reader in readers:
        reader.loses_answers = False
    await sim.until(lambda: all(has_read_all(reader, host, deleted) for reader in readers), "all is told", SETTLE_S)
    for reader in readers:
        reader.running = False
        check_read(sim, reader, host, deleted)
    epochs.check()


class Epochs:
    """The leader epochs that each life of a broker wrote under."""

    def __init__(self, host: BrokerHost) -> None:
        self.host = host
        self.ends: list[list[tuple[int, int]]] = [[] for _ in range(PARTITIONS)]  # end, latest epoch

    def note(self) -> None:
        """A life is over."""
        for index, ends in enumerate(self.ends):
            batches = self.host.partition(TOPIC, index)
            if batches:
                ends.append((batches[-1].last_offset + 1, batches[-1].leader_epoch))

    def check(self) -> None:
        for index, ends in enumerate(self.ends):
            batches = self.host.partition(TOPIC, index)
            epochs = [batch.leader_epoch for batch in batches]
            assert epochs == sorted(epochs), f"leader epochs of {index} do not rise: {epochs}"
            for end, epoch in ends:
                for batch in batches:
                    assert batch.base_offset < end or batch.leader_epoch > epoch, (
                        f"{index}/{batch.base_offset} was written under epoch {batch.leader_epoch}, as before a restart"
                    )


async def delete(sim: Simulation, host: BrokerHost, readers: list[Reader], deleted: Deleted) -> None:
    """Delete some of what was read, or of what was not."""
    index = sim.random.randrange(PARTITIONS - 1)
    known = max(reader.high_watermarks[index] for reader in readers)
    offset = sim.random.randint(0, max(known, 0))
    deleted.asked[index] = max(deleted.asked[index], offset)
    row = delete_records.DeleteRecordsPartition(partition_index=index, offset=offset)
    topic = delete_records.DeleteRecordsTopic(name=TOPIC, partitions=[row])
    while True:
        answer = await ask(host.address, delete_records.API, delete_records.Request(topics=[topic], timeout_ms=5_000))
        found = answer.topics[0].partitions[0]
        if not found.error_code:
            break
        assert found.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER), found
        await asyncio.sleep(0.1)
    deleted.told[index] = max(deleted.told[index], found.low_watermark)


def has_read_all(reader: Reader, host: BrokerHost, deleted: Deleted) -> bool:
    """Whether it has, and knows it."""
    reader.check()
    ends = []
    for index in range(PARTITIONS):
        batches = host.partition(TOPIC, index)
        ends.append(batches[-1].last_offset + 1 if batches else 0)
    return reader.positions == reader.high_watermarks == ends and reader.log_starts == deleted.told


def check_read(sim: Simulation, reader: Reader, host: BrokerHost, deleted: Deleted) -> None:
    stored = {
        (index, record.offset): bytes(record.value or b"")
        for index in range(PARTITIONS)
        for batch in host.partition(TOPIC, index)
        for record in decode_batch(batch.data)
    }
    for at, value in reader.read.items():
        assert stored.get(at) == value, f"{reader.name} read {value[:12]!r} at {at}, where {stored.get(at)!r} is"
    for at, value in stored.items():
        index, offset = at
        assert at in reader.read or offset < deleted.asked[index], f"{reader.name} was never given {value[:12]!r}"
    sim.counters["records_read"] += len(reader.read)
