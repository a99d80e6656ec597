"""Requests that scenarios of several APIs send."""

from __future__ import annotations

from typing import Any

from isthmus.protocol.messages import (
    alter_configs,
    create_topics,
    describe_configs,
    fetch,
    incremental_alter_configs,
    init_producer_id,
    list_offsets,
    metadata,
    produce,
)

from .batches import batch
from .peer import Case
from .wire import ANSWER_TIMEOUT_S

TOPIC, BROKER = 2, 4  # kinds of resources with options
SET, DELETE, APPEND, SUBTRACT = range(4)  # what can be done to an option
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = range(-1, -7, -1)

WAIT_MS = 10  # of a fetch that finds nothing
LONG_MS = 2000 * int(ANSWER_TIMEOUT_S)  # of one that is to wait until something comes, and fails if it is not woken

Row = tuple[str, int, str | None]  # option, operation, value


# --- Topics ---------------------------------------------------------------------------------------------------------


def create_request(*topics: create_topics.CreatableTopic, validate_only: bool = False) -> create_topics.Request:
    return create_topics.Request(topics=list(topics), timeout_ms=10_000, validate_only=validate_only)


def new_topic(name: str, partitions: int = 2, replicas: int = 1, **fields: Any) -> create_topics.CreatableTopic:
    return create_topics.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replicas, **fields
    )  # fmt: skip


def options(**values: str | None) -> list[create_topics.CreatableTopicConfig]:
    """Option names have _ for the dots."""
    return [create_topics.CreatableTopicConfig(name=k.replace("_", "."), value=v) for k, v in values.items()]


def metadata_request(name: str | None, topic_id: bytes = bytes(16), **fields: bool) -> metadata.Request:
    topic = metadata.MetadataRequestTopic(name=name, topic_id=topic_id)
    return metadata.Request(topics=[topic], **fields)


# --- Options --------------------------------------------------------------------------------------------------------


def configs_request(
    name: str, keys: list[str] | None = None, kind: int = TOPIC, **fields: bool
) -> describe_configs.Request:
    resource = describe_configs.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )  # fmt: skip
    return describe_configs.Request(resources=[resource], **fields)


def alter_request(name: str, *rows: Row, kind: int = TOPIC, **fields: bool) -> incremental_alter_configs.Request:
    configs = [
        incremental_alter_configs.AlterableConfig(name=option, config_operation=operation, value=value)
        for option, operation, value in rows
    ]
    resource = incremental_alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    return incremental_alter_configs.Request(resources=[resource], **fields)


# --- Records --------------------------------------------------------------------------------------------------------


def produce_request(
    case: Case, records: bytes | None, topic_id: bytes, acks: int = -1, name: str = "", partition: int = 0
) -> produce.Request:
    data = produce.PartitionProduceData(index=partition, records=records)
    topic = produce.TopicProduceData(name=name or case.name, topic_id=topic_id, partition_data=[data])
    return produce.Request(acks=acks, timeout_ms=5_000, topic_data=[topic])


def fill(case: Case, topic_id: bytes, batches: int = 1, partition: int = 0, **fields: Any) -> None:
    """Append so many batches of three records each; `fields` are those of `batch`."""
    for _ in range(batches):
        answer = case.prepare(produce_request(case, batch(**fields), topic_id, partition=partition))
        assert answer.responses[0].partition_responses[0].error_code == 0, answer


def new_producer(case: Case) -> init_producer_id.Response:
    """A producer id; a broker that has just started may need a moment before it gives one."""
    answers = []

    def given() -> bool:
        answers.append(case.prepare(init_producer_id.Request(transactional_id=None, transaction_timeout_ms=60_000)))
        return answers[-1].error_code == 0

    case.wait_until(given, "a producer id")
    return answers[-1]


def fetch_partition(offset: int, partition: int = 0, **fields: int) -> fetch.FetchPartition:
    wanted = {"partition_max_bytes": 1 << 20, **fields}
    return fetch.FetchPartition(partition=partition, fetch_offset=offset, **wanted)


PARTITION_FIELDS = ("current_leader_epoch", "last_fetched_epoch", "log_start_offset", "partition_max_bytes")


def fetch_request(case: Case, offset: int, topic_id: bytes, *, partition: int = 0, **fields: Any) -> fetch.Request:
    """One partition of the case's topic; `fields` are those of the partition or of the request."""
    of_partition = {name: fields.pop(name) for name in PARTITION_FIELDS if name in fields}
    wanted = fetch_partition(offset, partition, **of_partition)
    topic = fetch.FetchTopic(topic=case.name, topic_id=topic_id, partitions=[wanted])
    return fetch.Request(**{"max_wait_ms": WAIT_MS, "max_bytes": 1 << 20, "topics": [topic], **fields})


def offsets_request(
    name: str, timestamp: int, *, partition: int = 0, epoch: int = -1, **fields: int
) -> list_offsets.Request:
    wanted = list_offsets.ListOffsetsPartition(
        partition_index=partition, current_leader_epoch=epoch, timestamp=timestamp
    )  # fmt: skip
    topic = list_offsets.ListOffsetsTopic(name=name, partitions=[wanted])
    return list_offsets.Request(**{"replica_id": -1, "topics": [topic], "timeout_ms": 5_000, **fields})


def replace_request(name: str, kind: int = TOPIC, *, validate_only: bool = False, **values: str | None) -> Any:
    """An AlterConfigs of one resource. Option names have _ for the dots."""
    rows = [alter_configs.AlterableConfig(name=key.replace("_", "."), value=value) for key, value in values.items()]
    resource = alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=rows)
    return alter_configs.Request(resources=[resource], validate_only=validate_only)
