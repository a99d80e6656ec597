"""Idle and stalled datacenters, and what each policy makes of them."""

import pytest

from isthmus.streams.engine.datacenters import (
    COMPLETE,
    EXCLUDED,
    RETURNING,
    STALLED,
    ByDatacenter,
    Completeness,
    Rule,
    Seen,
    Source,
    Standing,
)
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


def seen(at_ms: int, end: int, mirrored_to: int, position: int, said_ms: int | None = None) -> Seen:
    return Seen(Beat(at_ms, end, mirrored_to, at_ms if said_ms is None else said_ms), position)


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


STALLS = {
    "its mirror has said nothing of b for 1 s": seen(1_000, 4, 4, 4),
    "its mirror has not seen the source of b for 1 s": seen(1_000, 4, 4, 4, said_ms=1_999),
    "its mirror is 5 records behind in b": seen(1_900, 9, 4, 4, said_ms=1_999),
}


@pytest.mark.parametrize("why", STALLS)
def test_one_that_is_stalled_holds_or_is_excluded_or_fails_the_app(why: str) -> None:
    stall = STALLS[why]
    for policy in ("hold", "exclude", "fail"):
        marks = watermarks()
        by = rule(policy, marks)
        by.look(1_000, {"a": seen(1_000, 0, 0, 0), "b": seen(1_000, 4, 4, 4)})
        by.look(1_999, {"a": seen(1_999, 0, 0, 0), "b": stall})
        assert marks.watermark_ms == 995 and marks.excluded == ()
        if policy == "fail":
            with pytest.raises(
                StreamsError, match=f"datacenter nyc is stalled: {why}, .* after 1970-01-01 00:00:01.000"
            ):
                by.look(2_000, {"a": seen(2_000, 0, 0, 0), "b": stall})
            continue
        assert by.standings["nyc"] == Standing(COMPLETE, 1_000)
        changed = by.look(2_000, {"a": seen(2_000, 0, 0, 0), "b": stall})
        assert (changed, marks.watermark_ms, marks.excluded) == (
            (True, 1_995, ("nyc",)) if policy == "exclude" else (False, 995, ())
        )
        assert by.standings["nyc"] == Standing(EXCLUDED if policy == "exclude" else STALLED, 1_000, why)
        assert by.standings["fra"] == Standing(COMPLETE, 2_000)


@pytest.mark.parametrize("off_ms", [-600_000, 600_000])
def test_how_long_one_is_stalled_does_not_depend_on_what_the_clock_of_its_mirror_is(off_ms: int) -> None:
    by = rule("exclude", watermarks())

    def excluded(wall_ms: int, at_ms: int) -> bool:
        mirrored = seen(at_ms + off_ms, at_ms, at_ms, at_ms)
        by.look(wall_ms, {"a": seen(wall_ms, 0, 0, 0), "b": mirrored})
        return by.standings["nyc"].state == EXCLUDED

    assert not any(excluded(at_ms, at_ms) for at_ms in range(1_000_000, 1_005_000, 500))
    assert by.standings["nyc"].ahead_ms == max(0, off_ms)
    assert not excluded(1_005_499, 1_004_500)
    assert excluded(1_005_500, 1_004_500)
    assert not excluded(1_006_000, 1_006_000)


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
    assert by.standings["nyc"] == Standing(RETURNING, 2_900)
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
    assert by.standings["nyc"] == Standing(EXCLUDED, -1, "no mirror has ever said anything of b")


def test_a_heartbeat_of_before_a_restart_brings_nobody_back() -> None:
    kept: Kept = {}
    marks = watermarks(kept)
    by = rule("exclude", marks)
    last = seen(900, 4, 4, 4)
    by.look(900, {"a": seen(900, 0, 0, 0), "b": last})
    by.look(1_900, {"a": seen(1_900, 0, 0, 0), "b": last})
    marks.save()
    again = watermarks(dict(kept))
    by = rule("exclude", again)
    assert not by.look(9_000, {"a": seen(9_000, 0, 0, 0), "b": last})
    assert not by.look(9_100, {"a": seen(9_100, 0, 0, 0), "b": last})
    assert again.excluded == ("nyc",)
    assert by.standings["nyc"].why == "it was so before, and its mirror has said nothing of b yet"
    assert by.look(9_200, {"a": seen(9_100, 0, 0, 0), "b": seen(9_150, 4, 4, 4)})


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
