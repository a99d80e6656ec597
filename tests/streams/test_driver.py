"""Apps under the TestDriver: tables, windows, outputs, restore, and what a batch costs the loop."""

import json
import math
import pickle
from base64 import b64decode
from typing import Any

import pytest

from isthmus.client import TopicPartition
from isthmus.streams import App, RecordError
from isthmus.streams.driver import TestDriver, TestRecord
from isthmus.streams.engine.checkpoint import MARKER
from isthmus.streams.engine.event import Event
from isthmus.streams.errors import AppError, ChangelogError
from isthmus.streams.runtime.agents import AgentRun
from tests.running import in_loop, run_by
from tests.streams.forgetting import truncate


def counting_app(id: str = "counts") -> App:
    app = App(id)
    words = app.topic("words", value_serializer="str")
    big = app.topic("big", value_serializer="json")
    counts = app.Table("counts", default=int)
    minutes = app.Table("minutes", default=int).tumbling(60)

    @app.agent(words)
    async def count(stream):
        async for event in stream.events():
            counts[event.value] += 1
            minutes[event.value] = minutes[event.value].current() + 1
            if counts[event.value] == 2:
                await big.send(key=event.value, value={"word": event.value})

    return app


@run_by(in_loop)
async def test_tables_windows_and_outputs():
    driver = TestDriver(counting_app())
    for at_ms, word in [(0, b"a"), (59_999, b"a"), (60_000, b"a"), (60_001, b"b")]:
        driver.send("words", value=word, timestamp_ms=at_ms)
    assert driver.table("counts") == {"a": 3, "b": 1}
    assert driver.table("minutes") == {("a", 0): 2, ("a", 60_000): 1, ("b", 60_000): 1}
    [sent] = driver.sent
    assert (sent.topic, sent.key, json.loads(sent.value), sent.timestamp_ms) == ("big", b"a", {"word": "a"}, 59_999)
    driver.close()


@run_by(in_loop)
async def test_a_restart_goes_on_from_the_last_checkpoint():
    driver = TestDriver(counting_app())
    driver.send("words", value=b"a")
    driver.commit()
    driver.send("words", value=b"a")
    driver.send("words", value=b"z")  # both after the last checkpoint: they count once
    driver.crash()  # and both are processed again
    assert driver.table("counts") == {"a": 2, "z": 1} and driver.table("minutes") == {("a", 0): 2, ("z", 0): 1}
    driver.commit()
    assert [row.key for row in driver.changelogs["counts"]] == [b'"a"', MARKER, b'"a"', b'"z"', MARKER]
    driver.close()


@run_by(in_loop)
async def test_a_changelog_that_is_not_the_apps_is_refused():
    driver = TestDriver(counting_app())
    driver.send("words", value=b"a")
    driver.commit()
    renamed = counting_app("another")
    renamed.changelog_topic = driver.app.changelog_topic  # type: ignore[method-assign]
    with pytest.raises(ChangelogError, match=r"the changelog of table counts, .* has a marker of app counts"):
        TestDriver(renamed, topics=driver.topics)
    changelog = TopicPartition("counts-minutes-changelog", 0)
    end = driver.topics.end(changelog)
    driver.send("words", value=b"a")
    driver.commit()
    truncate(driver, changelog, end)
    with pytest.raises(ChangelogError, match=r"task words-0 .* the changelog of table minutes ends with checkpoint 1"):
        TestDriver(counting_app(), topics=driver.topics)
    driver.close()


@run_by(in_loop)
async def test_an_agents_error_names_the_record():
    app = App("broken")

    @app.agent(app.topic("words", value_serializer="json"))
    async def fail(stream):
        async for value in stream:
            raise ValueError(value)

    driver = TestDriver(app)
    with pytest.raises(
        RecordError,
        match=r"agent tests.streams.test_driver.fail raised ValueError: 7 \(.*test_driver.py:\d+\) at words-0 offset 0",
    ):
        driver.send("words", value=b"7")
    driver.close()
    driver = TestDriver(app)
    with pytest.raises(RecordError, match=r"offset 0: the value cannot be decoded"):
        driver.send("words", value=b"{")
    driver.close()


def test_a_table_outside_of_an_agent_is_refused():
    table = App("x").Table("t")
    with pytest.raises(AppError, match="outside of an agent"):
        table["a"] = 1


@run_by(in_loop)
async def test_a_batch_costs_at_most_three_turns_of_the_loop():
    app = counting_app()
    driver = TestDriver(app)
    driver.send("words", value=b"warm")
    [task] = driver._running.runs.values()
    [(readers, _)] = task.lane_of("words").readers
    run: AgentRun = readers.runs[0]
    loop: Any = driver._loop
    turns = 0
    original = loop._run_once

    def counted():
        nonlocal turns
        turns += 1
        original()

    loop._run_once = counted

    async def measure() -> None:
        nonlocal turns
        for size in (1, 10, 5_000):
            turns = 0
            await run.offer(iter([Event(None, f"w{i % 7}", i, "words", 0, i) for i in range(size)]), math.inf)
            assert 0 < turns <= 3, (size, turns)

    driver.run(measure())
    driver.close()


@run_by(in_loop)
async def test_a_window_counts_as_in_faust():
    app = App("windows")
    views = app.Table("views", default=int).tumbling(10)

    @app.agent(app.topic("in", value_serializer="str"))
    async def count(stream):
        async for word in stream:
            views[word] += 2
            views[word] -= 1
            assert views[word].value() == views[word].current()

    driver = TestDriver(app)
    for at_ms in (0, 9_999, 10_000):
        driver.send("in", value=b"a", timestamp_ms=at_ms)
    assert driver.table("views") == {("a", 0): 2, ("a", 10_000): 1}
    driver.close()


@run_by(in_loop)
async def test_records_go_the_workers_way():
    """Many at once, and left out where they cannot be decoded and the topic says so."""
    app = App("batches")
    sizes = []

    @app.agent(app.topic("in", value_serializer="json", on_error="skip"))
    async def measure(stream):
        async for batch in stream.batches():
            sizes.append(len(batch))

    driver = TestDriver(app)
    driver.send("in", *[TestRecord(b"%d" % n) for n in range(10)])
    driver.send("in", *[])
    for value in (b"{", b"1", b"2"):
        driver.send("in", value=value)
    assert sizes == [10, 1, 1]
    [left_out] = driver.left_out
    assert (left_out.topic, left_out.raw.offset, left_out.raw.value, left_out.policy) == ("in", 10, b"{", "skip")
    assert driver.positions == {("in", 0): 13}
    with pytest.raises(AppError, match="app batches reads no topic out; it reads in"):
        driver.send("out", value=b"1")
    driver.close()


@run_by(in_loop)
async def test_no_checkpoint_is_written_after_an_agent_failed():
    app = App("broken")
    table = app.Table("seen")

    @app.agent(app.topic("in"))
    async def fail(stream):
        async for event in stream.events():
            table["offset"] = event.offset
            raise ValueError

    driver = TestDriver(app)
    with pytest.raises(RecordError):
        driver.send("in", value=b"1")
    with pytest.raises(AppError, match="no checkpoint can be written during an event, or after an agent failed"):
        driver.commit()
    driver.close()


def test_agents_of_one_topic_decode_it_alike():
    for other, said in (
        ({"value_serializer": "str"}, "different types or codecs"),
        ({"on_error": "skip"}, "different on_error"),
    ):
        app = App("two")
        for topic in (app.topic("in"), app.topic("in", **other)):
            app.agent(topic)(counting_app)
        with pytest.raises(AppError, match=f"topic in is read by two agents with {said}"):
            TestDriver(app)


@run_by(in_loop)
async def test_events_that_an_agent_holds_keep_their_offsets():
    app = App("taking")
    taken = []

    @app.agent(app.topic("in"))
    async def take(stream):
        async for events in stream.take_events(3, 60.0):
            taken.append([event.offset for event in events])

    driver = TestDriver(app)
    for value in (b"1", b"2", b"3"):
        driver.send("in", value=value)
    assert taken == [[0, 1, 2]]
    driver.close()


@run_by(in_loop)
async def test_time_goes_on_without_events():
    app = App("ending", value_serializer="json", key_serializer="str")
    counts = app.stream("in").tumbling(10).count(name="n").final()
    counts.group_by(lambda result: "all", name="all").tumbling(10).sum(lambda result: result.value).final().to("out")
    driver = TestDriver(app)
    for key in (b"a", b"b", b"b"):
        driver.send("in", key=key, value=b"1", timestamp_ms=5_000)
    driver.advance_event_time(9_999)
    assert driver.table("n") == {("a", 0): [1, 5_000, 0], ("b", 0): [2, 5_000, 0]}
    driver.advance_event_time(10_000)  # first the topic "in", then what comes of it
    assert [(sent.topic, json.loads(sent.value)["value"]) for sent in driver.sent if sent.topic == "out"] == [
        ("out", 3)
    ]
    assert driver.table("n") == {}
    driver.close()


@run_by(in_loop)
async def test_an_event_that_a_step_refuses_is_left_out_by_the_policy_of_the_app() -> None:
    app = App("skipping", on_error="skip")
    app.stream("in").map(lambda value: 6 // value).to("out")
    driver = TestDriver(app)
    driver.send("in", TestRecord(b"1"), TestRecord(b"0"), TestRecord(b"3"))
    assert [sent.value for sent in driver.sent] == [b"6", b"2"]
    [left_out] = driver.left_out
    assert (left_out.by, left_out.raw.offset, left_out.policy) == ("in-map", 1, "skip")
    driver.close()


def test_a_step_writes_a_topic_as_it_was_declared() -> None:
    app = App("typed")
    app.stream("in").to(app.topic("out", value_serializer="pickle"))
    with TestDriver(app) as driver:
        driver.send("in", key=b"k", value=b"[1]")
        assert [pickle.loads(b64decode(sent.value or b"")) for sent in driver.sent] == [[1]]
