"""Kafka Streams' system tests: the results of SmokeTestClient that SmokeTestDriver verifies by closed forms, and those
of EosTestClient that EosTestDriver verifies record by record.

However the records are fetched, and however often the app is stopped after a checkpoint, with work that is lost, and
begun anew. What is sent counts with the checkpoint, as in a transaction.

In the smoke test keys are "min-max", with the values from min to max in an order that is shuffled within ten. So for
each key the least, the greatest, their difference, the sum, the count and the mean are known, and the number of keys of
each count.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import accumulate
from operator import add
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.streams import App
from tests.running import in_loop
from tests.streams.published.running import Given, Run, app_of

SHUFFLED, DAY_S = 10, 24 * 60 * 60
LOST = 5  # records of which nothing may remain, before each stop

seeds = st.integers(0, 1 << 32)
batches = st.just([1]) | st.lists(st.integers(1, 30), min_size=1, max_size=5)
stops = st.sets(st.integers(0, 60), max_size=4)


async def run_through(app: App, records: list[Given], sizes: list[int], stopped_at: set[int]) -> Run:
    """The app over all records, stopped and begun anew before these."""
    run = Run(app)
    begin = 0
    for stop in sorted(stopped_at):
        await run.give(records[begin:stop], sizes)
        await run.restart(loses=records[stop : stop + LOST])
        begin = min(stop, len(records))
    await run.give(records[begin:], sizes)
    await run.restart()
    await run.end()
    return run


def in_order_of_sending(seed: int) -> list[Given]:
    chance = random.Random(seed)
    sizes = [1, 7, 20, 20, 3]
    waiting = [(f"{low}-{low + size - 1}", list(range(low, low + size))) for low, size in enumerate(sizes)]
    for _, values in waiting:
        for begin in range(0, len(values), SHUFFLED):
            part = values[begin : begin + SHUFFLED]
            chance.shuffle(part)
            values[begin : begin + SHUFFLED] = part
    found: list[Given] = []
    while waiting:
        key, values = chance.choice(waiting)
        found.append(Given("data", key, values.pop(0), len(found)))
        waiting = [each for each in waiting if each[1]]
    return found


def smoke() -> App:
    app = app_of("smoke")
    data = app.stream("data")
    data.to("echo")
    keyed = data.group_by_key()
    least, greatest = keyed.min(name="min"), keyed.max(name="max")
    total, count = keyed.sum(name="sum"), keyed.count(name="cnt")
    greatest.join(least, value=lambda high, low: high - low, name="dif").stream().to("dif")
    total.join(count, value=lambda total, count: total / count, name="avg").stream().to("avg")
    count.group_by(lambda count: count, name="by-count").count(name="tagg").stream().to("tagg")
    data.tumbling(DAY_S).min(name="min-suppressed").final().to("min-suppressed")
    data.sliding(0.005).sum(name="sws-suppressed").final().to("sws-suppressed")
    return app


@settings(deadline=None, max_examples=40)
@given(seeds, batches, stops)
def test_the_smoke_test_s_results_are_the_closed_forms(seed: int, sizes: list[int], stopped_at: set[int]) -> None:
    in_loop(lambda: smoke_test(in_order_of_sending(seed), sizes, stopped_at))


async def smoke_test(records: list[Given], sizes: list[int], stopped_at: set[int]) -> None:
    run = await run_through(smoke(), records, sizes, stopped_at)
    bounds = {record.key: tuple(map(int, record.key.split("-"))) for record in records}
    counts = {key: high - low + 1 for key, (low, high) in bounds.items()}
    expected: dict[str, dict[Any, Any]] = {
        "min": {key: low for key, (low, _) in bounds.items()},
        "max": {key: high for key, (_, high) in bounds.items()},
        "sum": {key: (low + high) * counts[key] // 2 for key, (low, high) in bounds.items()},
        "cnt": counts,
    }
    for name, rows in expected.items():
        assert run.driver.table(name) == rows
    last = {name: {each.key: each.value for each in run.records(name)} for name in ("dif", "avg", "tagg")}
    assert run.values("echo") == [record.value for record in records]
    assert last["dif"] == {key: high - low for key, (low, high) in bounds.items()}
    assert last["avg"] == {key: (low + high) / 2 for key, (low, high) in bounds.items()}
    assert {count: keys for count, keys in last["tagg"].items() if keys} == Counter(counts.values())
    # exactly one result a window
    finals = [(each.key, each.value["value"]) for each in run.records("min-suppressed")]
    assert sorted(finals) == sorted(expected["min"].items())
    windows = Counter((each.key, each.value["start_ms"]) for each in run.records("sws-suppressed"))
    assert set(windows.values()) == {1}
    assert windows.keys() == sliding_windows(records, 5)
    await run.close()


def sliding_windows(records: list[Given], size_ms: int) -> set[tuple[str, int]]:
    """Starts of the windows that KIP-450 says: each record ends one, and one begins right after it if it is not empty.
    Those that would begin before time 0 begin there, and have all records up to `size_ms`."""
    times: dict[str, list[int]] = defaultdict(list)
    for record in records:
        times[record.key].append(record.timestamp_ms)
    found = set()
    for key, all_times in times.items():
        for at in all_times:
            found.add((key, max(at - size_ms, 0)))
            if any(at < other <= at + 1 + size_ms for other in all_times):
                found.add((key, at + 1))
    return found


# --- Exactly once ------------------------------------------------------------------------------------------------

KEYS, RECORDS = "abc", 60


def eos_records(seed: int) -> list[Given]:
    chance = random.Random(seed)
    return [Given("data", chance.choice(KEYS), chance.randrange(1_000), at) for at in range(RECORDS)]


def by_agents() -> App:
    """As one writes it for Faust: what an event gives is sent at once."""
    app = app_of("eos")
    data, again = app.topic("data"), app.topic("again")
    outputs = {name: app.topic(name) for name in ("echo", "min", "sum", "max", "cnt")}
    tables = {name: app.Table(name) for name in ("min", "sum", "max", "cnt")}

    async def update(name: str, key: str, value: Any) -> None:
        tables[name][key] = value
        await outputs[name].send(key=key, value=value)

    @app.agent(data, tables=[tables["min"], tables["sum"]])
    async def first(stream: Any) -> None:
        async for event in stream.events():
            key, value = event.key, event.value
            await outputs["echo"].send(key=key, value=value)
            await update("min", key, min(value, tables["min"].get(key, value)))
            await update("sum", key, value + tables["sum"].get(key, 0))
            await again.send(key=key, value=value)

    @app.agent(again, tables=[tables["max"], tables["cnt"]])
    async def second(stream: Any) -> None:
        async for event in stream.events():
            key = event.key
            await update("max", key, max(event.value, tables["max"].get(key, event.value)))
            await update("cnt", key, 1 + tables["cnt"].get(key, 0))

    return app


def by_pipelines() -> App:
    app = app_of("eos")
    data = app.stream("data")
    data.to("echo")
    keyed = data.group_by_key()
    keyed.min(name="min").stream().to("min")
    keyed.sum(name="sum").stream().to("sum")
    data.to("again")
    again = app.stream("again").group_by_key()
    again.max(name="max").stream().to("max")
    again.count(name="cnt").stream().to("cnt")
    return app


def running(records: list[Given]) -> dict[str, dict[str, list[int]]]:
    """By output and key, what each record gives."""
    values = {key: [record.value for record in records if record.key == key] for key in KEYS}
    return {
        "echo": values,
        "min": {key: list(accumulate(each, min)) for key, each in values.items()},
        "sum": {key: list(accumulate(each, add)) for key, each in values.items()},
        "max": {key: list(accumulate(each, max)) for key, each in values.items()},
        "cnt": {key: list(range(1, len(each) + 1)) for key, each in values.items()},
    }


def given_of(run: Run, name: str) -> dict[str, list[int]]:
    return {key: [each.value for each in run.records(name) if each.key == key] for key in KEYS}


@pytest.mark.parametrize("make", [by_agents, by_pipelines])
@settings(deadline=None, max_examples=30)
@given(seed=seeds, sizes=batches, stopped_at=stops)
def test_each_record_gives_its_result_exactly_once(
    make: Callable[[], App], seed: int, sizes: list[int], stopped_at: set[int]
) -> None:
    in_loop(lambda: eos_test(make, eos_records(seed), sizes, stopped_at))


async def eos_test(make: Callable[[], App], records: list[Given], sizes: list[int], stopped_at: set[int]) -> None:
    """Steps give at most one change of a key for a batch; so there the last of each, which with batches of one record
    is all."""
    every = make is by_agents or sizes == [1]
    run = await run_through(make(), records, sizes, stopped_at)
    for name, expected in running(records).items():
        found = given_of(run, name)
        if every or name == "echo":
            assert found == expected, name
        else:
            for key, values in expected.items():
                assert found[key][-1:] == values[-1:], name
                assert is_part(found[key], values), name
    await run.close()


def is_part(some: list[int], of: list[int]) -> bool:
    """Whether these are of the others, in their order."""
    rest = iter(of)
    return all(each in rest for each in some)
