"""A group's own options: what may be set, and what is in force."""

import pytest

from isthmus.core_broker.config import BrokerConfig, ConfigError
from isthmus.core_broker.described import Source, group_entries
from isthmus.core_broker.group_options import (
    GROUP_OPTIONS,
    group_option,
    group_value,
    validate_group_options,
    value_in_force,
)

SESSION = "consumer.session.timeout.ms"
BEAT = "consumer.heartbeat.interval.ms"
INTERVAL = "consumer.assignment.interval.ms"


def test_every_option_has_its_default_and_the_brokers_where_it_names_one():
    config = BrokerConfig()
    for option in GROUP_OPTIONS:
        value = group_value(option, {}, config)
        assert option.text(value) == (option.default if option.name != "streams.assignor.name" else "sticky")
        if option.broker is not None and not option.unseen:
            assert option.broker in config
    assert group_value(group_option(SESSION), {}, BrokerConfig({"group.consumer.session.timeout.ms": "50000"})) == 50000


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"nope": "1"}, "Unknown group config name: nope"),
        ({"retention.ms": "1"}, "Unknown group config name: retention.ms"),
        ({SESSION: "x"}, "Not a number of type INT"),
        ({SESSION: "0"}, "Value must be at least 1"),
        ({SESSION: "44999"}, f"{SESSION} must be in the range 45000 to 60000 inclusive."),
        ({SESSION: "60001"}, f"{SESSION} must be in the range 45000 to 60000 inclusive."),
        ({BEAT: "15001"}, f"{BEAT} must be in the range 5000 to 15000 inclusive."),
        ({INTERVAL: "15001"}, f"{INTERVAL} must be in the range 0 to 15000 inclusive."),
        ({"streams.num.standby.replicas": "3"}, "must be less than or equal to 2"),
        ({"streams.assignor.name": "zz"}, r"Registered assignors are: \[sticky\]"),
        ({"streams.rack.aware.assignment.tags": "a, b,a"}, "must not contain duplicate tag keys"),
        ({"share.isolation.level": "zz"}, "String must be one of: read_committed, read_uncommitted"),
        ({"share.auto.offset.reset": "by_duration:P"}, "must be either 'earliest', 'latest'"),
        ({"errors.deadletterqueue.topic.name": "__x"}, "must not start with '__'"),
    ],
)
def test_what_a_group_may_not_set(options, said):
    with pytest.raises(ConfigError, match=said):
        validate_group_options(options, BrokerConfig())


def test_what_a_group_may_set():
    config = BrokerConfig()
    validate_group_options({SESSION: "45000", BEAT: "15000", INTERVAL: "0"}, config)
    for reset in ("earliest", "latest", "by_duration:PT1H", "by_duration:P1DT2M0.5S"):
        validate_group_options({"share.auto.offset.reset": reset, "streams.assignor.name": "sticky"}, config)


def test_a_session_is_longer_than_the_time_between_heartbeats():
    bounds = {"min.session.timeout.ms": "5000", "max.heartbeat.interval.ms": "60000"}
    config = BrokerConfig({f"group.consumer.{name}": value for name, value in bounds.items()})
    with pytest.raises(ConfigError, match=f"{SESSION} must be greater than {BEAT}"):
        validate_group_options({BEAT: "45000"}, config)
    validate_group_options({BEAT: "45000", SESSION: "45001"}, config)


def test_a_value_beyond_the_brokers_bounds_counts_as_the_nearest():
    """It was set when they were others."""
    config = BrokerConfig()
    assert [value_in_force(SESSION, {SESSION: text}, config) for text in ("1", "50000", "70000")] == [
        45000, 50000, 60000
    ]  # fmt: skip
    assert value_in_force(BEAT, {}, BrokerConfig({"group.consumer.heartbeat.interval.ms": "6000"})) == 6000


def test_how_a_groups_options_are_described():
    config = BrokerConfig({"group.consumer.heartbeat.interval.ms": "6000"})
    own = {SESSION: "50000", "streams.num.warmup.replicas": "3"}
    entries = {each.option.name: each for each in group_entries(own, config)}
    assert len(entries) == 22 and not any(each.read_only for each in entries.values())
    assert (entries[SESSION].value, entries[SESSION].source) == ("50000", Source.GROUP)
    assert entries[SESSION].synonyms == [
        (SESSION, "50000", Source.GROUP), (f"group.{SESSION}", "45000", Source.DEFAULT)
    ]  # fmt: skip
    assert (entries[BEAT].value, entries[BEAT].source) == ("6000", Source.STATIC_BROKER)
    warm = entries["streams.num.warmup.replicas"]
    assert warm.synonyms[1:] == [("group.streams.num.warmup.replicas", "2", Source.DEFAULT)]
    assert entries["share.auto.offset.reset"].synonyms == [("share.auto.offset.reset", "latest", Source.DEFAULT)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"session.timeout.ms": "44999"}, "group.consumer.session.timeout.ms must be greater than or equal to"),
        ({"session.timeout.ms": "60001"}, "group.consumer.session.timeout.ms must be less than or equal to"),
        ({"max.session.timeout.ms": "44999"}, "group.consumer.max.session.timeout.ms must be greater than or equal to"),
        ({"heartbeat.interval.ms": "15001"}, "group.consumer.heartbeat.interval.ms must be less than or equal to"),
        ({"max.heartbeat.interval.ms": "50000", "heartbeat.interval.ms": "45000"},
         "group.consumer.heartbeat.interval.ms must be less than group.consumer.session.timeout.ms"),
        ({"assignment.interval.ms": "15001"}, "group.consumer.assignment.interval.ms must be less than or equal to"),
        ({"assignors": ""}, "group.consumer.assignors must name one at least"),
        ({"assignors": "uniform,sticky"}, "String must be one of: uniform, range"),
        ({"migration.policy": "sideways"}, "String must be one of"),
    ],
)  # fmt: skip
def test_a_broker_does_not_start_with_options_that_contradict_each_other(options, said):
    with pytest.raises(ConfigError, match=said):
        BrokerConfig({f"group.consumer.{name}": value for name, value in options.items()})
