"""FindCoordinator: where a group is coordinated, and the topic of groups that the first request has made."""

from __future__ import annotations

import pytest

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
    transactional = await desk.ask(fc.Request(key="x", key_type=1), 3)
    assert transactional.error_code == E.UNSUPPORTED_VERSION and transactional.node_id == -1


@run_by(simulated)
async def test_there_is_no_coordinator_while_the_topic_or_its_leader_is_not_there(desk: Desk, /) -> None:
    image = desk.host.broker._controller.image  # type: ignore[union-attr]
    assert find.find(image, "g", "PLAINTEXT", ()) == Found(E.NONE, 1, "broker", 9092)
    nobody = Found(E.COORDINATOR_NOT_AVAILABLE)
    assert find.find(image, "g", "PLAINTEXT", [0]) == nobody
    assert find.find(image, "g", "NO_SUCH_LISTENER", ()) == nobody
    assert find.find(MetadataImage("empty"), "g", "PLAINTEXT", ()) == nobody


@pytest.mark.parametrize(("kind", "code"), [(1, E.UNSUPPORTED_VERSION), (2, E.INVALID_REQUEST)])
@run_by(simulated, ready=False)
async def test_other_kinds_of_coordinators_are_refused_in_each_shape_of_the_answer(desk: Desk, /, kind, code) -> None:
    single = await desk.ask(fc.Request(key="x", key_type=kind), 3)
    (many,) = (await desk.ask(fc.Request(coordinator_keys=["x"], key_type=kind), 4)).coordinators
    assert single.error_code == many.error_code == code and single.error_message == many.error_message != ""
    image = desk.host.broker._controller.image  # type: ignore[union-attr]
    assert "__consumer_offsets" not in image.topics, "a request that is refused makes no topic"
