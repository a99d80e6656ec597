"""A broker with an empty disk tells where its replicas are now, and may lead them again (KIP-858)."""

from __future__ import annotations

import asyncio
from typing import Any

from isthmus.core_broker.cluster.controller import AssignDirectories
from isthmus.core_broker.replication.assignments import Assignments
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.messages import assign_replicas_to_dirs as assign
from isthmus.protocol.messages.metadata_records import FeatureLevelRecord
from tests.core_broker.cluster.support import ELR, Cluster

FIRST, OTHER, NEW = (bytes([each]) * 16 for each in (1, 2, 3))


def with_a_new_disk() -> Cluster:
    """t-0 is on brokers 1 and 2; all have stopped, and 2 comes back first, with another directory. It is fenced."""
    cluster = Cluster()
    cluster.apply(FeatureLevelRecord(name="metadata.version", feature_level=25), ELR)
    for broker_id, directory in ((1, FIRST), (2, OTHER)):
        cluster.start(broker_id, log_dirs=[directory])
    cluster.assign("t", [1, 2], min_insync_replicas="2")
    cluster.fence(2, 1)
    cluster.register(2, log_dirs=[NEW], previous_epoch=cluster.image.brokers[2].epoch)
    return cluster


def test_it_leads_again_if_the_controller_is_told_before_it_is_unfenced() -> None:
    cluster = with_a_new_disk()
    failures = [ErrorCode.NOT_CONTROLLER]

    async def ask(request: Any, timeout_ms: float) -> Any:
        if failures:
            raise KafkaError(failures.pop())
        (directory,) = request.directories
        rows = [
            (directory.id, topic.topic_id, [each.partition_index for each in topic.partitions])
            for topic in directory.topics
        ]
        result = cluster.run(AssignDirectories(request.broker_id, request.broker_epoch, rows))
        return assign.Response(error_code=result.error.code if result.error else 0)

    async def tell() -> None:
        epoch = cluster.image.brokers[2].epoch
        assignments = Assignments(2, NEW, cluster.image, ask, lambda: epoch, lambda topic, index: False)
        assignments.look("t", 0)
        await assignments.told()
        await assignments.close()

    asyncio.run(tell())
    assert cluster.partition().directory_of(2) == NEW
    cluster.beat(2)
    assert cluster.partition().leader == 2
