"""Steps that know one event at a time."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from isthmus.streams.engine.operators import stateless
from isthmus.streams.engine.operators.stateless import Step
from isthmus.streams.errors import RecordError
from tests.streams.engine.operators.running import Running, plain

VALUES = [1, 2, 3, 4]


def give(make: Callable[[], Step], failed: Any = None) -> Running:
    run = Running(make, **({"failed": failed} if failed else {}))
    run.batch([run.event("k", value, value * 10) for value in VALUES])
    return run


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: stateless.map_values("s", lambda value: value * 2),
         [("k", 2, 10), ("k", 4, 20), ("k", 6, 30), ("k", 8, 40)]),
        (lambda: stateless.flat_map("s", lambda value: range(value - 2)), [("k", 0, 30), ("k", 0, 40), ("k", 1, 40)]),
        (lambda: stateless.filter_values("s", lambda value: value % 2), [("k", 1, 10), ("k", 3, 30)]),
        (lambda: stateless.rekey("s", str), [("1", 1, 10), ("2", 2, 20), ("3", 3, 30), ("4", 4, 40)]),
        (lambda: stateless.merge("s"), [("k", 1, 10), ("k", 2, 20), ("k", 3, 30), ("k", 4, 40)]),
        (lambda: stateless.map_values("s", lambda event: event.offset, whole=True),
         [("k", 0, 10), ("k", 1, 20), ("k", 2, 30), ("k", 3, 40)]),
    ],
    ids=["map", "flat_map", "filter", "rekey", "merge", "map whole events"],
)  # fmt: skip
def test_steps(make: Callable[[], Step], expected: list[Any]) -> None:
    assert plain(give(make).main) == expected


def test_peek_sees_each_event_and_changes_none() -> None:
    seen: list[Any] = []
    assert [event.value for event in give(lambda: stateless.peek("s", seen.append)).main] == VALUES == seen


def test_a_branch_is_the_first_that_takes_an_event_and_the_last_takes_the_others() -> None:
    run = Running(lambda: stateless.branch("s", [lambda value: value > 3, lambda value: value > 2]))
    outputs = run.operator.process(0, [run.event("k", value, 0) for value in VALUES])
    assert [[event.value for event in output] for output in outputs] == [[4], [3], [1, 2]]


def test_derived_events_have_the_position_time_and_watermark_of_their_cause() -> None:
    run = Running(lambda: stateless.map_values("s", str))
    event = run.event("k", 1, 30)
    event.raw_headers = (("h", b"1"),)
    [result] = run.batch([event])
    assert (result.topic, result.partition, result.offset, result.raw_headers) == ("left", 0, 0, (("h", b"1"),))
    assert result.watermark_ms == event.watermark_ms == 30


def refuse(value: Any) -> Any:
    if value == 2:
        raise ValueError("no twos")
    return [value]


MAKERS: list[Callable[[], Step]] = [
    lambda: stateless.map_values("s", refuse),
    lambda: stateless.flat_map("s", refuse),
    lambda: stateless.filter_values("s", refuse),
    lambda: stateless.rekey("s", refuse),
    lambda: stateless.peek("s", refuse),
    lambda: stateless.branch("s", [refuse]),
]


@pytest.mark.parametrize("make", MAKERS)
def test_a_function_that_fails_names_operator_and_record(make: Callable[[], Step]) -> None:
    with pytest.raises(RecordError, match="operator s: ValueError: no twos, at left-0 offset 1"):
        give(make)


def test_of_an_event_that_fails_halfway_nothing_is_given() -> None:
    def pieces(value: int) -> Iterator[int]:
        yield value
        if value == 2:
            raise ValueError("no twos")

    failed: list[int] = []
    run = give(lambda: stateless.flat_map("s", pieces), lambda name, event, error: failed.append(event.offset))
    assert [event.value for event in run.main] == [1, 3, 4] and failed == [1]


@pytest.mark.parametrize("make", MAKERS)
def test_only_the_event_that_failed_is_left_out(make: Callable[[], Step]) -> None:
    failed: list[int] = []
    run = give(make, lambda name, event, error: failed.append(event.offset))
    assert [event.offset for event in run.main] == [0, 2, 3] and failed == [1]
