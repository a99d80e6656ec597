"""An output whose timestamp its topic does not take goes by the policy of who has sent it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from isthmus.client.errors import TransactionAborted
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.streams import StreamsError
from isthmus.streams.api.outgoing import Outgoing
from isthmus.streams.engine.event import Event
from isthmus.streams.errors import CommitRefused
from isthmus.streams.runtime import time_limits
from isthmus.streams.runtime.time_limits import MARGINS_MS, TimestampRefused
from tests.running import in_loop, run_by

from .fakes import turns
from .test_commits import ALO, EOS
from .test_commits import World as CommitsWorld

HOUR_MS = 3_600_000
EVENT = Event(b"k", b"v", 5, "in", 2, 7)


class Cluster:
    """An Admin that says what topics take."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.after_ms = HOUR_MS
        self.asked: list[str] = []
        monkeypatch.setattr(time_limits, "Admin", lambda client: self)

    async def describe_configs(self, topics: list[str]) -> dict[str, Any]:
        self.asked += topics
        options = {"message.timestamp.after.max.ms": self.after_ms, "retention.ms": -1}
        return {each: [SimpleNamespace(name=name, value=str(n)) for name, n in options.items()] for each in topics}


async def refused(world: CommitsWorld, guarantee: str, at_ms: int) -> Exception:
    """What a commit raises with an output that the broker does not take, which the worker did not know of."""
    world.journal.at_once = False
    world.work(1)
    await world.commits.send(world.task, Outgoing(world.out, b"k", b"v", None, at_ms))
    commit = world.commit()
    await turns()
    error: Exception = KafkaError(ErrorCode.INVALID_TIMESTAMP, "timestamp 9 is after now", "out")
    if guarantee == EOS:
        error, error.__cause__ = TransactionAborted("it was aborted", retriable=False), error  # type: ignore[assignment]
    world.journal.settle(error)
    with pytest.raises(StreamsError) as caught:
        await commit
    await world.commits.roll_back()
    world.journal.at_once = True
    return caught.value


@pytest.mark.parametrize("has_table", [True, False])
@pytest.mark.parametrize("guarantee", [ALO, EOS])
@run_by(in_loop)
async def test_work_is_done_again_and_the_record_is_refused_as_it_is_sent(
    monkeypatch: pytest.MonkeyPatch, guarantee: str, has_table: bool
) -> None:
    cluster, world = Cluster(monkeypatch), CommitsWorld(monkeypatch, guarantee, has_table=has_table)
    commits, now_ms = world.commits, world.commits.runtime.wall_ms()
    far_ms, near_ms = now_ms + 2 * HOUR_MS, now_ms + HOUR_MS // 2
    assert isinstance(await refused(world, guarantee, far_ms), CommitRefused) and cluster.asked == ["out"]
    with pytest.raises(TimestampRefused, match=r"topic out takes no record .* after now: send it with another"):
        await commits.send(world.task, Outgoing(world.out, b"k", b"far", None, far_ms))
    with pytest.raises(TimestampRefused):
        commits.send_soon(world.task, Outgoing(world.out, b"k", b"far", None, far_ms))
    far = Event(b"k", b"far", far_ms, "in", 2, 7)
    assert commits.put_events(world.task, world.out, [Event(b"k", b"near", near_ms, "in", 2, 6), far]) == 0
    with pytest.raises(TimestampRefused):
        commits.put(world.task, world.out, b"k", b"far", None, far_ms, None, EVENT)
        await commits.send_event(world.task, world.out, far)
    await commits.send(world.task, Outgoing(world.out, b"k", b"near", None, near_ms))
    await world.commit()
    assert b"far" not in world.journal.values("out") and b"near" in world.journal.values("out")


@pytest.mark.parametrize("guarantee", [ALO, EOS])
@run_by(in_loop)
async def test_a_topic_that_refuses_what_it_says_that_it_takes_ends_the_worker(
    monkeypatch: pytest.MonkeyPatch, guarantee: str
) -> None:
    Cluster(monkeypatch)
    world = CommitsWorld(monkeypatch, guarantee)
    for _ in MARGINS_MS:  # the broker's clock may be behind
        assert isinstance(await refused(world, guarantee, world.commits.runtime.wall_ms()), CommitRefused)
    error = await refused(world, guarantee, world.commits.runtime.wall_ms())
    assert not isinstance(error, CommitRefused) and str(error).count("message.timestamp.after.max.ms") == 1


@run_by(in_loop)
async def test_a_dead_letter_is_of_now_where_its_own_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    Cluster(monkeypatch)
    world = CommitsWorld(monkeypatch)
    letters, far_ms = world.app.dead_letters, world.commits.runtime.wall_ms() + 2 * HOUR_MS
    error = KafkaError(ErrorCode.INVALID_TIMESTAMP, "a timestamp is after now", letters.get_topic_name())
    assert await world.commits._limits.learn(error)
    await world.commits.send(world.task, Outgoing(letters, b"k", b"dead", None, far_ms))
    assert world.journal.values(letters.get_topic_name()) == [b"dead"]
