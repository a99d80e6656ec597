"""An app that sends without a worker: when its connections are made, and when they are closed.

They are closed by `App.stop`; else when `asyncio.run` ends; else, in programs that leave their loop open, when Python
ends.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib

from ..runtime.outside import OutsideOutbox
from .rpc import Replies
from .settings import Settings


class Outside:
    """The client of one loop."""

    def __init__(self, conf: Settings, replies: Replies, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.outbox = OutsideOutbox(conf, replies)
        self._closed = False
        self._keeper = loop.create_task(self._keep(), name=f"client of {conf.id}")
        atexit.register(self._at_exit)

    async def start(self) -> None:
        await self.outbox.start()

    async def _keep(self) -> None:
        """`asyncio.run` cancels what is left, and waits for it."""
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await self._close()

    async def _close(self) -> None:
        if not self._closed:
            self._closed = True
            atexit.unregister(self._at_exit)
            await self.outbox.close()

    async def close(self) -> None:
        self._keeper.cancel()
        await asyncio.gather(self._keeper, return_exceptions=True)
        await self._close()

    def _at_exit(self) -> None:
        if self.loop.is_closed() or self.loop.is_running():
            return
        with contextlib.suppress(RuntimeError):
            self.loop.run_until_complete(asyncio.sleep(0))  # a loop that was stopped while it did not run ends at once
        with contextlib.suppress(Exception):
            self.loop.run_until_complete(self.close())
