"""Aggregates of all events of a key."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.streams.engine.operators import aggregations
from isthmus.streams.engine.operators.aggregations import Aggregation
from isthmus.streams.engine.operators.key_aggregate import KeyAggregate
from isthmus.streams.engine.operators.table_sources import Change
from isthmus.streams.errors import RecordError
from tests.streams.engine.operators.running import Running, plain, split


def running(aggregation: Aggregation, **options: Any) -> Running:
    return Running(lambda: KeyAggregate("all", aggregation), **options)


def test_a_batch_gives_one_change_a_key() -> None:
    run = running(aggregations.count())
    run.send("a", "v", 1)
    run = run.restarted()
    found = run.batch([run.event("a", "v", 2), run.event("b", "v", 3), run.event("a", "v", 1)])
    assert plain(found) == [("a", Change(1, 3), 1), ("b", Change(None, 1), 3)]
    assert [event.offset for event in found] == [3, 2] and run.rows() == {"a": 3, "b": 1}


def test_a_row_is_the_result_not_the_accumulator() -> None:
    run = running(aggregations.mean())
    run.send("a", 4, 1)
    run = run.restarted()
    assert plain(run.send("a", 1, 2)) == [("a", Change(4.0, 2.5), 2)]
    assert run.rows() == {"a": 2.5}


def test_bad_input() -> None:
    run = running(aggregations.total())
    assert run.send(None, 1, 1) + run.send("a", None, 1) == [] and run.operator.counts == {"skipped": 2}
    with pytest.raises(RecordError, match=r"operator all: TypeError: .* at left-0 offset 2"):
        run.send("a", "x", 1)
    with pytest.raises(RecordError, match="cannot be a table's key"):
        run.send([], 1, 1)


def test_only_the_event_that_failed_is_left_out() -> None:
    failed: list[int] = []
    run = running(aggregations.total(), failed=lambda name, event, error: failed.append(event.offset))
    found = run.batch([run.event("a", 1, 1), run.event("a", "x", 1), run.event("a", 2, 1)])
    assert plain(found) == [("a", Change(None, 3), 1)] and failed == [1]


def test_a_result_that_fails_is_left_out_and_what_it_is_of_is_not() -> None:
    failed: list[int] = []
    counted = aggregations.count()._replace(result=lambda n: 6 // (2 - n))
    run = running(counted, failed=lambda name, event, error: failed.append(event.offset))
    assert plain(run.send("a", "v", 1)) == [("a", Change(None, 6), 1)]
    assert run.send("a", "v", 2) == [] and failed == [1] and run.rows() == {"a": 6}
    assert plain(run.send("a", "v", 3)) == [("a", Change(6, -6), 3)]


@given(st.lists(st.tuples(st.sampled_from("AB"), st.integers(), st.just(0))), st.lists(st.integers(0, 20)))
def test_the_last_results_are_those_of_all_events(events: list[Any], cuts: list[int]) -> None:
    run = running(aggregations.collect())
    for batch in split(events, cuts):
        run.batch([run.event(*each) for each in batch])
    keys = {key for key, _, _ in events}
    assert run.rows() == {each: [value for key, value, _ in events if key == each] for each in keys}
