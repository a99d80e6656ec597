"""Workers whose group is one of KIP-848, on our broker and on Kafka's: exact tables under what happens to workers."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from integration_tests.brokers import running_broker
from integration_tests.mirror.workers import Worker, clients, run, until
from integration_tests.peers.peers import kafka_cluster

from .test_streams import Case, read_all

TIMES = {  # of a cluster: a worker that was killed is missed soon
    "group.consumer.min.session.timeout.ms": 3_000,
    "group.consumer.session.timeout.ms": 3_000,
    "group.consumer.min.heartbeat.interval.ms": 500,
    "group.consumer.heartbeat.interval.ms": 500,
    "group.initial.rebalance.delay.ms": 0,
}
PARTITIONS = 6


@contextlib.contextmanager
def cluster(of: str, folder: Path) -> Iterator[str]:
    if of == "kafka":
        with kafka_cluster(properties=TIMES) as bootstrap:
            yield bootstrap
    else:
        with running_broker(folder, TIMES) as broker:
            yield broker.bootstrap


@pytest.mark.parametrize("of", ["isthmus", "kafka"])
def test_tables_are_exact_while_the_cluster_assigns(of: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task reads two topics. The first worker is of the classic protocol, and goes before the others come."""
    settings = {"slow_every": 4, "guarantee": "exactly_once", "group_protocol": "consumer"}

    async def scenario(bootstrap: str) -> None:
        case = Case("assigned", SimpleNamespace(bootstrap=bootstrap), tmp_path, monkeypatch, inputs=("in", "also"))

        async def has_tasks(worker: Worker, at_least: int) -> None:
            async def are() -> bool:
                return worker.log.count("goes on after checkpoint") >= at_least

            await until(are, f"{worker.path.name} has {at_least} tasks", 45)

        async with clients(bootstrap) as (client,):
            await case.create(client, PARTITIONS)
            total = 40_000
            producing = asyncio.create_task(case.produce(client, total, 0.3))
            classic = case.worker(**settings | {"group_protocol": "classic"}).ready()
            await has_tasks(classic, PARTITIONS)
            with case.worker(**settings) as refused:
                assert refused.process.wait(20) != 0
                assert "workers of the classic protocol are in its group" in refused.log
            assert classic.end() == 0, classic.log
            second = case.worker(**settings).ready()
            await has_tasks(second, PARTITIONS)
            third = case.worker(**settings).ready()
            await has_tasks(third, PARTITIONS // 2)
            second.kill()  # no leave: its session must expire
            await has_tasks(third, PARTITIONS)
            assert await case.done(client) < total, "too late to prove anything"
            with case.worker(**settings).ready() as fourth:
                await has_tasks(fourth, PARTITIONS // 2)
                assert third.end() == 0, third.log
                await producing
                await case.exact(client)
                assert fourth.end() == 0, fourth.log
            written = [
                json.loads(bytes(r.value))["i"] for r in await read_all(client, "assigned.out", "read_committed")
            ]
            assert sorted(written) == list(range(total))

    with cluster(of, tmp_path / "broker") as bootstrap:
        run(scenario(bootstrap), 150)
