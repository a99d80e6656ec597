"""MirrorAppend between two workers of one link: what is late, early, or follows another log is refused as such."""

from __future__ import annotations

from typing import Any

from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import create_topics, mirror_append
from isthmus.protocol.primitives import uuid_to_str
from isthmus.protocol.records import build_batch

from .product import BrokerHost
from .runner import Simulation
from .test_loop import ok
from .wire import VERSIONS, ask

SOURCE_ID = bytes(range(16))


def batch(offset: int, epoch: int, value: bytes = b"v") -> bytes:
    rows = [(1_700_000_000_000, None, value, ())] * 5
    return build_batch(rows, "none", base_offset=offset, partition_leader_epoch=epoch)


async def make_mirror(address: str) -> None:
    given = {"mirror.link": "a-b", "mirror.source.cluster.id": "a", "mirror.source.topic.id": uuid_to_str(SOURCE_ID)}
    configs = [create_topics.CreatableTopicConfig(name=name, value=value) for name, value in given.items()]
    topic = create_topics.CreatableTopic(name="copy", num_partitions=1, replication_factor=1, configs=configs)
    answer = await ask(address, create_topics.API, create_topics.Request(topics=[topic], timeout_ms=5000))
    assert answer.topics[0].error_code == 0, answer


async def append(address: str, offset: int, epoch: int, previous: int, value: bytes = b"v") -> Any:
    part = mirror_append.MirrorAppendPartition(
        index=0,
        source_leader_epoch=epoch,
        previous_leader_epoch=previous,
        range_from=offset,
        range_to=offset + 5,
        records=batch(offset, epoch, value),
    )
    topic = mirror_append.MirrorAppendTopic(name="copy", source_topic_id=SOURCE_ID, partitions=[part])
    request = mirror_append.Request(link_id="a-b", source_cluster_id="a", timeout_ms=5000, topics=[topic])
    answer = await ask(address, mirror_append.API, request)
    return answer.topics[0].partitions[0]


def test_an_append_follows_the_offset_and_the_epoch_it_expects(monkeypatch: Any) -> None:
    monkeypatch.setitem(VERSIONS, mirror_append.API.key, 0)

    async def steps(address: str) -> None:
        await make_mirror(address)
        assert (await append(address, 0, 1, -1)).error_code == 0
        # The source lost offsets 5 to 9 of epoch 1 and went on with epoch 2. One worker still has the lost ones …
        assert (await append(address, 5, 1, 1, b"lost")).error_code == 0
        # … and another, which saw the target end at 5, sends what the source has now, two appends at once.
        late = await append(address, 5, 2, 1)
        assert (late.error_code, late.next_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 10)
        follows = await append(address, 10, 2, 2)
        assert (follows.error_code, follows.next_offset, follows.next_epoch) == (ErrorCode.OFFSET_OUT_OF_RANGE, 10, 1)

    async def scenario(sim: Simulation) -> None:
        host = BrokerHost(sim, "broker")
        await host.up()
        await sim.machine("worker").start().outcome(steps(host.address))

    ok(scenario)


def test_a_late_append_of_an_older_epoch_is_late_and_no_divergence(monkeypatch: Any) -> None:
    monkeypatch.setitem(VERSIONS, mirror_append.API.key, 0)

    async def steps(address: str) -> None:
        await make_mirror(address)
        for offset, epoch, previous in ((0, 1, -1), (5, 1, 1), (10, 2, 1)):
            assert (await append(address, offset, epoch, previous)).error_code == 0
        assert (await append(address, 5, 1, 1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await append(address, 15, 1, 1)).error_code == ErrorCode.FENCED_LEADER_EPOCH

    async def scenario(sim: Simulation) -> None:
        host = BrokerHost(sim, "broker")
        await host.up()
        await sim.machine("worker").start().outcome(steps(host.address))

    ok(scenario)
