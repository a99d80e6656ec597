"""Events that an agent takes together: an error leaves out all of them, and none besides."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.client import TopicPartition
from isthmus.streams import App, TestDriver, TestRecord


@pytest.mark.parametrize("at_once", [7, 1])
@pytest.mark.parametrize("policy", ["skip", "dead_letter"])
def test_all_that_an_agent_took_together_is_left_out(policy: str, at_once: int) -> None:
    app, got = App("app", value_serializer="json"), []

    @app.agent(app.topic("in"), on_error=policy)
    async def take(stream: Any) -> None:
        async for values in stream.take(3, within=5):
            assert 1 not in values
            got.append(values)

    with TestDriver(app) as driver:
        records = [TestRecord(value) for value in range(7)]
        for begin in range(0, 7, at_once):  # of one fetch, or of several
            driver.send("in", *records[begin : begin + at_once])
        driver.advance(5)
        assert got == [[3, 4, 5], [6]]
        assert [each.raw.value for each in driver.left_out] == [b"0", b"1", b"2"]
        dead = [(each.value, dict(each.headers)) for each in driver.read(app.dead_letters)]
        assert [value for value, _ in dead] == ([b"0", b"1", b"2"] if policy == "dead_letter" else [])
        assert [headers["__streams.errors.offset"] for _, headers in dead] == [b"%d" % n for n in range(len(dead))]
        assert driver.positions == {TopicPartition("in", 0): 7}


def test_a_batch_is_left_out_as_a_whole() -> None:
    app, got = App("app", value_serializer="json"), []

    @app.agent(app.topic("in"), on_error="dead_letter")
    async def batches(stream: Any) -> None:
        async for events in stream.batches():
            assert len(events) != 3
            got.append([event.value for event in events])

    with TestDriver(app) as driver:
        driver.send("in", *map(TestRecord, range(3)))
        driver.send("in", TestRecord(3))
        assert got == [[3]] and [each.value for each in driver.read(app.dead_letters)] == [b"0", b"1", b"2"]


@pytest.mark.parametrize("way", ["take", "batches"])
def test_what_waits_beside_an_event_that_a_filter_refuses_is_given(way: str) -> None:
    app, got = App("app", value_serializer="json"), []

    def keep(value: int) -> bool:
        assert value != 2
        return value != 0

    @app.agent(app.topic("in"), on_error="skip")
    async def collect(stream: Any) -> None:
        kept = stream.filter(keep)
        async for events in kept.take_events(3, 5) if way == "take" else kept.batches():
            got.append([event.value for event in events])

    with TestDriver(app) as driver:
        driver.send("in", *map(TestRecord, range(5)))
        assert got == [[1, 3, 4]] and [each.raw.offset for each in driver.left_out] == [2]


def test_an_agent_that_leaves_an_iteration_is_given_what_waits_and_nothing_twice() -> None:
    app, got = App("app", value_serializer="json"), []

    @app.agent(app.topic("in"))
    async def take(stream: Any) -> None:
        while True:
            async for values in stream.take(2, within=5):
                got.append(values)
                break

    with TestDriver(app) as driver:
        driver.send("in", *map(TestRecord, range(3)))
        driver.commit()
        driver.advance(5)
        assert got == [[0, 1], [2]]
