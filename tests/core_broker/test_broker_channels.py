"""Requests of a broker to other brokers: one connection to each, errors by name, itself without a network."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from isthmus.core_broker.broker_channels import BrokerChannels
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.messages import write_txn_markers
from tests.client.scripted import HANG_UP, SILENCE, ScriptedBroker, World, simulate
from tests.running import run_by

ME, OTHER = 9, 1
REQUEST = write_txn_markers.Request()
ANSWER = write_txn_markers.Response()
ASKED = "write_txn_markers"


class Peers:
    """`addresses`: of the brokers that are alive."""

    def __init__(self, world: World) -> None:
        self.addresses: dict[int, str] = {OTHER: world.brokers[1].address}
        self.channels = BrokerChannels("test", ME, self.addresses.get, self.answer)
        world.to_close.append(self.channels.close)

    async def answer(self, message: Any) -> Any:
        assert message is REQUEST
        return ANSWER

    async def ask(self, broker_id: int = OTHER, **options: Any) -> Any:
        return await self.channels.request(broker_id, REQUEST, 5_000, **options)

    async def refusal(self, broker_id: int = OTHER, **options: Any) -> int:
        with pytest.raises(KafkaError) as refused:
            await self.ask(broker_id, **options)
        return refused.value.code


@run_by(simulate)
async def test_one_connection_carries_all_requests_to_a_broker(world: World, /) -> None:
    other = world.brokers[1]
    other.script[ASKED].extend([lambda _: ANSWER] * 20)
    peers = Peers(world)
    assert await asyncio.gather(*(peers.ask() for _ in range(20))) == [ANSWER] * 20
    assert len(other.links) == 1


@run_by(simulate)
async def test_a_broker_asks_itself_without_a_connection(world: World, /) -> None:
    assert await Peers(world).ask(ME) is ANSWER
    assert not world.brokers[1].links


@run_by(simulate)
async def test_a_lost_connection_fails_its_requests_and_the_next_one_gets_a_new_one(world: World, /) -> None:
    other = world.brokers[1]
    other.script[ASKED].extend([lambda _: HANG_UP, lambda _: ANSWER])
    peers = Peers(world)
    assert await peers.refusal() == ErrorCode.NETWORK_EXCEPTION
    assert await peers.ask() == ANSWER
    assert len(other.links) == 2


@run_by(simulate)
async def test_a_broker_that_moved_is_asked_at_its_new_address(world: World, /) -> None:
    old, new = world.brokers[1], await ScriptedBroker(world, 2).start()
    old.script[ASKED].append(lambda _: ANSWER)
    new.script[ASKED].append(lambda _: ANSWER)
    peers = Peers(world)
    await peers.ask()
    peers.addresses[OTHER] = new.address
    await peers.ask()
    assert len(new.requests(ASKED)) == 1


@run_by(simulate)
async def test_what_can_not_be_asked_says_why(world: World, /) -> None:
    world.brokers[1].script[ASKED].append(lambda _: SILENCE)
    peers = Peers(world)
    assert await peers.refusal() == ErrorCode.REQUEST_TIMED_OUT
    assert await peers.refusal(least_version=99) == ErrorCode.UNSUPPORTED_VERSION
    assert await peers.refusal(77) == ErrorCode.BROKER_NOT_AVAILABLE
    peers.addresses[OTHER] = "nowhere:1"
    assert await peers.refusal() == ErrorCode.NETWORK_EXCEPTION


@run_by(simulate)
async def test_nobody_waits_for_a_broker_that_is_not_alive_any_more(world: World, /) -> None:
    other = world.brokers[1]
    other.script[ASKED].extend([lambda _: SILENCE, lambda _: ANSWER])
    peers = Peers(world)
    loop = asyncio.get_running_loop()
    begun, waits = loop.time(), asyncio.ensure_future(peers.refusal())
    while not other.requests(ASKED):
        await asyncio.sleep(0.01)
    peers.channels.metadata_changed()
    address = peers.addresses.pop(OTHER)
    assert not waits.done()
    peers.channels.metadata_changed()
    assert await waits == ErrorCode.NETWORK_EXCEPTION
    assert loop.time() - begun < 1
    peers.addresses[OTHER] = address
    assert await peers.ask() == ANSWER
