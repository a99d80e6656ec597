"""The delay before a new group's first generation (KIP-134)."""

from __future__ import annotations

from isthmus.core_broker.coordinators.initial_delay import InitialDelay


def test_a_delay_without_more_members_has_one_step():
    delay = InitialDelay(3000)
    assert delay.begin(60_000) == 3000
    assert delay.next_step() is None


def test_each_step_in_which_a_member_joins_is_followed_by_another():
    delay = InitialDelay(3000)
    delay.begin(60_000)
    for _ in range(3):
        delay.member_joined()
        assert delay.next_step() == 3000
    assert delay.next_step() is None


def test_all_steps_together_last_no_longer_than_the_rebalance_timeout():
    delay = InitialDelay(3000)
    steps_ms: list[int | None] = [delay.begin(7000)]
    for _ in range(3):
        delay.member_joined()
        steps_ms.append(delay.next_step())
    assert steps_ms == [3000, 3000, 1000, None]


def test_the_first_step_may_be_longer_than_the_rebalance_timeout():
    delay = InitialDelay(3000)
    assert delay.begin(1000) == 3000
    delay.member_joined()
    assert delay.next_step() is None


def test_a_member_that_joined_before_the_delay_does_not_lengthen_it():
    delay = InitialDelay(3000)
    delay.member_joined()
    delay.begin(60_000)
    assert delay.next_step() is None


def test_a_delay_that_was_ended_has_no_next_step():
    delay = InitialDelay(3000)
    delay.begin(60_000)
    delay.member_joined()
    delay.end()
    assert delay.next_step() is None
