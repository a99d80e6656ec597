"""Agents: their names, sinks, and how they are asked."""

import asyncio
import functools
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from isthmus.streams import App
from isthmus.streams import Record as Model
from isthmus.streams.api import rpc
from isthmus.streams.api.rpc import NoReply
from isthmus.streams.driver import TestDriver, TestRecord
from isthmus.streams.errors import AppError
from tests.running import in_loop, run_by

TO = (("Faust-Ag-ReplyTo", b"answers"), ("Faust-Ag-CorrelationId", b"7"))
# As faust-streaming 0.15.3 writes them.
REQUEST = b'{"value": 3, "reply_to": "answers", "correlation_id": "7", "__faust": {"ns": "@ReqRepRequest"}}'
REPLY = {"key": "k", "value": 6, "correlation_id": "7", "__faust": {"ns": "@ReqRepResponse"}}


async def double(stream: Any) -> AsyncIterator[Any]:
    async for value in stream:
        yield 2 * value


def doubling(**options: Any) -> tuple[App, Any]:
    app = App("app")
    return app, app.agent(app.topic("in"), **options)(double)


class Made(Model):
    n: int

    def __rmul__(self, other: int) -> int:
        return other * self.n


class Bound:
    async def method(self, stream: Any) -> None: ...


def test_agents_and_their_topics_have_the_names_that_faust_gives_them():
    app = App("app")
    agent = app.agent()(double)
    assert (agent.name, agent.channel.names) == ("tests.streams.api.test_agents.double", (f"app-{agent.name}",))
    assert app.agent("t")(Bound().method).name == "tests.streams.api.test_agents.method"
    assert app.agent("t")(functools.partial(double)).name == "functools.partial"
    assert app.agent("t", name="n", help="h")(double).channel.names == ("t",)
    assert app.agent(value_serializer="raw", name="m")(double).channel.encode_value(b"x") == b"x"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"concurrency": 0}, "concurrency is 0"),
        ({"value_type": int}, "has no value_type=: the topic is declared with it"),
    ],
)
def test_agents_that_cannot_be_are_refused(options: Any, said: str):
    with pytest.raises(AppError, match=said):
        doubling(**options)


def test_an_agent_with_a_sink_must_yield():
    app = App("app")
    agent = app.agent(app.topic("in"))(Bound().method)
    with pytest.raises(AppError, match="method has a sink, but does not yield"):
        agent.add_sink(print)


@run_by(in_loop)
async def test_what_is_yielded_goes_to_sinks_of_all_kinds():
    app, agent = doubling()
    called: list[Any] = []

    async def awaited(value: Any) -> None:
        called.append(("awaited", value))

    other = app.agent(app.topic("other"))(double)
    for sink in (called.append, awaited, app.topic("out"), other, other):
        agent.add_sink(sink)
    driver = TestDriver(app)
    driver.send("in", value=b"1")
    assert called == [2, ("awaited", 2)]
    assert [(each.topic, each.value) for each in driver.sent] == [("out", b"2"), ("other", b"2")]
    driver.close()


# --- Replies ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("record", [TestRecord(REQUEST, b"k"), TestRecord(b"3", b"k", headers=TO)])
@run_by(in_loop)
async def test_a_request_of_faust_is_answered_as_faust_does(record: TestRecord):
    app, _ = doubling()
    driver = TestDriver(app)
    driver.send("in", *[record, TestRecord(b"4", b"k")])
    [reply] = driver.sent
    assert (reply.topic, reply.key, orjson.loads(reply.value or b"")) == ("answers", None, REPLY)
    driver.close()


@run_by(in_loop)
async def test_a_value_that_looks_like_an_envelope_is_a_value():
    app = App("app")
    seen = []

    @app.agent(app.topic("in"))
    async def see(stream: Any) -> AsyncIterator[Any]:
        async for value in stream:
            seen.append(value)
            yield value

    driver = TestDriver(app)
    driver.send("in", value=b'"@ReqRepRequest"')
    driver.send("in", value=b'{"__faust": {"ns": "@ReqRepRequest"}}')
    assert seen == ["@ReqRepRequest", {"__faust": {"ns": "@ReqRepRequest"}}] and not driver.sent
    driver.close()


@pytest.mark.parametrize("by_headers", [False, True])
@run_by(in_loop)
async def test_an_agent_is_asked(by_headers: bool):
    app, agent = doubling(use_reply_headers=by_headers)
    driver = TestDriver(app)
    assert await agent.ask(3, key="k") == 6
    request = driver.sent[0]
    if by_headers:
        assert (request.value, dict(request.headers).keys()) == (b"3", dict(TO).keys())
    else:
        said = orjson.loads(request.value or b"")
        assert said == orjson.loads(REQUEST) | {"reply_to": "app-replies", "correlation_id": "1"}
    await agent.cast(5)
    promise = await agent.ask_nowait(4, reply_to="elsewhere", correlation_id="x")
    assert (await promise, promise.reply_to, promise.correlation_id) == (8, "elsewhere", "x")
    await agent.send(value=1, reply_to=app.topic("answers"), correlation_id="y")
    with pytest.raises(AppError, match="needs a correlation_id="):
        await agent.send(value=1, reply_to="answers")
    driver.close()


@run_by(in_loop)
async def test_many_are_asked_and_answers_come_in_order_or_as_they_come(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("isthmus.streams.api.agents.IN_FLIGHT_MAX", 3)
    app, agent = doubling()
    driver = TestDriver(app)
    numbers = range(10)

    async def pairs() -> AsyncIterator[tuple[str, int]]:
        for number in numbers:
            yield str(number), number

    doubled = [2 * number for number in numbers]
    assert await agent.join(numbers) == await agent.kvjoin(pairs()) == doubled
    assert sorted([each async for each in agent.map(numbers, key="k")]) == doubled
    assert sorted([each async for each in agent.kvmap(pairs())]) == doubled
    driver.close()


@run_by(in_loop)
async def test_who_gets_no_reply_is_told():
    app = App("app")

    @app.agent(app.topic("in"))
    async def silent(stream: Any) -> None:
        async for _ in stream:
            pass

    driver = TestDriver(app)
    with pytest.raises(NoReply, match="has not answered within 0 s"):
        await silent.ask(1, timeout=0)
    driver.close()


@run_by(in_loop)
async def test_pending_replies_are_bounded_and_end_with_the_worker(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rpc, "PENDING_MAX", 2)
    app, _ = doubling()
    driver = TestDriver(app)
    promises = [await app.replies.expect(driver._running, "answers") for _ in range(3)]
    with pytest.raises(NoReply, match="asked before 2 others"):
        await promises[0]
    for data in (None, b"", b"[]", b'{"correlation_id": [], "value": 1}', b'{"correlation_id": "0", "value": 1}'):
        app.replies.take(data)
    app.replies.take(b'{"correlation_id": "2", "value": 1}')
    assert await promises[1] == 1
    app.replies.end()
    with pytest.raises(NoReply, match="the app has ended"):
        await promises[2]
    driver.close()


@run_by(in_loop)
async def test_an_agent_asks_another_one_of_its_own_worker_which_asks_a_third():
    app = App("app")
    channel, said = app.channel(), []

    @app.agent(app.topic("in"))
    async def asking(stream: Any) -> None:
        async for value in stream:
            said.append(await doubled.ask(value))

    @app.agent(channel)
    async def beside(stream: Any) -> None:
        async for value in stream:
            said.append(await doubled.ask(value))

    @app.agent()
    async def doubled(stream: Any) -> AsyncIterator[Any]:
        async for value in stream:
            yield 2 * await made.ask(value)

    @app.agent()
    async def made(stream: Any) -> AsyncIterator[Any]:
        async for value in stream.group_by(lambda value: value % 2, name="odd"):
            yield Made(value)

    driver = TestDriver(app)
    driver.send("in", TestRecord(b"1"), TestRecord(b"2"))
    await channel.send(value=3)
    driver.send("in", value=b"4")
    assert said == [2, 4, 6, 8]
    assert await made.ask(5) == Made(5)
    await driver.close()


@run_by(in_loop)
async def test_requests_find_the_agent_through_group_by():
    app = App("app")

    @app.agent(app.topic("in"))
    async def grouped(stream: Any) -> AsyncIterator[Any]:
        async for value in stream.group_by(lambda value: value % 2, name="odd"):
            yield 10 * value

    driver = TestDriver(app)
    assert await asyncio.gather(grouped.ask(1), grouped.ask(2)) == [10, 20]
    driver.close()
