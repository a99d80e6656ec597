"""What a worker does beside records, under the TestDriver: time, timers, partitions, crashes, pages, commands."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from isthmus.client import TopicPartition
from isthmus.streams import App, AppError, RecordError, TestDriver, TestRecord
from isthmus.streams.cli import argument
from isthmus.streams.web import View

DAY_S = 86_400


def counting(id: str = "app", store: str = "memory://", **options: Any) -> App:
    app = App(id, key_serializer="str", value_serializer="json", store=store, **options)
    counts = app.Table("counts", default=int)

    @app.agent(app.topic("words"), sink=[app.topic("counted")], name="count")
    async def count(stream: Any) -> AsyncIterator[int]:
        async for key, _ in stream.items():
            counts[key] += 1
            yield counts[key]

    return app


def test_partitions_of_inputs_differ_and_each_key_is_in_one() -> None:
    """Two inputs with unequal numbers of partitions and one table: records go through a bridge."""
    app = App("app", key_serializer="str", value_serializer="json")
    table = app.Table("seen", default=list)

    async def store(stream: Any) -> None:
        async for event in stream.events():
            table[event.key] = [*table[event.key], event.value]

    for topic in ("many", "few"):
        app.agent(app.topic(topic), name=topic, tables=[table])(store)
    keys = [f"k{n}" for n in range(12)]
    with TestDriver(app, partitions={"many": 5, "few": 2}) as driver:
        driver.send("many", *[TestRecord(1, key) for key in keys])
        driver.send("few", *[TestRecord(2, key) for key in keys])
        assert driver.table("seen") == {key: [1, 2] for key in keys}
        assert driver.topics.count("app-few-copartitioned") == driver.topics.count("app-seen-changelog") == 5
        assert sum(at for tp, at in driver.positions.items() if tp.topic == "many") == len(keys)
        placed = {each.key: each.partition for each in driver.read("many")}
        assert {each.key: each.partition for each in driver.read("app-few-copartitioned")} == placed
        assert len({*placed.values()}) > 2


def test_time_stands_still_but_for_advance() -> None:
    app = App("app", timezone=None)
    at: dict[str, list[float]] = {"timer": [], "crontab": [], "task": []}

    def now() -> float:
        return driver.wall_ms / 1_000

    @app.timer(60)
    async def minutely() -> None:
        at["timer"].append(now())

    @app.crontab("0 6 * * *")
    async def daily() -> None:
        at["crontab"].append(now())

    @app.task
    async def once() -> None:
        await app.sleep(90)
        at["task"].append(now())

    driver = TestDriver(app)
    driver.advance(59.999)
    assert at == {"timer": [], "crontab": [], "task": []}
    driver.advance(timedelta(seconds=30.002))
    assert at == {"timer": [60], "crontab": [], "task": [90]}
    driver.advance(2 * DAY_S - now())
    assert len(at["timer"]) == 2 * DAY_S / 60 and at["crontab"] == [6 * 3_600, 30 * 3_600]
    with pytest.raises(AppError, match="the clock cannot go back by 1"):
        driver.advance(-1)
    driver.close()


def test_an_agent_that_waits_moves_the_clock_and_take_goes_by_it() -> None:
    app = App("app")
    taken: list[list[Any]] = []

    @app.agent(app.topic("slow"))
    async def slow(stream: Any) -> None:
        async for _ in stream:
            await asyncio.sleep(7)

    @app.agent(app.topic("taken"))
    async def take(stream: Any) -> None:
        async for values in stream.take(10, within=5):
            taken.append(values)

    with TestDriver(app) as driver:
        driver.send("slow", TestRecord(b"1"), TestRecord(b"2"))
        assert driver.wall_ms == 14_000
        driver.send("taken", TestRecord(b"1"), TestRecord(b"2"))
        driver.advance(4.9)
        assert taken == []
        driver.advance(0.2)
        assert taken == [[1, 2]]


def test_who_waits_for_ever_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isthmus.streams.driver.clock.OUTSIDE_S", 0.01)
    app = App("app")

    @app.agent(app.topic("in"), name="waiting")
    async def waiting(stream: Any) -> None:
        async for _ in stream:
            await asyncio.Event().wait()

    with TestDriver(app) as driver:
        with pytest.raises(AppError, match="agent waiting of task in-0 waits at in-0 offset 0 for what does not come"):
            driver.send("in", value=1)


@pytest.mark.parametrize("store", ["memory://", "rocksdb://"])
@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
def test_a_crash_loses_what_is_not_committed_and_does_it_again(store: str, guarantee: str) -> None:
    with TestDriver(counting(store=store, processing_guarantee=guarantee)) as driver:
        driver.send("words", key="a", value=0)
        driver.commit()
        driver.send("words", TestRecord(0, "a"), TestRecord(0, "b"))
        written = [each.value for each in driver.read("counted")]
        driver.crash()
        assert driver.table("counts") == {"a": 2, "b": 1}
        again = [each.value for each in driver.read("counted")]
        assert (written, again) == ([1, 2, 1], [2, 1])
        stand = [each.value for each in driver.topics.records("counted", 0)]
        assert stand == ([b"1", b"2", b"1", b"2", b"1"] if guarantee == "at_least_once" else [b"1", b"2", b"1"])
        driver.restart()
        assert driver.table("counts") == {"a": 2, "b": 1} and driver.read("counted") == []
        driver.crash()
        assert driver.read("counted") == []  # `restart` has committed


def test_commits_are_made_as_the_clock_goes_on() -> None:
    with TestDriver(counting(broker_commit_interval=2)) as driver:
        driver.send("words", key="a", value=0)
        driver.advance(1)
        assert driver.changelogs["counts"] == []
        driver.advance(1)
        assert len(driver.changelogs["counts"]) == 2  # a row and a marker


def test_a_topic_grows_and_another_version_of_the_app_goes_on() -> None:
    with TestDriver(counting(), partitions=2) as driver:
        driver.send("words", *[TestRecord(0, f"k{n}") for n in range(8)])
        driver.grow("words", 5)
        driver.send("words", *[TestRecord(0, f"k{n}") for n in range(8)])
        assert set(driver.table("counts").values()) == {2}
    with TestDriver(counting(), topics=driver.topics) as later:
        assert later.table("counts") == {f"k{n}": 2 for n in range(8)}


def test_equal_seeds_give_equal_runs_and_others_take_other_turns() -> None:
    def run(seed: int) -> list[int]:
        order: list[int] = []
        app = App("app")

        @app.agent(app.topic("in"))
        async def note(stream: Any) -> None:
            async for event in stream.events():
                order.append(event.partition)

        with TestDriver(app, partitions=3, seed=seed) as driver:
            driver.send("in", *[TestRecord(n, partition=n % 3) for n in range(30)])
        assert sorted(order) == sorted(n % 3 for n in range(30))
        return order

    assert run(1) == run(1) and len({tuple(run(seed)) for seed in range(5)}) > 1


def test_errors_go_by_the_policies_of_the_app() -> None:
    app = App("app", value_serializer="json")

    @app.agent(app.topic("in", on_error="dead_letter"), on_error="skip")
    async def divide(stream: Any) -> None:
        async for value in stream:
            1 / value

    with TestDriver(app) as driver:
        driver.send("in", TestRecord(b"{", b"k"), TestRecord(0), TestRecord(1))
        [dead] = driver.read(app.dead_letters)
        assert (dead.key, dead.value) == (b"k", b"{")
        assert dict(dead.headers)["__streams.errors.topic"] == b"in"
        assert [each.policy for each in driver.left_out] == ["dead_letter", "skip"]
        assert driver.positions == {TopicPartition("in", 0): 3}


def test_a_task_that_fails_leaves_the_others_and_is_tried_again_after_a_crash() -> None:
    app = App("app", value_serializer="json")
    seen: list[Any] = []
    is_broken = True

    @app.agent(app.topic("in"))
    async def fail(stream: Any) -> None:
        async for value in stream:
            assert value != 1 or not is_broken
            seen.append(value)

    with TestDriver(app, partitions=2) as driver:
        with pytest.raises(RecordError, match=r"AssertionError.* at in-0 offset 0"):
            driver.send("in", TestRecord(1, partition=0), TestRecord(2, partition=1))
        assert seen == [2]
        with pytest.raises(AppError, match="after an agent failed"):
            driver.commit()
        is_broken = False
        driver.crash()
        assert sorted(seen) == [1, 2, 2]


def test_pages_commands_and_questions_need_no_loop() -> None:
    app = counting()
    [count] = app.agents

    @app.page("/count/{word}/")
    class Count(View):
        async def get(self, request: Any, word: str) -> Any:
            return self.json({word: driver.table("counts")[word], "n": request.query.get("n")})

        async def post(self, request: Any, word: str) -> Any:
            await count.send(key=word, value=await request.json())
            return self.text("sent", status=202)

    @app.command(argument("word"))
    async def ask(self: Any, word: str) -> None:
        self.say(f"{word}: {await count.ask(0, key=word)}")

    with TestDriver(app) as driver:
        assert driver.page("/count/a/", "POST", json=3).status == 202
        answer = driver.page("/count/a/?n=7")
        assert answer.json() == {"a": 1, "n": "7"} and answer.headers["Content-Type"].startswith("application/json")
        assert driver.page("/nowhere").status == 404 and driver.page("/count/a/", "DELETE").status == 405
        assert driver.run(count.ask(0, key="a")) == 2
        assert driver.command("ask", "a") == "a: 3\n"
        with pytest.raises(AppError, match="No such option"):
            driver.command("ask", "--loud", "a")


def test_it_works_inside_of_a_loop_that_runs() -> None:
    app = counting()
    [count] = app.agents

    async def test() -> int:
        async with TestDriver(app) as driver:
            await driver.send("words", key="a", value=0)
            task = asyncio.current_task()
            assert await count.ask(0, key="a") == 2  # on this loop
            assert asyncio.current_task() is task and asyncio.get_running_loop().is_running()
            await asyncio.sleep(0)
            return driver.run(count.ask(0, key="a"))

    assert asyncio.run(test()) == 3


def test_a_driver_that_cannot_run_says_why() -> None:
    app = App("app")
    driver: TestDriver

    @app.agent(app.topic("in"))
    async def nest(stream: Any) -> None:
        async for _ in stream:
            driver.advance(1)

    with TestDriver(app) as driver:
        with pytest.raises(AppError, match="the driver of app app cannot run: the app that it runs calls it"):
            driver.send("in", value=1)
    with pytest.raises(AppError, match="cannot run: it is closed"):
        driver.advance(1)
    with pytest.raises(AppError, match="there is no partition 3 of topic in, which has 1"):
        TestDriver(app).send("in", value=1, partition=3)


def test_windows_of_a_table_at_a_time_and_idle_topics() -> None:
    app = App("app", key_serializer="str", value_serializer="json")
    views = app.Table("views", default=int).hopping(10, 5)

    @app.agent(app.topic("in"))
    async def count(stream: Any) -> None:
        async for key, _ in stream.items():
            views[key] += 1

    app.stream("left", "right").tumbling(10).count(name="both").final().to("out")
    with TestDriver(app) as driver:
        driver.send("in", TestRecord(0, "a", 7_000), TestRecord(0, "a", 12_000))
        assert driver.table("views").at(9_999) == {"a": 2} and driver.table("views").at(12_000) == {"a": 1}
        assert driver.table("views")["a", 5_000] == 2
        with pytest.raises(AppError, match="table both has no windows"):
            driver.table("both").at(0)
        driver.send("left", TestRecord(0, "a", 1_000), TestRecord(0, "a", 30_000))
        assert driver.read("out") == []  # the other topic may still have something
        driver.advance(10)
        assert [each.value["value"] for each in driver.read("out")] == [1]
        driver.advance_event_time(40_000)
        assert [each.value["value"] for each in driver.read("out")] == [1]


def test_many_histories_with_crashes_count_each_record_once() -> None:
    for seed in range(30):
        chance = random.Random(seed)
        app = App("app", key_serializer="str", value_serializer="json")
        app.stream("in").group_by(lambda value: str(value % 5), name="by").group_by_key().count(name="counts")
        with TestDriver(app, partitions={"in": 3}, seed=seed) as driver:
            values = [chance.randrange(100) for _ in range(60)]
            for at in range(0, 60, 6):
                driver.send("in", *[TestRecord(value) for value in values[at : at + 6]])
                for action in (driver.commit, driver.crash, driver.restart):
                    if chance.random() < 0.3:
                        action()
            expected = {str(n): sum(value % 5 == n for value in values) for n in range(5)}
            assert driver.table("counts") == expected, seed


def test_what_is_before_a_record_that_cannot_be_decoded_is_committed() -> None:
    with TestDriver(counting()) as driver:
        with pytest.raises(RecordError, match="words-0 offset 1: the value cannot be decoded"):
            driver.send("words", TestRecord(1, "a"), TestRecord(b"{", "a"))
        assert driver.table("counts") == {"a": 1}
        with pytest.raises(RecordError, match="words-0 offset 1"):
            driver.crash()
        assert driver.table("counts") == {"a": 1} and [each.value for each in driver.read("counted")] == [1]
