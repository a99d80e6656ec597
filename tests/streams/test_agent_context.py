"""One agent is given values, as Faust's users test theirs."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from isthmus.streams import App, AppError, Record
from tests.running import in_loop, run_by


class Order(Record):
    region: str
    count: int


class Shop:
    def __init__(self) -> None:
        self.app = App("shop")
        self.totals = totals = self.app.Table("totals", default=int)
        self.channel = self.app.channel()

        @self.app.agent(self.app.topic("orders", value_type=Order))
        async def orders(stream: Any) -> AsyncIterator[Any]:
            async for order in stream.group_by(Order.region):
                totals[order.region] += order.count
                yield totals[order.region]

        @self.app.agent(self.channel)
        async def beside(stream: Any) -> None:
            async for count in stream:
                await orders.cast(Order("beside", count))

        @self.app.agent(self.app.topic("asked"))
        async def asking(stream: Any) -> None:
            async for value in stream:
                if value < 0:
                    raise KeyError(value)
                await orders.ask(Order("asked", value))

        self.orders, self.beside, self.asking = orders, beside, asking


@run_by(in_loop)
async def test_results_are_by_offset_and_tables_can_be_read():
    shop = Shop()
    async with shop.orders.test_context() as agent:
        for count, region, total in ((3, "a", 3), (4, "a", 7), (5, "b", 5)):
            event = await agent.put(Order(region, count), key="k", timestamp=7.5, headers={"h": b"1"})
            assert agent.results[event.message.offset] == total
        assert (event.message.topic, event.timestamp, event.headers) == ("orders", 7.5, {"h": b"1"})
        assert dict(shop.totals.items()) == {"a": 7, "b": 5}
        await agent.put(Order("b", 1), reply_to="answers", correlation_id="7")
        assert [sent.value for sent in agent.driver.sent if sent.topic == "answers"] == [
            b'{"key":"b","value":6,"correlation_id":"7","__faust":{"ns":"@ReqRepResponse"}}'
        ]
    assert shop.orders.sinks == []
    with pytest.raises(AppError, match="no worker of its app runs here"):
        shop.totals["a"]
    with pytest.raises(AppError, match="use test_context"):
        await agent.put(Order("a", 1))


@run_by(in_loop)
async def test_what_an_agent_sends_and_asks_is_processed_before_put_returns():
    shop = Shop()
    async with shop.asking.test_context() as agent:
        await agent.put(2)
        assert (agent.results, shop.totals["asked"]) == ({0: 2}, 2)
    async with shop.beside.test_context() as agent:
        await agent.put(3)
        assert (agent.results, shop.totals["beside"]) == ({0: 3}, 3)


@run_by(in_loop)
async def test_put_raises_what_the_agent_raises():
    told = []

    async def on_error(agent: Any, error: BaseException) -> None:
        told.append((agent.name, repr(error)))

    shop = Shop()
    with pytest.raises(KeyError, match="-1"):
        async with shop.asking.test_context(on_error=on_error) as agent:
            await agent.put(-1)
    assert told == [(shop.asking.name, "KeyError(-1)")]


@run_by(in_loop)
async def test_an_app_of_channels_alone_is_tested():
    app = App("app")
    said = []

    @app.agent(app.channel())
    async def only(stream: Any) -> None:
        async for value in stream:
            said.append(value)

    async with only.test_context() as agent:
        await agent.put(1)
        await agent.put(2)
    assert said == [1, 2]
