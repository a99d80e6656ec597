"""What is written into `__mirror_status`, and when: changes, and all of it where the topic may have lost something."""

import asyncio
import json
from typing import Any

import pytest

from isthmus.client import TopicPartition
from isthmus.client.errors import DeliveryTimeout
from isthmus.core_broker.config import BrokerConfig, topic_config
from isthmus.core_broker.replication.manager import log_config
from isthmus.mirror import status as status_module
from isthmus.mirror.link import MirrorLink
from isthmus.mirror.partition import PartitionMirror
from isthmus.mirror.status import ALIVE_MS, STATUS_OPTIONS, STATUS_TOPIC, StatusWriter, heartbeats
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
            self.target.sent.append((key.decode(), None if value is None else json.loads(value).get("state")))
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
async def test_one_record_is_written_again_so_that_a_worker_is_known_to_live(monkeypatch):
    monkeypatch.setattr(status_module, "Producer", Producer)
    target = Target()
    writer = StatusWriter("l", target)
    await writer.start()
    for now_ms, wanted in (
        (ALIVE_MS, [("l/a/0", "X"), ("l/b/1", "Y")]),
        (2 * ALIVE_MS - 1, []),
        (2 * ALIVE_MS, [("l/a/0", "X")]),
        (2 * ALIVE_MS + 1, []),
        (3 * ALIVE_MS, [("l/a/0", "X")]),
    ):
        await writer.write({A: row("X", now_ms), B: row("Y", now_ms)})
        assert target.taken() == wanted


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


def mirrored(topic: str, index: int, seen_ms: int, source_end: int, mirrored_to: int) -> PartitionMirror:
    each = PartitionMirror(topic, index, f"fra.{topic}", bytes(16), now_ms=0)
    each.probe_answered(mirrored_to, 1)
    each.seen_ms, each.source_high_watermark = seen_ms, source_end
    return each


def test_a_heartbeat_says_what_was_seen_of_the_source_and_what_is_here(monkeypatch):
    monkeypatch.setattr(status_module, "HEARTBEAT_PARTITIONS_MAX", 2)
    partitions = [
        mirrored("b", 0, 990, 7, 7),
        mirrored("a", 1, 980, 9, 5),
        mirrored("a", 0, 985, 3, 3),
        mirrored("c", 0, -1, -1, 0),  # the source has not answered yet
    ]
    first, second = heartbeats(MirrorLink("l", "fra", [".*"]), partitions, 1_000)
    assert first == {
        "source": "fra",
        "time_ms": 1_000,
        "topics": {"fra.a": [[0, 985, 3, 3], [1, 980, 9, 5]]},
        "source_topics": {"fra.a": "a"},
    }
    assert second["topics"] == {"fra.b": [[0, 990, 7, 7]]}


def test_heartbeats_are_compacted_within_an_hour() -> None:
    """Who begins to read has to read all that is not: with segments of a week, those were 600,000 of each link."""
    config = BrokerConfig()
    log = log_config(topic_config(STATUS_OPTIONS, config), config)
    assert log.compacts and log.roll_ms < 3_600_000


@run_by(in_loop)
async def test_heartbeats_are_written_each_time_and_change_no_status(monkeypatch):
    monkeypatch.setattr(status_module, "Producer", Producer)
    target = Target()
    writer = StatusWriter("l", target)
    await writer.start()
    await writer.beat([{"time_ms": 1}, {"time_ms": 1}])
    await writer.beat([{"time_ms": 2}])
    assert [key for key, _ in target.taken()] == ["l//-2", "l//-3", "l//-2"]
    await writer.write({A: row("X")})
    assert target.taken() == [("l/a/0", "X")]
    target.fails = True
    with pytest.raises(DeliveryTimeout):
        await writer.beat([{"time_ms": 3}])
