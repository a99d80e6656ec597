"""Idle and stalled datacenters, and what each policy makes of them."""

import pytest

from isthmus.streams.engine.datacenters import ByDatacenter, Completeness, Rule, Seen, Source
from isthmus.streams.engine.event import Event
from isthmus.streams.engine.origin import Beat
from isthmus.streams.engine.time import Clocks, Kept, Watermarks
from isthmus.streams.errors import AppError, StreamsError

NAMES = {"a": "fra", "b": "nyc"}
SOURCES = {topic: Source(name, 5) for topic, name in NAMES.items()}


def rule(policy: str, marks: Watermarks) -> Rule:
    return Rule("app", ByDatacenter(policy, after=1.0), SOURCES, Clocks([marks]))


def watermarks(kept: Kept | None = None) -> Watermarks:
    return Watermarks(NAMES, 5, kept=kept, names=NAMES)


def seen(at_ms: int, end: int, mirrored_to: int, position: int) -> Seen:
    return Seen(Beat(at_ms, end, mirrored_to), position)


def test_a_place_is_complete_up_to_when_the_source_ended_where_it_is_now() -> None:
    place = Completeness()
    place.observe(100, 10, 8)
    assert place.at_ms == -1
    place.observe(200, 14, 9)
    assert place.at_ms == -1
    place.observe(300, 20, 11)  # past the 10 of time 100, though the source never rests
    assert place.at_ms == 100
    place.observe(400, 20, 20)
    assert place.at_ms == 400


def test_an_idle_datacenter_is_complete_up_to_its_heartbeat_less_the_bound() -> None:
    marks = watermarks()
    by = rule("hold", marks)
    by.look(1_000, {"a": seen(990, 3, 3, 3), "b": seen(980, 0, 0, 0)})
    assert marks.watermark_ms == 975
    by.look(2_000, {"a": seen(1_990, 3, 3, 3), "b": seen(1_980, 1, 1, 0)})  # here, but not processed
    assert marks.watermark_ms == 975
    by.look(3_000, {"a": seen(2_990, 3, 3, 3), "b": seen(1_980, 1, 1, 1)})
    assert marks.watermark_ms == 1_975


@pytest.mark.parametrize("stall", [Seen(Beat(1_000, 4, 4), 4), Seen(Beat(1_900, 9, 4), 4)], ids=["no beat", "behind"])
def test_one_that_is_stalled_holds_or_is_excluded_or_fails_the_app(stall: Seen) -> None:
    for policy in ("hold", "exclude", "fail"):
        marks = watermarks()
        by = rule(policy, marks)
        by.look(1_000, {"a": seen(1_000, 0, 0, 0), "b": seen(1_000, 4, 4, 4)})
        by.look(1_999, {"a": seen(1_999, 0, 0, 0), "b": stall})
        assert marks.watermark_ms == 995 and marks.excluded == ()
        if policy == "fail":
            with pytest.raises(StreamsError, match="datacenter nyc is stalled"):
                by.look(2_000, {"a": seen(2_000, 0, 0, 0), "b": stall})
            continue
        changed = by.look(2_000, {"a": seen(2_000, 0, 0, 0), "b": stall})
        assert (changed, marks.watermark_ms, marks.excluded) == (
            (True, 1_995, ("nyc",)) if policy == "exclude" else (False, 995, ())
        )


def test_what_is_back_is_missing_until_it_has_come_to_where_the_others_are() -> None:
    marks = watermarks()
    by = rule("exclude", marks)
    by.look(1_000, {"a": seen(1_000, 0, 0, 0), "b": seen(900, 0, 0, 0)})
    by.look(2_000, {"a": seen(2_000, 0, 0, 0), "b": seen(900, 0, 0, 0)})
    assert marks.excluded == ("nyc",)
    marks.stamp([Event(b"k", None, 950, "b", 0, 0)])  # its events alone do not bring it back
    assert marks.excluded == ("nyc",) and marks.watermark_ms == 1_995
    assert by.look(3_000, {"a": seen(3_000, 0, 0, 0), "b": seen(2_900, 5, 5, 1)})
    assert marks.excluded == ("nyc",) and marks.watermark_ms == 1_995  # waited for again
    by.look(3_100, {"a": seen(3_100, 0, 0, 0), "b": seen(3_000, 5, 5, 5)})
    assert marks.excluded == () and marks.watermark_ms == 2_995


def test_an_exclusion_survives_a_restart() -> None:
    kept: Kept = {}
    marks = watermarks(kept)
    by = rule("exclude", marks)
    by.look(0, {})
    by.look(1_000, {"a": seen(1_000, 0, 0, 0), "b": Seen(None, 0)})
    marks.save()
    again = watermarks(dict(kept))
    by = rule("exclude", again)
    assert not by.look(1_100, {"a": seen(1_100, 0, 0, 0), "b": Seen(None, 0)})
    assert again.excluded == ("nyc",) and again.watermark_ms == 1_095


@pytest.mark.parametrize("options", [{"policy": "wait"}, {"after": 0.0}, {"after": float("nan")}])
def test_what_is_no_policy_is_said(options: dict[str, object]) -> None:
    with pytest.raises(AppError, match="watermarks: "):
        ByDatacenter(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", ["hold", "fail"])
def test_one_that_was_excluded_is_waited_for_again_where_the_policy_now_is_another(policy: str) -> None:
    kept: Kept = {}
    marks = watermarks(kept)
    stalled = {"a": seen(2_000, 0, 0, 0), "b": seen(900, 0, 0, 0)}
    by = rule("exclude", marks)
    by.look(1_000, {"a": seen(1_000, 0, 0, 0), "b": seen(900, 0, 0, 0)})
    by.look(2_000, stalled)
    marks.save()
    marks = watermarks(kept)
    by = rule(policy, marks)
    by.look(2_100, stalled)
    by.look(3_000, {"a": seen(3_000, 0, 0, 0), "b": seen(2_900, 5, 5, 5)})
    assert marks.excluded == ()
    assert marks.watermark_ms == 2_895
    if policy == "fail":
        with pytest.raises(StreamsError, match="datacenter nyc is stalled"):
            by.look(4_000, {"a": seen(4_000, 0, 0, 0), "b": seen(2_900, 5, 5, 5)})


def test_one_that_was_excluded_is_waited_for_again_where_its_topic_is_no_copy_any_more() -> None:
    kept: Kept = {}
    marks = watermarks(kept)
    by = rule("exclude", marks)
    by.look(1_000, {"a": seen(1_000, 0, 0, 0), "b": seen(900, 0, 0, 0)})
    by.look(2_000, {"a": seen(2_000, 0, 0, 0), "b": seen(900, 0, 0, 0)})
    marks.save()
    marks = Watermarks(NAMES, 5, kept=kept, names={"a": "fra", "b": "local"})
    Rule("app", ByDatacenter("exclude", after=1.0), {"a": SOURCES["a"]}, Clocks([marks]))
    marks.stamp([Event(b"k", None, 3_000, "b", 0, 0)])
    assert marks.excluded == ()
