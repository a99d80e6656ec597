"""What is written into `__mirror_status`, and when: changes, and all of it where the topic may have lost something."""

import asyncio
import json
from typing import Any

import pytest

from isthmus.client import TopicPartition
from isthmus.client.errors import DeliveryTimeout
from isthmus.mirror import status as status_module
from isthmus.mirror.status import STATUS_TOPIC, StatusWriter
from tests.running import in_loop, run_by

A, B = TopicPartition("a", 0), TopicPartition("b", 1)


class Target:
    """A cluster with the status topic; `incarnation` is its id and leader epoch, `sent` what was written since."""

    def __init__(self) -> None:
        self.incarnation = b"1" * 16, 0
        self.sent: list[tuple[str, Any]] = []
        self.fails = False

    async def refresh_metadata(self, topics: Any, *, timeout_ms: float) -> None:
        assert topics == [STATUS_TOPIC]

    def partitions(self, topic: str) -> list[int]:
        return [0]

    def topic_id(self, topic: str) -> bytes:
        return self.incarnation[0]

    def leader_epoch(self, tp: Any) -> int:
        return self.incarnation[1]

    def taken(self) -> list[tuple[str, Any]]:
        sent, self.sent = self.sent, []
        return sent


class Producer:
    def __init__(self, target: Target, **_: Any) -> None:
        self.target = target

    async def start(self) -> None: ...

    async def wait_for_space(self) -> None: ...

    def send(self, topic: str, value: bytes | None, key: bytes, partition: int) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.target.fails:
            future.set_exception(DeliveryTimeout("no"))
        else:
            self.target.sent.append((key.decode(), None if value is None else json.loads(value)["state"]))
            future.set_result(None)
        return future


def row(state: str, updated_ms: int = 0) -> dict[str, Any]:
    return {"state": state, "updated_ms": updated_ms, "lag_ms": updated_ms}


@run_by(in_loop)
async def test_changes_are_written_and_all_of_it_where_the_topic_may_have_lost_something(monkeypatch):
    monkeypatch.setattr(status_module, "Producer", Producer)
    target = Target()
    writer = StatusWriter("l", target)
    await writer.start()
    both = [("l/a/0", "X"), ("l/b/1", "Y")]
    await writer.write({A: row("X"), B: row("Y")})
    assert target.taken() == both
    await writer.write({A: row("X", 7), B: row("Z", 7)})  # time alone is no change
    assert target.taken() == [("l/b/1", "Z")]
    target.fails = True
    with pytest.raises(DeliveryTimeout):
        await writer.write({A: row("X"), B: row("Y")})
    target.fails = False
    await writer.write({A: row("X"), B: row("Y")})
    assert target.taken() == [("l/b/1", "Y")]
    for incarnation in ((b"1" * 16, 1), (b"2" * 16, 1)):  # another leader, another topic
        target.incarnation = incarnation
        await writer.write({A: row("X"), B: row("Y")})
        assert target.taken() == both
        await writer.write({A: row("X"), B: row("Y")})
        assert target.taken() == []


@run_by(in_loop)
async def test_what_is_no_more_is_taken_away_once(monkeypatch):
    monkeypatch.setattr(status_module, "Producer", Producer)
    target = Target()
    writer = StatusWriter("l", target)
    await writer.start()
    writer.known(B)  # of a worker before this one
    await writer.write({A: row("X")})
    assert target.taken() == [("l/a/0", "X"), ("l/b/1", None)]
    await writer.write({})
    assert target.taken() == [("l/a/0", None)]
    await writer.write({})
    assert target.taken() == []
