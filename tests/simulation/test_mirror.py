"""Mirrors of real brokers in ordinary circumstances: where copies begin, what their options and their status say."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from isthmus.client import Admin, Client, TopicPartition
from isthmus.client.admin import NewTopic
from isthmus.client.raw import append_raw
from isthmus.core_broker.server.apis import describe_configs
from isthmus.mirror.link import MirrorLink
from isthmus.mirror.status import ALIVE_MS, STATUS_TOPIC, UNSEEN_AFTER_MS, read_status
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.messages import delete_records
from isthmus.protocol.records import build_batch
from tests.running import run_by

from .files import SimDisk
from .mirroring import LINK, WorkerHost
from .product import BrokerHost
from .runner import Simulation, run_checked

TOPIC = "events"
COPY = LINK.target_name(TOPIC)


class World:
    """A source, a target and a client of each, on machines of their own; `work(world)` runs as an administrator."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.source, self.target = BrokerHost(sim, "src"), BrokerHost(sim, "dst")

    async def run(self, work: Callable[[World], Awaitable[None]]) -> None:
        await self.source.up()
        await self.target.up()
        process = self.sim.machine("admin").start()
        self.origin, self.copy = (Client(host.address, runtime=process.runtime) for host in (self.source, self.target))

        async def main() -> None:
            for client in (self.origin, self.copy):
                await client.start()
            await work(self)

        await process.outcome(main())

    async def produce(self, partition: int, *batches: int) -> None:
        """Batches of so many records each."""
        for count in batches:
            rows = [(self.sim.wall_start_ms, b"k", b"v", ())] * count
            await append_raw(self.origin, TopicPartition(TOPIC, partition), build_batch(rows))

    async def delete_before(self, partition: int, offset: int) -> None:
        asked = delete_records.DeleteRecordsPartition(partition_index=partition, offset=offset)
        topic = delete_records.DeleteRecordsTopic(name=TOPIC, partitions=[asked])
        answer = await self.origin.request(delete_records.Request(topics=[topic], timeout_ms=5000))
        assert answer.topics[0].partitions[0].error_code == 0

    async def ends(self, client: Client, topic: str, partitions: int) -> list[tuple[int, int]]:
        """Where each log begins and ends."""
        tps = [TopicPartition(topic, index) for index in range(partitions)]
        first, last = [await Admin(client).list_offsets(dict.fromkeys(tps, which)) for which in ("earliest", "latest")]
        return [(first[tp][0], last[tp][0]) for tp in tps]

    async def said(self, what: str, accepts: Callable[[dict[tuple[str, int], dict[str, Any]]], bool]) -> None:
        """Wait until `accepts` what the status topic says, by topic and partition."""
        loop = self.sim.loop
        deadline = loop.time() + 60.0
        rows: dict[tuple[str, int], dict[str, Any]] = {}
        while loop.time() < deadline:
            rows = {(row["topic"], row["partition"]): row for row in await read_status(self.copy)}
            if accepts(rows):
                return
            await self.sim.sleep(0.2)
        raise AssertionError(f"never said that {what}: {rows}")


def mirrored(*ends: int) -> Callable[[dict[tuple[str, int], dict[str, Any]]], bool]:
    """Each partition's copy ends there, and that is all there is."""

    def accepts(rows: dict[tuple[str, int], dict[str, Any]]) -> bool:
        found = [rows.get((TOPIC, index), {}) for index in range(len(ends))]
        return all(
            (row.get("state"), row.get("next_offset"), row.get("lag_records")) == ("MIRRORING", end, 0)
            for row, end in zip(found, ends, strict=True)
        )

    return accepts


def mirror(work: Callable[[World], Awaitable[None]]) -> None:
    async def scenario(sim: Simulation) -> None:
        await World(sim).run(work)

    run_checked(scenario)


@run_by(mirror)
async def test_a_copy_begins_where_its_source_does_and_keeps_offsets(world: World, /) -> None:
    """Of a source emptied, of one that begins with a batch, of one that begins inside a batch, and of one untouched."""
    await Admin(world.origin).create_topics([NewTopic(TOPIC, 4, 1)])
    for partition, start in enumerate((10, 5, 7, 0)):
        await world.produce(partition, 5, 5)
        await world.delete_before(partition, start)
    WorkerHost(world.sim, "worker", world.source, world.target)
    await world.said("all is mirrored", mirrored(10, 10, 10, 10))
    begun = [(10, 10), (5, 10), (7, 10), (0, 10)]
    assert await world.ends(world.origin, TOPIC, 4) == await world.ends(world.copy, COPY, 4) == begun
    for partition in range(4):
        await world.produce(partition, 1)
    await world.said("what came later is mirrored", mirrored(11, 11, 11, 11))
    grown = [(start, 11) for start, _ in begun]
    assert await world.ends(world.origin, TOPIC, 4) == await world.ends(world.copy, COPY, 4) == grown
    world.target.kill()
    await world.target.up()
    assert await world.ends(world.copy, COPY, 4) == grown


@run_by(mirror)
async def test_a_source_that_hangs_is_known_before_a_fetch_has_run_out_of_time(world: World, /) -> None:
    def unseen(rows: dict[tuple[str, int], dict[str, Any]]) -> int:
        return int(rows[TOPIC, 0]["unseen_ms"]) if rows[TOPIC, 0]["state"] == "MIRRORING" else -1

    await Admin(world.origin).create_topics([NewTopic(TOPIC, 1, 1)])
    WorkerHost(world.sim, "worker", world.source, world.target)
    await world.said("nothing is there to mirror", mirrored(0))
    await world.said("its source was seen", lambda rows: 0 <= unseen(rows) <= ALIVE_MS)
    world.sim.machine("src").hang(20.0)
    await world.said("its source hangs", lambda rows: unseen(rows) > UNSEEN_AFTER_MS)
    await world.said("its source is there again", lambda rows: 0 <= unseen(rows) <= ALIVE_MS)


@run_by(mirror)
async def test_a_status_topic_that_was_deleted_or_lost_its_end_is_written_again(world: World, /) -> None:
    await Admin(world.origin).create_topics([NewTopic(TOPIC, 1, 1)])
    await world.produce(0, 1)
    WorkerHost(world.sim, "worker", world.source, world.target)
    await world.said("all is mirrored", mirrored(1))
    await Admin(world.copy).delete_topics([STATUS_TOPIC])
    await world.said("all is mirrored, in a new topic", mirrored(1))
    world.target.kill(power=True)  # the records were not synced
    await world.target.up()
    await world.said("all is mirrored, after a power cut", mirrored(1))
    world.target.kill()
    machine = world.target.machine
    machine.disk = SimDisk(world.sim, machine.name, machine.disk.random)
    await world.target.up()
    await world.said("all is mirrored, into a target that was wiped", mirrored(1))
    await Admin(world.origin).delete_topics([TOPIC])
    await Admin(world.origin).create_topics([NewTopic(TOPIC, 1, 1)])
    await world.said("the source is another topic", lambda rows: rows[TOPIC, 0]["state"] == "SOURCE_RECREATED")


@run_by(mirror)
async def test_a_copy_follows_the_options_of_its_source_that_say_how_long_records_are_kept(world: World, /) -> None:
    options = {"retention.ms": "1000000", "retention.bytes": "5000000"}
    await Admin(world.origin).create_topics([NewTopic(TOPIC, 1, 1, options)])
    WorkerHost(world.sim, "worker", world.source, world.target)
    await world.said("the copy is there", mirrored(0))
    await Admin(world.origin).alter_configs(TOPIC, {"retention.ms": "-1", "retention.bytes": None})
    for _ in range(300):
        entries = (await Admin(world.copy).describe_configs([COPY]))[COPY]
        is_set = {each.name: each.value for each in entries if each.config_source == 1}
        if is_set.get("retention.ms") == "-1":
            break
        await world.sim.sleep(0.1)
    assert is_set["retention.ms"] == "-1" and "retention.bytes" not in is_set
    assert is_set["mirror.link"] == LINK.name


@run_by(mirror)
async def test_an_expression_that_selects_nothing_is_said_until_it_does(world: World, /) -> None:
    """Blanks around expressions are dropped, as in Kafka's lists."""
    await Admin(world.origin).create_topics([NewTopic(TOPIC, 1, 1)])
    link = MirrorLink(LINK.name, "src", [" events , later"])
    WorkerHost(world.sim, "worker", world.source, world.target, link)
    await world.said("all is mirrored", mirrored(0))
    await world.said("one selects nothing", lambda rows: "'later'" in rows.get(("", -1), {}).get("reason", ""))
    await Admin(world.origin).create_topics([NewTopic("later", 1, 1)])
    await world.said("it does now", lambda rows: sorted(rows) == [(TOPIC, 0), ("later", 0)])


def test_a_topic_whose_options_may_not_be_read_fails_alone_and_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    may_be_read = describe_configs._entries
    forbidden = {"secret": ErrorCode.TOPIC_AUTHORIZATION_FAILED}

    def entries(resource: Any, context: Any) -> Any:
        if code := forbidden.get(resource.resource_name):
            raise KafkaError(code, "not allowed")
        return may_be_read(resource, context)

    monkeypatch.setattr(describe_configs, "_entries", entries)

    async def work(world: World) -> None:
        await Admin(world.origin).create_topics([NewTopic(TOPIC, 1, 1), NewTopic("secret", 1, 1)])
        await world.produce(0, 1)
        link = MirrorLink(LINK.name, "src", [TOPIC, "secret"])
        worker = WorkerHost(world.sim, "worker", world.source, world.target, link)
        await world.said("the other is mirrored", mirrored(1))
        await world.said("this one is not", lambda rows: rows.get(("secret", 0), {}).get("state") == "FAILED")
        row = next(row for row in await read_status(world.copy) if row["topic"] == "secret")
        assert "TOPIC_AUTHORIZATION_FAILED (29): not allowed" in row["reason"] and "secret" in row["reason"]
        assert row["since_ms"] <= row["updated_ms"] < row["next_try_ms"]
        forbidden[TOPIC] = ErrorCode.UNKNOWN_SERVER_ERROR  # one that was read before goes on
        await world.produce(0, 1)
        await world.said("the other is mirrored on", mirrored(2))
        del forbidden["secret"]
        await world.said("this one is mirrored", lambda rows: rows["secret", 0]["state"] == "MIRRORING")
        assert worker.machine.process is not None and not world.sim.notes

    mirror(work)
