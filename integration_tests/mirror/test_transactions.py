"""A copy has its source's transactions: what is stable, what was aborted, and what is open, over a kill."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from integration_tests.brokers import running_broker
from isthmus.client import Admin, Client, Producer, TopicPartition
from isthmus.client.raw import READ_COMMITTED, READ_UNCOMMITTED, fetch_raw

from .topics import create
from .workers import Worker, clients, mirror_arguments, run, same, until

TOPIC, COPY = TopicPartition("paid", 0), TopicPartition("src.paid", 0)
ROLLING = {"log.segment.bytes": 1 << 20}  # aborted transactions are found in several files
ROUNDS = 30
MOST_BYTES = 16 << 20
LEVELS = (READ_UNCOMMITTED, READ_COMMITTED)


async def started(client: Client, name: str) -> Producer:
    producer = Producer(client, transactional_id=name, compression="none")
    await producer.start()
    return producer


async def write(producer: Producer, count: int = 3) -> None:
    await asyncio.gather(*(producer.send(TOPIC.topic, b"%d" % i * 20_000, partition=0) for i in range(count)))


async def fill(producer: Producer) -> None:
    """Committed and aborted transactions in turn, more of the first."""
    for number in range(ROUNDS):
        await producer.begin_transaction()
        await write(producer)
        await (producer.commit_transaction() if number % 3 else producer.abort_transaction())


async def told(client: Client, tp: TopicPartition) -> dict[str, Any]:
    """What readers and administrators are told of a partition's transactions."""
    admin = Admin(client)
    ends = {level: (await admin.list_offsets({tp: "latest"}, level))[tp][0] for level in LEVELS}
    node = await client.leader_of(tp)
    [found] = await fetch_raw(
        client, {tp: (0, -1)}, node_id=node, isolation=READ_COMMITTED, partition_max_bytes=MOST_BYTES
    )
    assert not found.error_code and len(found.records) < MOST_BYTES, found
    producers = (await admin.describe_producers([tp]))[tp]
    return {
        "ends": ends,
        "aborted": sorted(found.aborted),
        "producers": sorted((each.producer_id, each.epoch, each.transaction_start) for each in producers),
    }


def test_a_copy_has_the_transactions_of_its_source(tmp_path: Path) -> None:
    with running_broker(tmp_path / "s") as source, running_broker(tmp_path / "t", ROLLING) as target:

        async def scenario() -> None:
            async with clients(source.bootstrap, target.bootstrap) as (origin, copy):
                await create(origin, TOPIC.topic)
                payer, slow = (
                    Producer(origin, transactional_id=name, compression="none") for name in ("payer", "slow")
                )
                await payer.start()
                await slow.start()
                await fill(payer)
                await slow.begin_transaction()
                await write(slow)
                await fill(payer)
                at_source = await told(origin, TOPIC)
                stable, end = at_source["ends"][READ_COMMITTED], at_source["ends"][READ_UNCOMMITTED]
                # The control: there is something to survive.
                assert stable < end and len(at_source["aborted"]) == ROUNDS // 3
                assert [start for *_, start in at_source["producers"] if start >= 0] == [stable]
                await until(lambda: same(origin, copy, TOPIC.topic, [0]), "the copy is the source")
                assert await told(copy, COPY) == at_source
                target.kill()
                await asyncio.to_thread(target.start)
                assert await told(copy, COPY) == at_source, "after a kill"
                await slow.abort_transaction()
                await until(lambda: same(origin, copy, TOPIC.topic, [0]), "the copy has the last marker, too")
                at_source = await told(origin, TOPIC)
                assert at_source["ends"][READ_COMMITTED] == at_source["ends"][READ_UNCOMMITTED]
                assert await told(copy, COPY) == at_source
                await payer.close()
                await slow.close()
                assert len(list((target.folder / "data" / f"{COPY.topic}-0").glob("*.log"))) >= 2

        with Worker(tmp_path, "mirror", *mirror_arguments(source.bootstrap, target.bootstrap, TOPIC.topic)):
            run(scenario())
