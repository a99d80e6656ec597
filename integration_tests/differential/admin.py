"""Scenarios for topics, options, producer ids and what a broker says of itself."""

from __future__ import annotations

from typing import Any

from isthmus.protocol.messages import (
    api_versions,
    create_partitions,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_configs,
    incremental_alter_configs,
    init_producer_id,
)

from .data import NO_SUCH_ID, new_producer
from .peer import Case, Scenarios

SCENARIOS = Scenarios()
TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)


# --- ApiVersions (the keys and ranges themselves: test_api_versions.py) ---------------------------------------------


def versions_request(**fields: Any) -> api_versions.Request:
    named = {"client_software_name": "differential", "client_software_version": "1.0"}
    return api_versions.Request(**{**named, **fields})


@SCENARIOS.success(18)
def says_what_it_serves(case: Case) -> None:
    case.compare(versions_request())


@SCENARIOS.error(18, since=3)
def wrong_software_name(case: Case) -> None:
    case.compare(versions_request(client_software_name="not allowed!"))
    case.compare(versions_request(client_software_version=""))


@SCENARIOS.error(18, since=5)
def meant_for_another_broker(case: Case) -> None:
    case.compare(versions_request(cluster_id="another cluster", node_id=case.peer.node_id))
    case.compare(versions_request(cluster_id=case.peer.cluster_id, node_id=4711))
    case.compare(versions_request(cluster_id=case.peer.cluster_id, node_id=case.peer.node_id))


# --- CreateTopics, CreatePartitions, DeleteTopics -------------------------------------------------------------------


def create_request(*topics: create_topics.CreatableTopic, validate_only: bool = False) -> create_topics.Request:
    return create_topics.Request(topics=list(topics), timeout_ms=10_000, validate_only=validate_only)


def new_topic(name: str, partitions: int = 2, replicas: int = 1, **fields: Any) -> create_topics.CreatableTopic:
    return create_topics.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replicas, **fields
    )  # fmt: skip


def options(**values: str | None) -> list[create_topics.CreatableTopicConfig]:
    return [create_topics.CreatableTopicConfig(name=k.replace("_", "."), value=v) for k, v in values.items()]


@SCENARIOS.success(19)
def creates_topics(case: Case) -> None:
    case.compare(create_request(new_topic(case.name)))
    case.await_topic(case.name, 2)


@SCENARIOS.success(19)
def creates_a_topic_with_options(case: Case) -> None:
    case.compare(create_request(new_topic(case.name, configs=options(retention_ms="1000", cleanup_policy="compact"))))


@SCENARIOS.success(19)
def creates_a_topic_by_assignment(case: Case) -> None:
    row = create_topics.CreatableReplicaAssignment(partition_index=0, broker_ids=[case.peer.node_id])
    case.compare(create_request(new_topic(case.name, -1, -1, assignments=[row])))


@SCENARIOS.success(19, since=4)
def creates_a_topic_by_defaults(case: Case) -> None:
    case.compare(create_request(new_topic(case.name, -1, -1)))


@SCENARIOS.success(19)
def validates_only(case: Case) -> None:
    case.compare(create_request(new_topic(case.name), validate_only=True))


@SCENARIOS.error(19)
def topics_that_are_refused(case: Case) -> None:
    case.topic()
    case.compare(create_request(new_topic(case.name)))  # it exists
    case.compare(create_request(new_topic("no/name")))
    case.compare(create_request(new_topic("..")))
    case.compare(create_request(new_topic("")))
    case.compare(create_request(new_topic("x" * 250)))
    case.compare(create_request(new_topic(case.name + "-a", partitions=0)))
    case.compare(create_request(new_topic(case.name + "-b", replicas=0)))
    case.compare(create_request(new_topic(case.name + "-c", replicas=9)))
    case.compare(create_request(new_topic(case.name + "-d", configs=options(no_such_option="1"))))
    case.compare(create_request(new_topic(case.name + "-e", configs=options(retention_ms="much"))))
    case.compare(create_request(new_topic(case.name + "-f", configs=options(retention_ms=None))))
    case.compare(create_request(new_topic(case.name + "-g"), new_topic(case.name + "-g")))  # twice


@SCENARIOS.error(19)
def assignments_that_are_refused(case: Case) -> None:
    def row(partition: int, *brokers: int) -> create_topics.CreatableReplicaAssignment:
        return create_topics.CreatableReplicaAssignment(partition_index=partition, broker_ids=list(brokers))

    node = case.peer.node_id
    case.compare(create_request(new_topic(case.name, 2, 1, assignments=[row(0, node)])))
    case.compare(create_request(new_topic(case.name, -1, -1, assignments=[row(1, node)])))
    case.compare(create_request(new_topic(case.name, -1, -1, assignments=[row(0, 4711)])))


def more_request(name: str, count: int, **fields: Any) -> create_partitions.Request:
    topic = create_partitions.CreatePartitionsTopic(name=name, count=count, assignments=None)
    return create_partitions.Request(topics=[topic], timeout_ms=10_000, **fields)


@SCENARIOS.success(37)
def adds_partitions(case: Case) -> None:
    case.topic()
    case.compare(more_request(case.name, 3, validate_only=True))
    case.compare(more_request(case.name, 3))
    case.await_topic(case.name, 3)


@SCENARIOS.error(37)
def partitions_that_are_refused(case: Case) -> None:
    case.compare(more_request(case.name, 3))  # no such topic
    case.topic(partitions=2)
    case.compare(more_request(case.name, 2))
    case.compare(more_request(case.name, 1))
    case.compare(more_request(case.name, -1))


def delete_request(case: Case, name: str | None, topic_id: bytes = bytes(16)) -> delete_topics.Request:
    if case.version < 6:
        return delete_topics.Request(topic_names=[name], timeout_ms=10_000)
    state = delete_topics.DeleteTopicState(name=name, topic_id=topic_id)
    return delete_topics.Request(topics=[state], timeout_ms=10_000)


@SCENARIOS.success(20)
def deletes_a_topic(case: Case) -> None:
    case.topic()
    case.compare(delete_request(case, case.name))


@SCENARIOS.success(20, since=6)
def deletes_a_topic_by_id(case: Case) -> None:
    case.compare(delete_request(case, None, case.topic()))


@SCENARIOS.error(20)
def topics_that_cannot_be_deleted(case: Case) -> None:
    case.compare(delete_request(case, case.name))
    if case.version >= 6:
        case.compare(delete_request(case, None, NO_SUCH_ID))


# --- InitProducerId -------------------------------------------------------------------------------------------------


@SCENARIOS.success(22)
def gives_a_producer_id(case: Case) -> None:
    new_producer(case)
    case.compare(init_producer_id.Request(transactional_id=None, transaction_timeout_ms=60_000))


@SCENARIOS.error(22)
def producer_ids_that_are_refused(case: Case) -> None:
    case.compare(init_producer_id.Request(transactional_id="", transaction_timeout_ms=60_000))
    if case.version >= 3:
        case.compare(init_producer_id.Request(transactional_id=None, producer_id=5, producer_epoch=-1))
        case.compare(init_producer_id.Request(transactional_id=None, producer_id=-1, producer_epoch=5))


# --- DescribeConfigs, IncrementalAlterConfigs -----------------------------------------------------------------------

KNOWN_OPTIONS = [
    "cleanup.policy", "compression.type", "flush.messages", "flush.ms", "index.interval.bytes", "max.message.bytes",
    "message.timestamp.type", "retention.bytes", "retention.ms", "segment.bytes", "segment.ms",
]  # fmt: skip


def configs_request(name: str, keys: list[str] | None, kind: int = TOPIC, **fields: bool) -> describe_configs.Request:
    resource = describe_configs.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )  # fmt: skip
    return describe_configs.Request(resources=[resource], **fields)


@SCENARIOS.success(32)
def describes_options(case: Case) -> None:
    case.topic(retention_ms="1234567")
    case.compare(configs_request(case.name, KNOWN_OPTIONS))
    case.compare(configs_request(case.name, ["retention.ms", "segment.bytes"], include_synonyms=True))
    case.compare(configs_request(case.name, ["no.such.option"]))


@SCENARIOS.success(32, since=3)
def describes_options_with_their_documentation(case: Case) -> None:
    case.topic()
    case.compare(configs_request(case.name, ["retention.ms"], include_documentation=True))


@SCENARIOS.success(32)
def describes_a_brokers_options(case: Case) -> None:
    case.compare(configs_request(str(case.peer.node_id), ["log.retention.ms", "num.partitions"], BROKER))


@SCENARIOS.error(32)
def options_of_what_is_not_there(case: Case) -> None:
    case.compare(configs_request(case.name, None))
    case.compare(configs_request("no/name", None))
    case.compare(configs_request("4711", None, BROKER))
    case.compare(configs_request("not a number", None, BROKER))
    case.compare(configs_request(case.name, None, 99))


def alter_request(
    name: str, *changes: tuple[str, int, str | None], kind: int = TOPIC, **fields: bool
) -> incremental_alter_configs.Request:
    rows = [
        incremental_alter_configs.AlterableConfig(name=option, config_operation=operation, value=value)
        for option, operation, value in changes
    ]
    resource = incremental_alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=rows)
    return incremental_alter_configs.Request(resources=[resource], **fields)


@SCENARIOS.success(44)
def alters_options(case: Case) -> None:
    case.topic()
    case.compare(alter_request(case.name, ("retention.ms", SET, "5000"), ("segment.bytes", SET, "2000000")))
    case.compare(alter_request(case.name, ("retention.ms", DELETE, None)))
    case.compare(alter_request(case.name, ("cleanup.policy", APPEND, "compact")))
    case.compare(alter_request(case.name, ("cleanup.policy", SUBTRACT, "delete"), validate_only=True))

    def settled() -> bool:
        wanted = configs_request(case.name, ["segment.bytes", "cleanup.policy"])
        values = {each.name: each.value for each in case.prepare(wanted).results[0].configs}
        return values == {"segment.bytes": "2000000", "cleanup.policy": "delete,compact"}

    case.wait_until(settled, "the altered options are described")


@SCENARIOS.error(44)
def options_that_are_refused(case: Case) -> None:
    case.compare(alter_request(case.name, ("retention.ms", SET, "1")))  # no such topic
    case.topic()
    case.compare(alter_request(case.name, ("no.such.option", SET, "1")))
    case.compare(alter_request(case.name, ("retention.ms", SET, "much")))
    case.compare(alter_request(case.name, ("retention.ms", SET, None)))
    case.compare(alter_request(case.name, ("retention.ms", APPEND, "1")))
    case.compare(alter_request(case.name, ("retention.ms", SET, "1"), ("retention.ms", SET, "2")))
    case.compare(alter_request("no/name", ("retention.ms", SET, "1")))
    case.compare(alter_request(case.name, ("retention.ms", SET, "1"), kind=99))


# --- DescribeCluster ------------------------------------------------------------------------------------------------


@SCENARIOS.success(60)
def describes_the_cluster(case: Case) -> None:
    case.compare(describe_cluster.Request())
    case.compare(describe_cluster.Request(include_cluster_authorized_operations=True))


@SCENARIOS.success(60, since=2)
def describes_fenced_brokers_too(case: Case) -> None:
    case.compare(describe_cluster.Request(include_fenced_brokers=True))


@SCENARIOS.error(60, since=1)
def endpoints_that_are_not_here(case: Case) -> None:
    case.compare(describe_cluster.Request(endpoint_type=2))
    case.compare(describe_cluster.Request(endpoint_type=3))
