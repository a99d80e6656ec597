"""What an agent can ask of its stream."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.streams import App, AppError, Stream, current_event
from isthmus.streams.driver import TestDriver, TestRecord
from tests.running import in_loop, run_by
from tests.streams.runtime.fakes import turns
from tests.streams.runtime.running import Clock, Ran

WITHIN_S = 5.0


async def collected(iterate: Callable[[Any], Any], values: list[bytes], **options: Any) -> list[Any]:
    """What `iterate(stream)` gives of records with these values and keys `k`."""
    app = App("app")
    found: list[Any] = []

    @app.agent(app.topic("in"), **options)
    async def agent(stream: Any) -> None:
        async for each in iterate(stream):
            found.append(each)

    driver = TestDriver(app)
    driver.send("in", *[TestRecord(value, b"k") for value in values])
    driver.close()
    return found


@pytest.mark.parametrize(
    ("iterate", "found"),
    [
        (lambda stream: stream, [1, 2, 3]),
        (lambda stream: stream.items(), [(b"k", 1), (b"k", 2), (b"k", 3)]),
        (lambda stream: stream.enumerate(start=7), [(7, 1), (8, 2), (9, 3)]),
        (lambda stream: stream.filter(lambda value: value != 2), [1, 3]),
        (lambda stream: stream.noack(), [1, 2, 3]),
        (lambda stream: stream.take(2, WITHIN_S), [[1, 2]]),
    ],
)
@run_by(in_loop)
async def test_what_is_iterated_over(iterate, found):
    assert await collected(iterate, [b"1", b"2", b"3"]) == found


@run_by(in_loop)
async def test_processors_change_values_in_their_order():
    async def tenfold(value: int) -> int:
        await asyncio.sleep(0)
        return value * 10

    def processed(stream: Any) -> Any:
        stream.add_processor(tenfold)
        stream.add_processor(lambda value: value + 1)

        async def odd_tens(value: int) -> bool:
            return value // 10 % 2 == 1

        return stream.filter(odd_tens)

    values = [b"1", b"2", b"3"]
    assert await collected(processed, values) == [11, 31]
    assert await collected(lambda stream: processed(stream).take(2, WITHIN_S), values) == [[11, 31]]
    batches = await collected(lambda stream: processed(stream).batches(), values)
    assert [[event.value for event in batch] for batch in batches] == [[11, 31]]
    [event, _] = await collected(lambda stream: processed(stream).events(), values)
    assert (event.key, event.value, event.offset) == (b"k", 11, 0)


@run_by(in_loop)
async def test_an_echo_and_what_an_agent_yields_go_on_under_their_keys():
    app = App("app")
    log, out = app.topic("log"), app.topic("out")
    given: list[Any] = []

    async def kept(value: Any) -> None:
        given.append(value)

    @app.agent(app.topic("in"), sink=[out, given.append, kept])
    async def double(stream: Any) -> Any:
        async for event in stream.echo(log).events():
            yield 2 * event.value
            yield event

    double.add_sink(app.topic("more"))
    driver = TestDriver(app)
    driver.send("in", value=b"3", key=b"k", timestamp_ms=9)
    event = given[2]
    assert given == [6, 6, event, event] and event.value == 3
    assert [(each.topic, each.key, each.value, each.timestamp_ms) for each in driver.sent] == [
        ("log", b"k", b"3", 9),
        ("out", None, b"6", 9),
        ("more", None, b"6", 9),
        ("out", b"k", b"3", 9),
        ("more", b"k", b"3", 9),
    ]
    driver.close()


@run_by(in_loop)
async def test_the_event_in_hand_is_known_to_helpers():
    seen: list[Any] = []

    async def keys(stream: Any) -> Any:
        async for _ in stream:
            seen.append(current_event().key)
            yield None

    await collected(keys, [b"1"])
    assert seen == [b"k"] and current_event() is None


# --- take -------------------------------------------------------------------------------------------


class Taking:
    """An agent that takes lists of values, under a clock that the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, max_: int, within: Any = WITHIN_S, **options: Any) -> None:
        self.given: list[list[int]] = []
        self.done: set[int] = set()

        async def take(stream: Any) -> None:
            async for events in stream.take_events(max_, within):
                self.given.append([event.offset for event in events])
                await asyncio.sleep(0)
                self.done.update(event.offset for event in events)

        self.ran = Ran.of(take, **options)
        self.clock = Clock(monkeypatch)

    async def wait(self, seconds: float) -> None:
        self.clock.now += seconds
        await turns()
        self.ran.run.lane_of("in").settle()


@run_by(in_loop)
async def test_a_list_is_full_or_its_time_is_over(monkeypatch):
    taking = Taking(monkeypatch, 3, timedelta(seconds=WITHIN_S))
    await taking.ran.drain(7)
    assert taking.given == [[0, 1, 2], [3, 4, 5]]
    await taking.wait(WITHIN_S - 0.1)
    assert len(taking.given) == 2
    await taking.wait(0.2)
    assert taking.given[2:] == [[6]]
    await taking.ran.drain(1)  # its time counts from its first event
    await taking.wait(WITHIN_S - 0.1)
    await taking.ran.drain(1)
    assert len(taking.given) == 3
    await taking.wait(0.2)
    assert taking.given[3:] == [[7, 8]]
    await taking.ran.run.stop()


@run_by(in_loop)
async def test_an_event_that_is_taken_and_not_done_is_not_passed(monkeypatch):
    taking = Taking(monkeypatch, 3)
    await taking.ran.drain(2)
    assert (taking.ran.position, taking.ran.task.changed) == (0, False)
    assert taking.ran.run.is_whole  # a checkpoint may be written: it is of what is before
    await taking.ran.drain(2)
    assert (taking.given, taking.ran.position) == ([[0, 1, 2]], 3)
    await taking.wait(WITHIN_S)
    assert (taking.given, taking.ran.position) == ([[0, 1, 2], [3]], 4)
    await taking.ran.run.stop()


@run_by(in_loop)
async def test_what_is_taken_by_one_agent_and_done_by_another_is_no_checkpoint(monkeypatch):
    """Rows of the other one include it, and the position does not."""
    app = App("app")
    done: list[int] = []

    @app.agent(app.topic("in"))
    async def take(stream: Any) -> None:
        async for _ in stream.take(3, WITHIN_S):
            pass

    @app.agent(app.topic("in"))
    async def count(stream: Any) -> None:
        async for event in stream.events():
            done.append(event.offset)

    ran = Ran(app)
    await ran.drain(2)
    assert done == [0, 1] and not ran.run.is_whole
    await ran.drain(1)
    assert ran.run.is_whole and ran.position == 3
    await ran.run.stop()


@run_by(in_loop)
async def test_take_needs_a_number(monkeypatch):
    async def take(stream: Any) -> None:
        async for _ in stream.take(0, 1):
            pass

    ran = Ran.of(take)
    with pytest.raises(AppError, match=r"take\(0\) would never give anything"):
        await ran.drain(1)
    await ran.run.stop()


@settings(max_examples=60, deadline=None)
@given(
    max_=st.integers(1, 5),
    concurrency=st.integers(1, 3),
    steps=st.lists(
        st.tuples(st.just("give"), st.integers(1, 6)) | st.tuples(st.just("wait"), st.integers(1, 8)), max_size=12
    ),
    most=st.integers(1, 7),
)
def test_a_position_never_passes_what_is_taken_and_not_done(max_, concurrency, steps, most):
    async def scenario() -> None:
        with pytest.MonkeyPatch.context() as monkeypatch:
            taking = Taking(monkeypatch, max_, concurrency=concurrency)
            given_count = 0

            def check() -> None:
                assert set(range(taking.ran.position)) <= taking.done
                counted = sorted(offset for each in taking.given for offset in each)
                assert counted == sorted(set(counted)) and all(len(each) <= max_ for each in taking.given)

            for what, many in steps:
                if what == "give":
                    given_count += many
                    await taking.ran.drain(many, most)
                else:
                    await taking.wait(float(many))
                check()
            await taking.wait(WITHIN_S)
            await taking.wait(WITHIN_S)
            check()
            assert taking.done == set(range(given_count))
            if given_count:
                assert taking.ran.position == given_count
            await taking.ran.run.stop()

    asyncio.run(scenario())


@run_by(in_loop)
async def test_values_are_taken_with_their_times_and_events_without_a_limit_of_time():
    app = App("app")
    taken: list[Any] = []

    @app.agent(app.topic("timed"))
    async def timed(stream: Any) -> None:
        async for values in stream.get_active_stream().take_with_timestamp(2, None, "at"):
            taken.append(values)

    @app.agent(app.topic("events"))
    async def events(stream: Any) -> None:
        async for each in stream.noack_take(2, timedelta(seconds=60)):
            taken.append([event.value for event in each])

    driver = TestDriver(app)
    driver.send("timed", *[TestRecord(b'{"a": 1}', None, 1500), TestRecord(b"2", None, 2500)])
    driver.send("events", *[TestRecord(b"3"), TestRecord(b"4")])
    assert taken == [[{"a": 1, "at": 1.5}, 2], [3, 4]]
    driver.close()


def test_streams_are_not_combined():
    with pytest.raises(AppError, match=r"declare one topic of several, app.topic\('a', 'b'\)"):
        _ = Stream(None) & Stream(None)  # type: ignore[arg-type]
