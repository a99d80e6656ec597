"""What `isthmus mirror status` makes of what mirrors said, which may be old."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.console.mirrors import ages, unknown_as_none
from isthmus.mirror.status import SILENT_AFTER_MS, UNSEEN_AFTER_MS

NOW_MS = 1_000_000


def row(link: str = "l", topic: str = "t", updated_ms: int = NOW_MS, end: int = 5, **more: Any) -> dict[str, Any]:
    said = {"link": link, "topic": topic, "partition": 0, "next_offset": 3, "source_high_watermark": end}
    said |= {"lag_records": 2, "lag_ms": 9, "updated_ms": updated_ms, "age_ms": 0, "unseen_ms": 0, "reason": ""}
    return {**said, "source_topic": "t", **more}


def test_a_link_is_as_old_as_its_newest_record():
    rows = [row("a", updated_ms=NOW_MS - 50), row("a", updated_ms=NOW_MS - 7), row("b", updated_ms=NOW_MS + 3)]
    assert ages(rows, NOW_MS) == {"a": 7, "b": 0}  # clocks of two machines are never quite equal


@pytest.mark.parametrize(
    ("said", "lag"),
    [
        (row(), 2),
        (row(age_ms=SILENT_AFTER_MS), 2),
        (row(age_ms=SILENT_AFTER_MS + 1), None),
        (row(end=-1), None),
        (row(topic=""), None),
        (row(unseen_ms=UNSEEN_AFTER_MS), 2),
        (row(unseen_ms=UNSEEN_AFTER_MS + 1), None),
    ],
)
def test_a_lag_that_is_not_known_now_is_not_shown(said: dict[str, Any], lag: int | None):
    shown = unknown_as_none(said)
    wanted = [None if lag is None else said[each] for each in ("source_high_watermark", "lag_ms")]
    assert [shown["lag_records"], shown["source_high_watermark"], shown["lag_ms"]] == [lag, *wanted]


def test_a_source_that_hangs_is_named_before_a_request_to_it_has_run_out_of_time():
    assert unknown_as_none(row(unseen_ms=8_400))["reason"] == "t-0: the source has not answered for 8 s"
    assert unknown_as_none(row(unseen_ms=8_400, reason="t-0: diverged"))["reason"] == "t-0: diverged"
