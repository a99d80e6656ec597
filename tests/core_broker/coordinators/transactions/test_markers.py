"""The markers of decided transactions: to whom they go, how they are batched, and what happens when they fail."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest

from isthmus.core_broker.coordinators.transactions import markers
from isthmus.protocol.errors import ErrorCode as E
from tests.running import run_by
from tests.simulation.runner import Simulation, run_checked

from .peers import Field

T0, T1, T2 = ("t", 0), ("t", 1), ("t", 2)


def marked(history: Callable[[Field], Awaitable[None]], partitions: int = 3) -> None:
    async def main(sim: Simulation) -> None:
        field = Field(partitions)
        try:
            await history(field)
        finally:
            await field.markers.close()

    run_checked(main)


@run_by(marked)
async def test_each_leader_gets_the_markers_of_its_partitions_and_the_last_answer_ends_the_transaction(
    field: Field, /
) -> None:
    field.send(T0, T1, T2, ("t", 3), commit=False, client_version=2)
    one, two, three = await field.asked(3)
    assert (one.places, two.places, three.places) == ([T0], [T1], [T2]), "of t-3, which does not exist, nobody is told"
    (marker,) = two.request.markers
    assert (marker.producer_id, marker.producer_epoch, marker.transaction_result) == (7, 4, False)
    assert (marker.coordinator_epoch, marker.transaction_version) == (5, 2)
    for each in (one, three, two):
        assert field.completed == [] and len(field.markers) == 1
        each.respond()
        await field.settle()
    assert field.completed == ["x"] and len(field.markers) == 0


@run_by(marked)
async def test_what_comes_while_a_request_is_under_way_goes_into_the_next(field: Field, /) -> None:
    field.send(T0, producer_id=1, name="a")
    (first,) = await field.asked()
    field.send(T0, producer_id=2, name="b")
    field.send(T0, producer_id=3, name="c", commit=False)
    await field.settle()
    assert len(field.peers.asked) == 1, "one request to a broker at a time"
    first.respond()
    await field.settle()
    (second,) = await field.asked()
    assert second.markers == {(2, T0): (4, True), (3, T0): (4, False)}
    second.respond()
    await field.settle()
    assert field.completed == ["a", "b", "c"]


@run_by(marked)
async def test_what_comes_just_after_the_last_answer_waits_for_nothing(field: Field, /) -> None:
    field.peers.at_once = True
    field.send(T0, producer_id=1, name="a")
    asyncio.get_running_loop().call_soon(lambda: field.send(T0, producer_id=2, name="b"))
    await field.settle()
    assert field.completed == ["a", "b"]


@run_by(marked, partitions=10)
async def test_a_request_has_a_bound(field: Field, /, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markers, "MAX_MARKERS", 3)
    for index in range(10):
        field.lead("t", index, 1)
    field.send(*(("t", index) for index in range(5)), producer_id=1, name="a")
    field.send(*(("t", index) for index in range(5, 7)), producer_id=2, name="b")
    seen = []
    while len(field.markers):
        (asked,) = await field.asked()
        seen.append(asked.places)
        asked.respond()
        await field.settle()
    assert list(map(len, seen)) == [3, 3, 1]
    assert sorted(place for places in seen for place in places) == [("t", index) for index in range(7)]
    assert field.completed == ["a", "b"]


@pytest.mark.parametrize(
    "code",
    [
        E.NOT_LEADER_OR_FOLLOWER, E.UNKNOWN_TOPIC_OR_PARTITION, E.NOT_ENOUGH_REPLICAS, E.REQUEST_TIMED_OUT,
        E.NOT_ENOUGH_REPLICAS_AFTER_APPEND, E.KAFKA_STORAGE_ERROR, E.TRANSACTION_COORDINATOR_FENCED,
        E.UNKNOWN_SERVER_ERROR,
    ],
)  # fmt: skip
@run_by(marked)
async def test_a_marker_that_could_not_be_written_is_sent_again_and_those_that_were_are_not(
    field: Field, /, code: E
) -> None:
    field.lead("t", 1, 1)
    field.send(T0, T1)
    (first,) = await field.asked()
    first.respond({T1: code})
    assert list(field.markers.left("x")) == [T0, T1] and list(field.markers.left("y")) == []
    await field.settle()
    assert list(field.markers.left("x")) == [T1]
    assert field.peers.asked == [], "not at once"
    (again,) = await field.asked()
    assert again.places == [T1] and field.completed == []
    again.respond()
    await field.settle()
    assert field.completed == ["x"] and list(field.markers.left("x")) == []


@pytest.mark.parametrize("code", [E.INVALID_PRODUCER_EPOCH, E.UNSUPPORTED_FOR_MESSAGE_FORMAT, E.UNSUPPORTED_VERSION])
@run_by(marked)
async def test_a_partition_that_needs_no_marker_any_more_is_done(field: Field, /, code: E) -> None:
    field.send(T0)
    (asked,) = await field.asked()
    asked.respond({T0: code})
    await field.settle()
    assert field.completed == ["x"]


@run_by(marked)
async def test_what_an_answer_does_not_name_is_sent_again(field: Field, /) -> None:
    field.lead("t", 1, 1)
    field.send(T0, T1)
    (asked,) = await field.asked()
    asked.respond(without=(T0,))
    (again,) = await field.asked()
    assert again.places == [T0]


@run_by(marked)
async def test_a_broker_that_cannot_be_reached_is_tried_again_at_growing_intervals(field: Field, /) -> None:
    field.send(T0)
    loop = asyncio.get_running_loop()
    times = []
    for _ in range(9):
        while not field.peers.asked:
            await asyncio.sleep(0.01)
        times.append(loop.time())
        field.peers.asked[0].fail()
        await field.settle()
    pauses = [after - before for before, after in pairwise(times)]
    assert all(before <= after + 0.011 for before, after in pairwise(pauses))
    assert pauses[0] < 0.05 and pauses[-1] == pytest.approx(markers.RETRY_MOST_S, abs=0.05)


@run_by(marked)
async def test_a_new_leader_is_asked_as_soon_as_it_is_known(field: Field, /) -> None:
    field.send(T0)
    (asked,) = await field.asked()
    asked.respond({T0: E.NOT_LEADER_OR_FOLLOWER})
    await field.settle()
    field.lead("t", 0, 3)
    await field.settle()
    (again,) = field.peers.asked
    assert (again.broker_id, again.places) == (3, [T0])


@run_by(marked)
async def test_a_broker_that_is_fenced_is_not_waited_for(field: Field, /) -> None:
    field.send(T0)
    (asked,) = await field.asked()
    field.fence(1)
    field.lead("t", 0, 2)
    (again,) = await field.asked()
    assert (again.broker_id, again.places) == (2, [T0]) and asked.answer.cancelled()
    again.respond()
    await field.settle()
    assert field.completed == ["x"]


@run_by(marked)
async def test_without_a_leader_markers_wait_for_one(field: Field, /) -> None:
    field.lead("t", 0, -1)
    field.fence(2)
    field.send(T0, T1, T2)
    (third,) = await field.asked()
    third.respond()
    await asyncio.sleep(5)
    assert field.peers.asked == [] and field.completed == []
    field.lead("t", 0, 1)
    field.unfence(2)
    await field.settle()
    one, two = await field.asked(2)
    assert (one.places, two.places) == ([T0], [T1])


@run_by(marked)
async def test_a_topic_that_is_deleted_needs_no_markers(field: Field, /) -> None:
    field.create("gone", 1)
    field.lead("gone", 0, 2)
    field.send(T0, ("gone", 0), name="a")
    field.send(("gone", 0), producer_id=8, name="b")
    one, two = await field.asked(2)
    field.delete("gone")
    assert field.completed == ["b"], "its broker is not waited for"
    one.respond()
    await field.settle()
    assert field.completed == ["b", "a"]
    two.fail()
    await asyncio.sleep(1)
    assert field.completed == ["b", "a"] and field.peers.asked == []


@run_by(marked)
async def test_a_transaction_whose_only_topic_is_deleted_while_nobody_leads_it_ends(field: Field, /) -> None:
    field.lead("t", 0, -1)
    field.send(T0)
    await field.settle()
    field.delete("t")
    assert field.completed == ["x"]


@run_by(marked)
async def test_a_transaction_without_partitions_ends_at_once(field: Field, /) -> None:
    field.send()
    assert field.completed == ["x"] and field.peers.asked == []


@run_by(marked)
async def test_a_completion_that_cannot_be_written_is_brought_again(field: Field, /) -> None:
    field.refusals = 3
    field.send(T0)
    (asked,) = await field.asked()
    asked.respond()
    await field.settle()
    assert field.completed == [] and len(field.markers) == 1
    await asyncio.sleep(1)
    assert field.completed == ["x"] and field.peers.asked == [], "without another marker"


@run_by(marked)
async def test_transactions_that_are_coordinated_elsewhere_are_left_alone(field: Field, /) -> None:
    field.send(T0, producer_id=1, name="a")
    (asked,) = await field.asked()
    field.send(T0, producer_id=2, name="b")
    field.lead("t", 1, -1)
    field.send(T1, producer_id=3, name="c")
    field.markers.drop(field.shard.state)
    assert len(field.markers) == 0
    asked.respond()
    field.lead("t", 1, 2)
    await asyncio.sleep(2)
    assert field.completed == [] and field.peers.asked == []
    field.send(T0, producer_id=1, name="a")  # elected again
    (again,) = await field.asked()
    assert again.places == [T0]


@run_by(marked)
async def test_the_marker_of_a_new_transaction_is_not_taken_for_that_of_an_old_one(field: Field, /) -> None:
    field.send(T0, producer_id=1, name="a")
    (asked,) = await field.asked()
    field.markers.drop(field.shard.state)
    field.send(T0, producer_id=1, name="a", commit=False)
    asked.respond()
    await field.settle()
    (again,) = await field.asked()
    assert again.markers == {(1, T0): (4, False)} and field.completed == []
