"""Our partitioners beside librdkafka's own: every key goes to the same partition."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import Producer as Librdkafka

from integration_tests.brokers import ROOT, BrokerProcess
from integration_tests.mirror.workers import clients
from isthmus.client import Admin, Client, Producer
from isthmus.client.admin import NewTopic
from isthmus.client.partitioner import ANY, PARTITIONERS
from isthmus.streams import App, AppError
from isthmus.streams.runtime.worker import StreamWorker

COUNTS = (1, 3, 7, 12)  # of partitions
KEYS = [b"", None, b"a", b"kafka", b"\xff\xfe\x00", b"x" * 1000, *(b"key-%d" % number for number in range(200))]


@pytest.mark.parametrize("name", PARTITIONERS)
def test_keys_go_where_librdkafka_sends_them(isthmus_broker: BrokerProcess, name: str) -> None:
    async def create() -> None:
        client = Client(isthmus_broker.bootstrap)
        await client.start()
        await Admin(client).create_topics([NewTopic(f"{name}-{count}", count) for count in COUNTS])
        await client.close()

    asyncio.run(create())
    producer = Librdkafka({"bootstrap.servers": isthmus_broker.bootstrap, "partitioner": name, "linger.ms": 0})
    found: dict[tuple[int, int], int] = {}
    for count in COUNTS:
        for index, key in enumerate(KEYS):

            def delivered(error: object, message: object, at: tuple[int, int] = (count, index)) -> None:
                assert error is None, error
                found[at] = message.partition()  # type: ignore[attr-defined]

            producer.produce(f"{name}-{count}", b"", key, on_delivery=delivered)
    assert producer.flush(60) == 0
    assert len(found) == len(COUNTS) * len(KEYS)
    for (count, index), partition in found.items():
        assert PARTITIONERS[name](KEYS[index], count) in (partition, ANY), (KEYS[index], count)


# --- What the page on partitioners says ---------------------------------------------------------------

PAGE = ROOT / "docs" / "explanation" / "partitioners.md"
MANY, PARTITIONS = 10_000, 12
FAMILIES = ("murmur2_random", "consistent_random", "fnv1a_random")


def placed_by_librdkafka(bootstrap: str, topic: str, name: str, keys: Sequence[bytes]) -> list[int]:
    """The partitions of these keys, by a real producer."""
    producer = Librdkafka({"bootstrap.servers": bootstrap, "partitioner": name, "linger.ms": 5})
    found: dict[int, int] = {}
    for index, key in enumerate(keys):

        def delivered(error: object, message: object, at: int = index) -> None:
            assert error is None, error
            found[at] = message.partition()  # type: ignore[attr-defined]

        producer.produce(topic, b"1", key, on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(60) == 0
    return [found[index] for index in range(len(keys))]


def test_the_page_has_what_happens_to_keys_of_two_clients_and_to_a_join_of_them(
    isthmus_broker: BrokerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    keys = [b"key-%d" % number for number in range(MANY)]
    bootstrap = isthmus_broker.bootstrap

    async def create(*topics: str) -> None:
        async with clients(bootstrap) as (client,):
            await Admin(client).create_topics([NewTopic(topic, PARTITIONS) for topic in topics])

    asyncio.run(create(*FAMILIES, "ours", "customers", "orders"))
    places = {name: placed_by_librdkafka(bootstrap, name, name, keys) for name in FAMILIES}

    async def ours() -> list[int]:
        async with clients(bootstrap) as (client,):
            producer = Producer(client)
            await producer.start()
            sent = [producer.send("ours", b"1", key) for key in keys]
            found = [each.partition for each in await asyncio.gather(*sent)]
            await producer.close()
            return found

    assert asyncio.run(ours()) == places["murmur2_random"]
    same = {
        (one, other): sum(a == b for a, b in zip(places[one], places[other], strict=True))
        for one, other in itertools.combinations(FAMILIES, 2)
    }
    page = PAGE.read_text()
    for (one, other), count in same.items():
        assert f"| `{one}` and `{other}` | {count:,} of {MANY:,} |" in page, (one, other, count)

    # Customers by our producer, and so as Java's; orders by librdkafka's default.
    def an_app(app_id: str) -> tuple[App, dict[str, int], asyncio.Event]:
        app = App(app_id, web_enabled=False, broker_commit_interval=0.1)
        names = app.Table("names")
        done: dict[str, int] = {"customers": 0, "met": 0, "missed": 0}
        all_seen = asyncio.Event()

        @app.agent(app.topic("customers", value_serializer="raw"))
        async def learn(stream: Any) -> None:
            async for event in stream.events():
                names[event.key] = "known"
                done["customers"] += 1
                all_seen.set() if sum(done.values()) in (MANY, 2 * MANY) else None

        @app.agent(app.topic("orders", value_serializer="raw"))
        async def meet(stream: Any) -> None:
            async for event in stream.events():
                done["met" if event.key in names else "missed"] += 1
                all_seen.set() if sum(done.values()) in (MANY, 2 * MANY) else None

        return app, done, all_seen

    async def joined(app_id: str) -> tuple[dict[str, int], StreamWorker]:
        app, done, all_seen = an_app(app_id)
        async with clients(bootstrap) as (client,):
            producer = Producer(client)
            await producer.start()
            worker = StreamWorker(app, client)
            await worker.start()
            running = asyncio.ensure_future(worker.run())
            await asyncio.gather(*(producer.send("customers", b"1", key) for key in keys))
            await all_seen.wait()
            all_seen.clear()
            await asyncio.to_thread(placed_by_librdkafka, bootstrap, "orders", "consistent_random", keys)
            await all_seen.wait()
            await worker.stop()
            await running
            await worker.close()
            await producer.close()
        return done, worker

    with caplog.at_level("WARNING", "isthmus.streams"):
        done, worker = asyncio.run(joined("meeting"))
    assert done == {
        "customers": MANY,
        "met": same["murmur2_random", "consistent_random"],
        "missed": MANY - same["murmur2_random", "consistent_random"],
    }
    assert f"{done['met']:,} of {MANY:,} orders find their customer" in page
    [told] = [record.getMessage() for record in caplog.records if "partitioned by" in record.getMessage()]
    assert "topic orders is not partitioned by murmur2_random" in told
    assert "It seems to be partitioned by consistent_random" in told
    assert worker.places["orders"].elsewhere > 0
    assert worker.places["customers"].seen > 0 == worker.places["customers"].elsewhere


def test_what_is_nearest_to_a_record_says_where_it_goes(isthmus_broker: BrokerProcess) -> None:
    def by_length(key: bytes | None, count: int) -> int:
        return len(key or b"") % count

    async def sent() -> dict[str, list[int]]:
        async with clients(isthmus_broker.bootstrap) as (client,):
            await Admin(client).create_topics([NewTopic(each, PARTITIONS) for each in ("said", "unsaid")])
        app = App("sender", broker=f"kafka://{isthmus_broker.bootstrap}", producer_partitioner="fnv1a_random")
        said = app.topic("said", partitioner="consistent_random")
        ways = {
            "app": lambda key: app.send("unsaid", key, b"1"),
            "topic": lambda key: said.send(key=key, value=b"1"),
            "record": lambda key: app.send(said, key, b"1", partitioner="murmur2"),
            "function": lambda key: said.send(key=key, value=b"1", partitioner=by_length),
            "partition": lambda key: said.send(key=key, value=b"1", partition=5, partitioner=by_length),
        }
        found = {way: [(await (await send(key))).partition for key in KEYS[6:60]] for way, send in ways.items()}
        with pytest.raises(AppError, match="a record for topic said: there is no partitioner md5"):
            await said.send(key=b"k", value=b"1", partitioner="md5")
        await app.stop()
        return found

    rules = {
        "app": PARTITIONERS["fnv1a"],
        "topic": PARTITIONERS["consistent"],
        "record": PARTITIONERS["murmur2"],
        "function": by_length,
        "partition": lambda key, count: 5,
    }
    assert asyncio.run(sent()) == {way: [rule(key, PARTITIONS) for key in KEYS[6:60]] for way, rule in rules.items()}
