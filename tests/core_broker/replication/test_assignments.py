"""A broker with an empty disk tells where its replicas are now, and may lead them again (KIP-858)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from isthmus.core_broker.cluster.controller import AssignDirectories
from isthmus.core_broker.cluster.image import Delta
from isthmus.core_broker.cluster.partition_image import LOST
from isthmus.core_broker.replication.assignments import Ask, Assignments
from isthmus.core_broker.replication.shortage import Space
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

    asyncio.run(tell(cluster, ask))
    assert cluster.partition().directory_of(2) == NEW
    cluster.beat(2)
    assert cluster.partition().leader == 2


def test_a_controller_that_does_not_answer_or_has_another_epoch_is_asked_again() -> None:
    cluster = with_a_new_disk()
    answers: list[int] = [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.NONE]

    async def ask(request: Any, timeout_ms: float) -> Any:
        assert [each.id for each in request.directories] == [NEW]
        return assign.Response(error_code=answers.pop(0))

    asyncio.run(tell(cluster, ask))
    assert answers == []


def test_what_is_offline_here_is_told_as_lost() -> None:
    cluster = with_a_new_disk()
    told: list[bytes] = []

    async def ask(request: Any, timeout_ms: float) -> Any:
        told.extend(each.id for each in request.directories)
        return assign.Response()

    asyncio.run(tell(cluster, ask, is_offline=True))
    assert told == [LOST]


def test_a_log_that_is_online_before_its_loss_is_known_is_told_again() -> None:
    cluster = with_a_new_disk()
    offline, told = [True], []

    async def scenario() -> None:
        async def ask(request: Any, timeout_ms: float) -> Any:
            [directory] = request.directories
            told.append(directory.id)
            if directory.id == LOST:
                offline.clear()
                assignments.look("t", 0)  # it is online again, and the metadata does not know of the loss yet
            rows = [(directory.id, each.topic_id, [0]) for each in directory.topics]
            cluster.run(AssignDirectories(2, request.broker_epoch, rows))
            return assign.Response()

        epoch = cluster.image.brokers[2].epoch
        assignments = Assignments(
            2, NEW, cluster.image, ask, lambda: epoch, lambda topic, index: bool(offline), has_space, one
        )
        assignments.look("t", 0)
        await assignments.settled()
        assignments.metadata_changed(Delta(changed={"t": {0: None}}))
        await assignments.settled()

    asyncio.run(scenario())
    assert told == [LOST, NEW] and cluster.partition().directory_of(2) == NEW


def on_three(elr: bool = True) -> Cluster:
    """t-0 is on brokers 1 to 3, in directories of which the controller knows; 1 leads."""
    cluster = Cluster()
    cluster.apply(FeatureLevelRecord(name="metadata.version", feature_level=25), *([ELR] if elr else []))
    for broker_id in (1, 2, 3):
        cluster.start(broker_id, log_dirs=[bytes([broker_id]) * 16])
    cluster.assign("t", [1, 2, 3])
    return cluster


@pytest.mark.parametrize("elr", [True, False])
def test_full_disk_is_told_while_others_are_in_sync_and_the_last_one_leads_on(elr: bool) -> None:
    cluster = on_three(elr)
    for broker_id, left in ((3, [1, 2]), (1, [2])):
        full_disk(cluster, broker_id)
        assert sorted(cluster.partition().isr) == left and cluster.partition().directory_of(broker_id) == LOST
    assert cluster.partition().leader == 2
    full_disk(cluster, 2)
    assert (cluster.partition().leader, cluster.partition().isr) == (2, (2,))
    full_disk(cluster, 1, Space.UNSURE)  # it has space, but not for long
    assert cluster.partition().directory_of(1) == LOST
    full_disk(cluster, 1, Space.ENOUGH)
    assert cluster.partition().directory_of(1) == bytes([1]) * 16


@pytest.mark.parametrize("elr", [True, False])
def test_last_one_that_gave_up_at_the_same_moment_as_the_others_leads_again(elr: bool) -> None:
    cluster = on_three(elr)
    for broker_id in (1, 2, 3):  # each takes the next one for one that can serve
        lost = AssignDirectories(
            broker_id, cluster.image.brokers[broker_id].epoch, [(LOST, cluster.image.topics["t"].id, [0])]
        )
        cluster.run(lost)
    assert cluster.partition().leader == -1
    full_disk(cluster, 3)
    assert cluster.partition().leader == 3
    full_disk(cluster, 3)
    full_disk(cluster, 1)
    assert cluster.partition().leader == 3 and cluster.partition().directory_of(1) == LOST


def test_one_with_space_again_is_told_at_once_where_the_others_are_too_few_for_acks_all() -> None:
    cluster = on_three()
    full_disk(cluster, 3)
    full_disk(cluster, 3, Space.UNSURE, least_in_sync=2)  # the other two are enough
    assert cluster.partition().directory_of(3) == LOST
    cluster.fence(1)
    full_disk(cluster, 3, Space.NONE, least_in_sync=2)
    assert cluster.partition().directory_of(3) == LOST
    full_disk(cluster, 3, Space.UNSURE, least_in_sync=2)
    assert cluster.partition().directory_of(3) == bytes([3]) * 16


def full_disk(cluster: Cluster, broker_id: int, space: Space = Space.NONE, least_in_sync: int = 1) -> None:
    """A broker tells the controller what its disk means for t-0."""

    async def scenario() -> None:
        async def ask(request: Any, timeout_ms: float) -> Any:
            rows = [(each.id, topic.topic_id, [0]) for each in request.directories for topic in each.topics]
            cluster.run(AssignDirectories(broker_id, request.broker_epoch, rows))
            return assign.Response()

        epoch, directory = cluster.image.brokers[broker_id].epoch, bytes([broker_id]) * 16
        told = Assignments(
            broker_id, directory, cluster.image, ask, lambda: epoch,
            lambda *key: False, lambda *key: space, lambda *key: least_in_sync,
        )  # fmt: skip
        told.look("t", 0)
        await told.settled()

    asyncio.run(scenario())


def has_space(topic: str, index: int) -> Space:
    return Space.ENOUGH


def one(topic: str, index: int) -> int:
    return 1


async def tell(cluster: Cluster, ask: Ask, is_offline: bool = False) -> None:
    """What broker 2 tells of t-0."""
    assignments = Assignments(
        2, NEW, cluster.image, ask, lambda: cluster.image.brokers[2].epoch,
        lambda topic, index: is_offline, has_space, one,
    )  # fmt: skip
    assignments.look("t", 0)
    await assignments.settled()
