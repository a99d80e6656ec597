"""Options of format("isthmus"): Spark's names and meanings, and errors that name the option and the way out."""

import pytest

from isthmus.client.raw import READ_COMMITTED, READ_UNCOMMITTED
from isthmus.connectors.errors import SourceError
from isthmus.connectors.options import EARLIEST, LATEST, OPTIONS, Bound, parse

CLUSTER = {"kafka.bootstrap.servers": "h:9092"}
ORDERS = {**CLUSTER, "subscribe": "orders"}


def test_defaults_are_those_of_sparks_source():
    batch, stream = parse(ORDERS, streaming=False), parse(ORDERS, streaming=True)
    assert batch.starting == Bound(everywhere=EARLIEST)
    assert stream.starting == Bound(everywhere=LATEST)
    assert batch.ending == Bound(everywhere=LATEST)
    assert batch.fail_on_data_loss and not batch.include_headers
    assert stream.max_offsets_per_trigger is None


def test_names_are_taken_in_any_case():
    options = parse({"KAFKA.Bootstrap.SERVERS": "h:1", "SUBSCRIBE": "a, b", "maxoffsetspertrigger": "10"}, True)
    assert options.bootstrap == "h:1"
    assert options.topics == ("a", "b")
    assert options.max_offsets_per_trigger == 10


def test_bootstrap_servers_may_be_given_without_its_prefix():
    assert parse({"bootstrap.servers": "h:1", "subscribe": "a"}, False).bootstrap == "h:1"


@pytest.mark.parametrize(
    ("given", "streaming", "said"),
    [
        ({"subscribe": "a"}, False, "kafka.bootstrap.servers is missing"),
        (CLUSTER, False, "set one of assign, subscribe and subscribePattern"),
        ({**ORDERS, "assign": '{"a": [0]}'}, False, "got assign and subscribe"),
        ({**ORDERS, "startingOffset": "earliest"}, False, "did you mean startingOffsets"),
        ({**ORDERS, "startingOffsets": "early"}, False, "option startingOffsets is not JSON"),
        ({**ORDERS, "startingOffsets": '{"orders": 5}'}, False, 'look like {"topic": {"0": 23}}'),
        ({**ORDERS, "startingOffsets": '{"orders": {"0": -3}}'}, False, "-3 of orders-0"),
        ({**ORDERS, "startingOffsets": "latest"}, False, "cannot be latest in a batch query"),
        ({**ORDERS, "startingOffsets": '{"orders": {"0": -1}}'}, False, "cannot be latest in a batch query"),
        ({**ORDERS, "endingOffsets": "earliest"}, False, "endingOffsets cannot be earliest"),
        ({**ORDERS, "endingOffsets": '{"orders": {"0": -2}}'}, False, "endingOffsets cannot be earliest"),
        ({**ORDERS, "endingOffsets": "latest"}, True, "endingOffsets is for batch queries only"),
        ({**ORDERS, "endingTimestamp": "5"}, True, "endingTimestamp is for batch queries only"),
        ({**ORDERS, "startingTimestamp": "yesterday"}, False, "startingTimestamp is 'yesterday'"),
        ({**ORDERS, "startingOffsetsByTimestampStrategy": "first"}, False, "can be error or latest"),
        ({**ORDERS, "minPartitions": "0"}, False, "minPartitions is '0'"),
        ({**ORDERS, "maxOffsetsPerTrigger": "-1"}, True, "maxOffsetsPerTrigger is '-1'"),
        ({**ORDERS, "includeHeaders": "yes"}, False, "includeHeaders is 'yes'"),
        ({**ORDERS, "kafka.auto.offset.reset": "earliest"}, False, "use startingOffsets"),
        ({**ORDERS, "kafka.value.deserializer": "X"}, False, "values are bytes"),
        ({**ORDERS, "kafka.isolation.level": "committed"}, False, "can be read_uncommitted or read_committed"),
        ({**ORDERS, "kafka.isolation.level": ""}, False, "can be read_uncommitted or read_committed"),
        ({**CLUSTER, "subscribePattern": "a["}, False, "is no regular expression"),
        ({**CLUSTER, "assign": '{"a": ["x"]}'}, False, 'look like {"topic": [0, 1]}'),
        ({**CLUSTER, "assign": "[1]"}, False, "not a JSON object of topics"),
        ({**CLUSTER, "assign": '{"a": "01"}'}, False, 'look like {"topic": [0, 1]}'),
        ({**CLUSTER, "assign": '{"a": [0.5]}'}, False, 'look like {"topic": [0, 1]}'),
        ({**ORDERS, "startingOffsets": '{"orders": {"0": 23.9}}'}, False, 'look like {"topic": {"0": 23}}'),
        ({**ORDERS, "startingOffsets": '{"orders": {"0": true}}'}, False, 'look like {"topic": {"0": 23}}'),
        ({**ORDERS, "decodeMaxBytes": "1073741825"}, False, "a whole number from 1 to 1073741824"),
    ],
)
def test_what_cannot_be_is_refused_by_name(given, streaming, said):
    with pytest.raises(SourceError) as caught:
        parse(given, streaming)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("subscribe", "", "no topics to subscribe to"),
        ("subscribe", " , ,", "no topics to subscribe to"),
        ("subscribePattern", "", "the pattern to subscribe is empty"),
        ("subscribePattern", " ", "the pattern to subscribe is empty"),
        ("assign", "", "is not JSON"),
        ("assign", "{}", "names no topic partitions"),
        ("assign", '{"orders": [0], "bills": []}', "names no partition of bills"),
        ("startingOffsets", "", "is not JSON"),
        ("startingOffsets", "{}", "names no topic partitions"),
        ("startingOffsets", '{"orders": {}}', "names no partition of orders"),
        ("startingOffsetsByTimestamp", "{}", "names no topic partitions"),
        ("startingTimestamp", "", "must be a whole number"),
        ("endingOffsets", " ", "is not JSON"),
        ("endingOffsets", "{}", "names no topic partitions"),
        ("endingOffsetsByTimestamp", '{"orders": {}}', "names no partition of orders"),
        ("kafka.bootstrap.servers", " , ", "missing"),
        ("includeHeaders", "", "can be true or false"),
        ("fetchMaxBytes", "", "must be a whole number"),
    ],
)
def test_an_option_that_says_nothing_is_refused(option, value, said):
    """As by Spark's Kafka source; without an error there would be no rows, or others than were meant."""
    which = {} if option in ("assign", "subscribe", "subscribePattern") else {"subscribe": "orders"}
    with pytest.raises(SourceError, match=f"option {option} .*{said}"):
        parse({**CLUSTER, **which, option: value}, streaming=False)


def test_timestamps_go_before_offsets_as_in_spark():
    both = {**ORDERS, "startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"orders": {"0": 7}}'}
    assert parse(both, False).starting == Bound("timestamp", each=(("orders", 0, 7),))
    assert parse({**both, "startingTimestamp": "9"}, False).starting == Bound("timestamp", 9)


def test_offsets_by_partition():
    options = parse({**ORDERS, "startingOffsets": '{"orders": {"1": -1, "0": 23, "2": -2}}'}, streaming=True)
    assert options.starting.each == (("orders", 0, 23), ("orders", 1, -1), ("orders", 2, -2))


def test_kafka_settings_that_say_what_is_anyway_are_taken():
    parse({**ORDERS, "kafka.security.protocol": "plaintext"}, False)


def test_what_transactions_aborted_is_read_only_where_that_is_said():
    assert parse(ORDERS, True).isolation == READ_COMMITTED
    assert parse({**ORDERS, "kafka.isolation.level": "Read_Uncommitted"}, True).isolation == READ_UNCOMMITTED


def test_every_option_says_what_it_does():
    assert all(len(doc) > 10 for doc in OPTIONS.values())
