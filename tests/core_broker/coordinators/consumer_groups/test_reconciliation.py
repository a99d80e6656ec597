"""The steps of a member towards its target, one row a case: what it has, what it is to have, what it says."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from isthmus.core_broker.coordinators.consumer_groups.member import Member, MemberState
from isthmus.core_broker.coordinators.consumer_groups.reconciliation import NOBODY, next_step
from isthmus.protocol.errors import ErrorCode, KafkaError

T, U = b"t" * 16, b"u" * 16
STABLE, UNREVOKED, UNRELEASED = MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS
UNKNOWN = MemberState.UNKNOWN
NOW, NEXT = 5, 6  # the member's epoch, and that of a newer target

Had = dict[int, int]  # partitions of T with the epochs at which they were given


class Case(NamedTuple):
    """What happens. taken: partitions of T that others have. owned: what the member says it has; None for nothing."""

    why: str
    state: MemberState
    has: Had
    revoking: Had
    target_epoch: int
    target: set[int]
    taken: set[int]
    owned: set[int] | None
    after: tuple[int, int, MemberState, Had, Had]  # epoch, epoch before, state, has, revoking
    wants: bool = True  # it subscribes to T
    is_new: bool = False  # its subscription is


CASES = [
    Case("nothing to do", STABLE, {1: 5}, {}, NOW, {1}, set(), None, (5, 4, STABLE, {1: 5}, {})),
    Case("more", STABLE, {1: 5}, {}, NEXT, {1, 2}, set(), None, (6, 5, STABLE, {1: 5, 2: 6}, {})),
    Case("more later", STABLE, {1: 5}, {}, NEXT, {1, 2}, {2}, None, (6, 5, UNRELEASED, {1: 5}, {})),
    Case("some now", STABLE, {1: 5}, {}, NEXT, {1, 2, 3}, {2}, None, (6, 5, UNRELEASED, {1: 5, 3: 6}, {})),
    Case("the same", STABLE, {1: 5}, {}, NEXT, {1}, set(), None, (6, 5, STABLE, {1: 5}, {})),
    Case("fewer", STABLE, {1: 5, 2: 4}, {}, NEXT, {1}, set(), None, (5, 5, UNREVOKED, {1: 5}, {2: 4})),
    Case("fewer, given", STABLE, {1: 5, 2: 4}, {}, NEXT, {1}, set(), {1}, (6, 5, STABLE, {1: 5}, {})),
    Case("swap", STABLE, {1: 5}, {}, NEXT, {2}, set(), {1}, (5, 5, UNREVOKED, {}, {1: 5})),
    Case("swap, given", STABLE, {1: 5}, {}, NEXT, {2}, set(), set(), (6, 5, STABLE, {2: 6}, {})),
    Case("kept silent", UNREVOKED, {1: 5}, {2: 4}, NEXT, {1}, set(), None, (5, 4, UNREVOKED, {1: 5}, {2: 4})),
    Case("not given", UNREVOKED, {1: 5}, {2: 4}, NEXT, {1}, set(), {1, 2}, (5, 4, UNREVOKED, {1: 5}, {2: 4})),
    Case("given", UNREVOKED, {1: 5}, {2: 4}, NEXT, {1}, set(), {1}, (6, 5, STABLE, {1: 5}, {})),
    Case("given, more to give", UNREVOKED, {1: 5}, {2: 4}, 7, set(), set(), {1}, (5, 5, UNREVOKED, {}, {1: 5})),
    Case("wanted back", UNREVOKED, {1: 5}, {2: 4}, 7, {1, 2}, {2}, {1}, (7, 5, STABLE, {1: 5, 2: 7}, {})),
    Case("still waits", UNRELEASED, {1: 5}, {}, NOW, {1, 2}, {2}, None, (5, 5, UNRELEASED, {1: 5}, {})),
    Case("released", UNRELEASED, {1: 5}, {}, NOW, {1, 2}, set(), None, (5, 5, STABLE, {1: 5, 2: 5}, {})),
    Case("waits no more", UNRELEASED, {1: 5}, {}, NEXT, {1}, {2}, None, (6, 5, STABLE, {1: 5}, {})),
    Case("not wanted", STABLE, {1: 5}, {}, NOW, {1}, set(), None, (5, 5, UNREVOKED, {}, {1: 5}), False, True),
    Case("not wanted, given", STABLE, {1: 5}, {}, NOW, {1}, set(), set(), (5, 5, STABLE, {}, {}), False, True),
    Case("wanted as before", STABLE, {1: 5}, {}, NOW, {1}, set(), None, (5, 4, STABLE, {1: 5}, {}), True, True),
    Case("unwanted, too", UNREVOKED, {1: 5}, {2: 4}, NOW, {1}, set(), {1, 2},
         (5, 5, UNREVOKED, {}, {1: 5, 2: 4}), False, True),
    Case("unwanted target", STABLE, {}, {}, NEXT, {1}, set(), None, (6, 5, STABLE, {}, {}), False),
    Case("of a newer version", UNKNOWN, {1: 5}, {}, NEXT, {1}, set(), set(), (6, 5, STABLE, {1: 5}, {})),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.why)
def test_step(case: Case) -> None:
    assert step(case) == Member(
        "m", *case.after[:3], assigned=_of(case.after[3]), pending_revocation=_of(case.after[4])
    )


def step(case: Case) -> Member:
    member = Member(
        "m", NOW, NOW - 1, case.state, assigned=_of(case.has), pending_revocation=_of(case.revoking)
    )  # fmt: skip
    others = case.taken | case.has.keys() | case.revoking.keys()
    return next_step(
        member,
        case.target_epoch,
        {T: frozenset(case.target)} if case.target else {},
        [T] if case.wants else [U],
        lambda topic_id, index: 3 if topic_id == T and index in others else NOBODY,
        None if case.owned is None else {T: frozenset(case.owned)} if case.owned else {},
        case.is_new,
    )


def _of(partitions: Had) -> dict[bytes, Had]:
    return {T: partitions} if partitions else {}


@pytest.mark.parametrize("owned", [None, {1}])
def test_a_state_of_a_newer_version_is_fenced_until_the_member_has_nothing(owned: set[int] | None) -> None:
    case = Case("", UNKNOWN, {1: 5}, {}, NEXT, {1}, set(), owned, (0, 0, STABLE, {}, {}))
    with pytest.raises(KafkaError) as caught:
        step(case)
    assert caught.value.code == ErrorCode.FENCED_MEMBER_EPOCH
