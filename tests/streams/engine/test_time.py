"""Watermarks: monotone, the least of the sources', and the same after a restart and in any batches."""

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from isthmus.streams.engine.event import Event
from isthmus.streams.engine.heartbeats import Heartbeat
from isthmus.streams.engine.time import Kept, Watermarks


def event(source: str, timestamp_ms: int) -> Event:
    return Event("k", None, timestamp_ms, source, 0, 0)


def stamps_of(events: list[Event]) -> list[int]:
    return [each.watermark_ms for each in events]


def stamps(marks: Watermarks, *events: tuple[str, int]) -> list[int]:
    made = [event(*each) for each in events]
    marks.stamp(made)
    return [each.watermark_ms for each in made]


def test_one_source_is_complete_up_to_its_greatest_timestamp_less_the_bound() -> None:
    assert stamps(Watermarks(["a"], 5), ("a", 10), ("a", 7), ("a", 12)) == [5, 5, 7]


def test_each_source_may_have_a_bound_of_its_own() -> None:
    marks = Watermarks(["a", "b"], bounds_ms={"a": 5})
    assert stamps(marks, ("a", 10), ("b", 4), ("b", 30), ("a", 20)) == [-1, 4, 5, 15]


def test_what_tasks_write_is_complete_as_far_as_all_of_them_have_said() -> None:
    kept: Kept = {}

    def restored() -> Watermarks:
        return Watermarks(["r"], kept=kept, upstreams={"r": {"in": 2}})

    def heard(marks: Watermarks, *beats: tuple[str, int, int, int, bool]) -> list[int]:
        found = []
        for beat in beats:
            assert marks.receive([Event(None, Heartbeat(*beat), 0, "r", 0, 0)]) == []
            found.append(marks.watermark_ms)
        return found

    marks = restored()
    assert stamps_of(marks.receive([event("r", 90)])) == [-1]
    assert heard(marks, ("in", 0, 2, 20, False), ("in", 1, 2, 10, False), ("before", 0, 9, 5, False)) == [-1, 10, 10]
    assert heard(marks, ("in", 0, 2, 5, False)) == [10]  # what it has said before is true all the same
    assert stamps_of(marks.receive([event("r", 90)])) == [10]
    assert heard(marks, ("in", 1, 2, 10, True), ("in", 1, 2, 15, False)) == [20, 20]  # idle, and back
    marks.save()
    marks = restored()
    assert heard(marks, ("in", 1, 2, 30, False), ("in", 0, 3, 40, False), ("in", 2, 3, 35, False)) == [20, 20, 30]
    assert (marks.complete("r", 99), marks.stream_time_ms) == (30, 90)  # its tasks know better


def test_results_lack_what_tasks_went_on_without_until_it_has_come_to_where_the_others_are() -> None:
    kept: Kept = {}
    found = []
    for beat in [
        Heartbeat("in", 1, 2, 50),
        Heartbeat("in", 0, 2, 20, True, (("nyc", 20),)),  # it reads nothing but what is excluded
        Heartbeat("in", 0, 2, 30),
        Heartbeat("in", 0, 2, 50),
    ]:
        marks = Watermarks(["r"], kept=kept, upstreams={"r": {"in": 2}})  # restarted
        marks.receive([Event(None, beat, 0, "r", 0, 0)])
        marks.save()
        found.append((marks.watermark_ms, marks.lacking))
    assert found == [(-1, ()), (50, (("nyc", 20),)), (50, (("nyc", 30),)), (50, ())]


def test_a_watermark_is_the_least_of_the_sources() -> None:
    marks = Watermarks(["a", "b"])
    assert stamps(marks, ("a", 10), ("a", 20), ("b", 5), ("b", 30), ("a", 25)) == [-1, -1, 5, 20, 25]
    assert marks.watermark_ms == 25 and marks.stream_time_ms == 30
    assert (marks.source("a"), marks.source("b")) == (25, 30)


def test_a_source_that_is_new_does_not_move_the_watermark_back() -> None:
    marks = Watermarks(["a"])
    assert stamps(marks, ("a", 10), ("b", 3), ("a", 20), ("b", 15)) == [10, 10, 10, 15]


def test_an_excluded_source_is_not_waited_for_until_it_is_back() -> None:
    marks = Watermarks(["a", "b"])
    stamps(marks, ("a", 10), ("b", 4))
    assert marks.exclude("b") == 10 and marks.excluded == ("b",)
    assert stamps(marks, ("a", 20), ("b", 6), ("a", 30), ("b", 25)) == [20, 20, 20, 25]
    assert marks.excluded == ()


def test_an_idle_source_is_not_waited_for_and_nothing_is_missing() -> None:
    marks = Watermarks(["a", "b"])
    stamps(marks, ("a", 10))
    assert marks.idle("b") == 10 and marks.excluded == ()
    assert stamps(marks, ("a", 20), ("b", 5), ("a", 30), ("b", 25)) == [20, 20, 20, 25]


def test_the_first_source_that_is_back_moves_the_watermark_alone() -> None:
    marks = Watermarks(["a", "b"])
    stamps(marks, ("a", 10), ("b", 4))
    marks.idle("a")
    assert marks.idle("b") == 4
    assert stamps(marks, ("a", 20), ("a", 30)) == [20, 30]


def test_a_late_event_of_an_idle_source_moves_nothing_back() -> None:
    for sources in (["a"], ["a", "b"]):
        marks = Watermarks(sources)
        stamps(marks, *((each, 10) for each in sources))
        for each in sources:
            marks.idle(each)
        assert stamps(marks, ("a", 4)) == [10]
        assert (marks.watermark_ms, marks.source("a")) == (10, 10)


def test_a_source_may_be_included_before_it_has_events() -> None:
    marks = Watermarks(["a", "b"])
    stamps(marks, ("a", 10))
    marks.exclude("b")
    assert marks.include("b") == 10
    assert stamps(marks, ("a", 20)) == [10]


def test_nothing_is_complete_because_nothing_comes() -> None:
    marks = Watermarks(["a", "b"])
    stamps(marks, ("a", 10), ("b", 4))
    marks.exclude("a")
    assert marks.exclude("b") == 4


def test_who_knows_that_a_source_is_complete_may_say_so() -> None:
    marks = Watermarks(["a", "b"])
    stamps(marks, ("a", 10))
    assert marks.complete("b", 8) == 8
    assert (marks.complete("b", 5), marks.source("b")) == (8, 8)
    assert stamps(marks, ("b", 3), ("b", 9)) == [8, 9]


def test_sources_may_be_other_than_topics() -> None:
    marks = Watermarks(["fra", "nyc"], source_of=lambda event: event.key)
    events = [Event(dc, None, at, "all", 0, 0) for dc, at in [("fra", 10), ("nyc", 4), ("nyc", 20)]]
    marks.stamp(events)
    assert [each.watermark_ms for each in events] == [-1, 4, 10]


def test_a_restart_changes_nothing() -> None:
    kept: Kept = {}
    marks = Watermarks(["a", "b"], 1, kept=kept)
    stamps(marks, ("a", 10), ("b", 4), ("a", 30))
    marks.exclude("b")
    marks.save()
    again = Watermarks(["a", "b"], 1, kept=dict(kept))
    assert (again.watermark_ms, again.stream_time_ms, again.excluded) == (29, 30, ("b",))
    assert stamps(again, ("b", 20), ("a", 40)) == stamps(marks, ("b", 20), ("a", 40)) == [29, 29]


def test_a_source_that_is_no_more_is_forgotten_at_a_restart() -> None:
    kept: Kept = {}
    marks = Watermarks(["a", "b"], kept=kept)
    stamps(marks, ("a", 10), ("b", 4))
    marks.save()
    again = Watermarks(["a"], kept=kept)
    assert stamps(again, ("a", 20)) == [20]


STEP = st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 100))


@given(st.lists(STEP, max_size=50), st.integers(0, 10), st.lists(st.integers(0, 50)))
def test_stamps_are_the_definition_in_any_batches(steps: list[Any], bound: int, cuts: list[int]) -> None:
    marks = Watermarks(["a", "b", "c"], bound)
    greatest: dict[str, int] = {}
    expected: list[int] = []
    for source, at in steps:
        greatest[source] = max(greatest.get(source, -1), at)
        least = (
            min((greatest[each] - bound for each in "abc" if each in greatest), default=-1)
            if len(greatest) == 3
            else -1
        )
        expected.append(max(least, *expected[-1:], -1))
    found: list[int] = []
    places = sorted({cut % (len(steps) + 1) for cut in cuts} | {0, len(steps)})
    for begin, end in pairwise(places):
        found += stamps(marks, *steps[begin:end])
    assert found == expected
