"""IncrementalAlterConfigs (44): options set, deleted, appended to and subtracted from."""

from __future__ import annotations

from isthmus.core_broker.config import BROKER_OPTIONS
from isthmus.protocol.messages import incremental_alter_configs as m

from ..batches import batch
from ..peer import Case, Scenarios
from ..requests import (
    APPEND,
    BROKER,
    DELETE,
    SET,
    SUBTRACT,
    TOPIC,
    alter_request,
    configs_request,
    produce_request,
)

SCENARIOS = Scenarios()
WORDS = [
    "",
    "a",
    "true",
    "1",
    "-1",
    "0",
    "0.5",
    "1,2",
    " 1 ",
    "1e3",
    "+1",
    "0x1",
    "1_0",
    "\u0661",
    "\u00a01",
    "\u20281",
]

# What a topic's option takes and does not take besides WORDS.
VALUES: dict[str, list[str]] = {
    "cleanup.policy": ["compact", "delete,compact", "delete,delete", "compact, delete", "Delete", "compact,", ","],
    "compression.type": ["gzip", "GZIP", "none", "uncompressed", "producer", "zstd"],
    "compression.gzip.level": ["9", "10", "-2"],
    "compression.lz4.level": ["17", "18"],
    "compression.zstd.level": ["22", "23", "-131072", "-131073"],
    "delete.retention.ms": ["9223372036854775807", "9223372036854775808"],
    "flush.messages": ["2"],
    "flush.ms": ["2"],
    "index.interval.bytes": ["2147483647", "2147483648"],
    "max.compaction.lag.ms": ["2"],
    "max.message.bytes": ["2147483647", "2147483648"],
    "message.timestamp.after.max.ms": ["2"],
    "message.timestamp.before.max.ms": ["2"],
    "message.timestamp.type": ["CreateTime", "LogAppendTime", "createTime"],
    "min.cleanable.dirty.ratio": ["1", "1.1", "-0.1", ".5", "5."],
    "min.compaction.lag.ms": ["2"],
    "min.insync.replicas": ["2"],
    "retention.bytes": ["-2", "-9223372036854775808"],
    "retention.ms": ["-2", "9223372036854775807"],
    "segment.bytes": ["1048575", "1048576", "2147483647"],
    "segment.index.bytes": ["3", "4"],
    "segment.jitter.ms": ["2"],
    "segment.ms": ["2"],
}


# The same of those that change nothing here. The last is taken.
WITHOUT_EFFECT: dict[str, list[str]] = {
    "errors.deadletterqueue.group.enable": ["true"],
    "file.delete.delay.ms": ["9223372036854775808", "10000"],
    "follower.replication.throttled.replicas": ["*,0:1", "0:1,*", "0:1, 1:1", "a:b", ":", "1:1:1", "1:1,,2:2", "*"],
    "leader.replication.throttled.replicas": ["-1:1", "0:1,1", "0:1,1:1"],
    "local.retention.bytes": ["-3", "-2", "5"],
    "local.retention.ms": ["-3", "-2", "5"],
    "max.decompressed.message.bytes": ["2147483639", "2147483640", "1000"],
    "preallocate": ["true"],
    "remote.copy.lag.bytes": ["-2", "5"],
    "remote.copy.lag.ms": ["-2", "5"],
    "remote.log.copy.disable": ["FALSE", "true"],
    "remote.log.delete.on.disable": ["FALSE", "true"],
    "unclean.leader.election.enable": ["true"],
}
OF_BROKERS = [
    *(
        (option.name, value)
        for option in BROKER_OPTIONS
        if option.inert and option.dynamic and option.name != "metric.reporters"  # Kafka looks for the class
        for value in ("much", "-3")
    ),
    *(("num.io.threads", value) for value in ("0", "3", "4", "16", "17")),
    *(("num.network.threads", value) for value in ("1", "6", "7")),
    *(("background.threads", value) for value in ("4", "20", "21")),
    *(("num.recovery.threads.per.data.dir", value) for value in ("0", "1", "4", "5")),
    *(("num.replica.fetchers", value) for value in ("0", "2", "3")),
    *(("queued.max.requests", value) for value in ("500", "much")),
    ("log.preallocate", "true"),
    ("unclean.leader.election.enable", "true"),
    ("log.local.retention.ms", "5"),
]


def resource(kind: int, name: str, *options: tuple[str, int, str | None]) -> m.AlterConfigsResource:
    rows = [m.AlterableConfig(name=option, config_operation=how, value=value) for option, how, value in options]
    return m.AlterConfigsResource(resource_type=kind, resource_name=name, configs=rows)


@SCENARIOS.success(44)
def alters_options(case: Case) -> None:
    case.topic()
    case.compare(alter_request(case.name, ("retention.ms", SET, "5000"), ("segment.bytes", SET, "2000000")))
    case.compare(alter_request(case.name, ("retention.ms", DELETE, None)))
    case.compare(alter_request(case.name, ("cleanup.policy", APPEND, "compact")))
    case.compare(alter_request(case.name, ("cleanup.policy", SUBTRACT, "delete"), validate_only=True))
    case.await_options(case.name, TOPIC, **{"segment.bytes": "2000000", "cleanup.policy": "delete,compact"})
    case.see(configs_request(case.name, include_synonyms=True))


@SCENARIOS.success(44, ends=True)
def appends_and_subtracts(case: Case) -> None:
    case.topic(cleanup_policy="compact")
    steps = [(APPEND, "compact"), (APPEND, "delete"), (SUBTRACT, "no"), (SUBTRACT, "compact"), (SUBTRACT, "delete")]
    for operation, value in steps:
        case.compare(alter_request(case.name, ("cleanup.policy", operation, value)))
    case.compare(alter_request(case.name, ("cleanup.policy", APPEND, "delete,")))
    case.compare(alter_request(case.name, ("cleanup.policy", SUBTRACT, ",,")))
    case.compare(alter_request(case.name, ("cleanup.policy", APPEND, "compact,delete")))
    case.await_options(case.name, TOPIC, **{"cleanup.policy": "delete,compact"})


@SCENARIOS.success(44, ends=True)
def sets_what_is_set_and_deletes_what_is_not(case: Case) -> None:
    case.topic(retention_ms="5")
    case.compare(alter_request(case.name, ("retention.ms", SET, "5")))
    case.compare(alter_request(case.name, ("segment.ms", DELETE, None), ("flush.ms", DELETE, "9")))
    case.compare(alter_request(case.name))
    case.see(configs_request(case.name, ["retention.ms", "segment.ms", "flush.ms"], include_synonyms=True))


@SCENARIOS.success(44, ends=True)
def alters_some_of_several_resources(case: Case) -> None:
    case.topic("-a")
    case.topic("-b")
    rows = [
        resource(TOPIC, case.name + suffix, ("flush.ms", SET, value))
        for suffix, value in (("-a", "1"), ("-no", "1"), ("-b", "x"))
    ]
    case.compare(m.Request(resources=rows))
    case.compare(m.Request(resources=[]))
    case.await_options(case.name + "-a", TOPIC, **{"flush.ms": "1"})


@SCENARIOS.success(44, ends=True)
def alters_options_of_all_brokers_and_of_one(case: Case) -> None:
    broker = str(case.peer.node_id)
    names = ["log.retention.ms"]
    case.topic()

    def look() -> None:
        case.see(configs_request(broker, names, BROKER, include_synonyms=True))
        case.see(configs_request("", names, BROKER, include_synonyms=True))
        case.see(configs_request(case.name, ["retention.ms"], include_synonyms=True))

    of_all, of_one = "777777777", "888888888"
    for name, operation, value, all_have, one_has in (
        ("", SET, of_all, of_all, of_all),
        (broker, SET, of_one, of_all, of_one),
        ("", DELETE, None, None, of_one),
        (broker, DELETE, None, None, None),
    ):
        case.compare(alter_request(name, ("log.retention.ms", operation, value), kind=BROKER))
        case.await_options(broker, BROKER, **{"log.retention.ms": one_has})
        case.await_options("", BROKER, **{"log.retention.ms": all_have})
        look()


@SCENARIOS.success(44, ends=True)
def what_all_brokers_have_holds_for_topics_at_once(case: Case) -> None:
    topic_id = case.topic()
    case.compare(alter_request("", ("message.max.bytes", SET, "300"), kind=BROKER))
    case.await_options(case.name, TOPIC, **{"max.message.bytes": "300"})
    case.see(produce_request(case, batch(20), topic_id))
    case.compare(alter_request("", ("message.max.bytes", DELETE, None), kind=BROKER))
    case.await_options(case.name, TOPIC, **{"max.message.bytes": "1048588"})
    case.see(produce_request(case, batch(20), topic_id))


@SCENARIOS.success(44, ends=True)
def validates_options_of_brokers(case: Case) -> None:
    broker = str(case.peer.node_id)
    for name in (broker, ""):
        case.compare(alter_request(name, ("log.retention.ms", SET, "5"), kind=BROKER, validate_only=True))
        case.compare(alter_request(name, ("log.cleanup.policy", APPEND, "compact"), kind=BROKER, validate_only=True))
        case.compare(alter_request(name, ("log.cleanup.policy", SUBTRACT, "delete"), kind=BROKER, validate_only=True))
        case.compare(alter_request(name, ("log.roll.ms", DELETE, None), kind=BROKER, validate_only=True))


@SCENARIOS.error(44)
def operations_that_there_are_not(case: Case) -> None:
    case.topic()
    for operation in (4, -1):
        case.compare(alter_request(case.name, ("retention.ms", operation, "1")))
        case.compare(alter_request(str(case.peer.node_id), ("log.retention.ms", operation, "1"), kind=BROKER))


@SCENARIOS.error(44)
def options_that_are_refused(case: Case) -> None:
    case.compare(alter_request(case.name, ("retention.ms", SET, "1")))  # no such topic
    case.topic()
    case.compare(alter_request(case.name, ("no.such.option", SET, "1")))
    case.compare(alter_request(case.name, ("no.such.option", DELETE, None)))
    case.compare(alter_request(case.name, ("retention.ms", SET, "much")))
    case.compare(alter_request(case.name, ("retention.ms", SET, None)))
    case.compare(alter_request(case.name, ("retention.ms", APPEND, "1")))
    case.compare(alter_request(case.name, ("no.such.option", APPEND, "1")))
    case.compare(alter_request(case.name, ("cleanup.policy", APPEND, "burn")))
    case.compare(alter_request(case.name, ("cleanup.policy", APPEND, None)))
    case.compare(alter_request("no/name", ("retention.ms", SET, "1")))
    case.compare(alter_request("", ("retention.ms", SET, "1")))
    for kind in (99, 0, -1):
        case.compare(alter_request(case.name, ("retention.ms", SET, "1"), kind=kind))


@SCENARIOS.error(44, ends=True)
def resources_and_options_named_twice(case: Case) -> None:
    case.topic()
    option = ("retention.ms", SET, "1")
    case.compare(alter_request(case.name, option, ("retention.ms", DELETE, None)))
    rows = [resource(TOPIC, case.name, option), resource(TOPIC, case.name + "-no", option)]
    case.compare(m.Request(resources=[*rows, rows[0]]))


@SCENARIOS.error(44, ends=True)
def limits_of_compaction_that_contradict(case: Case) -> None:
    case.topic(max_compaction_lag_ms="10")
    case.compare(alter_request(case.name, ("min.compaction.lag.ms", SET, "11")))
    case.compare(alter_request(case.name, ("min.compaction.lag.ms", SET, "10")))
    case.compare(alter_request(case.name, ("max.compaction.lag.ms", SET, "9")))


@SCENARIOS.error(44, since=1)
def values_that_options_of_topics_take_and_do_not_take(case: Case) -> None:
    case.topic()
    for option, values in (VALUES | WITHOUT_EFFECT).items():
        for value in (*WORDS, *values):
            case.compare(alter_request(case.name, (option, SET, value), validate_only=True))


@SCENARIOS.success(44, ends=True)
def options_of_topics_without_effect(case: Case) -> None:
    case.topic()
    rows = [(option, values[-1]) for option, values in WITHOUT_EFFECT.items()]
    case.compare(alter_request(case.name, *((option, SET, value) for option, value in rows)))
    case.await_options(case.name, TOPIC, **dict(rows))
    case.see(configs_request(case.name, include_synonyms=True))
    case.compare(alter_request(case.name, *((option, DELETE, None) for option in WITHOUT_EFFECT)))


@SCENARIOS.error(44, ends=True)
def tiers_where_there_are_none(case: Case) -> None:
    case.topic()
    for value in ("true", "false", "much"):
        case.compare(alter_request(case.name, ("remote.storage.enable", SET, value), validate_only=True))


@SCENARIOS.success(44, ends=True)
def options_of_brokers_without_effect(case: Case) -> None:
    broker = str(case.peer.node_id)
    for name in (broker, ""):
        for option, value in OF_BROKERS:
            case.compare(alter_request(name, (option, SET, value), kind=BROKER, validate_only=True))
    case.compare(alter_request(broker, ("num.io.threads", SET, "9"), kind=BROKER))
    case.await_options(broker, BROKER, **{"num.io.threads": "9"})
    case.see(configs_request(broker, ["num.io.threads"], BROKER, include_synonyms=True))
    case.compare(alter_request(broker, ("num.io.threads", DELETE, None), kind=BROKER))
    case.await_options(broker, BROKER, **{"num.io.threads": "8"})


@SCENARIOS.error(44, ends=True)
def options_of_brokers_that_nobody_has(case: Case) -> None:
    for name in (str(case.peer.node_id), ""):
        case.compare(alter_request(name, ("no.such.option", SET, "1"), kind=BROKER, validate_only=True))


@SCENARIOS.error(44, ends=True)
def options_of_what_is_not_here(case: Case) -> None:
    for kind, name, option, value in (
        (16, case.name, "interval.ms", "1000"),  # what clients tell of themselves
        (32, case.name, "consumer.session.timeout.ms", "50000"),  # a group of the new protocol
    ):
        case.compare(alter_request(name, (option, SET, value), kind=kind, validate_only=True))


@SCENARIOS.error(44, ends=True)
def options_of_brokers_that_are_refused(case: Case) -> None:
    broker = str(case.peer.node_id)

    def ask(name: str, option: str, operation: int, value: str | None) -> None:
        case.compare(alter_request(name, (option, operation, value), kind=BROKER))

    for name in (broker, ""):
        ask(name, "node.id", SET, "7")
        ask(name, "num.partitions", SET, "7")
        ask(name, "log.retention.hours", DELETE, None)
        ask(name, "log.retention.ms", SET, "much")
        ask(name, "log.retention.ms", SET, None)
        ask(name, "log.segment.bytes", SET, "1")
        ask(name, "log.cleanup.policy", APPEND, "burn")
        ask(name, "log.retention.ms", APPEND, "1")
        ask(name, "log.retention.ms", 9, "1")
    ask("4711", "log.retention.ms", SET, "1")
    ask("one", "log.retention.ms", SET, "1")
    ask("-1", "log.retention.ms", SET, "1")


@SCENARIOS.error(44, ends=True)
def values_that_options_of_brokers_do_not_take_while_they_run(case: Case) -> None:
    for name in (str(case.peer.node_id), ""):
        for option, value in (
            ("log.cleaner.threads", "0"),
            ("log.cleaner.threads", "2"),
            ("log.cleaner.threads", "3"),
            ("log.cleaner.dedupe.buffer.size", "1048576"),
            ("log.cleaner.dedupe.buffer.size", "1048577"),
            ("log.retention.ms", "0"),
            ("log.retention.ms", "-1"),
            ("log.retention.ms", "-2"),
        ):
            case.compare(alter_request(name, (option, SET, value), kind=BROKER, validate_only=True))
