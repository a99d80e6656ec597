"""The streaming reader's offsets: what Spark is told at each step, and what it is refused."""

import json

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from isthmus.client import TopicPartition
from isthmus.connectors.errors import SourceError
from isthmus.connectors.options import parse
from isthmus.connectors.source import (
    IsthmusDataSource,
    StreamReader,
    columns_of,
    from_json,
    to_json,
    with_headers,
)

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
OPTIONS = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "startingOffsets": "earliest"}


class Reader(StreamReader):
    """A reader of a cluster that is {partition: (start, end)}."""

    def __init__(self, cluster, **given):
        super().__init__(parse({**OPTIONS, **given}, streaming=True), ["value"])
        self.cluster = cluster

    ids: dict[str, bytes] = {}  # of the topics

    def _ends(self):
        return to_json({tp: end for tp, (_, end) in self.cluster.items()}, self.ids)

    def _earliest(self, partitions):
        return {tp: self.cluster[tp][0] for tp in partitions}


def offsets(reader, start, end):
    return [(r.topic, r.partition, r.start, r.end) for task in reader.partitions(start, end) for r in task.wanted]


def test_offsets_are_sorted_json_like_that_of_sparks_kafka_source():
    many = {TopicPartition("b", 10): 1, TopicPartition("b", 9): 2, TopicPartition("a", 0): 3}
    assert json.dumps(to_json(many)) == '{"a": {"0": 3}, "b": {"9": 2, "10": 1}}'
    assert from_json(to_json(many)) == many


def test_a_limit_paces_a_stream_to_its_end():
    reader = Reader({A: (0, 15), B: (0, 0)}, maxOffsetsPerTrigger="5")
    assert reader.getDefaultReadLimit() == ReadMaxRows(5)
    at = to_json({A: 0, B: 0})
    ends = []
    for _ in range(4):
        at = reader.latestOffset(at, ReadMaxRows(5))
        ends.append(at["t"]["0"])
    assert ends == [5, 10, 15, 15]


def test_without_a_limit_everything_is_one_batch():
    reader = Reader({A: (0, 15)})
    assert reader.getDefaultReadLimit() == ReadAllAvailable()
    assert reader.latestOffset({"t": {"0": 0}}, ReadAllAvailable()) == {"t": {"0": 15}}
    assert reader.reportLatestOffset() == {"t": {"0": 15}}


def test_available_now_ends_where_the_log_ended_when_it_began():
    reader = Reader({A: (0, 15)})
    reader.prepareForTriggerAvailableNow()
    reader.cluster = {A: (0, 99), B: (0, 3)}
    assert reader.latestOffset({"t": {"0": 0}}, ReadAllAvailable()) == {"t": {"0": 15}}


def test_a_new_partition_is_read_from_its_beginning():
    reader = Reader({A: (0, 15), B: (2, 6)})
    end = reader.latestOffset({"t": {"0": 15}}, ReadAllAvailable())
    assert end == {"t": {"0": 15, "1": 6}}
    assert offsets(reader, {"t": {"0": 15}}, end) == [("t", 1, 2, 6)]


def test_a_stream_over_no_topic_yet_begins_when_one_comes():
    reader = Reader({})
    assert reader.latestOffset({}, ReadAllAvailable()) == {}
    reader.cluster = {A: (0, 4)}
    assert offsets(reader, {}, reader.latestOffset({}, ReadAllAvailable())) == [("t", 0, 0, 4)]


def test_a_partition_that_is_gone_is_an_error_or_left_behind():
    start = {"t": {"0": 15, "1": 7}}
    with pytest.raises(SourceError, match="t-1, read up to offset 7, is no longer there"):
        Reader({A: (0, 20)}).latestOffset(start, ReadAllAvailable())
    reader = Reader({A: (0, 20)}, failOnDataLoss="false")
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end == {"t": {"0": 20}}
    assert offsets(reader, start, end) == [("t", 0, 15, 20)]
    reader.cluster[B] = (0, 3)  # there again: all of it is new
    again = reader.latestOffset(end, ReadAllAvailable())
    assert offsets(reader, end, again) == [("t", 1, 0, 3)]


def test_a_topic_made_anew_is_an_error_or_read_on_from_its_new_end():
    start = {"t": {"0": 15}}
    with pytest.raises(SourceError, match="t-0 ends at offset 4, but was read up to 15"):
        Reader({A: (0, 4)}).latestOffset(start, ReadAllAvailable())
    reader = Reader({A: (0, 4)}, failOnDataLoss="false")
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end == {"t": {"0": 4}}
    assert offsets(reader, start, end) == []
    reader.cluster = {A: (0, 6)}
    assert offsets(reader, end, reader.latestOffset(end, ReadAllAvailable())) == [("t", 0, 4, 6)]


def test_a_topic_made_anew_that_has_grown_past_what_was_read_is_known_by_its_id():
    reader = Reader({A: (0, 15)})
    reader.ids = {"t": bytes(16)}
    start = reader.latestOffset({}, ReadAllAvailable())
    assert start == {"t": {"0": 15}, "topic ids": {"t": "AAAAAAAAAAAAAAAAAAAAAA"}}
    reader.cluster, reader.ids = {A: (2, 40)}, {"t": b"\1" * 16}
    with pytest.raises(SourceError, match="topic t was deleted and made anew since it was read"):
        reader.latestOffset(start, ReadAllAvailable())
    reader.options = parse({**OPTIONS, "failOnDataLoss": "false"}, streaming=True)
    end = reader.latestOffset(start, ReadAllAvailable())
    assert offsets(reader, start, end) == [("t", 0, 2, 40)]
    assert {each.topic_id for task in reader.partitions(start, end) for each in task.wanted} == {b"\1" * 16}
    assert reader.latestOffset(start, ReadMaxRows(5))["t"] == {"0": 7}
    reader.cluster = {A: (2, 45)}
    assert offsets(reader, end, reader.latestOffset(end, ReadAllAvailable())) == [("t", 0, 40, 45)]


def test_a_checkpoint_without_ids_goes_on():
    reader = Reader({A: (0, 20)})
    reader.ids = {"t": bytes(16)}
    end = reader.latestOffset({"t": {"0": 15}}, ReadAllAvailable())
    assert offsets(reader, {"t": {"0": 15}}, end) == [("t", 0, 15, 20)]


def test_a_task_that_spark_made_up_reads_nothing():
    from pyspark.sql.datasource import InputPartition

    assert list(Reader({}).read(InputPartition(None))) == []


def test_schema_has_headers_when_asked_for():
    plain = IsthmusDataSource(OPTIONS).schema()
    assert plain.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
    )
    with_them = IsthmusDataSource({**OPTIONS, "includeHeaders": "TRUE"}).schema()
    assert with_them == with_headers()


def test_a_users_schema_picks_columns_and_must_have_the_right_types():
    from pyspark.sql.types import LongType, StringType, StructType

    assert columns_of(StructType().add("offset", LongType())) == ["offset"]
    with pytest.raises(SourceError, match="column value is binary, not string"):
        columns_of(StructType().add("value", StringType()))
    with pytest.raises(SourceError, match="there is no column values; there are key, value, "):
        columns_of(StructType().add("values", StringType()))
