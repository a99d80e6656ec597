"""Three brokers a datacenter in a test: found and killed by what they do; nothing that was acknowledged is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Literal

import pytest

from integration_tests.waiting import until
from isthmus.client import Admin, Client, Consumer, Producer, TopicPartition
from isthmus.client.connection import connect
from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import produce
from isthmus.protocol.records import build_batch
from isthmus.runtime import wall_ms
from isthmus.testing import IsthmusTestingError, IsthmusTopology
from isthmus.testing.choice import Backend

TOPOLOGY = """\
name: shops
datacenters:
  north: {topics: {orders: {partitions: 3}}}
  office: {}
mirrors:
  - {name: north-office, source: north, target: office, topics: [orders]}
"""
COUNT = 200
WAIT_S = 40.0
ANSWER_MS = 10_000


@pytest.fixture(scope="module")
def shops() -> Iterator[IsthmusTopology]:
    with IsthmusTopology(TOPOLOGY, brokers=3, backend=Backend.LOCAL) as topology:
        yield topology


@pytest.fixture(autouse=True)
def whole(shops: IsthmusTopology) -> Iterator[None]:
    yield
    shops.repair()
    for name in shops.datacenters:
        shops.wait_in_sync(name)


async def produced(bootstrap: str, first: int) -> None:
    client = Client(bootstrap)
    await client.start()
    producer = Producer(client)
    await producer.start()
    try:
        await asyncio.gather(*(producer.send("orders", b"%d" % (first + i), partition=i % 3) for i in range(COUNT)))
    finally:
        await producer.close()
        await client.close()


async def consumed(bootstrap: str, topic: str, count: int) -> list[int]:
    client = Client(bootstrap)
    await client.start()
    consumer = Consumer(client)
    found: list[int] = []
    try:
        consumer.assign({TopicPartition(topic, i): 0 for i in range(3)})
        while len(found) < count:
            for records in (await consumer.poll(500, 1000)).values():
                found += [int(bytes(record.value or b"-1")) for record in records]
    finally:
        await consumer.close()
        await client.close()
    return sorted(found)


def test_brokers_are_found_by_what_they_do(shops: IsthmusTopology) -> None:
    brokers = shops.brokers("north")
    assert ",".join(brokers[i] for i in (1, 2, 3)) == shops.bootstrap("north")
    assert shops.leader("north", "orders", 0) in brokers and shops.controller("office") in brokers
    assert "serves" in shops.logs("north", broker=2)
    with pytest.raises(IsthmusTestingError, match="datacenter north has no broker 4: there are 1, 2, 3"):
        shops.kill("north", broker=4)


def test_leaders_and_controllers_die_and_nothing_acknowledged_is_lost(shops: IsthmusTopology) -> None:
    total = 0
    for victim in ("leader", "controller"):
        asyncio.run(produced(shops.bootstrap("north"), total))
        if victim == "leader":
            dead = shops.kill_leader("north", "orders", 1)
        else:
            dead = shops.kill_controller("north")
        gone = shops.kill_controller("office")
        asyncio.run(produced(shops.bootstrap("north"), total + COUNT))
        total += 2 * COUNT
        assert shops.leader("north", "orders", 1) != dead
        shops.restart("north", broker=dead)
        shops.restart("office", broker=gone)
        shops.wait_in_sync("north")
        assert asyncio.run(consumed(shops.bootstrap("north"), "orders", total)) == list(range(total))
    shops.wait_mirrored()
    assert asyncio.run(consumed(shops.bootstrap("office"), "north.orders", total)) == list(range(total))


async def ends(bootstrap: str) -> list[tuple[int, int]]:
    """Where each replica's log of orders-0 ends, and where a leader says it ends."""
    client = Client(bootstrap)
    await client.start()
    try:
        admin, tp = Admin(client), TopicPartition("orders", 0)
        found = await admin.replica_ends({node: [tp] for node in client.nodes})
        [(end, *_)] = (await admin.list_offsets({tp: "latest"})).values()
        return [(found[node, tp], end) for node in sorted(client.nodes)]
    finally:
        await client.close()


def test_each_replica_tells_where_its_log_ends(shops: IsthmusTopology) -> None:
    """To who asks as Kafka's debugging consumer does; any other is sent to the leader."""
    asyncio.run(produced(shops.bootstrap("north"), 0))
    shops.wait_in_sync("north")
    found = asyncio.run(ends(shops.bootstrap("north")))
    assert len(found) == 3 and all(own == end > 0 for own, end in found)


async def factors(bootstrap: str) -> dict[str, int]:
    client = Client(bootstrap)
    await client.start()
    try:
        topics = await Admin(client).all_topics()
        return {topic.name: min(len(each.replica_nodes) for each in topic.partitions) for topic in topics}
    finally:
        await client.close()


def test_what_a_mirror_makes_is_replicated_as_all_else(shops: IsthmusTopology) -> None:
    shops.wait_mirrored()
    assert asyncio.run(factors(shops.bootstrap("office"))) == {"north.orders": 3, "__mirror_status": 3}


def test_a_broker_that_hangs_is_found_out_and_comes_back(shops: IsthmusTopology) -> None:
    hung = shops.leader("north", "orders", 0)
    shops.pause("north", broker=hung)
    until(lambda: shops.leader("north", "orders", 0) != hung, "another takes over", WAIT_S)
    with pytest.raises(IsthmusTestingError, match=r"not in sync within 0\.1 s"):
        shops.wait_in_sync("north", timeout_s=0.1)
    shops.unpause("north", broker=hung)
    shops.wait_in_sync("north")


async def one_more(address: str, value: bytes) -> ErrorCode:
    """What this broker, and no other, answers to a record of orders-0 under acks=all."""
    data = produce.PartitionProduceData(index=0, records=build_batch([(wall_ms(), None, value, [])]))
    topic = produce.TopicProduceData(name="orders", partition_data=[data])
    request = produce.Request(acks=-1, timeout_ms=ANSWER_MS, topic_data=[topic])
    connection = await connect(address, "test", ANSWER_MS)
    try:
        answer = await connection.request(produce.API, request, 2 * ANSWER_MS, version=9)
        return ErrorCode(answer.responses[0].partition_responses[0].error_code)
    finally:
        connection.close()


@pytest.mark.parametrize(("way", "first"), [("both", 3000), ("in", 4000), ("out", 5000)])
def test_a_leader_that_is_cut_off_acknowledges_nothing_and_another_leads(
    shops: IsthmusTopology, way: Literal["both", "in", "out"], first: int
) -> None:
    """Clients reach it all the while: what it says comes from itself."""
    old = shops.leader("north", "orders", 0)
    address = shops.brokers("north")[old]
    others = ",".join(each for each in shops.brokers("north").values() if each != address)
    assert asyncio.run(one_more(address, b"1")) is ErrorCode.NONE  # the control
    with shops.cut("north", broker=old, way=way):
        assert asyncio.run(one_more(address, b"-%d" % first)) is not ErrorCode.NONE
        until(lambda: shops.leader("north", "orders", 0) != old, "another leads", WAIT_S)
        asyncio.run(produced(others, first))
        with pytest.raises(IsthmusTestingError, match=r"not in sync within 0\.1 s"):
            shops.wait_in_sync("north", timeout_s=0.1)
    shops.wait_in_sync("north")
    total = asyncio.run(held(shops.bootstrap("north"), "orders"))
    sent = asyncio.run(consumed(shops.bootstrap("north"), "orders", total))
    assert [each for each in sent if first <= each < first + COUNT] == list(range(first, first + COUNT))
    # Fetches that wait at a leader are answered while followers hear it: who leads next may have the record.
    assert way == "in" or -first not in sent


async def held(bootstrap: str, topic: str) -> int:
    """How many records a topic has."""
    client = Client(bootstrap)
    await client.start()
    try:
        tps = dict.fromkeys((TopicPartition(topic, i) for i in range(3)), "latest")
        return sum(end for end, *_ in (await Admin(client).list_offsets(tps)).values())
    finally:
        await client.close()


def test_a_mirror_goes_on_while_leaders_of_its_source_and_its_target_hang(shops: IsthmusTopology) -> None:
    asyncio.run(produced(shops.bootstrap("north"), 10_000))
    shops.wait_mirrored()
    hung = {name: shops.leader(name, topic, 0) for name, topic in (("north", "orders"), ("office", "north.orders"))}
    for name, broker in hung.items():
        shops.pause(name, broker=broker)
    asyncio.run(produced(shops.bootstrap("north"), 20_000))
    shops.wait_mirrored()  # they hang still
    assert shops.leader("north", "orders", 0) != hung["north"]
    assert shops.leader("office", "north.orders", 0) != hung["office"]
    total = asyncio.run(held(shops.bootstrap("north"), "orders"))
    sent = asyncio.run(consumed(shops.bootstrap("north"), "orders", total))
    assert sent[-COUNT:] == list(range(20_000, 20_000 + COUNT))
    assert asyncio.run(held(shops.bootstrap("office"), "north.orders")) == total
    assert asyncio.run(consumed(shops.bootstrap("office"), "north.orders", total)) == sent
    for name, broker in hung.items():
        shops.unpause(name, broker=broker)
