"""The code of docs/how-to/consumer-groups.md, run as it stands there."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

from isthmus.client import Admin, Client, Consumer, Producer, TopicPartition
from isthmus.client.admin import NewTopic
from tests.client.staging import Stage, at_hand
from tests.pages import names_of
from tests.running import run_by

PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/consumer-groups.md"


def of_the_page() -> dict[str, Any]:
    return names_of(PAGE)


async def with_orders(client: Client) -> None:
    await Admin(client).create_topics([NewTopic("orders", 2)])
    producer = Producer(client)
    await producer.start()
    for number in range(10):
        producer.send("orders", b"%d" % number, partition=number % 2)
    await producer.close()


@run_by(at_hand)
async def test_orders_are_handled_and_committed(client: Client, stage: Stage, /) -> None:
    await with_orders(client)
    found = of_the_page()
    printed: list[Any] = []
    found["print"] = lambda *what: printed.append(what)
    handling = asyncio.create_task(found["handle_orders"](stage.host.address))
    while len(printed) < 10:
        await asyncio.sleep(0.1)
    await asyncio.sleep(0.1)
    handling.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await handling
    assert sorted(int(value) for _, _, value in printed) == list(range(10))
    assert sum((await Admin(client).group_offsets("billing")).values()) == 10


@run_by(at_hand)
async def test_sums_follow_what_is_owned_and_pauses_keep_the_membership(client: Client, /) -> None:
    await with_orders(client)
    found = of_the_page()
    consumer = Consumer(client, "billing")
    await found["sum_orders"](consumer)
    records = 0
    while records < 10:
        records += sum(map(len, (await consumer.poll(1_000)).values()))
    assert sorted(found["sums"]) == [TopicPartition("orders", index) for index in range(2)]
    ready = asyncio.Event()
    waiting = asyncio.create_task(found["wait_for"](consumer, ready))
    await asyncio.sleep(30)
    assert len(consumer.paused()) == 2
    ready.set()
    await waiting
    assert consumer.paused() == []
    await consumer.close()
    assert found["sums"] == {}
    assert sum((await Admin(client).group_offsets("billing")).values()) == 10


@run_by(at_hand)
async def test_an_assignor_of_ones_own_gives_all_to_the_biggest(client: Client, /) -> None:
    await with_orders(client)
    found = of_the_page()
    small, big = await found["biggest_only"](client, 1), await found["biggest_only"](client, 2)
    while len(big.assignment()) < 2 or small.assignment():
        await asyncio.gather(small.poll(100, 0), big.poll(100, 0))
    for each in (small, big):
        await each.close()
