"""Requests that only the active controller decides, asked of a broker that is not it.

Two nodes that are clusters of their own, `edge` and `active`: the channel of the first one leads to the second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from isthmus.client.connection import Connection, connect
from isthmus.core_broker.auto_creation import AutoCreation
from isthmus.core_broker.controller_channel import ControllerChannel
from isthmus.core_broker.server.dispatch import FORWARDED, FORWARDED_IN_PART, SERVED, SERVED_BY_CONTROLLERS, Scope
from isthmus.core_broker.server.forwarding import ANONYMOUS
from isthmus.core_broker.server.local_node import LocalNode
from isthmus.core_broker.server.producer_ids import ProducerIds
from isthmus.core_broker.server.refusals import REFUSALS
from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.header import RequestHeader, frame_request
from isthmus.protocol.messages import (
    alter_configs,
    create_partitions,
    create_topics,
    delete_topics,
    describe_configs,
    describe_quorum,
    elect_leaders,
    envelope,
    incremental_alter_configs,
    init_producer_id,
    list_partition_reassignments,
    metadata,
)
from isthmus.protocol.messages import alter_partition_reassignments as reassignments
from isthmus.protocol.schema import Struct
from tests.simulation.product import BrokerHost
from tests.simulation.runner import Simulation, run_checked

CONTROLLER_PORT = 9093
TOPIC, BROKER = 2, 4  # resources


class Nodes:
    """`leader`: where the channel of `edge` leads, (node id, address) or None."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.leader: tuple[int, str] | None = None
        self.hosts: dict[str, BrokerHost] = {}

    async def start(self, name: str, node_id: int) -> BrokerHost:
        options = {
            "listeners": f"PLAINTEXT://{name}:9092,CONTROLLER://{name}:{CONTROLLER_PORT}",
            "controller.listener.names": "CONTROLLER",
            "node.id": str(node_id),
            "auto.create.topics.enable": "true",
        }
        host = self.hosts[name] = BrokerHost(self.sim, name, options)
        await host.start()
        return host

    async def join(self) -> None:
        """Of `edge`'s own controller nothing is asked any more."""
        await self.start("active", 1)
        self.leader = (1, f"active:{CONTROLLER_PORT}")
        edge = await self.start("edge", 2)
        services = edge.broker._server.services
        local = LocalNode(Scope.CONTROLLER)
        local.services = services
        channel = ControllerChannel("test", 2, lambda: self.leader, local)
        services.channel = channel
        services.creation = AutoCreation(services.controller, services.config, channel)
        services.producer_ids = ProducerIds(services.controller, 2, channel)
        self.channel = channel

    def topics(self, name: str) -> list[str]:
        return list(self.hosts[name].broker._server.services.image.topics)


def on_two_nodes(work: Callable[[Nodes, Connection, Connection], Awaitable[None]]) -> None:
    """Run `work(nodes, a client's connection to edge, another one to the active node)`."""

    async def main(sim: Simulation) -> None:
        nodes = Nodes(sim)
        await nodes.join()

        async def asks() -> None:
            edge, active = [await connect(f"{name}:9092", "client", 5_000) for name in ("edge", "active")]
            await work(nodes, edge, active)
            edge.close()
            active.close()

        await sim.machine("client").start().outcome(asks())
        await nodes.channel.close()

    run_checked(main)


async def ask(connection: Connection, request: Struct, version: int | None = None) -> Any:
    return await connection.request(type(request).API, request, 60_000, version)


def creation(*names: str, timeout_ms: int = 5_000, **fields: Any) -> create_topics.Request:
    topics = [create_topics.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    return create_topics.Request(topics=topics, timeout_ms=timeout_ms, **fields)


def test_the_active_controller_decides_and_its_answer_is_passed_on_as_it_is() -> None:
    async def work(nodes: Nodes, edge: Connection, active: Connection) -> None:
        assert (await ask(edge, creation("t", "u"))).topics[1].error_code == 0
        assert nodes.topics("active") == ["t", "u"] and nodes.topics("edge") == []
        for version in range(2, 8):
            request = creation("t", "v", validate_only=True)
            told, expected = [await ask(each, request, version) for each in (edge, active)]
            for answer in (told, expected):
                answer.topics[0].topic_id = answer.topics[1].topic_id = b""  # of a topic that is not made, another one
            assert told == expected
        deleted = await ask(edge, delete_topics.Request(topic_names=["t", "gone"], timeout_ms=5_000), 5)
        assert [each.error_code for each in deleted.responses] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]
        assert nodes.topics("active") == ["u"]

    on_two_nodes(work)


def test_what_a_broker_checks_itself_is_not_forwarded_with_the_rest() -> None:
    """Options: those of this broker are checked here, and the controller keeps all of them."""

    def alter(kind: int, name: str, option: str, value: str) -> incremental_alter_configs.AlterConfigsResource:
        config = incremental_alter_configs.AlterableConfig(name=option, config_operation=0, value=value)
        return incremental_alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])

    async def work(nodes: Nodes, edge: Connection, active: Connection) -> None:
        await ask(edge, creation("t"))
        resources = [
            alter(BROKER, "1", "log.cleaner.threads", "1"),  # another's
            alter(TOPIC, "t", "retention.ms", "5"),
            alter(TOPIC, "gone", "retention.ms", "5"),
            alter(BROKER, "2", "log.cleaner.backoff.ms", "7"),
            alter(BROKER, "", "log.cleaner.threads", "90"),  # more than double
        ]
        answer = await ask(edge, incremental_alter_configs.Request(resources=resources))
        codes = [ErrorCode.INVALID_REQUEST, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0, ErrorCode.INVALID_REQUEST]
        assert [each.error_code for each in answer.responses] == codes
        image = nodes.hosts["active"].broker._server.services.image
        assert image.topics["t"].configs == {"retention.ms": "5"}
        assert image.broker_configs["2"] == {"log.cleaner.backoff.ms": "7"}
        assert "log.cleaner.threads" not in image.broker_configs.get("", {})

    on_two_nodes(work)


def test_what_the_broker_needs_itself_is_asked_of_the_active_controller() -> None:
    """Producer ids, and topics that clients only name. The edge does not hear of those: its metadata are its own."""

    async def work(nodes: Nodes, edge: Connection, active: Connection) -> None:
        named = metadata.Request(topics=[metadata.MetadataRequestTopic(name="named")], allow_auto_topic_creation=True)
        asking = asyncio.create_task(ask(edge, named))
        image = nodes.hosts["active"].broker._server.services.image
        await nodes.sim.until(lambda: "named" in image.topics, "the topic that a client named")
        asking.cancel()

    on_two_nodes(work)


def test_producer_ids_of_a_broker_that_the_controller_does_not_know_may_come_later() -> None:
    async def work(nodes: Nodes, edge: Connection, active: Connection) -> None:
        answer = await ask(edge, init_producer_id.Request(transactional_id=None, producer_id=-1, producer_epoch=-1))
        assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    on_two_nodes(work)


def test_what_is_forwarded_is_served_by_controllers_and_can_be_refused() -> None:
    forwarded = set(FORWARDED)
    assert forwarded == REFUSALS.keys()
    for key in (*FORWARDED, *FORWARDED_IN_PART):
        assert SERVED[key] == SERVED_BY_CONTROLLERS[key]


ROW = reassignments.ReassignablePartition(partition_index=0, replicas=[1])
ELECTION = elect_leaders.TopicPartitions(topic="t", partitions=[0])
GROWTH = create_partitions.CreatePartitionsTopic(name="t", count=3, assignments=None)
ALTERED = alter_configs.AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=[])
LATE = ErrorCode.REQUEST_TIMED_OUT
WITHOUT_ANYBODY: list[tuple[Struct, int, Callable[[Any], list[int]]]] = [
    (creation("t", timeout_ms=300), 7, lambda answer: [each.error_code for each in answer.topics]),
    (creation("t", timeout_ms=0), 7, lambda answer: [each.error_code for each in answer.topics]),
    (
        delete_topics.Request(topic_names=["t"], timeout_ms=300), 5,
        lambda answer: [each.error_code for each in answer.responses if each.name == "t"],
    ),
    (
        create_partitions.Request(topics=[GROWTH], timeout_ms=300), 3,
        lambda answer: [each.error_code for each in answer.results],
    ),
    (
        elect_leaders.Request(topic_partitions=[ELECTION], timeout_ms=300), 2,
        lambda answer: [answer.error_code, answer.replica_election_results[0].partition_result[0].error_code],
    ),
    (
        reassignments.Request(topics=[reassignments.ReassignableTopic(name="t", partitions=[ROW])], timeout_ms=300), 1,
        lambda answer: [answer.error_code, answer.responses[0].partitions[0].error_code],
    ),
    (list_partition_reassignments.Request(topics=None, timeout_ms=300), 0, lambda answer: [answer.error_code]),
    (describe_quorum.Request(topics=[]), 2, lambda answer: [answer.error_code]),
    (alter_configs.Request(resources=[ALTERED]), 2, lambda answer: [each.error_code for each in answer.responses]),
]  # fmt: skip


def test_without_a_controller_each_request_is_timed_out_in_its_own_form() -> None:
    async def work(nodes: Nodes, edge: Connection, active: Connection) -> None:
        nodes.leader = None
        for request, version, codes in WITHOUT_ANYBODY:
            found = codes(await ask(edge, request, version))
            assert found and all(code == LATE for code in found), request

    on_two_nodes(work)


def frame(request: Struct, version: int) -> bytes:
    api = type(request).API
    return b"".join(frame_request(RequestHeader(api.key, version, 77, "x"), api.encode_request(request, version)))[4:]


GOOD = frame(creation("t", validate_only=True), 5)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, 0),
        ({"client_host_address": bytes(16)}, 0),
        ({"request_principal": None}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"request_principal": b"\0"}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"request_principal": b"\0\5abc"}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"client_host_address": b"\1\2\3"}, ErrorCode.INVALID_REQUEST),
        ({"request_data": frame(metadata.Request(topics=[]), 9)}, ErrorCode.INVALID_REQUEST),
        ({"request_data": frame(describe_configs.Request(resources=[]), 4)}, ErrorCode.INVALID_REQUEST),
        ({"request_data": b"abc"}, ErrorCode.UNSUPPORTED_VERSION),
        ({"request_data": GOOD[:-4]}, ErrorCode.UNSUPPORTED_VERSION),
        ({"request_data": GOOD[:2] + b"\0\x63" + GOOD[4:]}, ErrorCode.UNSUPPORTED_VERSION),
        ({"request_data": GOOD[:8] + b"\x7f\xff" + GOOD[10:]}, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_an_envelope_is_answered_as_by_kafka(fields: dict[str, Any], code: int) -> None:
    """The codes are those of a stock controller, which was asked the same."""

    async def work(nodes: Nodes, edge: Connection, active: Connection) -> None:
        controller = await connect(f"active:{CONTROLLER_PORT}", "broker", 5_000)
        asked = {"request_data": GOOD, "request_principal": ANONYMOUS, "client_host_address": b"\x0a\0\0\1"} | fields
        answer = await ask(controller, envelope.Request(**asked))
        assert answer.error_code == code
        if code == 0:
            inner = create_topics.API.decode_response(answer.response_data, 5, 5)
            assert bytes(answer.response_data[:5]) == (77).to_bytes(4, "big") + b"\0"
            assert [(each.name, each.error_code) for each in inner.topics] == [("t", 0)]
        controller.close()

    on_two_nodes(work)
