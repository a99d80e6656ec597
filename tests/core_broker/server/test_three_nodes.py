"""What a cluster of three answers, whichever of its nodes is asked."""

from __future__ import annotations

import asyncio

from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import (
    create_topics,
    describe_cluster,
    describe_quorum,
    find_coordinator,
    init_producer_id,
    metadata,
    mirror_append,
    unregister_broker,
)
from isthmus.protocol.primitives import uuid_to_str
from isthmus.protocol.records import build_batch
from tests.running import run_by

from .three_nodes import CONTROLLER_PORT, IDS, ThreeNodes, on_three_nodes


def creation(name: str) -> create_topics.Request:
    topic = create_topics.CreatableTopic(name=name, num_partitions=2, replication_factor=3)
    return create_topics.Request(topics=[topic], timeout_ms=20_000)


QUORUM = describe_quorum.Request(
    topics=[
        describe_quorum.TopicRequest(
            topic_name="__cluster_metadata", partitions=[describe_quorum.PartitionRequest(partition_index=0)]
        )
    ]
)


@run_by(on_three_nodes)
async def test_every_broker_takes_what_only_the_controller_decides(nodes: ThreeNodes, /) -> None:
    for node_id in IDS:
        answer = await nodes.ask(node_id, creation(f"t{node_id}"))
        assert [(each.error_code, each.num_partitions) for each in answer.topics] == [(0, 2)]
    for node_id in IDS:
        gone = await nodes.ask(node_id, unregister_broker.Request(broker_id=99))
        assert gone.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    refused = await nodes.ask(nodes.others[0], creation("u"), port=CONTROLLER_PORT)
    assert refused.topics[0].error_code == ErrorCode.NOT_CONTROLLER


@run_by(on_three_nodes)
async def test_topics_that_clients_only_name_are_there_when_they_are_told(nodes: ThreeNodes, /) -> None:
    for node_id in IDS:
        topic = metadata.MetadataRequestTopic(name=f"named-{node_id}")
        answer = await nodes.ask(node_id, metadata.Request(topics=[topic]))
        assert [(each.error_code, len(each.partitions[0].replica_nodes)) for each in answer.topics] == [(0, 3)]
        assert [each.node_id for each in answer.brokers] == list(IDS)
    found = await nodes.ask(nodes.others[0], find_coordinator.Request(coordinator_keys=["g"]))
    assert found.coordinators[0].error_code == 0 and found.coordinators[0].node_id in IDS


@run_by(on_three_nodes)
async def test_brokers_have_producer_ids_of_their_own(nodes: ThreeNodes, /) -> None:
    request = init_producer_id.Request(transactional_id=None, producer_id=-1, producer_epoch=-1)
    answers = [await nodes.ask(node_id, request) for node_id in (*IDS, *IDS)]
    assert [each.error_code for each in answers] == [0] * 6
    assert len({each.producer_id for each in answers}) == 6


@run_by(on_three_nodes)
async def test_controllers_are_told_of_at_their_listeners(nodes: ThreeNodes, /) -> None:
    for node_id in IDS:
        asked = describe_cluster.Request(endpoint_type=2)
        answer = await nodes.ask(node_id, asked, port=CONTROLLER_PORT)
        rows = [(each.broker_id, each.host, each.port) for each in answer.brokers]
        assert (answer.error_code, answer.endpoint_type, answer.controller_id) == (0, 2, nodes.leader)
        assert rows == [(each, f"n{each}", CONTROLLER_PORT) for each in IDS]
        mistaken = await nodes.ask(node_id, describe_cluster.Request(endpoint_type=1), port=CONTROLLER_PORT)
        assert mistaken.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
        old = await nodes.ask(node_id, describe_cluster.Request(), 0, port=CONTROLLER_PORT)
        assert old.error_code == ErrorCode.INVALID_REQUEST
    told = {(await nodes.ask(1, describe_cluster.Request())).controller_id for _ in range(30)}
    assert told == set(IDS)  # any broker: each passes on what is the controller's


@run_by(on_three_nodes)
async def test_the_quorum_is_described_by_its_leader_wherever_it_is_asked_for(nodes: ThreeNodes, /) -> None:
    for node_id in IDS:
        answer = await nodes.ask(node_id, QUORUM)
        [partition] = answer.topics[0].partitions
        assert (partition.error_code, partition.leader_id) == (0, nodes.leader)
        assert [each.replica_id for each in partition.current_voters] == list(IDS)
        assert all(each.last_caught_up_timestamp > 0 for each in partition.current_voters)
        listeners = [(each.node_id, [(x.name, x.host, x.port) for x in each.listeners]) for each in answer.nodes]
        assert listeners == [(each, [("CONTROLLER", f"n{each}", CONTROLLER_PORT)]) for each in IDS]
    follower = await nodes.ask(nodes.others[0], QUORUM, port=CONTROLLER_PORT)
    assert follower.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@run_by(on_three_nodes)
async def test_mirrored_partitions_reach_their_source_s_epoch_whoever_leads_them(nodes: ThreeNodes, /) -> None:
    source_id, options = bytes(range(16)), {"mirror.link": "a-b", "mirror.source.cluster.id": "a"}
    options["mirror.source.topic.id"] = uuid_to_str(source_id)
    configs = [create_topics.CreatableTopicConfig(name=name, value=value) for name, value in options.items()]
    topic = create_topics.CreatableTopic(name="copy", num_partitions=3, replication_factor=3, configs=configs)
    made = await nodes.ask(1, create_topics.Request(topics=[topic], timeout_ms=20_000))
    assert made.topics[0].error_code == 0
    images = [nodes.services(node_id).image for node_id in IDS]
    await nodes.sim.until(lambda: all("copy" in image.topics for image in images), "the topic on all nodes")
    partitions = images[0].topics["copy"].partitions
    assert {each.leader for each in partitions.values()} == set(IDS)
    for index, partition in partitions.items():
        batch = build_batch([(1_700_000_000_000, None, b"v", ())], partition_leader_epoch=5)
        row = mirror_append.MirrorAppendPartition(index=index, range_from=0, source_leader_epoch=5, records=batch)
        rows = [mirror_append.MirrorAppendTopic(name="copy", source_topic_id=source_id, partitions=[row])]
        request = mirror_append.Request(
            link_id="a-b", link_epoch=1, source_cluster_id="a", timeout_ms=20_000, topics=rows
        )
        answer = await nodes.ask(partition.leader, request)
        assert (answer.error_code, [each.error_code for each in answer.topics[0].partitions]) == (0, [0])


@run_by(on_three_nodes)
async def test_a_request_outlives_the_controller_that_it_was_sent_to(nodes: ThreeNodes, /) -> None:
    asked = nodes.others[0]
    old = nodes.leader
    connection = await nodes.connect(asked)
    nodes.hosts[old].kill()
    began_s = asyncio.get_running_loop().time()
    answer = await connection.request(create_topics.API, create_topics.Request(
        topics=[create_topics.CreatableTopic(name="t", num_partitions=1, replication_factor=2)], timeout_ms=20_000
    ), 60_000)  # fmt: skip
    assert answer.topics[0].error_code == 0
    assert nodes.leader != old
    assert asyncio.get_running_loop().time() - began_s < 5
