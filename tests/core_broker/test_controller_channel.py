"""The way to the active controller: it is found, found again, and asked until the caller's time is over."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from isthmus.core_broker import controller_channel
from isthmus.core_broker.controller_channel import ControllerChannel, has_error
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.messages import allocate_producer_ids, create_topics
from tests.client.scripted import HANG_UP, SILENCE, ScriptedBroker, World, simulate
from tests.running import run_by

ME = 9
BLOCK = allocate_producer_ids.Response(producer_id_start=7000, producer_id_len=1000)
NOT_CONTROLLER = allocate_producer_ids.Response(error_code=ErrorCode.NOT_CONTROLLER)
ASKED = "allocate_producer_ids"


class Quorum:
    """Who leads, as this node knows it. `local` are the answers of its own controller."""

    def __init__(self, world: World, leader: ScriptedBroker | None) -> None:
        self.known = None if leader is None else (leader.node_id, leader.address)
        self.local: list[Any] = []
        self.channel = ControllerChannel("test", ME, lambda: self.known, self.answer)
        world.to_close.append(self.channel.close)

    async def answer(self, message: Any) -> Any:
        return self.local.pop(0)

    def elect(self, leader: ScriptedBroker) -> None:
        self.known = (leader.node_id, leader.address)
        self.channel.leader_changed()

    async def ask(self, timeout_ms: float = 20_000) -> Any:
        return await self.channel.request(allocate_producer_ids.Request(broker_id=ME, broker_epoch=1), timeout_ms)


@run_by(simulate)
async def test_one_connection_carries_all_requests_to_the_controller(world: World, /) -> None:
    controller = world.brokers[1]
    controller.script[ASKED].extend([lambda _: BLOCK] * 40)
    quorum = Quorum(world, controller)
    answers = await asyncio.gather(*(quorum.ask() for _ in range(40)))
    assert answers == [BLOCK] * 40
    assert len(controller.links) == 1
    assert controller.requests(ASKED)[0].broker_id == ME


@run_by(simulate)
async def test_the_active_controller_asks_itself_without_a_connection(world: World, /) -> None:
    quorum = Quorum(world, None)
    quorum.known, quorum.local = (ME, "nowhere:1"), [NOT_CONTROLLER, BLOCK]  # it has just been elected, at first
    assert await quorum.ask() == BLOCK
    assert not quorum.local


@run_by(simulate)
async def test_a_request_goes_to_the_new_controller_when_the_old_one_is_none_any_more(world: World, /) -> None:
    old, new = world.brokers[1], await ScriptedBroker(world, 2).start()
    old.script[ASKED].extend([lambda _: NOT_CONTROLLER] * 3)
    new.script[ASKED].append(lambda _: BLOCK)
    quorum = Quorum(world, old)
    asking = asyncio.create_task(quorum.ask())
    while not old.requests(ASKED):
        await asyncio.sleep(0.01)
    quorum.elect(new)
    assert await asking == BLOCK


@pytest.mark.parametrize("trouble", ["silent", "dead", "hangs up"])
@run_by(simulate)
async def test_what_waits_for_a_controller_that_is_lost_is_sent_to_the_next_one(world: World, /, trouble: str) -> None:
    old, new = world.brokers[1], await ScriptedBroker(world, 2).start()
    said = HANG_UP if trouble == "hangs up" else SILENCE
    old.script[ASKED].extend([lambda _: said] * 100)
    new.script[ASKED].append(lambda _: BLOCK)
    quorum = Quorum(world, old)
    asking = asyncio.create_task(quorum.ask())
    while not old.requests(ASKED):
        await asyncio.sleep(0.01)
    if trouble == "dead":
        old.kill()
    quorum.elect(new)
    assert await asking == BLOCK
    assert len(new.links) == 1


@run_by(simulate)
async def test_a_request_waits_for_an_election_until_its_time_is_over(world: World, /) -> None:
    controller = world.brokers[1]
    quorum = Quorum(world, None)
    with pytest.raises(KafkaError, match="no controller is known") as late:
        await quorum.ask(300)
    assert late.value.code == ErrorCode.REQUEST_TIMED_OUT

    controller.script[ASKED].append(lambda _: BLOCK)
    asking = asyncio.create_task(quorum.ask())
    await asyncio.sleep(1)
    quorum.elect(controller)
    assert await asking == BLOCK


@run_by(simulate)
async def test_a_caller_without_time_takes_none_of_the_others(world: World, /) -> None:
    """Its answer may still come, and is dropped; the connection stays."""
    controller = world.brokers[1]
    controller.script[ASKED].extend([lambda _: SILENCE] * 2)
    quorum = Quorum(world, controller)
    patient = asyncio.create_task(quorum.ask())
    while not controller.requests(ASKED):
        await asyncio.sleep(0.01)
    with pytest.raises(KafkaError, match=f"within 100 ms: node 1 at {controller.address}"):
        await quorum.ask(100)
    assert not patient.done()
    assert len(controller.links) == 1
    patient.cancel()


@run_by(simulate)
async def test_more_than_may_wait_are_refused(world: World, /) -> None:
    quorum = Quorum(world, None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(controller_channel, "MAX_WAITING", 1)
        first = asyncio.create_task(quorum.ask())
        await asyncio.sleep(0)
        with pytest.raises(KafkaError, match="1 requests already wait"):
            await quorum.ask()
        await quorum.channel.close()
        with pytest.raises(KafkaError, match="stopping"):
            await first


@run_by(simulate)
async def test_a_controller_without_the_api_is_told_as_that(world: World, /) -> None:
    del world.brokers[1].versions[allocate_producer_ids.API.key]
    with pytest.raises(KafkaError, match="does not support AllocateProducerIds") as refused:
        await Quorum(world, world.brokers[1]).ask()
    assert refused.value.code == ErrorCode.UNSUPPORTED_VERSION


def test_an_error_is_found_wherever_an_answer_has_it() -> None:
    result = create_topics.CreatableTopicResult(name="t", error_code=ErrorCode.NOT_CONTROLLER)
    answer = create_topics.Response(topics=[create_topics.CreatableTopicResult(name="u"), result])
    assert has_error(answer, ErrorCode.NOT_CONTROLLER)
    assert not has_error(answer, ErrorCode.REQUEST_TIMED_OUT)
    assert has_error(NOT_CONTROLLER, ErrorCode.NOT_CONTROLLER)
