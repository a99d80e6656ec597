"""The option table: defaults, parsing, bounds, and who gives a topic its value."""

import pytest

from isthmus.core_broker.config import (
    BROKER_OPTIONS,
    OUR_BROKER_OPTIONS,
    TOPIC_OPTIONS,
    BrokerConfig,
    ConfigError,
    topic_config,
    validate_broker_options,
    validate_topic_options,
    without_effect,
)
from isthmus.core_broker.described import Source, broker_entries, cluster_entries, topic_entries
from isthmus.protocol.errors import ErrorCode, KafkaError


def test_every_default_is_a_value_of_its_option():
    for option in (*TOPIC_OPTIONS, *BROKER_OPTIONS):
        if option.default is not None:
            option.parse(option.default)


def test_every_topic_option_names_a_broker_option_that_exists():
    names = {option.name for option in BROKER_OPTIONS}
    assert [option.name for option in TOPIC_OPTIONS if option.broker and option.broker not in names] == []


def test_unknown_option_is_named():
    with pytest.raises(ConfigError, match=r"no\.such\.option: docs/reference/configuration\.md lists"):
        BrokerConfig({"no.such.option": "1"})
    with pytest.raises(ConfigError, match=r"num\.partition: did you mean num\.partitions\?"):
        BrokerConfig({"num.partition": "1"})
    with pytest.raises(ConfigError, match=r"segment\.bytes: topics have it; log\.segment\.bytes is its default"):
        BrokerConfig({"segment.bytes": "2000000"})
    with pytest.raises(ConfigError, match=r"Unknown topic config name: nope"):
        validate_topic_options({"nope": "1"})


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("num.network.threads", "5", "one loop serves all connections"),
        ("group.share.min.session.timeout.ms", "1", "there are no share groups"),
        ("zookeeper.connect", "localhost", "there is no ZooKeeper"),  # of earlier versions
    ],
)
def test_what_holds_in_place_of_an_option_that_only_kafka_has_is_said(name, value, said):
    [(found, text, why)] = without_effect(BROKER_OPTIONS, BrokerConfig({name: value}).given)
    assert (found, text) == (name, value) and said in why


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sasl.enabled.mechanisms": "PLAIN"}, "there is no TLS, SASL or ACL"),
        ({"ssl.keystore.location": "/k"}, "there is no TLS, SASL or ACL"),
        ({"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}, "no TLS, SASL or ACL"),
        ({"super.users": "User:admin"}, "there is no TLS, SASL or ACL"),
        ({"listener.name.internal.ssl.key.password": "x"}, "listeners have no options of their own"),
        ({"security.inter.broker.protocol": "SSL"}, "there is no TLS, SASL or ACL"),
        ({"max.connections.per.ip": "10"}, "nothing bounds those of one address"),
        ({"create.topic.policy.class.name": "x"}, "no Java class can be loaded"),
        ({"log.cleaner.enable": "false"}, "always compacted"),
        ({"remote.log.storage.system.enable": "true"}, "there is no tiered storage"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(options, said):
    with pytest.raises(ConfigError, match=said) as caught:
        BrokerConfig(options)
    assert any(name in caught.value.message for name in options)


def test_a_password_is_not_told():
    with pytest.raises(ConfigError, match=r"\[hidden\] for configuration ssl\.key\.password"):
        BrokerConfig({"ssl.key.password": "secret"})


def test_a_directory_has_its_older_name_too():
    assert BrokerConfig({"log.dir": "/e"})["log.dirs"] == ("/e",)
    assert BrokerConfig({"log.dir": "/e", "log.dirs": "/d"})["log.dirs"] == ("/d",)
    assert BrokerConfig({"broker.id": "4"})["node.id"] == 4


def test_only_a_slip_is_taken_for_another_option():
    for option in OUR_BROKER_OPTIONS:
        slip = option.name[:-1] + "x"
        with pytest.raises(ConfigError) as caught:
            BrokerConfig({slip: "1"})
        assert "did you mean" in caught.value.message or slip == "log.dix", caught.value.message
    for name in ("num.threads", "cluster.name", "log.level", "max.bytes", "buffer.size", "queue.size"):
        with pytest.raises(ConfigError, match=r"configuration\.md lists those there are"):
            BrokerConfig({name: "1"})


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


def entries_by_name(entries):
    return {entry.option.name: entry for entry in entries}


def test_what_is_set_while_the_broker_runs_is_over_what_it_was_started_with():
    config = BrokerConfig({"log.segment.bytes": "2000000"})
    assert config.set_dynamic({"log.segment.bytes": "3000000", "max.connections": "7"}, {}) == []
    assert (config["log.segment.bytes"], config["max.connections"]) == (3_000_000, 7)
    assert config.set_dynamic({"log.segment.bytes": "3000000"}, {"log.segment.bytes": "4000000"}) == []
    assert (config["log.segment.bytes"], config["max.connections"]) == (4_000_000, 40_000)
    assert topic_config({}, config)["segment.bytes"] == 4_000_000
    levels = [
        ("log.segment.bytes", "4000000", Source.DYNAMIC_BROKER),
        ("log.segment.bytes", "3000000", Source.DYNAMIC_DEFAULT_BROKER),
        ("log.segment.bytes", "2000000", Source.STATIC_BROKER),
        ("log.segment.bytes", "1073741824", Source.DEFAULT),
    ]
    broker = entries_by_name(broker_entries(config))["log.segment.bytes"]
    assert (broker.value, broker.source, broker.read_only, broker.synonyms) == ("4000000", levels[0][2], False, levels)
    topic = entries_by_name(topic_entries({}, config))["segment.bytes"]
    assert (topic.value, topic.source, topic.synonyms) == ("4000000", levels[0][2], levels)
    (cluster,) = cluster_entries(config)
    assert (cluster.value, cluster.source, cluster.synonyms) == ("3000000", levels[1][2], levels[1:2])
    config.set_dynamic({}, {})
    assert config["log.segment.bytes"] == 2_000_000


def test_what_was_set_and_cannot_be_is_left_out_and_told():
    config = BrokerConfig()
    wrong = config.set_dynamic({"log.segment.bytes": "much", "node.id": "5", "no.such": "1"}, {"log.roll.ms": "9"})
    assert [error.code for error in wrong] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_CONFIG,
    ]
    assert (config["log.roll.ms"], config["node.id"]) == (9, 1)


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("node.id", "2", ErrorCode.INVALID_REQUEST),  # read at start only
        ("log.segment.bytes", "much", ErrorCode.INVALID_REQUEST),
        ("no.such", "1", ErrorCode.INVALID_CONFIG),
        ("listeners", "PLAINTEXT://:9092", ErrorCode.INVALID_CONFIG),
        ("max.connections.per.ip", "7", ErrorCode.INVALID_CONFIG),  # Kafka has it, here it cannot be honoured
        ("num.io.threads", "none", ErrorCode.INVALID_REQUEST),
        ("queued.max.requests", "7", ErrorCode.INVALID_REQUEST),  # read at start only, with Kafka
    ],
)
def test_broker_options_that_cannot_be_set_while_it_runs(name, value, code):
    with pytest.raises(KafkaError, match=name) as caught:
        validate_broker_options({name: value})
    assert caught.value.code == code


LAGS = "log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ({LAGS[0]: "11", LAGS[1]: "10"}, {LAGS[0]: "10", LAGS[1]: "10"}),
        ({"log.cleaner.dedupe.buffer.size": "1048576"}, {"log.cleaner.dedupe.buffer.size": "1048577"}),
        (
            {"log.cleaner.dedupe.buffer.size": "2097153", "log.cleaner.threads": "2"},
            {"log.cleaner.dedupe.buffer.size": "2097154", "log.cleaner.threads": "2"},
        ),
    ],
)
def test_options_of_the_cleaner_that_do_not_fit_are_refused_at_the_start(wrong, right):
    with pytest.raises(ConfigError, match=r"log\.cleaner\."):
        BrokerConfig(wrong)
    BrokerConfig(right)
    assert BrokerConfig().set_dynamic(wrong, {}) == []  # as in Kafka: the broker serves all the same


def test_limits_of_compaction_must_fit_those_that_the_topic_takes_from_the_broker():
    config = BrokerConfig({LAGS[0]: "5", LAGS[1]: "10"})
    for wrong in ({"min.compaction.lag.ms": "11"}, {"max.compaction.lag.ms": "4"}):
        validate_topic_options(wrong)
        with pytest.raises(ConfigError, match=r"min\.compaction\.lag\.ms .* > max"):
            validate_topic_options(wrong, config)
    validate_topic_options({"min.compaction.lag.ms": "11", "max.compaction.lag.ms": "11"}, config)
    config.set_dynamic({LAGS[1]: "11"}, {})
    validate_topic_options({"min.compaction.lag.ms": "11"}, config)


@pytest.mark.parametrize("wrong", ["0", "a:b", "0:1,*", "*,0:1", "1:1 ,2"])
def test_throttled_replicas_are_checked_as_kafka_does(wrong):
    for right in ("", "*", "0:1", "0:1, 12:3"):
        validate_topic_options({"leader.replication.throttled.replicas": right})
    with pytest.raises(ConfigError, match="partition:broker"):
        validate_topic_options({"leader.replication.throttled.replicas": wrong})


def test_units_that_are_not_set_say_nothing_of_the_one_that_is():
    config = BrokerConfig({"log.retention.minutes": "5"})
    entry = entries_by_name(topic_entries({}, config))["retention.ms"]
    assert (entry.value, entry.source, entry.synonyms) == ("300000", Source.DEFAULT, [])
    entry = entries_by_name(broker_entries(config))["log.retention.minutes"]
    assert [(name, source) for name, _, source in entry.synonyms] == [
        ("log.retention.minutes", Source.STATIC_BROKER),
        ("log.retention.hours", Source.DEFAULT),
    ]
