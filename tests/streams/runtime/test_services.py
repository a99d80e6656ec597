"""Tasks, timers, crontabs and services of an app, on a clock of the test's own."""

from __future__ import annotations

import asyncio
import logging
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from isthmus.streams import App
from isthmus.streams.api.service import Service
from isthmus.streams.errors import AppError, StreamsError
from isthmus.streams.runtime.services import Services, tell
from tests.running import run_by
from tests.streams.virtual_time import VirtualLoop, in_virtual_time


class Worker:
    """A `Host` that is the leader when it is told so."""

    def __init__(self) -> None:
        self.is_leader = False
        self.is_rebalancing = False

    def stores(self, table: str) -> list[Any]:
        return []


async def run_for(services: Services, length_s: float) -> None:
    await services.start()
    await asyncio.sleep(length_s)
    await services.stop()


@run_by(in_virtual_time)
async def test_a_timer_runs_every_interval_and_leaves_out_what_a_long_run_overlaps(loop: VirtualLoop, /) -> None:
    app = App("app")
    begun: list[float] = []

    @app.timer(10.0)
    async def tick() -> None:
        begun.append(loop.time())
        await asyncio.sleep(15 if len(begun) == 2 else 1)

    await run_for(Services(app, loop.runtime()), 65)
    assert begun == [10, 20, 40, 50, 60]


@run_by(in_virtual_time)
async def test_a_crontab_runs_at_its_local_times(loop: VirtualLoop, /) -> None:
    """2026-01-01 00:00 UTC is 09:00 in Tokyo."""
    app = App("app")
    at_s: dict[str, list[float]] = {"utc": [], "tokyo": []}

    @app.crontab("30 1 * * *")
    async def utc() -> None:
        at_s["utc"].append(loop.time())

    @app.crontab("30 9 * * *", timezone=ZoneInfo("Asia/Tokyo"))
    async def tokyo() -> None:
        at_s["tokyo"].append(loop.time())

    await run_for(Services(app, loop.runtime()), 36 * 3600)
    assert at_s == {"utc": [5400, 5400 + 86400], "tokyo": [1800, 1800 + 86400]}


@run_by(in_virtual_time)
async def test_an_app_wide_time_zone_is_that_of_its_crontabs(loop: VirtualLoop, /) -> None:
    app = App("app", timezone="Asia/Tokyo")
    at_s: list[float] = []

    @app.crontab("30 9 * * *")
    async def tokyo() -> None:
        at_s.append(loop.time())

    await run_for(Services(app, loop.runtime()), 3600)
    assert at_s == [1800]


@run_by(in_virtual_time)
async def test_a_job_on_the_leader_runs_while_this_worker_is_it(loop: VirtualLoop, /) -> None:
    app = App("app")
    app.agent(app.topic("in"))(_read)
    app.worker = worker = Worker()
    seen: list[str] = []

    @app.task(on_leader=True)
    async def at_start() -> None:
        seen.append("task")

    @app.timer(10, on_leader=True)
    async def tick() -> None:
        seen.append(f"timer {loop.time():.0f}")

    services = Services(app, loop.runtime())
    await services.start()
    await asyncio.sleep(15)
    worker.is_leader = True
    await asyncio.sleep(10)
    worker.is_leader = False
    await asyncio.sleep(10)
    await services.stop()
    assert seen == ["timer 20"]


async def _read(stream: Any) -> None:
    async for _ in stream:
        pass


@run_by(in_virtual_time)
async def test_an_app_without_agents_has_no_leader_and_says_so(loop: VirtualLoop, /) -> None:
    app = App("app")

    @app.timer(1, on_leader=True)
    async def tick() -> None: ...

    with pytest.raises(AppError, match=r"tick runs on the leader.*an app without agents has no leader"):
        await Services(app, loop.runtime()).start()


@run_by(in_virtual_time)
async def test_an_error_is_logged_with_its_traceback_and_the_timer_goes_on(
    loop: VirtualLoop, /, caplog: pytest.LogCaptureFixture
) -> None:
    app = App("app")
    runs = 0

    @app.timer(1)
    async def broken() -> None:
        nonlocal runs
        runs += 1
        raise ValueError("no such price")

    services = Services(app, loop.runtime())
    with caplog.at_level(logging.ERROR):
        await run_for(services, 2.5)
    assert runs == 2
    assert "app app: broken failed" in caplog.text
    assert 'raise ValueError("no such price")' in caplog.text
    services.check()


@run_by(in_virtual_time)
async def test_on_task_error_fail_ends_the_worker(loop: VirtualLoop, /) -> None:
    app = App("app", on_task_error="fail")

    @app.task
    async def broken(app: App) -> None:
        raise ValueError(app.id)

    services = Services(app, loop.runtime())
    await services.start()
    with pytest.raises(StreamsError, match="app app: broken failed: ValueError: app"):
        await services.failed
    await services.stop()


@run_by(in_virtual_time)
async def test_a_service_starts_runs_its_timers_and_stops(loop: VirtualLoop, /) -> None:
    app = App("app")
    seen: list[str] = []

    @app.service
    class Prices(Service):
        async def on_start(self) -> None:
            assert self.app is app
            seen.append("start")

        async def on_started(self) -> None:
            seen.append("started")

        async def on_stop(self) -> None:
            seen.append(f"stop {self.should_stop}")

        @Service.task
        async def until_the_end(self) -> None:
            while not self.should_stop:
                await self.sleep(100)
            seen.append("ended")

        @Service.timer(2)
        async def refresh(self) -> None:
            seen.append(f"refresh {loop.time():.0f}")

    await run_for(Services(app, loop.runtime()), 5)
    assert seen == ["start", "started", "refresh 2", "refresh 4", "ended", "stop True"]


@run_by(in_virtual_time)
async def test_the_sleep_of_an_app_ends_with_its_worker(loop: VirtualLoop, /) -> None:
    app = App("app")
    services = Services(app, loop.runtime())
    sleeping = loop.create_task(app.sleep(1000))
    await asyncio.sleep(1)
    await services.stop()
    await sleeping
    assert (loop.time(), app.should_stop) == (1, True)


@run_by(in_virtual_time)
async def test_a_task_that_sleeps_until_the_end_does_its_last_work(loop: VirtualLoop, /) -> None:
    app = App("app")
    seen: list[str] = []

    @app.task
    async def tidy() -> None:
        await app.sleep(1000)
        await asyncio.sleep(0.1)
        seen.append(f"tidied {app.should_stop}")

    @app.task
    async def heeds_nothing() -> None:
        while True:
            await app.sleep(1000)

    await run_for(Services(app, loop.runtime()), 1)
    assert seen == ["tidied True"]


@run_by(in_virtual_time)
async def test_a_receiver_of_a_signal_that_fails_keeps_nothing_from_the_others(
    loop: VirtualLoop, /, caplog: pytest.LogCaptureFixture
) -> None:
    app = App("app")
    seen: list[Any] = []

    @app.on_partitions_assigned.connect
    async def broken(app: App, **_: Any) -> None:
        raise ValueError("oh")

    @app.on_partitions_assigned.connect()
    async def good(app: App, assigned: set[int], **_: Any) -> None:
        seen.append((app, assigned))

    @app.on_partitions_assigned
    def short() -> None:
        seen.append("short")

    await tell(app.on_partitions_assigned, {1})
    assert seen == [(app, {1}), "short"]
    assert "broken, which receives on_partitions_assigned, failed" in caplog.text


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("* * * *", r"crontab of f: '\* \* \* \*': must have five fields: .* or six, the last"),
        ("* * * * * * 2030", "must have five fields"),
        ("61 * * * *", "crontab of f: '61 "),
    ],
)
def test_a_crontab_that_cannot_be_says_why(expression: str, said: str) -> None:
    async def f() -> None: ...

    with pytest.raises(AppError, match=said):
        App("app").crontab(expression)(f)


def test_what_cannot_run_beside_agents_is_refused() -> None:
    def plain() -> None: ...

    async def good() -> None: ...

    with pytest.raises(AppError, match=r"@app.task needs an async function, and plain is none"):
        App("app").task(plain)
    with pytest.raises(AppError, match=r"timer good: its interval is 0.0 s, but must be 0.001 or more"):
        App("app").timer(0)(good)
    with pytest.raises(AppError, match="needs a subclass of Service"):
        App("app").service(dict)
