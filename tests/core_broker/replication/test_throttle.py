"""A rate over a window of samples, and which replicas it holds back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from isthmus.core_broker.config import BrokerConfig, topic_config
from isthmus.core_broker.replication.throttle import Quota, Throttle

RATE = "follower.replication.throttled.rate"


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def quota(clock: Clock, rate: str | None) -> Quota:
    config = BrokerConfig()
    config.set_dynamic({} if rate is None else {RATE: rate}, {})
    return Quota(RATE, config, clock)


def test_what_was_too_much_is_made_up_for_by_a_pause() -> None:
    clock = Clock()
    each = quota(clock, "1000")
    each.record(1000)
    assert (each.is_exceeded(), each.pause_s()) == (False, 0)  # in the first second
    each.record(2000)
    assert each.is_exceeded() and each.bytes_per_s() == 3000
    passed = 0.0
    while pause_s := each.pause_s():
        assert pause_s <= 1.0
        clock.now += pause_s
        passed += pause_s
    assert passed == pytest.approx(3.0) and each.bytes_per_s() == pytest.approx(1000)


def test_samples_leave_the_window() -> None:
    clock = Clock()
    each = quota(clock, "0")
    each.record(10**9)
    clock.now += 10.9
    each.record(11)
    assert each.is_exceeded() and each.pause_s() == pytest.approx(0.1)
    clock.now += 0.1  # eleven samples of a second
    assert each.bytes_per_s() == 11
    clock.now += 11
    assert not each.is_exceeded()


def test_without_a_rate_nothing_is_held_back() -> None:
    each = quota(Clock(), None)
    each.record(10**12)
    assert (each.is_exceeded(), each.pause_s()) == (False, 0)


@pytest.mark.parametrize(
    ("leaders", "followers", "marked"),
    [
        ("", "", (False, False)),
        ("*", "", (True, False)),
        ("0:1,7:2", "7:1,7:12", (False, True)),
        ("7:1", "7:2", (True, False)),
    ],
)
def test_topics_name_the_replicas(leaders: str, followers: str, marked: tuple[bool, bool]) -> None:
    options = {"leader.replication.throttled.replicas": leaders, "follower.replication.throttled.replicas": followers}
    partition: Any = SimpleNamespace(index=7, configs=topic_config(options, BrokerConfig()))
    Throttle(1, BrokerConfig(), Clock()).mark(partition)
    assert (partition.throttled_leader, partition.throttled_follower) == marked
