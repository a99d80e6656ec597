"""Times in buckets: percentiles are those of the times, within a bucket; windows forget what is long ago."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.core_broker.metrics.windows import WINDOW_S, Windows
from isthmus.core_broker.server.latency import BOUNDS_NS, BUCKETS, Latency, percentile_ns


@given(
    st.lists(st.integers(20_000, BOUNDS_NS[-1]), min_size=1, max_size=200), st.sampled_from([0.5, 0.75, 0.99, 0.999])
)
def test_a_percentile_lies_within_a_bucket_of_the_true_one(times: list[int], share: float) -> None:
    latency = Latency()
    for each in times:
        latency.answered(each)
    counts, total_ns = latency.total()
    assert (sum(counts), total_ns) == (len(times), sum(times))
    wanted = sorted(times)[max(0, -(-int(share * 1000) * len(times) // 1000) - 1)]
    assert percentile_ns(counts, share) == pytest.approx(wanted, rel=0.34)


def test_no_requests_have_no_percentile_and_the_longest_are_not_lost() -> None:
    assert percentile_ns([0] * BUCKETS, 0.99) == 0
    latency = Latency()
    latency.answered(10**15)
    assert percentile_ns(latency.total()[0], 0.5) == BOUNDS_NS[-1]


def test_what_waited_counts_its_handler_and_the_whole_apart() -> None:
    latency = Latency()
    latency.began(1_000_000)
    latency.waited(500_000_000)
    latency.answered(2_000_000)
    assert latency.total()[1] == 502_000_000
    assert latency.local()[1] == 3_000_000
    assert sum(latency.total()[0]) == sum(latency.local()[0]) == 2


def test_windows_forget_what_is_long_ago() -> None:
    windows, counts = Windows(), [0] * BUCKETS

    def ask(now: float) -> int:
        return sum(windows.recent("a", list(counts), now))

    counts[3] = 10
    assert ask(0) == 10  # since the start
    counts[3] = 15
    assert ask(WINDOW_S / 2) == 15
    assert ask(WINDOW_S) == 5
    counts[3] = 16
    assert ask(WINDOW_S * 1.5) == 6  # the last reading is not old enough yet
    assert ask(WINDOW_S * 2) == 1
    assert ask(WINDOW_S * 50) == 0
    assert sum(windows.recent("b", list(counts), 0)) == 16
