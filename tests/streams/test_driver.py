"""Apps under the TestDriver: tables, windows, outputs, restore, and what a batch costs the loop."""

import asyncio
import json
import math

import pytest

from isthmus.streams import App, RecordError
from isthmus.streams.driver import Record, TestDriver
from isthmus.streams.engine.changelog import Restorer, end_key, row_key
from isthmus.streams.engine.task import Event
from isthmus.streams.errors import AppError, ChangelogError
from isthmus.streams.runtime.agents import AgentRun
from tests.running import in_loop, run_by

RUN_A, RUN_B = b"a" * 8, b"b" * 8


def counting_app() -> App:
    app = App("counts")
    words = app.topic("words", value="str")
    big = app.topic("big", value="json")
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
        await driver.send("words", value=word, timestamp_ms=at_ms)
    assert driver.table("counts") == {"a": 3, "b": 1}
    assert driver.table("minutes") == {("a", 0): 2, ("a", 60_000): 1, ("b", 60_000): 1}
    [sent] = driver.sent
    assert (sent.topic, sent.key, json.loads(sent.value), sent.timestamp_ms) == ("big", b"a", {"word": "a"}, 59_999)
    await driver.close()


@run_by(in_loop)
async def test_a_restart_goes_on_from_the_last_marker():
    driver = TestDriver(counting_app(), run=RUN_A)
    await driver.send("words", value=b"a")
    driver.checkpoint()
    await driver.send("words", value=b"a")
    await driver.send("words", value=b"z")  # both after the last checkpoint: they never happened
    again = driver.restarted(RUN_B)
    assert again.table("counts") == {"a": 1}
    assert again.task.position("words") == 1
    await again.send("words", value=b"a")
    assert again.table("counts") == {"a": 2}
    await driver.close()
    await again.close()


@run_by(in_loop)
async def test_rows_without_a_marker_do_not_count():
    """A crash between rows and marker: the rows stand in the log, and must not count, now or after compaction."""
    driver = TestDriver(counting_app(), run=RUN_A)
    await driver.send("words", value=b"a")
    driver.checkpoint()
    await driver.send("words", value=b"a")
    await driver.send("words", value=b"new")
    driver.checkpoint()
    torn = driver.changelog.pop()  # the marker never arrived
    assert torn.key == end_key(RUN_A, 2)
    newest = {record.key: record for record in driver.changelog}  # what compaction keeps
    driver.changelog = [record for record in driver.changelog if newest[record.key] is record]
    again = driver.restarted(RUN_B)
    assert again.table("counts") == {"a": 1}
    await again.send("words", value=b"b")
    again.checkpoint()
    newest = {record.key: record for record in again.changelog}
    rows = {row_key(key) for key, record in newest.items() if record.header}
    assert b'counts\0"a"' in rows
    assert b'counts\0"new"' not in rows  # the next run has removed it
    assert again.restarted(b"c" * 8).table("counts") == {"a": 1, "b": 1}
    await driver.close()
    await again.close()


@run_by(in_loop)
async def test_a_zombie_changes_nothing():
    old = TestDriver(counting_app(), run=RUN_A)
    await old.send("words", value=b"a")
    old.checkpoint()
    new = old.restarted(RUN_B)
    await new.send("words", value=b"b")
    await old.send("words", value=b"zombie")
    old.checkpoint()  # into the same log, after the new run began
    new.checkpoint()
    last = new.restarted(b"c" * 8)
    assert last.table("counts") == {"a": 1, "b": 1}
    await old.close()
    await new.close()


@run_by(in_loop)
async def test_a_changed_row_is_noticed():
    driver = TestDriver(counting_app(), run=RUN_A)
    await driver.send("words", value=b"a")
    driver.checkpoint()
    driver.changelog[1] = driver.changelog[1]._replace(value=b"99")
    with pytest.raises(ChangelogError, match="checkpoint 1 closes 2 rows with digest"):
        driver.restarted(RUN_B)
    await driver.close()


def test_another_apps_changelog_is_refused():
    restorer = Restorer("mine", "mine-changelog-0")
    with pytest.raises(ChangelogError, match="marker of app counts"):
        restorer.feed(*TestDriver(counting_app()).task.begin())


@run_by(in_loop)
async def test_an_agents_error_names_the_record():
    app = App("broken")

    @app.agent(app.topic("words", value="json"))
    async def fail(stream):
        async for value in stream:
            raise ValueError(value)

    driver = TestDriver(app)
    with pytest.raises(
        RecordError, match=r"agent fail raised ValueError: 7 \(.*test_driver.py:\d+\) at words-0 offset 0"
    ):
        await driver.send("words", value=b"7")
    with pytest.raises(RecordError, match=r"offset 0: the value cannot be decoded"):
        await driver.send("words", value=b"{")
    await driver.close()


def test_a_table_outside_of_an_agent_is_refused():
    table = App("x").Table("t")
    with pytest.raises(AppError, match="outside of an agent"):
        table["a"] = 1


@run_by(in_loop)
async def test_a_batch_costs_at_most_three_turns_of_the_loop():
    app = counting_app()
    driver = TestDriver(app)
    await driver.send("words", value=b"warm")
    run: AgentRun = driver._run.runs[0]
    loop = asyncio.get_running_loop()
    turns = 0
    original = loop._run_once

    def counted():
        nonlocal turns
        turns += 1
        original()

    loop._run_once = counted
    for size in (1, 10, 5_000):
        turns = 0
        await run.offer([Event(None, f"w{i % 7}", i, "words", 0, i) for i in range(size)], math.inf)
        assert 0 < turns <= 3, (size, turns)
    await driver.close()


@run_by(in_loop)
async def test_a_window_counts_as_in_faust():
    app = App("windows")
    views = app.Table("views", default=int).tumbling(10)

    @app.agent(app.topic("in", value="str"))
    async def count(stream):
        async for word in stream:
            views[word] += 2
            views[word] -= 1
            assert views[word].value() == views[word].current()

    driver = TestDriver(app)
    for at_ms in (0, 9_999, 10_000):
        await driver.send("in", value=b"a", timestamp_ms=at_ms)
    assert driver.table("views") == {("a", 0): 2, ("a", 10_000): 1}
    await driver.close()


@run_by(in_loop)
async def test_records_go_the_workers_way():
    """Many at once, and left out where they cannot be decoded and the topic says so."""
    app = App("batches")
    sizes = []

    @app.agent(app.topic("in", value="json", on_error="skip"))
    async def measure(stream):
        async for batch in stream.batches():
            sizes.append(len(batch))

    driver = TestDriver(app)
    await driver.send_batch("in", [Record(b"%d" % n) for n in range(10)])
    await driver.send_batch("in", [])
    await asyncio.gather(*(driver.send("in", value=value) for value in (b"{", b"1", b"2")))
    assert sizes == [10, 1, 1]
    assert [str(each)[:14] for each in driver.skipped] == ["in-0 offset 10"]
    assert driver.task.position("in") == 13
    with pytest.raises(AppError, match="app batches reads no topic out; it reads in"):
        await driver.send("out", value=b"1")
    await driver.close()


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
        await driver.send("in", value=b"1")
    with pytest.raises(AppError, match="no checkpoint can be written during an event, or after an agent failed"):
        driver.checkpoint()
    await driver.close()


def test_agents_of_one_topic_decode_it_alike():
    for other, said in (
        ({"value": "str"}, "different codecs"),
        ({"value": "raw", "on_error": "skip"}, "different on_error"),
    ):
        app = App("two")
        for topic in (app.topic("in"), app.topic("in", **other)):
            app.agent(topic)(counting_app)
        with pytest.raises(AppError, match=f"topic in is read by two agents with {said}"):
            TestDriver(app)
