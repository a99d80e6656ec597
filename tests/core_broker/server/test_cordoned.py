"""A broker whose directory is cordoned gets no new partitions, until it is no more (KIP-1066)."""

from __future__ import annotations

from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import create_topics, incremental_alter_configs
from tests.running import run_by

from .three_nodes import IDS, ThreeNodes, on_three_nodes

BROKER, SET = 4, 0


async def cordon(nodes: ThreeNodes, node_id: int, value: str) -> tuple[int, str | None]:
    config = incremental_alter_configs.AlterableConfig(name="cordoned.log.dirs", config_operation=SET, value=value)
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=BROKER, resource_name=str(node_id), configs=[config]
    )
    answer = await nodes.ask(node_id, incremental_alter_configs.Request(resources=[resource]))
    return answer.responses[0].error_code, answer.responses[0].error_message


async def create(nodes: ThreeNodes, name: str, factor: int) -> int:
    topic = create_topics.CreatableTopic(name=name, num_partitions=9, replication_factor=factor)
    answer = await nodes.ask(nodes.leader, create_topics.Request(topics=[topic], timeout_ms=20_000))
    code: int = answer.topics[0].error_code
    return code


def placed(nodes: ThreeNodes, name: str) -> list[int]:
    partitions = nodes.services(nodes.leader).image.topics[name].partitions.values()
    return sorted({replica for each in partitions for replica in each.replicas})


@run_by(on_three_nodes)
async def test_new_partitions_go_elsewhere_until_it_is_undone(nodes: ThreeNodes, /) -> None:
    image = nodes.services(nodes.leader).image
    for node_id in IDS:
        assert await cordon(nodes, node_id, "*") == (0, None)
        await nodes.sim.until(lambda n=node_id: not image.brokers[n].takes_partitions, "it is cordoned")
        if node_id == 2:
            assert await create(nodes, "a", 1) == 0 and placed(nodes, "a") == [3]
            assert await create(nodes, "b", 2) == ErrorCode.INVALID_REPLICATION_FACTOR
    assert await create(nodes, "c", 1) == ErrorCode.INVALID_REPLICATION_FACTOR
    for node_id in IDS:
        assert await cordon(nodes, node_id, "") == (0, None)
    await nodes.sim.until(lambda: all(each.takes_partitions for each in image.brokers.values()), "none is cordoned")
    assert await create(nodes, "d", 1) == 0 and placed(nodes, "d") == [1, 2, 3]


@run_by(on_three_nodes)
async def test_only_directories_of_the_broker_can_be_cordoned(nodes: ThreeNodes, /) -> None:
    assert await cordon(nodes, 1, "/nope") == (
        ErrorCode.INVALID_REQUEST,
        "requirement failed: All entries in cordoned.log.dirs must be present in log.dirs or log.dir. Missing entries "
        ": /nope",
    )
    assert await cordon(nodes, 1, "*,/data") == (
        ErrorCode.INVALID_REQUEST,
        "requirement failed: When cordoned.log.dirs is set to *, it must not contain other values",
    )
    assert await cordon(nodes, 1, "/data") == (0, None)
