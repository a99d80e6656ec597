"""A partition whose log breaks on one of three nodes: another replica leads, and the broken one comes back later."""

from __future__ import annotations

import errno
from functools import partial

from isthmus.core_broker.cluster.partition_image import LOST
from isthmus.core_broker.replication.states import State
from isthmus.protocol.messages import create_topics, produce
from isthmus.protocol.records import build_batch
from tests.running import run_by

from .three_nodes import IDS, ThreeNodes, on_three_nodes


async def created(nodes: ThreeNodes, wait: bool = True) -> int:
    """A topic t of three replicas; its leader. wait: until all nodes have it."""
    topic = create_topics.CreatableTopic(name="t", num_partitions=1, replication_factor=3)
    await nodes.ask(1, create_topics.Request(topics=[topic], timeout_ms=20_000))
    served = [nodes.services(each).replicas.partitions for each in IDS]
    await nodes.sim.until(lambda: not wait or all("t" in each for each in served), "the topic on all nodes")
    leader: int = nodes.services(1).image.topics["t"].partitions[0].leader
    return leader


async def append(nodes: ThreeNodes, leader: int) -> int:
    batch = build_batch([(1_700_000_000_000, None, b"v", ())])
    rows = [produce.PartitionProduceData(index=0, records=batch)]
    topic_id = nodes.services(leader).image.topics["t"].id
    topics = [produce.TopicProduceData(name="t", topic_id=topic_id, partition_data=rows)]
    answer = await nodes.ask(leader, produce.Request(acks=-1, timeout_ms=20_000, topic_data=topics))
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


def break_log(nodes: ThreeNodes, node_id: int) -> None:
    """Its disk cannot read what is in the partition's log."""
    process = nodes.hosts[node_id].machine.process
    partition = nodes.services(node_id).replicas.partitions["t"][0]
    assert process is not None
    process.context.copy().run(partition.log.status.unreadable, OSError(errno.EIO, "Input/output error"))
    assert partition.state is State.OFFLINE


@run_by(on_three_nodes)
async def test_another_replica_leads_when_the_leaders_log_breaks(nodes: ThreeNodes, /) -> None:
    leader = await created(nodes)
    assert await append(nodes, leader) == 0
    break_log(nodes, leader)
    images = [nodes.services(each).image for each in IDS]
    await nodes.sim.until(
        lambda: all(each.topics["t"].partitions[0].leader not in (-1, leader) for each in images), "another leader"
    )
    now = images[0].topics["t"].partitions[0]
    assert leader not in now.isr and now.directory_of(leader) == LOST
    assert await append(nodes, now.leader) == 0

    nodes.hosts[leader].kill()
    await nodes.hosts[leader].start()
    image = nodes.services(now.leader).image
    await nodes.sim.until(lambda: len(image.topics["t"].partitions[0].isr) == 3, "it is in sync again")
    back = image.topics["t"].partitions[0]
    assert back.directory_of(leader) in image.brokers[leader].log_dirs
    ends = {nodes.services(each).replicas.partitions["t"][0].log.log_end_offset for each in IDS}
    assert ends == {2}


@run_by(on_three_nodes)
async def test_a_broken_follower_leaves_the_isr_at_once(nodes: ThreeNodes, /) -> None:
    leader = await created(nodes)
    [broken] = [each for each in IDS if each != leader][:1]
    break_log(nodes, broken)
    image = nodes.services(leader).image
    await nodes.sim.until(lambda: broken not in image.topics["t"].partitions[0].isr, "it leaves", 5.0)
    assert image.topics["t"].partitions[0].leader == leader and await append(nodes, leader) == 0


@run_by(on_three_nodes)
async def test_a_broker_that_cannot_follow_the_metadata_ends(nodes: ThreeNodes, /) -> None:
    ended: dict[int, str] = {}
    for node_id in IDS:
        broker = nodes.hosts[node_id].broker
        assert broker is not None
        broker.on_broken = partial(ended.setdefault, node_id)
    broken = nodes.others[0]
    nodes.hosts[broken].machine.disk.fail("append", errno.EIO, containing="__cluster_metadata")
    await created(nodes, wait=False)
    await nodes.sim.until(lambda: bool(ended), "it says why")
    assert list(ended) == [broken] and "Input/output error" in ended[broken]
