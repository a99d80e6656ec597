"""What the HTTP listener serves: /metrics, /health/live and /health/ready."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .exposition import CONTENT_TYPE, render
from .http import Answer, HttpListener, text
from .scrape import Scrape, Sources
from .table import METRICS


class Monitor:
    """Serves from `listen` to `close`. why_not_ready: an empty text once the broker serves."""

    def __init__(self, sources: Sources, why_not_ready: Callable[[], str]) -> None:
        self.sources = sources
        self._why_not_ready = why_not_ready
        self._listener = HttpListener(
            {"/metrics": self._metrics, "/health/live": lambda: text(200, "alive"), "/health/ready": self._ready}
        )

    @property
    def address(self) -> str:
        """HOST:PORT, once it listens."""
        return self._listener.address

    async def listen(self, host: str, port: int) -> None:
        """Raises ListenError."""
        await self._listener.listen(host, port)

    def close(self) -> None:
        self._listener.close()

    def _metrics(self) -> Answer:
        scrape = Scrape(self.sources, asyncio.get_running_loop().time())
        return Answer(200, CONTENT_TYPE, render((metric.family, metric.read(scrape)) for metric in METRICS))

    def _ready(self) -> Answer:
        why_not = self._why_not_ready()
        return text(503, f"not ready: {why_not}") if why_not else text(200, "ready")
