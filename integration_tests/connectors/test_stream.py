"""Streaming queries over our broker, and over stock Kafka: pace, restart, growth, loss.

What a connector asks of a broker is the same in a batch, which `test_batch.py` does with both. So two tests here stand
for stock Kafka; the others meet it by `make soak`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isthmus.connectors.delta import DeltaWriter

from .conftest import Cluster, drain

ON_BOTH = pytest.mark.parametrize("bootstrap", ["kafka", "isthmus"], indirect=True)


@pytest.fixture(params=[pytest.param("kafka", marks=pytest.mark.soak), "isthmus"])
def bootstrap(bootstrap_of: Callable[[str], str], request: pytest.FixtureRequest) -> str:
    return bootstrap_of(request.param)


class Sink:
    """Keeps the values of every batch."""

    def __init__(self) -> None:
        self.batches: list[list[bytes]] = []

    def __call__(self, batch: Any, batch_id: int) -> None:
        rows = batch.collect()  # not sorted by Spark, which would read everything twice
        if rows:
            self.batches.append([row.value for row in rows])

    @property
    def values(self) -> list[bytes]:
        return sorted(value for batch in self.batches for value in batch)


def numbered(first: int, count: int) -> list[bytes]:
    return [b"%05d" % n for n in range(first, first + count)]


def test_a_limit_is_shared_out_by_backlog(cluster: Cluster, spark: Any, tmp_path: Path) -> None:
    topic = cluster.topic(3)
    for partition, count in enumerate((101, 11, 1)):
        cluster.produce(topic, numbered(1000 * partition, count), partition)
    sink = Sink()
    frame = cluster.stream(spark, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=10)
    progress = drain(frame, tmp_path / "c", sink)
    assert sink.values == sorted([*numbered(0, 101), *numbered(1000, 11), *numbered(2000, 1)])
    ends = [json.loads(each["sources"][0]["endOffset"])[topic] for each in progress[:2]]
    assert ends == [{"0": 8, "1": 1, "2": 1}, {"0": 17, "1": 2, "2": 1}]
    assert progress[0]["numInputRows"] == 10


def test_available_now_paces_stops_and_goes_on_after_a_restart(cluster: Cluster, spark: Any, tmp_path: Path) -> None:
    topic = cluster.topic()
    cluster.produce(topic, numbered(0, 15))
    sink = Sink()

    def run() -> None:
        drain(
            cluster.stream(spark, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=5),
            tmp_path / "c",
            sink,
        )

    run()
    assert [len(batch) for batch in sink.batches] == [5, 5, 5]
    run()
    assert len(sink.batches) == 3
    cluster.produce(topic, numbered(15, 7))
    run()
    assert [len(batch) for batch in sink.batches] == [5, 5, 5, 5, 2]
    assert sink.values == numbered(0, 22)


def test_partitions_that_are_added_are_read_from_their_beginning(cluster: Cluster, spark: Any, tmp_path: Path) -> None:
    topic = cluster.topic()
    cluster.produce(topic, numbered(0, 5))
    sink = Sink()
    for first, partition in ((5, 1), (10, 2)):
        drain(cluster.stream(spark, subscribe=topic, startingOffsets="earliest"), tmp_path / "c", sink)
        cluster.grow(topic, partition + 1)
        cluster.produce(topic, numbered(first, 5), partition)
    drain(cluster.stream(spark, subscribe=topic, startingOffsets="earliest"), tmp_path / "c", sink)
    assert sink.values == numbered(0, 15)


def test_a_stream_begins_at_the_latest_offset_by_default(cluster: Cluster, spark: Any, tmp_path: Path) -> None:
    topic = cluster.topic()
    cluster.produce(topic, numbered(0, 5))
    sink = Sink()
    drain(cluster.stream(spark, subscribe=topic), tmp_path / "c", sink)
    cluster.produce(topic, numbered(5, 5))
    drain(cluster.stream(spark, subscribe=topic), tmp_path / "c", sink)
    assert sink.values == numbered(5, 5)


@ON_BOTH
def test_a_running_stream_takes_what_comes(cluster: Cluster, spark: Any, tmp_path: Path) -> None:
    topic = cluster.topic()
    sink = Sink()
    frame = cluster.stream(spark, subscribe=topic, startingOffsets="earliest")
    query = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "c"))
    query = query.trigger(processingTime="100 milliseconds").start()
    try:
        for first in (0, 10, 20):
            cluster.produce(topic, numbered(first, 10))
            query.processAllAvailable()
            assert sink.values == numbered(0, first + 10)
        assert json.loads(query.lastProgress["sources"][0]["latestOffset"])[topic] == {"0": 30}
    finally:
        query.stop()


def test_options_that_cannot_be_are_told_in_a_stream_as_in_a_batch(spark: Any, tmp_path: Path) -> None:
    nobody = Cluster("127.0.0.1:1")
    with pytest.raises(Exception, match="there are no topics to subscribe to"):
        nobody.batch(spark, subscribe="").count()
    with pytest.raises(Exception, match="there are no topics to subscribe to"):
        drain(nobody.stream(spark, subscribe=""), tmp_path / "checkpoint", lambda batch, number: None)


@pytest.mark.parametrize("count", [0, 12])
def test_a_topic_made_anew_is_an_error_however_much_is_in_it(
    cluster: Cluster, spark: Any, tmp_path: Path, count: int
) -> None:
    """With more records than were read of the old one, the first of them would be passed over in silence."""
    topic = cluster.topic()
    cluster.produce(topic, numbered(0, 5))
    drain(cluster.stream(spark, subscribe=topic, startingOffsets="earliest"), tmp_path / "c", Sink())
    cluster.delete(topic)
    cluster.topic(name=topic)
    cluster.produce(topic, numbered(100, count))
    with pytest.raises(Exception, match=f"topic {topic} was deleted and made anew since it was read"):
        drain(cluster.stream(spark, subscribe=topic, startingOffsets="earliest"), tmp_path / "c", Sink())
    sink = Sink()
    frame = cluster.stream(spark, subscribe=topic, startingOffsets="earliest", failOnDataLoss="false")
    drain(frame, tmp_path / "c", sink)
    assert sink.values == numbered(100, count)


@ON_BOTH
def test_delta_holds_each_row_once_over_restarts_and_knows_its_checkpoint(
    cluster: Cluster, spark: Any, tmp_path: Path
) -> None:
    topic = cluster.topic(2)
    writer = DeltaWriter(tmp_path / "table", "test")

    def run(checkpoint: str) -> None:
        frame = cluster.stream(spark, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=20)
        drain(frame, tmp_path / checkpoint, writer)

    for first in (0, 50):
        cluster.produce(topic, numbered(first, 25), 0)
        cluster.produce(topic, numbered(first + 25, 25), 1)
        run("c")
    assert writer.rows() == 100
    with pytest.raises(Exception, match="from another checkpoint"):
        run("another")
    assert writer.rows() == 100
