"""What is deleted of topics between steps, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from isthmus.client import TopicPartition
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.streams.engine.topic_names import BETWEEN, kind_of
from isthmus.streams.runtime import purging
from isthmus.streams.runtime.purging import Purge
from tests.running import in_loop, run_by

from .fakes import turns

OWN, BRIDGE, INPUT = "app-by-shop-repartition", "app-in-copartitioned", "in"


class Cluster:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, interval_s: float = 30.0) -> None:
        self.deleted: list[dict[TopicPartition, int]] = []
        self.error: Exception | None = None
        self.gate: asyncio.Event | None = None
        monkeypatch.setattr(purging, "Admin", lambda client: self)
        client: Any = None
        self.purge = Purge("app", client, lambda topic: kind_of("app", topic) in BETWEEN, interval_s)

    async def delete_records(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.deleted.append(dict(offsets))
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error

    async def commit(self, at_s: float, **offsets: int) -> None:
        names = {"own": OWN, "bridge": BRIDGE, "input": INPUT}
        self.purge.committed({TopicPartition(names[name], 1): offset for name, offset in offsets.items()})
        await self.look(at_s)

    async def look(self, at_s: float) -> None:
        self.purge.look(at_s)
        await turns()


@run_by(in_loop)
async def test_what_is_committed_of_own_topics_goes_once_an_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    await cluster.commit(100, own=5, bridge=7, input=9)
    await cluster.commit(129, own=6)
    assert not cluster.deleted
    await cluster.commit(130, own=8, input=10)
    assert cluster.deleted == [{TopicPartition(OWN, 1): 8, TopicPartition(BRIDGE, 1): 7}]
    await cluster.commit(160, input=11)  # nothing of its own was read since
    await cluster.commit(161, bridge=9)
    await cluster.commit(162, own=9)
    await cluster.look(200)  # nothing more is committed
    assert cluster.deleted[1:] == [{TopicPartition(BRIDGE, 1): 9}, {TopicPartition(OWN, 1): 9}]


@run_by(in_loop)
async def test_one_deletion_at_a_time_and_a_failed_one_is_made_up_for(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    cluster.gate = asyncio.Event()
    cluster.error = KafkaError.of(ErrorCode.NOT_LEADER_OR_FOLLOWER, "moved")
    await cluster.commit(100, own=5)
    await cluster.commit(130, own=6)
    await cluster.commit(160, own=7)
    assert len(cluster.deleted) == 1
    cluster.gate.set()
    await turns()
    cluster.error = None
    await cluster.commit(161, own=8)
    assert cluster.deleted[1:] == [{TopicPartition(OWN, 1): 8}]


@run_by(in_loop)
async def test_a_cluster_that_refuses_is_asked_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster(monkeypatch)
    cluster.error = KafkaError.of(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no")
    for at_s in (100, 130, 160, 190):
        await cluster.commit(at_s, own=at_s)
    assert len(cluster.deleted) == 1
    assert "refuses to delete" in caplog.text


@run_by(in_loop)
async def test_an_interval_of_0_deletes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, interval_s=0)
    for at_s in (100, 130, 160):
        await cluster.commit(at_s, own=at_s)
    assert not cluster.deleted
