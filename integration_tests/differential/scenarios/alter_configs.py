"""AlterConfigs (33): options replaced as a whole."""

from __future__ import annotations

from isthmus.protocol.messages import alter_configs as m

from ..peer import Case, Scenarios
from ..requests import BROKER, TOPIC, configs_request, replace_request

SCENARIOS = Scenarios()
LOOKED_AT = ["retention.ms", "segment.ms", "cleanup.policy", "flush.ms"]


@SCENARIOS.success(33)
def replaces_the_options_of_a_topic(case: Case) -> None:
    case.topic(retention_ms="5", segment_ms="7000")
    case.compare(replace_request(case.name, flush_ms="9", retention_ms="6"))
    case.await_options(case.name, TOPIC, **{"flush.ms": "9"})
    case.see(configs_request(case.name, LOOKED_AT, include_synonyms=True))


@SCENARIOS.success(33, ends=True)
def leaves_a_topic_without_options(case: Case) -> None:
    case.topic(retention_ms="5", segment_ms="7000")
    case.compare(replace_request(case.name))
    case.await_options(case.name, TOPIC, **{"retention.ms": "604800000"})
    case.see(configs_request(case.name, LOOKED_AT))


@SCENARIOS.success(33, ends=True)
def replaces_in_words_only(case: Case) -> None:
    case.topic(retention_ms="5")
    case.compare(replace_request(case.name, flush_ms="9", validate_only=True))
    case.see(configs_request(case.name, LOOKED_AT))


@SCENARIOS.success(33, ends=True)
def replaces_options_of_some_of_several_topics(case: Case) -> None:
    case.topic("-a")
    case.topic("-b")
    rows = [
        m.AlterConfigsResource(
            resource_type=TOPIC,
            resource_name=case.name + suffix,
            configs=[m.AlterableConfig(name="flush.ms", value=value)],
        )
        for suffix, value in (("-a", "1"), ("-no", "1"), ("-b", "x"), ("-b2", "x"))
    ]
    case.compare(m.Request(resources=rows))
    case.await_options(case.name + "-a", TOPIC, **{"flush.ms": "1"})


@SCENARIOS.success(33, ends=True)
def no_resources_to_replace_options_of(case: Case) -> None:
    case.compare(m.Request(resources=[]))


@SCENARIOS.success(33, ends=True)
def replaces_the_options_of_a_broker(case: Case) -> None:
    broker = str(case.peer.node_id)
    case.compare(replace_request(broker, BROKER, log_retention_ms="123456789"))
    case.await_options(broker, BROKER, **{"log.retention.ms": "123456789"})
    case.see(configs_request(broker, ["log.retention.ms"], BROKER, include_synonyms=True))
    case.compare(replace_request(broker, BROKER))
    case.await_options(broker, BROKER, **{"log.retention.ms": None})
    case.see(configs_request(broker, ["log.retention.ms"], BROKER, include_synonyms=True))


@SCENARIOS.error(33)
def replacements_that_are_refused(case: Case) -> None:
    case.compare(replace_request(case.name, retention_ms="1"))  # no such topic
    case.topic()
    case.compare(replace_request(case.name, no_such_option="1"))
    case.compare(replace_request(case.name, retention_ms="much"))
    case.compare(replace_request(case.name, retention_ms=None))
    case.compare(replace_request("no/name", retention_ms="1"))
    case.compare(replace_request("", retention_ms="1"))
    for kind in (99, 8, 0):
        case.compare(replace_request(case.name, kind, retention_ms="1"))


@SCENARIOS.error(33, ends=True)
def option_to_replace_named_twice(case: Case) -> None:
    case.topic()
    option = m.AlterableConfig(name="retention.ms", value="1")
    twice = m.AlterConfigsResource(resource_type=TOPIC, resource_name=case.name, configs=[option, option])
    case.compare(m.Request(resources=[twice]))


@SCENARIOS.error(33, ends=True)
def options_of_brokers_that_are_not_replaced(case: Case) -> None:
    broker = str(case.peer.node_id)
    case.compare(replace_request(broker, BROKER, node_id="7"))
    case.compare(replace_request(broker, BROKER, log_retention_ms="much"))
    case.compare(replace_request("4711", BROKER, log_retention_ms="1"))
    case.compare(replace_request("one", BROKER, log_retention_ms="1"))
    case.compare(replace_request("", BROKER, log_segment_bytes="1"))
