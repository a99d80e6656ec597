"""The metadata log under the controller: what was answered is there after a restart, and replay equals the fold."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest

from isthmus.core_broker.cluster.controller import (
    AllocateProducerIds,
    Controller,
    CreateTopics,
    DeleteTopics,
    RegisterBroker,
    RegisterMirrorLink,
    new_topic,
)
from isthmus.core_broker.cluster.image import MetadataImage
from isthmus.core_broker.cluster.metadata_log import MetadataLog
from isthmus.core_broker.cluster.quorum.member import alone
from isthmus.core_broker.cluster.quorum.quorum import MetadataQuorum
from isthmus.core_broker.config import BrokerConfig
from isthmus.core_broker.storage.disk.errors import StorageError
from isthmus.core_broker.storage.disk.real_files import RealFiles
from isthmus.core_broker.storage.log.log import Log
from isthmus.protocol.errors import ErrorCode
from isthmus.runtime import Runtime
from tests.running import in_loop, run_by

from .support import join


class Node:
    """One start of a controller on a data directory."""

    @classmethod
    async def start(cls, path, seed: int = 1) -> Node:
        node = cls()
        node.runtime = Runtime(random.Random(seed), lambda: 1_000, lambda: 0)
        node.files = RealFiles(1)
        node.log = await MetadataLog.open(node.files, str(path), node.runtime)
        node.image = MetadataImage("cluster-x")
        node.metadata = MetadataQuorum(node.log, node.image, node.runtime, alone(1))
        node.controller = Controller(node.metadata, BrokerConfig(), node.runtime, "PLAINTEXT")
        await node.metadata.start()
        node.epoch = node.metadata.epoch
        node.removed = node.metadata.take_removed()
        return node

    async def register(self):
        return await join(self.controller)


@run_by(in_loop)
async def test_replay_equals_what_was_applied(tmp_path):
    node = await Node.start(tmp_path)
    await node.register()
    submit = node.controller.submit_wait
    await submit(CreateTopics([new_topic("a", 3, configs={"retention.ms": "1"}), new_topic("b")]))
    await submit(CreateTopics([new_topic("m", configs={"mirror.link": "l", "mirror.source.cluster.id": "A"})]))
    await submit(RegisterMirrorLink("l", "A"))
    deleted = node.image.topics["b"].id
    await submit(DeleteTopics(names=["b"]))
    await submit(AllocateProducerIds())
    await node.controller.close()
    again = await Node.start(tmp_path, seed=2)  # another incarnation
    assert again.image == node.image
    assert list(again.removed) == [deleted]
    assert again.image.links["l"].link_epoch == 1
    assert (node.epoch, again.metadata.epoch) == (1, 2)
    before = again.image.offset
    await again.register()
    assert [p.leader_epoch for p in again.image.topics["a"].partitions.values()] == [
        2,
        2,
        2,
    ]  # without a leader, and led again
    assert again.image.brokers[1].epoch > before
    await again.controller.close()


@run_by(in_loop)
async def test_an_answered_command_survives_a_crash(tmp_path):
    node = await Node.start(tmp_path)
    await node.register()
    result = await node.controller.submit_wait(CreateTopics([new_topic("a")]))
    again = await Node.start(tmp_path)  # nothing was closed
    assert again.image.topics["a"].id == result.items[0].topic_id
    await again.controller.close()


@run_by(in_loop)
async def test_reactions_come_before_the_answer_in_order(tmp_path):
    node = await Node.start(tmp_path)
    seen: list[str] = []

    async def slow(delta):
        await asyncio.sleep(0)
        seen.append(f"slow {sorted(delta.created)} {sorted(delta.brokers)}")

    def broken(delta):
        raise RuntimeError("no")

    node.controller.subscribe(broken)
    node.controller.subscribe(slow)
    node.controller.subscribe(lambda delta: seen.append("quick"))
    await node.register()
    seen.clear()
    register = RegisterBroker(2, bytes(16), {}, node.controller.image.cluster_id)
    node.controller.submit(register, lambda result: seen.append("registered"))
    node.controller.submit(CreateTopics([new_topic("a")]), lambda result: seen.append("created"))
    await node.controller.submit_wait(CreateTopics([new_topic("a")]))  # changes nothing
    assert seen == ["slow [] [2]", "quick", "registered", "slow ['a'] []", "quick", "created"]
    await node.controller.close()


@run_by(in_loop)
async def test_a_log_that_cannot_be_synced_fails_everything_after_it(tmp_path, monkeypatch):
    node = await Node.start(tmp_path)
    await node.register()

    async def refuse(log: Log) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Log, "sync", refuse)
    first = await node.controller.submit_wait(CreateTopics([new_topic("a")]))
    second = await node.controller.submit_wait(DeleteTopics(names=["a"]))
    assert [item.error_code for item in first.items] == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert second.error.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert "a" not in node.image.topics


@run_by(in_loop)
async def test_a_command_that_the_log_does_not_take_fails_alone(tmp_path, monkeypatch):
    node = await Node.start(tmp_path)
    await node.register()
    node.log.log.tail.config = replace(node.log.log.config, max_message_bytes=2000)
    large = await node.controller.submit_wait(CreateTopics([new_topic("a", 100)]))
    assert [item.error_code for item in large.items] == [ErrorCode.MESSAGE_TOO_LARGE]
    with monkeypatch.context() as patch:
        patch.setattr(Log, "append", full_disk)
        full = await node.controller.submit_wait(CreateTopics([new_topic("b")]))
    assert [item.error_code for item in full.items] == [ErrorCode.KAFKA_STORAGE_ERROR]
    small = await node.controller.submit_wait(CreateTopics([new_topic("c")]))
    assert [item.error_code for item in small.items] == [ErrorCode.NONE]
    assert list(node.image.topics) == ["c"]
    await node.controller.close()
    again = await Node.start(tmp_path)
    assert again.image == node.image
    await again.controller.close()


def full_disk(*args):
    raise StorageError(OSError(28, "No space left on device"), "t", "cannot append to")


@run_by(in_loop)
async def test_a_stopping_controller_refuses(tmp_path):
    node = await Node.start(tmp_path)
    await node.controller.close()
    result = await node.controller.submit_wait(CreateTopics([new_topic("a")]))
    assert result.items[0].error_code == ErrorCode.NOT_CONTROLLER


@pytest.mark.parametrize("cut", [1, 20, 61])
@run_by(in_loop)
async def test_a_torn_batch_at_the_end_is_as_if_never_decided(tmp_path, cut):
    node = await Node.start(tmp_path)
    await node.register()
    before = node.image.offset
    await node.controller.submit_wait(CreateTopics([new_topic("a")]))
    (path,) = (tmp_path / "__cluster_metadata-0").glob("*.log")
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size - cut)
    again = await Node.start(tmp_path)
    assert again.image.offset == before and not again.image.topics
    await again.controller.close()
