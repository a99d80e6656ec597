"""Channels: in memory, bounded, and agents that read them."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from isthmus.streams import App, current_event
from isthmus.streams.driver import TestDriver
from isthmus.streams.errors import AppError
from tests.running import in_loop, run_by


@run_by(in_loop)
async def test_agents_pass_events_on_by_channels():
    """As examples/bound_agent.py of faust-streaming."""
    app = App("app")
    first, failed = app.channel(value_type=int), app.channel()
    out = app.topic("out")
    seen: list[Any] = []

    @app.agent(app.topic("in"), sink=[first])
    async def enter(stream: Any) -> AsyncIterator[Any]:
        async for value in stream:
            yield value

    @app.agent(first, sink=[out], name="second")
    async def second(stream: Any) -> AsyncIterator[Any]:
        async for value in stream:
            if value == 2:
                await failed.send(key="k", value=value, headers={"h": b""})
            else:
                yield 10 * value

    @app.agent(failed)
    async def third(stream: Any) -> None:
        async for event in stream.events():
            assert event is current_event()
            seen.append((event.key, event.value, event.timestamp_ms, event.headers))

    driver = TestDriver(app)
    for value in (b"1", b"2", b"3"):
        driver.send("in", value=value, timestamp_ms=1500)
    await first.send(value=4)
    driver.send("in", value=b"5")
    assert [each.value for each in driver.sent] == [b"10", b"30", b"40", b"50"]
    assert seen == [("k", 2, 1500, {"h": b""})]
    assert driver.run(second.ask(6)) == 60
    driver.close()


@run_by(in_loop)
async def test_each_reader_gets_each_event():
    app = App("app")
    channel = app.channel()
    seen: list[Any] = []
    for name in ("one", "other"):

        @app.agent(channel, name=name)
        async def read(stream: Any, name: str = name) -> None:
            async for value in stream:
                seen.append((name, value))

    driver = TestDriver(app)
    await channel.send(value=1)
    await driver.advance(1)
    assert sorted(seen) == [("one", 1), ("other", 1)]
    driver.close()


@run_by(in_loop)
async def test_an_agent_of_a_channel_that_fails_goes_on_with_the_next_event(caplog: pytest.LogCaptureFixture):
    app = App("app")
    channel = app.channel()
    seen: list[int] = []

    @app.agent(app.topic("in"), sink=[channel])
    async def enter(stream: Any) -> AsyncIterator[Any]:
        async for value in stream:
            yield value

    @app.agent(channel)
    async def odd(stream: Any) -> None:
        async for value in stream:
            seen.append(value)
            assert value != 1

    driver = TestDriver(app)
    driver.send("in", value=b"1")
    driver.send("in", value=b"2")
    assert seen == [1, 2] and "raised AssertionError" in caplog.text
    driver.close()


@run_by(in_loop)
async def test_a_channel_is_bounded_and_read_without_agents():
    channel = App("app").channel(maxsize=1)
    await channel.send(value=1, timestamp=2.5)
    waiting = asyncio.ensure_future(channel.send(value=2))
    await asyncio.sleep(0)
    assert not waiting.done() and not channel.empty()
    assert ((first := await channel.get()).value, first.timestamp) == (1, 2.5)
    assert (await channel.get(timeout=timedelta(seconds=5))).value == 2 and channel.empty()
    with pytest.raises(TimeoutError):
        await channel.get(timeout=0.001)
    await channel.send(value=3)
    async for event in channel:
        assert event.value == 3
        break


def test_what_channels_cannot_be():
    app = App("app")
    with pytest.raises(AppError, match="maxsize 0, but must be bounded"):
        app.channel(maxsize=0)
    with pytest.raises(AppError, match="a channel is in memory, and no topic"):
        app.channel().get_topic_name()


@run_by(in_loop)
async def test_an_agent_of_a_channel_has_no_tables():
    app = App("app")
    table = app.Table("t")
    app.agent(app.topic("in"), tables=[table])(lambda stream: None)

    @app.agent(app.channel(), name="store")
    async def store(stream: Any) -> None:
        async for value in stream:
            table["k"] = value

    with pytest.raises(AppError, match="agent store reads a channel, and uses table t"):
        TestDriver(app)
