"""DescribeConfigs (32)."""

from __future__ import annotations

from isthmus.core_broker.config import BROKER_OPTIONS
from isthmus.protocol.messages import describe_configs as m

from ..peer import Case, Scenarios
from ..requests import BROKER, TOPIC, configs_request

SCENARIOS = Scenarios()
BROKER_LOGGER = 8
OURS = [option.name for option in BROKER_OPTIONS if not option.own]


@SCENARIOS.success(32)
def describes_all_options_of_a_topic(case: Case) -> None:
    case.topic(retention_ms="1234567")
    case.compare(configs_request(case.name))


@SCENARIOS.success(32, ends=True)
def describes_options(case: Case) -> None:
    case.topic(retention_ms="1234567")
    case.compare(configs_request(case.name, ["retention.ms", "segment.bytes"], include_synonyms=True))
    case.compare(configs_request(case.name, ["no.such.option"]))
    case.compare(configs_request(case.name, []))


@SCENARIOS.success(32, ends=True)
def describes_all_options_of_a_topic_with_synonyms(case: Case) -> None:
    case.topic(cleanup_policy="compact", segment_ms="1000")
    case.compare(configs_request(case.name, include_synonyms=True))


@SCENARIOS.success(32, since=3, ends=True)
def describes_options_with_their_documentation(case: Case) -> None:
    case.topic()
    case.compare(configs_request(case.name, include_documentation=True))


@SCENARIOS.success(32)
def describes_a_brokers_options(case: Case) -> None:
    case.compare(configs_request(str(case.peer.node_id), ["log.retention.ms", "num.partitions"], BROKER))


@SCENARIOS.success(32, ends=True)
def resource_asked_for_twice(case: Case) -> None:
    case.topic()
    row = m.DescribeConfigsResource(resource_type=2, resource_name=case.name, configuration_keys=["retention.ms"])
    case.compare(m.Request(resources=[row, row]))


@SCENARIOS.success(32, ends=True)
def no_resources(case: Case) -> None:
    case.compare(m.Request(resources=[]))


@SCENARIOS.error(32)
def options_of_what_is_not_there(case: Case) -> None:
    case.compare(configs_request(case.name))
    case.compare(configs_request("no/name"))
    case.compare(configs_request(""))
    case.compare(configs_request("4711", None, BROKER))
    case.compare(configs_request("not a number", None, BROKER))


@SCENARIOS.error(32, ends=True)
def kinds_of_resources_that_have_no_options(case: Case) -> None:
    for kind in (99, 0, 1, 3, -1):
        case.compare(configs_request(case.name, None, kind))


@SCENARIOS.error(32, ends=True)
def one_kind_that_has_no_options_fails_the_whole_request(case: Case) -> None:
    case.topic()
    for kind in (99, 0):
        rows = [
            m.DescribeConfigsResource(resource_type=each, resource_name=case.name, configuration_keys=["flush.ms"])
            for each in (TOPIC, kind)
        ]
        case.compare(m.Request(resources=rows))


@SCENARIOS.error(32, ends=True)
def ids_of_brokers_that_are_no_numbers(case: Case) -> None:
    node_id = case.peer.node_id
    for name in (f" {node_id}", f"{node_id} ", f"0_{node_id}", f"{node_id}.0", f"-{node_id}"):
        for kind in (BROKER, BROKER_LOGGER):
            case.compare(configs_request(name, ["log.retention.ms", "root"], kind), only=without_name)


def without_name(answer: dict) -> dict:
    """Names have the id of each peer's own broker in them."""
    for result in answer["results"]:
        result["resource_name"] = ""
    return answer


@SCENARIOS.success(32, ends=True)
def describes_all_options_of_a_broker_that_we_have(case: Case) -> None:
    """Of the rest of Kafka's we say nothing, since nothing of ours would listen to them."""
    case.compare(configs_request(str(case.peer.node_id), OURS, BROKER, include_synonyms=True))


@SCENARIOS.success(32, ends=True)
def describes_what_was_set_for_all_brokers(case: Case) -> None:
    case.compare(configs_request("", None, BROKER, include_synonyms=True))
    case.compare(configs_request("", ["log.retention.ms"], BROKER))


@SCENARIOS.error(32, ends=True)
def describes_what_is_not_here(case: Case) -> None:
    case.compare(configs_request(case.name, ["interval.ms"], 16))  # what clients tell of themselves
    case.compare(configs_request(case.name, ["consumer.session.timeout.ms"], 32))  # a group of the new protocol
