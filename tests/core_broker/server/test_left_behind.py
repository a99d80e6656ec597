"""Nothing is left behind: no waiter of a client that has gone, no task or timer of a broker that has stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from isthmus.core_broker.broker import Broker
from isthmus.core_broker.config import BrokerConfig
from isthmus.core_broker.purgatory import Pending
from isthmus.core_broker.replication.partition import Partition
from isthmus.core_broker.server.apis import fetch as fetch_api
from isthmus.core_broker.server.apis import list_offsets as list_offsets_api
from isthmus.core_broker.server.apis import produce as produce_api
from isthmus.core_broker.server.due import DueAnswers
from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import create_topics, fetch, find_coordinator, join_group, list_offsets, produce
from isthmus.protocol.records import build_batch
from tests.leftovers import no_leftovers
from tests.running import run_by
from tests.simulation.runner import Simulation, run_checked
from tests.simulation.wire import Wire, connect

from .apis.serving import Serving, serve
from .asking import fetch_of, produce_of

NOW_MS = 1_700_000_000_000
LONG_MS = 600_000


def batch(size: int = 1) -> bytes:
    return build_batch([(NOW_MS, b"k", bytes(size), ())], "none")


def fetch_that_waits() -> fetch.Request:
    return fetch_of((0, 0), topic="t", max_wait_ms=LONG_MS, min_bytes=1 << 20, max_bytes=1 << 20)


# --- A client that goes away ------------------------------------------------------------------------------------------


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Who waits on a partition."""
    found: list[str] = []

    def watch(name: str) -> None:
        real = getattr(Partition, name)

        def wait(partition: Partition, *arguments: Any) -> Callable[[], None]:
            *before, callback = arguments
            found.append(name)
            is_over = False

            def end() -> None:
                nonlocal is_over
                if not is_over:
                    is_over = True
                    found.remove(name)

            def called() -> None:
                end()
                callback()

            cancel = real(partition, *before, called)

            def cancelled() -> None:
                end()
                cancel()

            return cancelled

        monkeypatch.setattr(Partition, name, wait)

    watch("wait_for_data")
    watch("wait_for_acknowledgement")
    return found


def begun(serving: Serving, handle: Callable[..., Any], request: Any, version: int) -> tuple[DueAnswers, Pending]:
    """A request that waits, as a connection has it."""
    serving.context.version = version
    pending = handle(request, serving.context)
    assert isinstance(pending, Pending)
    line = DueAnswers()
    line.add(None, 1, 0, pending)  # type: ignore[arg-type]
    return line, pending


@run_by(serve)
async def test_a_fetch_waits_no_longer_than_its_client_stays(serving: Serving, /, waiting: list[str]) -> None:
    await serving.topic("t")
    line, pending = begun(serving, fetch_api.handle, fetch_that_waits(), 11)
    assert waiting == ["wait_for_data"]
    line.abandon()
    assert not waiting and pending.done and not line
    serving.fill("t", 1)
    await asyncio.sleep(0)


@run_by(serve)
async def test_a_fetch_that_was_woken_and_goes_does_not_wait_again(serving: Serving, /, waiting: list[str]) -> None:
    await serving.topic("t")
    line, _ = begun(serving, fetch_api.handle, fetch_that_waits(), 11)
    serving.fill("t", 1)  # not enough: it would wait on
    line.abandon()
    await asyncio.sleep(0)
    assert not waiting


@run_by(serve)
async def test_a_produce_waits_no_longer_than_its_client_stays(
    serving: Serving, /, waiting: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Partition, "sync_or_advance", lambda self: None)  # no disk says that it has it
    await serving.topic("t", durability="fsync")
    line, _ = begun(serving, produce_api.handle, produce_of((0, batch()), topic="t", timeout_ms=LONG_MS), 9)
    assert waiting == ["wait_for_acknowledgement"]
    line.abandon()
    assert not waiting


@pytest.mark.parametrize("when", ["before its append", "after it"])
@run_by(serve)
async def test_a_produce_that_is_prepared_waits_no_longer_than_its_client_stays(
    serving: Serving, /, waiting: list[str], monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    monkeypatch.setattr(Partition, "sync_or_advance", lambda self: None)
    await serving.topic("t", durability="fsync", compression_type="gzip")
    tasks = serving.context.services.tasks
    line, _ = begun(serving, produce_api.handle, produce_of((0, batch(1_000_000)), topic="t", timeout_ms=LONG_MS), 9)
    (task,) = tasks
    if when == "before its append":
        line.abandon()
    await asyncio.wait([task])
    assert serving.replicas.get("t", 0).log.log_end_offset == 1
    line.abandon()
    assert not waiting and not tasks


@run_by(serve)
async def test_a_search_by_timestamp_ends_with_its_client(serving: Serving, /, monkeypatch: pytest.MonkeyPatch) -> None:
    await serving.topic("t", partitions=3)
    searched: list[Any] = []
    log_type = type(serving.replicas.get("t", 0).log)
    real = log_type.offset_for_timestamp

    async def search(log: Any, timestamp: int) -> Any:
        searched.append(log)
        line.abandon()
        return await real(log, timestamp)

    monkeypatch.setattr(log_type, "offset_for_timestamp", search)
    partitions = [list_offsets.ListOffsetsPartition(partition_index=n, timestamp=NOW_MS) for n in range(3)]
    topics = [list_offsets.ListOffsetsTopic(name="t", partitions=partitions)]
    request = list_offsets.Request(replica_id=-1, topics=topics)
    line, _ = begun(serving, list_offsets_api.handle, request, 7)
    (task,) = serving.context.services.tasks
    await asyncio.wait([task])
    assert len(searched) == 1


# --- A broker that stops ----------------------------------------------------------------------------------------------

OPTIONS = {"listeners": "PLAINTEXT://broker:9092", "log.dirs": "/data", "group.initial.rebalance.delay.ms": "600000"}


def stopped_after(clients: Callable[[Wire, Wire], Awaitable[None]], seed: int = 1) -> None:
    """A broker's life that ends after `clients` have asked and wait; one of the two has gone by then."""

    async def scenario(sim: Simulation) -> None:
        broker_process = sim.machine("broker").start()
        client_process = sim.machine("client").start()
        up, asked = asyncio.Event(), asyncio.Event()

        async def life() -> None:
            async with no_leftovers():
                broker = Broker(BrokerConfig(OPTIONS), broker_process.runtime, broker_process.files)
                await broker.start()
                up.set()
                await asked.wait()
                assert await broker.stop() == ""

        async def ask() -> None:
            await up.wait()
            gone, stays = await connect("broker:9092"), await connect("broker:9092")
            topics = [create_topics.CreatableTopic(name="t", num_partitions=1, replication_factor=1)]
            await stays.request(create_topics.API, create_topics.Request(topics=topics, timeout_ms=5_000))
            await clients(gone, stays)
            await asyncio.sleep(1)
            gone.transport.abort()
            await asyncio.sleep(1)
            asked.set()

        await asyncio.gather(client_process.outcome(ask()), broker_process.outcome(life()))

    run_checked(scenario, seed)


async def long_polls(gone: Wire, stays: Wire) -> None:
    for each in (gone, stays):
        each.request(fetch.API, fetch_that_waits())


async def members(gone: Wire, stays: Wire) -> None:
    """One is known to the group and gone, the other waits for the group's first rebalance."""
    coordinator = find_coordinator.Request(key="g")
    while (await stays.request(find_coordinator.API, coordinator)).error_code:
        await asyncio.sleep(0.1)
    for each in (gone, stays):
        request = join_group.Request(
            group_id="g", session_timeout_ms=30_000, rebalance_timeout_ms=LONG_MS, protocol_type="consumer",
            protocols=[join_group.JoinGroupRequestProtocol(name="range", metadata=b"")],
        )  # fmt: skip
        answer = await each.request(join_group.API, request)
        assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
        request.member_id = answer.member_id
        each.request(join_group.API, request)


async def producers(gone: Wire, stays: Wire) -> None:
    for each in (gone, stays):
        each.request(produce.API, produce_of((0, batch()), topic="t", timeout_ms=LONG_MS))


@pytest.mark.parametrize("clients", [long_polls, members, producers])
def test_a_broker_that_has_stopped_leaves_no_task_timer_or_connection(
    clients: Callable[[Wire, Wire], Awaitable[None]],
) -> None:
    stopped_after(clients)
