"""A worker within a program of the user's own. What `serve` would do a test does, so that no cluster is needed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from isthmus.streams import App, StreamsError
from isthmus.streams.runtime import process
from tests.running import run_by
from tests.streams.virtual_time import VirtualLoop, in_virtual_time

Serve = Callable[[App, asyncio.Event, Any], Awaitable[None]]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Callable[[Serve], App]:
    def app_of(serve: Serve) -> App:
        monkeypatch.setattr(process, "serve", serve)
        return App("app")

    return app_of


@run_by(in_virtual_time)
async def test_a_start_that_failed_can_be_tried_again(loop: VirtualLoop, /, served: Any) -> None:
    tried: list[str] = []

    async def serve(app: App, stopping: asyncio.Event, ready: Any) -> None:
        tried.append("")
        if len(tried) == 1:
            raise StreamsError("no broker")
        ready("")
        await stopping.wait()

    app = served(serve)
    with pytest.raises(StreamsError, match="no broker"):
        await app.start()
    assert await app.maybe_start() and not await app.maybe_start()
    await app.stop()
    assert len(tried) == 2


@run_by(in_virtual_time)
async def test_a_start_that_is_given_up_leaves_nothing_behind(loop: VirtualLoop, /, served: Any) -> None:
    ended: list[str] = []

    async def serve(app: App, stopping: asyncio.Event, ready: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("")

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(10):
            await served(serve).start()
    assert ended


@run_by(in_virtual_time)
async def test_a_worker_that_ends_by_itself_says_so_before_it_is_stopped(
    loop: VirtualLoop, /, served: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def serve(app: App, stopping: asyncio.Event, ready: Any) -> None:
        ready("")
        await asyncio.sleep(1)
        raise StreamsError("the disk is full")

    app = served(serve)
    await app.start()
    await asyncio.sleep(2)
    assert [each.getMessage() for each in caplog.records] == [
        "app app: its worker has ended: StreamsError: the disk is full"
    ]
    with pytest.raises(StreamsError, match="the disk is full"):
        await app.stop()
