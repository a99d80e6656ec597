"""A broker with an empty disk tells where its replicas are now, and may lead them again (KIP-858)."""

from __future__ import annotations

import asyncio
from typing import Any

from isthmus.core_broker.cluster.controller import AssignDirectories
from isthmus.core_broker.replication.directories import misplaced, tell_directory
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


def test_it_may_lead_once_the_controller_knows_its_directory() -> None:
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

    assert misplaced(cluster.image, 2, NEW) == [(cluster.image.topics["t"].id, 0)]
    asyncio.run(tell_directory(cluster.image, 2, NEW, lambda: cluster.image.brokers[2].epoch, ask))
    assert misplaced(cluster.image, 2, NEW) == []
    cluster.beat(2)
    assert cluster.partition().leader == 2


def test_a_broker_that_has_to_register_again_gives_up() -> None:
    cluster = with_a_new_disk()

    async def ask(request: Any, timeout_ms: float) -> Any:
        return assign.Response(error_code=ErrorCode.STALE_BROKER_EPOCH)

    asyncio.run(tell_directory(cluster.image, 2, NEW, lambda: 1, ask))
    assert misplaced(cluster.image, 2, NEW)
