"""Events: the record that they are of, and passing it on."""

from typing import Any

import pytest

from isthmus.streams import App
from isthmus.streams.driver import TestDriver, TestRecord
from isthmus.streams.engine.event import Event
from isthmus.streams.errors import AppError
from tests.running import in_loop, run_by

HEADERS = (("h", b"1"), ("h", b"2"), ("none", None))


async def within(use: Any, *given: TestRecord) -> TestDriver:
    """Runs `await use(app, event)` for each record of topic `in`, whose values are JSON. Gives the driver, closed."""
    app = App("app")

    @app.agent(app.topic("in"))
    async def agent(stream: Any) -> None:
        async for event in stream.events():
            await use(app, event)

    driver = TestDriver(app)
    driver.send("in", *given)
    driver.close()
    return driver


@run_by(in_loop)
async def test_an_event_has_its_record() -> None:
    seen = []

    async def use(app: App, event: Event) -> None:
        message = event.message
        seen.append((message.offset, message.key, message.value, event.value, event.raw_headers))
        assert (message.topic, message.partition, message.timestamp) == ("in", 0, 1.5) and message.tp == ("in", 0)
        assert event.app is app and event.headers == dict(message.headers)
        async with event as entered:
            assert entered is event and event.ack() is False

    await within(use, TestRecord(b" 1", b"k", 1500, HEADERS), TestRecord(b"null", None, 1500))
    assert seen == [(0, b"k", b" 1", 1, HEADERS), (1, None, b"null", None, ())]


@run_by(in_loop)
async def test_events_that_were_kept_still_have_their_records() -> None:
    kept: list[Event] = []

    async def use(app: App, event: Event) -> None:
        kept.append(event)
        assert [each.message.offset for each in kept] == [each.offset for each in kept]

    await within(use, *(TestRecord(b"%d" % n, headers=(("n", b"%d" % n),)) for n in range(3)))
    assert [each.headers["n"] for each in kept] == [b"0", b"1", b"2"]


@run_by(in_loop)
async def test_an_event_is_forwarded_as_it_came_and_sent_as_it_is_written() -> None:
    async def use(app: App, event: Event) -> None:
        await event.forward("forwarded")
        await event.forward(app.topic("changed"), key="l", value=2, headers={}, timestamp=3)
        await event.send("sent")
        await event.send(app.topic("other", value_serializer="str"), value="x", headers=[("i", b"")])

    driver = await within(use, TestRecord(b" 1", b"k", 1500, HEADERS))
    assert [each[:5] for each in driver.sent] == [
        ("forwarded", b"k", b" 1", 1500, HEADERS),
        ("changed", b"l", b"2", 3000, ()),
        ("sent", b"k", b"1", 1500, HEADERS),
        ("other", b"k", b"x", 1500, (("i", b""),)),
    ]


def test_an_event_that_no_record_is_behind_says_so():
    with pytest.raises(AppError, match="is of no record that was fetched"):
        _ = Event(None, 1, 0, "t", 0, 0).message
