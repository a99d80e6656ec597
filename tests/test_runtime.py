"""What a room may know of time and chance."""

from __future__ import annotations

import random
import time

import pytest

from isthmus.runtime import Runtime, system


def test_jittered_pauses_lie_between_half_of_the_length_and_all_of_it() -> None:
    runtime = Runtime(random.Random(1), lambda: 0, lambda: 0)
    lengths = [runtime.jittered(200) for _ in range(1000)]
    assert min(lengths) == pytest.approx(100, abs=1) and max(lengths) == pytest.approx(200, abs=1)
    assert min(lengths) >= 100 and max(lengths) <= 200
    assert len(set(lengths)) == len(lengths)


def test_a_real_process_has_the_systems_clock() -> None:
    runtime = system()
    before = time.time_ns() // 1_000_000
    assert before <= runtime.wall_ms() <= time.time_ns() // 1_000_000
