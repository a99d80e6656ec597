"""A member of the consumer protocol without a network: what it tells, what it makes of answers, and a group of them."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from isthmus.client import TopicPartition
from isthmus.client.consumer_member import ConsumerMember, Phase
from isthmus.client.holdings import Give, Step, Take
from isthmus.client.membership import Subscription
from tests.client.modelled import Coordinator, Known, answer

T = b"t".ljust(16, b"\1")
OTHER = b"other".ljust(16, b"\1")
NAMES = {T: "t"}


def member(name: str = "m", instance_id: str | None = None, pattern: str | None = None) -> ConsumerMember:
    made = ConsumerMember("g", name, instance_id, "rack", 60_000, "uniform")
    made.subscription = Subscription((), pattern) if pattern else Subscription(("u", "t"))
    return made


def polled(one: ConsumerMember) -> list[Step]:
    """All that a poll does."""
    steps = []
    while (step := one.polled()) is not None:
        if isinstance(step, Take):
            one.holdings.begun(step)
        one.holdings.done(step)
        steps.append(step)
    return steps


def joined(*partitions: int, **options: Any) -> ConsumerMember:
    """A member with these partitions of t, acknowledged."""
    one = member(**options)
    polled(one)
    one.heartbeat()
    one.learn(NAMES)
    one.answered(answer(3, {T: list(partitions)}))
    one.learn(NAMES)
    polled(one)
    while one.has_news:
        one.heartbeat()
        one.answered(answer(3))
    return one


def tps(*partitions: int, topic: str = "t") -> list[TopicPartition]:
    return [TopicPartition(topic, each) for each in partitions]


def owned(request: Any) -> dict[bytes, list[int]] | None:
    if request.topic_partitions is None:
        return None
    return {each.topic_id: each.partitions for each in request.topic_partitions}


def test_the_first_heartbeat_says_all_and_the_next_ones_what_is_new() -> None:
    one = member(instance_id="i")
    assert not one.has_news, "it joins in a poll"
    polled(one)
    first = one.heartbeat()
    assert (first.member_id, first.member_epoch, first.instance_id) == ("m", 0, "i")
    assert (first.rack_id, first.rebalance_timeout_ms, first.server_assignor) == ("rack", 60_000, "uniform")
    assert (first.subscribed_topic_names, first.subscribed_topic_regex, owned(first)) == (["t", "u"], "", {})
    one.answered(answer(3, {}))
    for _ in range(2):
        more = one.heartbeat()
        assert (more.member_id, more.member_epoch, more.instance_id) == ("m", 3, "i")
        assert (more.rack_id, more.rebalance_timeout_ms, more.server_assignor) == (None, -1, None)
        assert (more.subscribed_topic_names, more.subscribed_topic_regex, owned(more)) == (None, None, None)
        one.answered(answer(3))


def test_an_assignment_is_acknowledged_when_it_is_in_force() -> None:
    one = joined(0, 1)
    one.heartbeat()
    one.answered(answer(3, {T: [1]}))
    assert not one.has_news, "nothing was given up"
    assert owned(one.heartbeat()) is None
    one.answered(answer(3))
    assert polled(one) == [Give(tps(0))]
    assert one.has_news
    assert owned(one.heartbeat()) == {T: [1]}
    assert one.has_news, "it may be lost"
    one.answered(answer(4, {T: [1, 2]}))
    assert one.epoch == 4
    assert one.has_news
    assert owned(one.heartbeat()) == {T: [1, 2]}, "it may be taken from now on, which no answer can prevent"
    one.answered(answer(4))
    assert polled(one) == [Take(tps(2))]
    assert not one.has_news


def test_what_came_and_went_between_polls_is_acknowledged() -> None:
    """The coordinator waits for that, though the member never had it, nor knew its name."""
    one = joined()
    for assigned in ({OTHER: [1]}, {}):
        one.heartbeat()
        one.answered(answer(3, assigned))
    assert polled(one) == []
    assert one.has_news
    assert owned(one.heartbeat()) == {}
    one.answered(answer(4))
    assert not one.has_news


def test_who_joined_is_told_so_even_without_partitions() -> None:
    one = member()
    polled(one)
    one.heartbeat()
    one.answered(answer(1, {}))
    assert polled(one) == [Take([])]
    one.heartbeat()
    one.answered(answer(2, {}))
    assert polled(one) == []


def test_after_a_heartbeat_that_failed_all_is_said_again() -> None:
    one = joined(0)
    one.heartbeat()
    one.failed()
    again = one.heartbeat()
    assert (again.member_epoch, again.subscribed_topic_names, owned(again)) == (3, ["t", "u"], {T: [0]})
    assert again.rebalance_timeout_ms == 60_000
    one.answered(answer(3))
    assert owned(one.heartbeat()) is None


def test_what_changes_while_a_heartbeat_is_under_way_is_in_the_next_one() -> None:
    one = joined(0)
    one.heartbeat()
    one.subscription = Subscription(("u",))
    one.answered(answer(3))
    assert one.has_news
    assert one.heartbeat().subscribed_topic_names == ["u"]


def test_a_pattern_is_sent_and_taken_back() -> None:
    one = joined(0, pattern="t.*")
    one.failed()
    assert (one.heartbeat().subscribed_topic_regex, one.heartbeat().subscribed_topic_names) == ("t.*", [])
    one.subscription = Subscription(("u",))
    one.failed()
    for _ in range(2):
        request = one.heartbeat()
        assert (request.subscribed_topic_regex, request.subscribed_topic_names) == ("", ["u"])
        one.failed()


def test_an_assignment_does_not_wait_for_topics_without_names() -> None:
    one = joined(0)
    one.heartbeat()
    one.answered(answer(3, {T: [0, 1], OTHER: [5]}))
    assert one.nameless == [OTHER]
    assert polled(one) == [Take(tps(1))]
    assert owned(one.heartbeat()) == {T: [0, 1]}
    one.answered(answer(3))
    one.learn({OTHER: "other"})
    assert one.nameless == []
    assert polled(one) == [Take(tps(5, topic="other"))]


def test_who_is_put_out_loses_what_it_held_and_joins_anew() -> None:
    one = joined(0)
    one.heartbeat()
    one.put_out()
    assert (one.phase, one.epoch, one.has_news) == (Phase.LOST, -1, False)
    assert polled(one) == [Give(tps(0), is_lost=True)]
    assert (one.phase, one.has_news) == (Phase.JOINING, True)
    again = one.heartbeat()
    assert (again.member_id, again.member_epoch, owned(again)) == ("m", 0, {})
    one.answered(answer(9, {T: [0]}))
    assert polled(one) == [Take(tps(0))]


def test_who_is_put_out_with_nothing_joins_at_once() -> None:
    one = joined()
    one.put_out()
    assert (one.phase, one.has_news) == (Phase.JOINING, True)


@pytest.mark.parametrize("ends", ["refused", "stalled"])
def test_who_is_refused_or_stalls_joins_in_the_next_poll_only(ends: str) -> None:
    for one in (joined(0), joined()):
        getattr(one, ends)()
        assert (one.phase, one.has_news, one.epoch) == (Phase.LOST, False, -1)
        one.answered(answer(3, {T: [7]}))  # too late
        assert one.phase is Phase.LOST
        assert all(isinstance(step, Give) and step.is_lost for step in polled(one))
        assert one.phase is Phase.JOINING


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("i", -2)])
def test_a_static_member_leaves_for_a_while(instance_id: str | None, epoch: int) -> None:
    request = joined(0, instance_id=instance_id).farewell()
    assert (request.member_id, request.member_epoch, request.instance_id) == ("m", epoch, instance_id)


# --- A group of them --------------------------------------------------------------------------------


class Group:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.coordinator = Coordinator(T, random.randrange(1, 9))
        self.members: dict[str, ConsumerMember] = {}
        self.made = 0

    def beat(self, one: ConsumerMember, is_lost: bool = False, is_unanswered: bool = False) -> None:
        if one.phase not in (Phase.JOINING, Phase.IN):
            return
        request = one.heartbeat()
        said = None if is_lost else self.coordinator.heard(request)
        if said is None or is_unanswered:
            one.failed()
        elif said.error_code:
            one.put_out()
        else:
            one.answered(said)
            one.learn(NAMES)

    def step(self, one: ConsumerMember) -> None:
        """One callback of a poll."""
        step = one.polled()
        if isinstance(step, Take):
            one.holdings.begun(step)
        if step is not None and self.random.random() < 0.9:  # else it was cancelled
            one.holdings.done(step)

    def happen(self) -> None:
        names = sorted(self.members)
        what = self.random.choice(
            ["beat"] * 6 + ["step"] * 6 + ["lost", "unanswered", "join", "leave", "fence", "stall"]
        )
        if what == "join" and len(names) < 5:
            self.made += 1
            name = f"m{self.made}"
            self.members[name] = member(name)
        if not names:
            return
        one = self.members[self.random.choice(names)]
        match what:
            case "beat" | "lost" | "unanswered":
                self.beat(one, what == "lost", what == "unanswered")
            case "step":
                self.step(one)
            case "leave":
                self.coordinator.heard(one.farewell())
                del self.members[one.member_id]
            case "fence" if one.member_id in self.coordinator.members:
                self.coordinator.remove(one.member_id)
            case "stall" if one.phase is Phase.IN:
                self.coordinator.heard(one.farewell())
                one.stalled()

    def check(self) -> None:
        """Of those that the coordinator has not put out, no two hold the same partition."""
        seen: dict[TopicPartition, str] = {}
        for name, one in self.members.items():
            known = self.coordinator.members.get(name)
            if known is not None and one.epoch >= 0 and one.phase is Phase.IN and not self._was_put_out(one, known):
                for tp in one.holdings.held:
                    assert seen.setdefault(tp, name) == name, f"{tp} of {name} and {seen[tp]}"

    def _was_put_out(self, one: ConsumerMember, known: Known) -> bool:
        return one.epoch not in (known.epoch, known.previous_epoch)

    def settle(self) -> None:
        for _ in range(40):
            for one in self.members.values():
                self.beat(one)
                polled(one)
            self.check()


@pytest.mark.parametrize("seed", range(300))
def test_whatever_is_lost_no_partition_has_two_owners_and_all_have_one_in_the_end(seed: int) -> None:
    group = Group(Random(seed))
    for _ in range(200):
        group.happen()
        group.check()
    group.members.setdefault("last", member("last"))
    group.settle()
    coordinator = group.coordinator
    for name, one in group.members.items():
        assert one.phase is Phase.IN and one.epoch == coordinator.epoch
        assert {tp.partition for tp in one.holdings.held} == coordinator.target(name)
        assert not one.has_news
