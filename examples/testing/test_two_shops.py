"""A whole topology: `isthmus_topology`, with aiokafka. It is the one of topology.yaml, as pytest.ini says."""

import asyncio
import time

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from isthmus.testing import IsthmusTopology


def place(bootstrap: str, topic: str, orders: list[str]) -> None:
    """Send orders, and return once all are acknowledged."""

    async def run() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True) as producer:
            for order in orders:
                await producer.send(topic, order.encode())

    asyncio.run(run())


def read(bootstrap: str, topic: str) -> list[str]:
    """All that the topic holds now."""

    async def run() -> list[str]:
        partition = TopicPartition(topic, 0)
        async with AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([partition])
            end = (await consumer.end_offsets([partition]))[partition]
            return [(await consumer.getone()).value.decode() for _ in range(end)]

    return asyncio.run(asyncio.wait_for(run(), 30))


def test_the_office_gets_the_orders_of_both_shops(isthmus_topology: IsthmusTopology) -> None:
    office = isthmus_topology.bootstrap("office")
    for shop in ("north", "south"):
        place(isthmus_topology.bootstrap(shop), "orders", [f"{shop} {number}" for number in range(100)])
    isthmus_topology.wait_mirrored()
    assert read(office, "north.orders") == [f"north {number}" for number in range(100)]
    assert read(office, "south.orders") == [f"south {number}" for number in range(100)]


def test_a_cut_wan_delays_orders_and_loses_none(isthmus_topology: IsthmusTopology) -> None:
    office = isthmus_topology.bootstrap("office")
    before, during = [f"before {n}" for n in range(100)], [f"during {n}" for n in range(100)]
    for shop in ("north", "south"):
        place(isthmus_topology.bootstrap(shop), "orders-cut", before)
    isthmus_topology.wait_mirrored()

    isthmus_topology.cut_wan("north-office")
    for shop in ("north", "south"):
        place(isthmus_topology.bootstrap(shop), "orders-cut", during)  # the shops go on selling
    isthmus_topology.wait_mirrored("south-office")
    assert read(office, "south.orders-cut") == before + during
    assert read(office, "north.orders-cut") == before
    [status] = [each for each in isthmus_topology.mirror_status("north-office") if each.topic == "orders-cut"]
    assert status.lag_records == len(during)

    isthmus_topology.heal_wan()
    isthmus_topology.wait_mirrored()
    assert read(office, "north.orders-cut") == before + during


def test_a_killed_mirror_goes_on_where_it_was(isthmus_topology: IsthmusTopology) -> None:
    office = isthmus_topology.bootstrap("office")
    for shop in ("north", "south"):
        place(isthmus_topology.bootstrap(shop), "orders-mirror", ["before"])
    isthmus_topology.wait_mirrored()
    isthmus_topology.kill("north-office")
    for shop in ("north", "south"):
        place(isthmus_topology.bootstrap(shop), "orders-mirror", ["during"])
    isthmus_topology.wait_mirrored("south-office")
    assert read(office, "north.orders-mirror") == ["before"]
    isthmus_topology.restart("north-office")
    isthmus_topology.wait_mirrored()
    assert read(office, "north.orders-mirror") == ["before", "during"]


@pytest.mark.isthmus_topology("topology.yaml", brokers=3)
def test_orders_outlive_leader_and_controller(isthmus_topology: IsthmusTopology) -> None:
    north = isthmus_topology.bootstrap("north")
    place(north, "orders-kept", ["first"])
    dead = isthmus_topology.kill_leader("north", "orders-kept", 0)
    place(north, "orders-kept", ["second"])
    isthmus_topology.restart("north", broker=dead)
    isthmus_topology.wait_in_sync("north")
    isthmus_topology.kill_controller("north")
    place(north, "orders-kept", ["third"])
    assert read(north, "orders-kept") == ["first", "second", "third"]


@pytest.mark.isthmus_topology("topology.yaml", brokers=3)
def test_orders_go_on_while_the_leader_is_cut_off(isthmus_topology: IsthmusTopology) -> None:
    north = isthmus_topology.bootstrap("north")
    place(north, "orders-apart", ["before"])
    leader = isthmus_topology.leader("north", "orders-apart", 0)
    with isthmus_topology.cut("north", broker=leader):  # from the other brokers, and not from its clients
        while isthmus_topology.leader("north", "orders-apart", 0) == leader:
            time.sleep(0.1)
        others = [each for node, each in isthmus_topology.brokers("north").items() if node != leader]
        place(",".join(others), "orders-apart", ["meanwhile"])
    isthmus_topology.wait_in_sync("north")
    assert read(north, "orders-apart") == ["before", "meanwhile"]
