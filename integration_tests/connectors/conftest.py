"""One Spark session for all tests of the connectors, and topics written by clients that are not ours."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from isthmus.connectors.session import local_session

NAMES = itertools.count()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    session = local_session("connectors", tmp_path_factory.mktemp("it's s"), cores=2, brief=True)
    yield session
    session.stop()


@pytest.fixture
def bootstrap_of(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """The address of stock Kafka or of our own broker, which is started when it is asked for."""

    def address(name: str) -> str:
        return (
            request.getfixturevalue("kafka") if name == "kafka" else request.getfixturevalue("isthmus_broker").bootstrap
        )

    return address


@pytest.fixture(params=["kafka", "isthmus"])
def bootstrap(bootstrap_of: Callable[[str], str], request: pytest.FixtureRequest) -> str:
    """Stock Kafka, then our own broker."""
    return bootstrap_of(request.param)


@pytest.fixture
def cluster(bootstrap: str) -> Iterator[Cluster]:
    made = Cluster(bootstrap)
    yield made
    del made.admin  # or librdkafka looks for the broker after its end


class Cluster:
    """Topics of a test's own, by librdkafka and aiokafka."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap})

    def topic(self, partitions: int = 1, name: str | None = None) -> str:
        name = name or f"spark-{next(NAMES)}"
        # old timestamps are part of the tests: nothing may be deleted for its age
        made = self.admin.create_topics([NewTopic(name, partitions, 1, config={"retention.ms": "-1"})])
        made[name].result(30)
        return name

    def grow(self, topic: str, partitions: int) -> None:
        self.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(30)

    def produce(self, topic: str, values: Sequence[bytes | None], partition: int = 0, **more: Any) -> None:
        """By librdkafka. more: `codec`, `linger_ms`, `key`, `headers`, and `timestamps`, one a value."""
        settings = {"bootstrap.servers": self.bootstrap, "compression.type": more.get("codec", "none")}
        producer = Producer({**settings, "linger.ms": more.get("linger_ms", 5), "enable.idempotence": True})
        failed: list[Any] = []
        times = more.get("timestamps") or [0] * len(values)
        for value, at in zip(values, times, strict=True):
            producer.produce(
                topic, value, more.get("key"), partition, timestamp=at, headers=more.get("headers"),
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )  # fmt: skip
            producer.poll(0)
        producer.flush(30)
        assert not failed

    def produce_by_aiokafka(self, topic: str, rows: list[dict[str, Any]], codec: str | None = None) -> None:
        async def run() -> None:
            producer = AIOKafkaProducer(bootstrap_servers=self.bootstrap, compression_type=codec)
            await producer.start()
            try:
                for row in rows:
                    await producer.send_and_wait(topic, **row)
            finally:
                await producer.stop()

        asyncio.run(run())

    def batch(self, spark: Any, **options: Any) -> Any:
        return self._with(spark.read, options).load()

    def stream(self, spark: Any, **options: Any) -> Any:
        return self._with(spark.readStream, options).load()

    def _with(self, reader: Any, options: dict[str, Any]) -> Any:
        reader = reader.format("isthmus").option("kafka.bootstrap.servers", self.bootstrap)
        for name, value in options.items():
            reader = reader.option(name, value)
        return reader


def drain(frame: Any, checkpoint: Any, write: Callable[[Any, int], None]) -> list[dict[str, Any]]:
    """Run a stream until it has all there is; its progress, a batch each."""
    query = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint))
    query = query.trigger(availableNow=True).start()
    query.awaitTermination(300)
    assert query.exception() is None
    return [progress for progress in query.recentProgress if progress["numInputRows"]]
