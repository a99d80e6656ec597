"""The streaming reader's offsets: what Spark is told at each step, and what it is refused."""

import json

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from isthmus.client import TopicPartition
from isthmus.client.errors import ConnectionLost
from isthmus.connectors import source
from isthmus.connectors.errors import SourceError
from isthmus.connectors.options import parse
from isthmus.connectors.planning import GONE_ANSWERS
from isthmus.connectors.source import (
    IsthmusDataSource,
    StreamReader,
    ask,
    columns_of,
    from_json,
    to_json,
    with_headers,
)
from isthmus.protocol.errors import ErrorCode, KafkaError

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

    open_up_to: dict[TopicPartition, int] = {}  # where the log ends, if transactions are open

    def _ends_of_all(self, partitions):
        return {tp: self.open_up_to.get(tp, self.cluster[tp][1]) for tp in partitions}

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


def test_a_query_that_had_read_an_open_transaction_waits_until_it_has_ended():
    reader = Reader({A: (0, 12), B: (0, 3)})
    reader.open_up_to = {A: 20}
    start = {"t": {"0": 15, "1": 0}}
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end == {"t": {"0": 15, "1": 3}}
    assert offsets(reader, start, end) == [("t", 1, 0, 3)]
    reader.cluster[A] = (0, 21)
    assert offsets(reader, end, reader.latestOffset(end, ReadAllAvailable())) == [("t", 0, 15, 21)]
    before = Reader({A: (0, 12), B: (0, 3)}, **{"kafka.isolation.level": "read_uncommitted"})
    before.open_up_to = {A: 20}
    with pytest.raises(SourceError, match="t-0 ends at offset 12"):
        before.latestOffset(start, ReadAllAvailable())


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


def test_a_stream_that_cannot_be_says_why_at_the_first_call():
    """Spark loses what `streamReader` raises ("cannot access local variable 'reader'")."""
    source = IsthmusDataSource({**OPTIONS, "subscribe": ""})
    reader = source.streamReader(source.schema())
    for call in (reader.initialOffset, reader.getDefaultReadLimit, reader.prepareForTriggerAvailableNow):
        with pytest.raises(SourceError, match="no topics to subscribe to"):
            call()
    with pytest.raises(SourceError, match="no topics to subscribe to"):
        reader.latestOffset({}, ReadAllAvailable())


def test_a_users_schema_picks_columns_and_must_have_the_right_types():
    from pyspark.sql.types import LongType, StringType, StructType

    assert columns_of(StructType().add("offset", LongType())) == ["offset"]
    with pytest.raises(SourceError, match="column value is binary, not string"):
        columns_of(StructType().add("value", StringType()))
    with pytest.raises(SourceError, match="there is no column values; there are key, value, "):
        columns_of(StructType().add("values", StringType()))
    with pytest.raises(SourceError, match="the schema has no columns"):
        columns_of(StructType())


# --- What is asked of the cluster -------------------------------------------------------------------------------------


class Asked:
    """Stands for a client, which answers with these errors first."""

    def __init__(self, *instead, partitions=None):
        self.instead = list(instead)
        self.topics = partitions or {}
        self.bootstrap = "h:1"

    async def start(self, timeout_ms):
        pass

    async def close(self):
        pass

    async def back_off(self, attempt):
        pass

    async def answer(self):
        if self.instead:
            raise self.instead.pop(0)
        return "answer"

    async def refresh_metadata(self, topics):
        await self.answer()

    def partitions(self, topic):
        return self.topics.get(topic, [])

    def topic_id(self, topic):
        return None

    async def list_offsets(self, wanted, isolation):
        await self.answer()
        return dict.fromkeys(wanted, (7, -1, 0))


@pytest.fixture
def asked(monkeypatch):
    def asked(client, **given):
        monkeypatch.setattr(source, "client_of", lambda options: client)
        monkeypatch.setattr("isthmus.connectors.planning.Admin", lambda client: client)
        return parse({**OPTIONS, **given}, streaming=True)

    return asked


GONE = KafkaError.of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no partition t-0")
BUSY = KafkaError.of(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "busy")


def test_a_question_is_asked_again_while_errors_pass(asked):
    client = Asked(BUSY, ConnectionLost("gone"), *[GONE] * (GONE_ANSWERS - 1))
    assert ask(asked(client), Asked.answer) == "answer"


@pytest.mark.parametrize(
    ("instead", "said"),
    [
        ([KafkaError.of(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not for you")], "not for you"),
        ([GONE] * GONE_ANSWERS, "there is no partition t-0"),
        ([BUSY] * 100_000, r"does not answer for 0.005 s \(kafkaConsumer.pollTimeoutMs\): .*busy"),
    ],
)
def test_what_does_not_pass_is_an_error_that_names_the_cluster(asked, instead, said):
    with pytest.raises(SourceError, match=f"^cluster at h:1.*{said}"):
        ask(asked(Asked(*instead), **{"kafkaConsumer.pollTimeoutMs": "5"}), Asked.answer)


def test_a_topic_that_was_deleted_is_left_out_of_a_stream_that_may_lose_it(asked, caplog):
    client = Asked(partitions={"t": [0]})
    options = asked(client, subscribe="t,gone", failOnDataLoss="false")
    reader = StreamReader(options, ["value"])
    start = {"gone": {"0": 3}, "t": {"0": 5}}
    for _ in range(2):
        start = reader.latestOffset(start, ReadAllAvailable())
        assert start == {"t": {"0": 7}}
    lost = [each.message for each in caplog.records]
    assert lost == [
        "not in the cluster at h:1, and left out: topic gone",
        "gone-0, read up to offset 3, is no longer there; goes on without it",
    ]
    with pytest.raises(SourceError, match="there is no topic gone"):
        reader.initialOffset()  # a new query's names are to be right
    with pytest.raises(SourceError, match="there is no topic gone"):
        StreamReader(asked(client, subscribe="t,gone"), ["value"]).latestOffset(start, ReadAllAvailable())


def test_a_new_partition_that_is_gone_again_is_left_out_where_it_may_be(asked):
    reader = StreamReader(asked(Asked(), failOnDataLoss="false"), ["value"])
    assert reader.partitions({}, {"t": {"0": 7}}) == []
