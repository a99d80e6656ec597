"""FindCoordinator: where a group is coordinated, and the topic of groups that the first request has made."""

from __future__ import annotations

from isthmus.core_broker.cluster.image import MetadataImage
from isthmus.core_broker.coordinators import find
from isthmus.core_broker.coordinators.find import Found, partition_for
from isthmus.protocol.errors import ErrorCode as E
from isthmus.protocol.messages import find_coordinator as fc
from isthmus.protocol.messages import heartbeat as hb
from tests.running import run_by

from .desk import Desk, simulated


def test_partitions_of_groups():
    assert partition_for("polygenelubricants", 50) == 0
    assert partition_for("group", 50) == 98629247 % 50


@run_by(simulated, ready=False)
async def test_the_first_to_look_for_a_coordinator_makes_the_offsets_topic(desk: Desk, /) -> None:
    assert (await desk.ask(hb.Request(group_id="g", member_id="m"), 3)).error_code == E.NOT_COORDINATOR
    answer = await desk.find()
    assert (answer.error_code, answer.node_id, answer.host, answer.port) == (0, 1, "broker", 9092)
    topic = desk.host.broker._controller.image.topics["__consumer_offsets"]  # type: ignore[union-attr]
    assert topic.configs["cleanup.policy"] == "compact" and len(topic.partitions) == 1
    many = await desk.ask(fc.Request(coordinator_keys=["a", "b"]), 4)
    assert [(c.key, c.node_id, c.error_code) for c in many.coordinators] == [("a", 1, 0), ("b", 1, 0)]


@run_by(simulated, ready=False)
async def test_the_first_to_look_for_a_transaction_coordinator_makes_its_topic(desk: Desk, /) -> None:
    for request, version in ((fc.Request(key="x", key_type=1), 3), (fc.Request(coordinator_keys=["x"], key_type=1), 6)):
        answer = await desk.ask(request, version)
        found = answer if version == 3 else answer.coordinators[0]
        assert (found.error_code, found.node_id, found.host, found.port) == (0, 1, "broker", 9092)
    topics = desk.host.broker._controller.image.topics  # type: ignore[union-attr]
    assert "__consumer_offsets" not in topics
    topic = topics["__transaction_state"]
    assert len(topic.partitions) == 10 and len(topic.partitions[0].replicas) == 1
    assert topic.configs == {
        "cleanup.policy": "compact", "compression.type": "uncompressed", "min.insync.replicas": "2",
        "segment.bytes": "104857600", "unclean.leader.election.enable": "false",
    }  # fmt: skip


@run_by(simulated)
async def test_there_is_no_coordinator_while_the_topic_or_its_leader_is_not_there(desk: Desk, /) -> None:
    image = desk.host.broker._controller.image  # type: ignore[union-attr]
    assert find.find(image, "__consumer_offsets", "g", "PLAINTEXT", ()) == Found(E.NONE, 1, "broker", 9092)
    nobody = Found(E.COORDINATOR_NOT_AVAILABLE)
    assert find.find(image, "__consumer_offsets", "g", "PLAINTEXT", [0]) == nobody
    assert find.find(image, "__consumer_offsets", "g", "NO_SUCH_LISTENER", ()) == nobody
    assert find.find(MetadataImage("empty"), "__consumer_offsets", "g", "PLAINTEXT", ()) == nobody


@run_by(simulated, ready=False)
async def test_other_kinds_of_coordinators_are_refused_in_each_shape_of_the_answer(desk: Desk, /) -> None:
    single = await desk.ask(fc.Request(key="x", key_type=2), 3)
    (many,) = (await desk.ask(fc.Request(coordinator_keys=["x"], key_type=2), 4)).coordinators
    assert (
        single.error_code == many.error_code == E.INVALID_REQUEST and single.error_message == many.error_message != ""
    )
    image = desk.host.broker._controller.image  # type: ignore[union-attr]
    assert "__consumer_offsets" not in image.topics, "a request that is refused makes no topic"
