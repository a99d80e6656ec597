"""What `integration_tests/streams/test_beside_faust_asgi.py` does not see: how lifespans end that do not go well."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import Any, cast

import pytest

from isthmus.streams import App, AppError
from isthmus.streams.contrib.asgi import FaustLifespanMiddleware, faust_app_running, serve_asgi
from tests.running import run_by
from tests.streams.virtual_time import VirtualLoop, in_virtual_time


class Embedded:
    """An app, as a lifespan uses it. fails: the method that does."""

    def __init__(self, fails: str = "", runs: bool = False, stop_s: float = 0) -> None:
        self.fails = fails
        self.runs = runs
        self.stop_s = stop_s
        self.stops = 0

    async def maybe_start(self) -> bool:
        self._may("start")
        return not self.runs

    async def stop(self) -> None:
        self.stops += 1
        await asyncio.sleep(self.stop_s)
        self._may("stop")

    def _may(self, method: str) -> None:
        if method == self.fails:
            raise AppError(f"{method} fails")


@pytest.mark.parametrize(
    ("fails", "sent"),
    [
        ("start", ["lifespan.startup.failed start fails"]),
        ("stop", ["lifespan.startup.complete ", "lifespan.shutdown.failed stop fails"]),
    ],
)
@run_by(in_virtual_time)
async def test_a_server_is_told_of_what_fails(loop: VirtualLoop, /, fails: str, sent: list[str]) -> None:
    said: list[str] = []

    async def receive() -> Any:
        return {}

    async def send(message: dict[str, Any]) -> None:
        said.append(f"{message['type']} {message.get('message', '')}")

    served = FaustLifespanMiddleware(None, cast(App, Embedded(fails)))
    await served({"type": "lifespan"}, receive, send)
    assert said == sent


@run_by(in_virtual_time)
async def test_a_worker_that_somebody_else_runs_is_not_stopped(loop: VirtualLoop, /) -> None:
    app = Embedded(runs=True)
    async with faust_app_running(cast(App, app)):
        pass
    assert app.stops == 0


@run_by(in_virtual_time)
async def test_a_start_that_takes_long_is_ended_by_the_signals_of_the_server(
    loop: VirtualLoop, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[int] = []

    def note(number: int, frame: Any) -> None:
        noted.append(number)

    app = App("app")
    monkeypatch.setattr(app, "start", asyncio.Event().wait)  # for a topic that is missing
    before = signal.signal(signal.SIGTERM, note)
    try:
        loop.call_soon(signal.raise_signal, signal.SIGTERM)
        with pytest.raises(AppError, match="app app: its worker had not started when SIGTERM came"):
            async with faust_app_running(app):
                raise AssertionError
        assert noted == [signal.SIGTERM] and signal.getsignal(signal.SIGTERM) is note
    finally:
        signal.signal(signal.SIGTERM, before)


@run_by(in_virtual_time)
async def test_an_end_takes_no_longer_than_it_may(loop: VirtualLoop, /) -> None:
    begun = loop.time()
    with pytest.raises(TimeoutError):
        async with faust_app_running(cast(App, Embedded(stop_s=60)), stop_timeout=5):
            pass
    assert loop.time() - begun == 5


@run_by(in_virtual_time)
async def test_a_worker_says_that_it_needs_uvicorn(loop: VirtualLoop, /, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    app = App("app")
    serve_asgi(app, None, port=8000)
    [service] = app.background.services
    service.app = app
    with pytest.raises(AppError, match="app app: serve_asgi needs uvicorn: pip install uvicorn"):
        await service.on_start()
