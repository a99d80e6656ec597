"""When a log begins a new segment (`rolling.must_roll`), by each of its limits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from isthmus.core_broker.storage.log._segment import MAX_RELATIVE, Segment
from isthmus.core_broker.storage.log.log_config import LogConfig
from isthmus.core_broker.storage.log.rolling import must_roll

BASE, MADE_MS, FIRST_MS = 100, 5_000, 10_000


def segment(size: int = 500, entries: int = 0, first_ms: int = FIRST_MS) -> Segment:
    made = Segment(SimpleNamespace(size=size), "/data/t-0", BASE, MADE_MS)  # type: ignore[arg-type]
    made.first_timestamp = first_ms
    for number in range(entries):
        made.offsets.append(number, number)
        made.times.append(number, number)
    return made


@pytest.mark.parametrize(
    ("held", "config", "append", "rolls"),
    [
        ({}, {"segment_bytes": 600}, {"size_bytes": 100}, False),
        ({}, {"segment_bytes": 600}, {"size_bytes": 101}, True),
        ({"size": 0}, {"segment_bytes": 600}, {"size_bytes": 601}, False),  # a segment holds at least one append
        ({}, {}, {"last_offset": BASE + MAX_RELATIVE}, False),
        ({"size": 0}, {}, {"last_offset": BASE + MAX_RELATIVE + 1}, True),
        ({}, {"segment_ms": 50}, {"max_timestamp": FIRST_MS + 50}, False),
        ({}, {"segment_ms": 50}, {"max_timestamp": FIRST_MS + 51}, True),
        ({"size": 0}, {"segment_ms": 50}, {"max_timestamp": FIRST_MS + 51}, False),
        ({"first_ms": -1}, {"segment_ms": 50}, {"wall_ms": MADE_MS + 50}, False),  # records without timestamps
        ({"first_ms": -1}, {"segment_ms": 50}, {"wall_ms": MADE_MS + 51}, True),
        ({"entries": 80}, {"segment_index_bytes": 984}, {}, False),  # 82 entries of the time index
        ({"entries": 81}, {"segment_index_bytes": 984}, {}, True),
    ],
)
def test_each_limit_of_a_segment(held: Any, config: Any, append: dict[str, int], rolls: bool) -> None:
    asked = {"size_bytes": 1, "last_offset": BASE + 10, "max_timestamp": FIRST_MS, "wall_ms": MADE_MS, **append}
    assert must_roll(segment(**held), LogConfig(**config), **asked) is rolls


def test_jitter_shortens_the_time_of_a_segment_and_is_always_the_same() -> None:
    config = LogConfig(segment_ms=1_000, segment_jitter_ms=900)
    ages = [age for age in range(1_002) if must_roll(segment(), config, 1, BASE + 10, FIRST_MS + age, MADE_MS)]
    assert 100 <= ages[0] <= 1_001 and ages == list(range(ages[0], 1_002))
