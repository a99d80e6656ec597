"""The option table: defaults, parsing, bounds, and who gives a topic its value."""

import pytest

from isthmus.core_broker.config import (
    BROKER_OPTIONS,
    TOPIC_OPTIONS,
    BrokerConfig,
    ConfigError,
    Source,
    broker_entries,
    topic_config,
    topic_entries,
    validate_topic_options,
)


def test_every_default_is_a_value_of_its_option():
    for option in (*TOPIC_OPTIONS, *BROKER_OPTIONS):
        if option.default is not None:
            option.parse(option.default)


def test_every_topic_option_names_a_broker_option_that_exists():
    names = {option.name for option in BROKER_OPTIONS}
    assert [option.name for option in TOPIC_OPTIONS if option.broker and option.broker not in names] == []


def test_unknown_option_is_named():
    with pytest.raises(ConfigError, match=r"no\.such\.option"):
        BrokerConfig({"no.such.option": "1"})
    with pytest.raises(ConfigError, match=r"Unknown topic config name: nope"):
        validate_topic_options({"nope": "1"})


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("retention.ms", "soon", "Not a number of type LONG"),
        ("retention.ms", "-2", "at least -1"),
        ("cleanup.policy", "delete,burn", "String must be one of: compact, delete"),
        ("preallocate", "yes", "either true or false"),
        ("min.cleanable.dirty.ratio", "1.5", "no more than 1"),
        ("segment.bytes", str(2**31), "Not a number of type INT"),
    ],
)
def test_wrong_topic_value_names_option_and_reason(name, value, reason):
    with pytest.raises(ConfigError, match=reason) as caught:
        validate_topic_options({name: value})
    assert name in str(caught.value)


def test_topic_value_is_its_own_then_the_broker_s_then_the_default():
    config = BrokerConfig({"log.retention.hours": "2", "log.segment.bytes": "2000000"})
    assert topic_config({}, config)["retention.ms"] == 2 * 3_600_000
    assert topic_config({"retention.ms": "-1"}, config)["retention.ms"] == -1
    assert topic_config({}, config)["segment.bytes"] == 2_000_000
    assert topic_config({}, BrokerConfig())["segment.bytes"] == 1 << 30
    assert topic_config({}, BrokerConfig({"log.retention.hours": "-1"}))["retention.ms"] == -1


def test_entries_tell_source_and_synonyms():
    config = BrokerConfig({"log.segment.bytes": "2000000"})
    entry = next(e for e in topic_entries({"segment.bytes": "3000000"}, config) if e.option.name == "segment.bytes")
    assert (entry.value, entry.source) == ("3000000", Source.TOPIC)
    assert entry.synonyms == [
        ("segment.bytes", "3000000", Source.TOPIC),
        ("log.segment.bytes", "2000000", Source.STATIC_BROKER),
        ("log.segment.bytes", "1073741824", Source.DEFAULT),
    ]
    broker = {entry.option.name: entry for entry in broker_entries(config)}
    assert broker["log.segment.bytes"].source is Source.STATIC_BROKER
    assert broker["log.retention.ms"].value is None
