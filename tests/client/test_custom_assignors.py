"""Assignors of the user's own in classic groups: what they are told and asked, and what they cannot do to the group."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest

from isthmus.client import Client, Consumer, TopicPartition
from isthmus.client.assignors import Assignor, Member, Share, checked, chosen, cooperatively
from isthmus.client.errors import ClientError
from isthmus.protocol.errors import ErrorCode, KafkaError
from tests.client.staging import PARTITIONS, at_hand, membership_of
from tests.running import run_by

POLLS_MAX = 1_000
Seen = dict[bytes, Member]  # by user data
ALL = list(range(PARTITIONS))


class ByWeight:
    """The members' user data say how many partitions of `t` each takes, in the order of their names: name=count. The
    leader writes `for name` to each."""

    def __init__(self, name: str, weight: int, *, is_cooperative: bool = True) -> None:
        self.name = "by-weight"
        self.is_cooperative = is_cooperative
        self.member_name = name
        self.weight = weight
        self.seen: list[tuple[Seen, dict[str, int]]] = []
        self.calls: list[tuple[str, list[int], bytes]] = []
        self.failure: Exception | None = None

    def user_data(self) -> bytes:
        return b"%s=%d" % (self.member_name.encode(), self.weight)

    def assign(self, members: Mapping[str, Member], counts: Mapping[str, int]) -> Mapping[str, Share]:
        self.seen.append(({each.user_data: each for each in members.values()}, dict(counts)))
        wanted: dict[str, dict[str, list[int]]] = {}
        start = 0
        for member in sorted(members, key=lambda each: members[each].user_data):
            end = start + int(members[member].user_data.split(b"=")[1])
            wanted[member] = {"t": list(range(start, min(end, counts["t"])))}
            start = end
        shares = cooperatively(wanted, members) if self.is_cooperative else wanted
        return {member: (topics, b"for " + members[member].user_data) for member, topics in shares.items()}

    def on_assignment(self, partitions: list[TopicPartition], user_data: bytes) -> None:
        self.calls.append(("told", [tp.partition for tp in partitions], user_data))
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure

    async def consumer(self, client: Client, **options: str) -> Consumer:
        def call(sign: str) -> Callable[[list[TopicPartition]], None]:
            return lambda tps: self.calls.append((sign, [tp.partition for tp in tps], b""))

        consumer = Consumer(client, "g", assignors=[self], session_timeout_ms=6_000, **options)
        await consumer.subscribe(["t"], call("+"), call("-"))
        return consumer


def owned(consumer: Consumer) -> list[int]:
    return sorted(tp.partition for tp in consumer.assignment())


async def polled(*consumers: Consumer, until: Callable[[], bool]) -> None:
    for _ in range(POLLS_MAX):
        if until():
            return
        await asyncio.gather(*(each.poll(100, 0) for each in consumers))
    raise AssertionError("it does not come to that")


async def closed(*consumers: Consumer) -> None:
    for each in consumers:
        await each.close()


@pytest.mark.parametrize("is_cooperative", [True, False])
@run_by(at_hand)
async def test_an_assignor_hears_members_and_tells_each_its_share_before_on_assigned(
    client: Client, /, is_cooperative: bool
) -> None:
    first = ByWeight("a", 3, is_cooperative=is_cooperative)
    one = await first.consumer(client, group_instance_id="i", client_rack="r1")
    await polled(one, until=lambda: owned(one) == [0, 1, 2])
    assert first.seen == [({b"a=3": Member(["t"], [], -1, "i", b"a=3", "r1")}, {"t": PARTITIONS})]
    assert first.calls == [("told", [0, 1, 2], b"for a=3"), ("+", [0, 1, 2], b"")]
    second = ByWeight("b", 9, is_cooperative=is_cooperative)
    other = await second.consumer(client)
    await polled(one, other, until=lambda: owned(one) + owned(other) == ALL)
    seen, _ = first.seen[-1]
    assert seen[b"b=9"].instance_id is None and seen[b"b=9"].rack == ""
    kept = [tp.partition for tp in seen[b"a=3"].owned]
    assert kept == ([0, 1, 2] if is_cooperative else [])
    assert second.calls[-2:] == [("told", [3], b"for b=9"), ("+", [3], b"")]
    assert not second.seen, "only the leader assigns"
    await closed(one, other)


@run_by(at_hand)
async def test_what_a_leader_moves_is_given_up_by_one_before_the_other_has_it(client: Client, /) -> None:
    first, second = ByWeight("a", 3), ByWeight("b", 9)
    one, other = await first.consumer(client), await second.consumer(client)
    await polled(one, other, until=lambda: owned(one) == [0, 1, 2] and owned(other) == [3])
    generation, mark = membership_of(one).generation, len(first.calls)
    first.weight = 1
    one.request_rejoin()
    has_both = False

    def is_moved() -> bool:
        nonlocal has_both
        has_both = has_both or bool({*owned(one)} & {*owned(other)})
        return owned(one) == [0] and owned(other) == [1, 2, 3]

    await polled(one, other, until=is_moved)
    assert not has_both
    assert membership_of(one).generation >= generation + 2, "who gave something up joins again"
    assert first.calls[mark:][:3] == [("-", [1, 2], b""), ("told", [0], b"for a=1"), ("+", [], b"")]
    assert [each for each in second.calls if each[0] == "-"] == []
    await closed(one, other)


@run_by(at_hand)
async def test_a_follower_that_joins_again_hands_in_other_user_data(client: Client, /) -> None:
    first, second = ByWeight("b", 3), ByWeight("c", 9)
    one = await first.consumer(client)
    await polled(one, until=lambda: owned(one) == [0, 1, 2])
    other = await second.consumer(client)
    await polled(one, other, until=lambda: owned(other) == [3])
    second.member_name = "a"  # which comes first
    other.request_rejoin()
    assert other.must_poll
    await polled(one, other, until=lambda: owned(other) == ALL and owned(one) == [])
    assert not second.seen
    await closed(one, other)


@run_by(at_hand)
async def test_an_error_of_on_assignment_is_raised_by_the_poll_and_the_next_one_calls_it_again(
    client: Client, /
) -> None:
    assignor = ByWeight("a", 4)
    assignor.failure = RuntimeError("not now")
    consumer = await assignor.consumer(client)
    with pytest.raises(RuntimeError, match="not now"):
        await polled(consumer, until=lambda: bool(owned(consumer)))
    assert owned(consumer) == []
    await polled(consumer, until=lambda: owned(consumer) == ALL)
    told = ("told", ALL, b"for a=4")
    assert assignor.calls == [told, told, ("+", ALL, b"")]
    await consumer.close()


@run_by(at_hand)
async def test_an_assignment_that_cannot_be_is_raised_by_the_leaders_poll_which_may_do_better(
    client: Client, /
) -> None:
    assignor = ByWeight("a", 4)
    consumer = await assignor.consumer(client)
    good = assignor.assign
    assignor.assign = lambda members, counts: {"stranger": ({}, b"")}  # type: ignore[method-assign]
    with pytest.raises(ClientError, match="the group has no member stranger"):
        await polled(consumer, until=lambda: bool(owned(consumer)))
    assignor.assign = good  # type: ignore[method-assign]
    await polled(consumer, until=lambda: owned(consumer) == ALL)
    await consumer.close()


@run_by(at_hand)
async def test_a_member_without_the_groups_assignor_is_told_which_it_has(client: Client, /) -> None:
    one = await ByWeight("a", 4).consumer(client)
    await polled(one, until=lambda: owned(one) == ALL)
    other = Consumer(client, "g", assignors=["range", "roundrobin"])
    await other.subscribe(["t"])
    with pytest.raises(KafkaError, match=r"have none of this member's assignors, which are range, roundrobin") as told:
        await polled(other, until=lambda: bool(owned(other)))
    assert told.value.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    await closed(one, other)


@run_by(at_hand)
async def test_what_needs_a_classic_group_says_so(client: Client, /) -> None:
    with pytest.raises(ClientError, match="assignors is for group_protocol='classic'"):
        Consumer(client, "g", group_protocol="consumer", assignors=[ByWeight("a", 1)])
    consumer = Consumer(client, "g", group_protocol="consumer")
    await consumer.subscribe(["t"])
    without = Consumer(client, "g")
    for each in (consumer, without):
        with pytest.raises(ClientError, match="subscribe\\(\\) first, with group_protocol='classic'"):
            each.request_rejoin()
    await closed(consumer, without)


# --- Without a group --------------------------------------------------------------------------------

MEMBERS = {"m": Member(["t"], [TopicPartition("t", 0)]), "n": Member(["t", "u"])}


@pytest.mark.parametrize(
    ("shares", "told"),
    [
        ({"m": {"u": [0]}}, "gives u-0 to m, which does not subscribe to it"),
        ({"m": {"t": [2]}}, "gives t-2 to m, but the topic has 2 partitions"),
        ({"m": {"t": [-1]}}, "gives t--1 to m, but"),
        ({"m": {"t": [1]}, "n": {"t": [1]}}, "gives t-1 to n, and to m"),
        ({"n": {"t": [0]}}, r"gives t-0 to n while m still has it.*return cooperatively\(wanted, members\)"),
    ],
)
def test_an_assignment_that_would_harm_the_group_is_none(shares: dict[str, dict[str, list[int]]], told: str) -> None:
    assignor = ByWeight("a", 1)
    assignor.assign = lambda members, counts: {  # type: ignore[method-assign]
        member: (topics, b"") for member, topics in shares.items()
    }
    with pytest.raises(ClientError, match=f"assignor by-weight {told}"):
        checked(assignor, MEMBERS, {"t": 2, "u": 1})


def test_an_eager_assignor_may_give_out_all_since_nobody_has_anything() -> None:
    assignor = ByWeight("a", 1, is_cooperative=False)
    assignor.assign = lambda members, counts: {"n": ({"t": [0]}, b"")}  # type: ignore[method-assign]
    assert checked(assignor, MEMBERS, {"t": 2, "u": 1}) == {"n": ({"t": [0]}, b"")}


def test_a_wanted_assignment_is_given_out_but_for_what_others_have() -> None:
    wanted = {"m": {"t": [1]}, "n": {"t": (0,), "u": [0]}}
    assert cooperatively(wanted, MEMBERS) == {"m": {"t": [1]}, "n": {"u": [0]}}


def test_assignors_are_chosen_by_name_or_as_objects_in_their_order() -> None:
    mine: Assignor = ByWeight("a", 1)
    assert list(chosen(["range", mine, "roundrobin"])) == ["range", "by-weight", "roundrobin"]
    with pytest.raises(ClientError, match="assignors has by-weight twice"):
        chosen([mine, ByWeight("b", 1)])
    with pytest.raises(ClientError, match="assignors is empty"):
        chosen([])
