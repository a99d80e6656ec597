"""What a consumer is asked to do on the way from what it holds to what it shall hold."""

from __future__ import annotations

import pytest

from isthmus.client import TopicPartition
from isthmus.client.holdings import Give, Holdings, Take

A, B, C = (TopicPartition("t", index) for index in range(3))


def shall(*tps: TopicPartition, topic_id: bytes = b"1") -> dict[TopicPartition, bytes]:
    return dict.fromkeys(tps, topic_id)


def holding(*tps: TopicPartition) -> Holdings:
    holdings = Holdings()
    holdings.shall_hold(shall(*tps))
    step = holdings.step()
    assert isinstance(step, Take)
    holdings.begun(step)
    holdings.done(step)
    return holdings


def test_nothing_is_taken_before_what_must_go_is_given_up() -> None:
    holdings = holding(A, B)
    holdings.shall_hold(shall(B, C))
    step = holdings.step()
    assert step == Give([A])
    assert holdings.step() == step, "until it is done"
    holdings.done(Give([A]))
    assert holdings.given_up == 1
    assert holdings.step() == Take([C])
    holdings.begun(Take([C]))
    holdings.done(Take([C]))
    assert holdings.step() is None
    assert list(holdings.held) == [B, C]


def test_what_was_taken_is_told_again_until_the_callback_returns() -> None:
    holdings = holding(A)
    holdings.shall_hold(shall(A, B))
    holdings.begun(Take([B]))
    assert list(holdings.held) == [A, B], "a revocation in between includes it"
    assert holdings.step() == Take([B])
    holdings.shall_hold(shall(A))
    assert holdings.step() == Give([B])
    holdings.done(Give([B]))
    assert holdings.step() is None


@pytest.mark.parametrize("must_tell", [True, False])
def test_who_has_joined_is_told_even_if_nothing_is_new(must_tell: bool) -> None:
    holdings = holding(A)
    holdings.shall_hold(shall(A), must_tell)
    assert holdings.step() == (Take([]) if must_tell else None)
    holdings.done(Take([]))
    assert holdings.step() is None


def test_what_is_lost_is_given_up_as_lost_whatever_was_to_be_held() -> None:
    holdings = holding(A, B)
    holdings.shall_hold(shall(B, C), must_tell=True)
    holdings.lose()
    assert holdings.step() == holdings.all() == Give([A, B], is_lost=True)
    holdings.done(Give([A, B], is_lost=True))
    assert holdings.step() is None
    assert not holdings.is_lost
    holdings.shall_hold(shall(A))
    assert holdings.step() == Take([A])


def test_who_holds_nothing_loses_nothing() -> None:
    holdings = Holdings()
    holdings.lose()
    assert not holdings.is_lost
    assert holdings.step() is None


def test_the_same_partition_of_a_topic_made_anew_is_given_up_and_taken() -> None:
    holdings = holding(A)
    holdings.shall_hold(shall(A, topic_id=b"2"))
    assert holdings.step() == Give([A])
    holdings.done(Give([A]))
    assert holdings.step() == Take([A])
