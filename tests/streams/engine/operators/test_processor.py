"""Processors: their tables, and their timers of event time and wall clock, also after a restart."""

from collections.abc import Callable
from typing import Any

import pytest

from isthmus.streams.engine.event import Event
from isthmus.streams.engine.operators.processor import ProcessorContext, ProcessorOperator, Timer
from isthmus.streams.engine.tables import TableSpec
from isthmus.streams.errors import RecordError
from tests.streams.engine.operators.running import Running, plain

Process = Callable[[Event, ProcessorContext], None]
OnTimer = Callable[[Timer, ProcessorContext], None]


class Scripted:
    """A processor of two functions."""

    def __init__(self, process: Process, on_timer: OnTimer) -> None:
        self.process = process
        self.on_timer = on_timer


def show(timer: Timer, context: ProcessorContext) -> None:
    context.forward(f"fired {timer[1]}")


def running(process: Process, on_timer: OnTimer = show, **options: Any) -> Running:
    return Running(
        lambda: ProcessorOperator("proc", lambda: Scripted(process, on_timer), **options),
        tables=[TableSpec(name) for name in options.get("tables", ())],
    )


def inactive(event: Event, context: ProcessorContext) -> None:
    """Says which keys had no event for 10 ms."""
    if event.key in context.state:
        context.cancel_timer(context.state[event.key] + 10, event.key)
    context.state[event.key] = event.timestamp_ms
    context.set_timer(event.timestamp_ms + 10, event.key)


def test_a_timer_of_event_time_fires_when_the_watermark_comes_to_it() -> None:
    run = running(inactive)
    assert run.send("a", 1, 0) + run.send("a", 1, 5) + run.send("b", 1, 14) == []
    assert plain(run.send("b", 1, 15)) == [("a", "fired 15", 15)]
    assert plain(run.advance(25)) == [("b", "fired 25", 25)]
    assert run.advance(1_000) == [] and run.stores["proc-timers"].rows == {}


def test_timers_fire_before_the_event_that_moves_the_watermark_in_any_batch() -> None:
    def order(event: Event, context: ProcessorContext) -> None:
        context.forward(event.value)
        context.set_timer(event.timestamp_ms + 10)

    run, other = running(order), running(order)
    batch = [(1, 0), (2, 5), (3, 10), (4, 30)]
    run.batch([run.event("k", value, at) for value, at in batch])
    for value, at in batch:
        other.send("k", value, at)
    assert [event.value for event in run.main] == [1, 2, "fired 10", 3, "fired 15", "fired 20", 4]
    assert plain(other.main) == plain(run.main)


def test_what_timers_give_that_fire_at_once_is_not_late_downstream() -> None:
    run = running(lambda event, context: [context.set_timer(at, event.key) for at in (10, 20)])
    run.send("a", 1, 0)
    assert [(event.timestamp_ms, event.watermark_ms) for event in run.advance(1_000)] == [(10, 10), (20, 20)]


def test_timers_and_state_are_there_after_a_restart() -> None:
    run = running(inactive)
    run.send("a", 1, 0)
    again = run.restarted()
    again.send("a", 1, 5)
    assert again.advance(14) == []
    assert plain(again.restarted().advance(15)) == [("a", "fired 15", 15)]


def test_a_timer_of_the_wall_clock_fires_at_a_tick() -> None:
    run = running(lambda event, context: context.set_timer(1_000, event.key, "flush", wall_clock=True))
    run.send("a", 1, 7)
    run.send("a", 1, 8)  # the same timer
    assert run.tick(999) + run.advance(5_000) == []
    assert plain(run.restarted().tick(1_000)) == [("a", "fired 1000", 8)]
    assert plain(run.tick(1_000)) == [("a", "fired 1000", 8)]
    assert run.tick(2_000) == []


def test_a_timer_set_by_one_for_a_later_time_that_has_come_fires_too() -> None:
    def again(timer: Timer, context: ProcessorContext) -> None:
        context.forward(timer[1])
        context.set_timer(timer[1] + 10)

    run = running(lambda event, context: context.set_timer(10), again)
    run.send("a", 1, 0)
    assert [event.value for event in run.advance(35)] == [10, 20, 30]


def test_a_timer_set_by_one_for_the_same_time_does_not_fire_for_ever() -> None:
    def same(timer: Timer, context: ProcessorContext) -> None:
        context.forward(timer[1])
        context.set_timer(timer[1])

    run = running(lambda event, context: context.set_timer(10), same)
    run.send("a", 1, 0)
    assert [[event.value for event in run.advance(at)] for at in (10, 11)] == [[10], [10]]


def test_results_have_the_position_of_the_event_and_may_have_another_key_and_time() -> None:
    def twice(event: Event, context: ProcessorContext) -> None:
        context.forward("same")
        context.forward("other", key="k", timestamp_ms=3)

    run = running(twice)
    same, other = run.send("a", 1, 7)
    assert plain([same, other]) == [("a", "same", 7), ("k", "other", 3)]
    assert (same.topic, same.offset) == (other.topic, other.offset) == ("left", 0)


def test_what_a_processor_may_ask() -> None:
    seen: list[Any] = []

    def ask(event: Event, context: ProcessorContext) -> None:
        users = context.table("users")
        users["n"] = users.get("n", 0) + 1
        seen.append((context.watermark_ms, context.stream_time_ms, context.wall_ms, dict(users), "x" in context.state))
        context.state["x"] = 1
        del context.state["x"]

    run = running(ask, tables=["users"])
    run.context.wall_ms = 99
    run.send("a", 1, 5)
    run.send("a", 1, 3)
    assert seen == [(5, 5, 99, {"n": 1}, False), (5, 5, 99, {"n": 2}, False)]


def test_what_fails_gives_nothing_and_names_operator_and_record() -> None:
    def half(event: Event, context: ProcessorContext) -> None:
        context.forward("first")
        raise KeyError(event.value)

    with pytest.raises(RecordError, match="operator proc: KeyError: 1, at left-0 offset 0"):
        running(half).send("a", 1, 1)
    failed: list[Any] = []
    run = Running(
        lambda: ProcessorOperator("proc", lambda: Scripted(half, show)),
        failed=lambda name, event, error: failed.append(event.offset),
    )
    assert run.send("a", 1, 1) == [] and failed == [0]
