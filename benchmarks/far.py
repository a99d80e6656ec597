"""Brings ports of this machine as far away as another datacenter: `python -m benchmarks.far DELAY_MS PORT:PORT...`.

What comes in at the first port of a pair leaves to the second one so many milliseconds later, and back. Order and rate
stay. Prints `ready`, and runs until it is killed.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from typing import cast

HOST = "127.0.0.1"
MAX_QUEUED_BYTES = 64 << 20  # of a direction; more is not read before some of it has left


class Far(asyncio.Protocol):
    """One end of a connection. other: the end to which all of it goes, `delay_s` later."""

    def __init__(self, delay_s: float) -> None:
        self.delay_s = delay_s
        self.other: Far | None = None
        self.transport: asyncio.Transport | None = None
        self.early: deque[bytes] = deque()  # what came before the other end was there
        self.queued_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are no instances

    def data_received(self, data: bytes) -> None:
        assert self.transport is not None
        self.queued_bytes += len(data)
        if self.queued_bytes > MAX_QUEUED_BYTES:
            self.transport.pause_reading()
        if self.other is None:
            self.early.append(data)
        else:
            asyncio.get_running_loop().call_later(self.delay_s, self._arrive, data)

    def join(self, other: Far) -> None:
        self.other = other
        while self.early:
            asyncio.get_running_loop().call_later(self.delay_s, self._arrive, self.early.popleft())

    def _arrive(self, data: bytes) -> None:
        assert self.transport is not None and self.other is not None and self.other.transport is not None
        self.queued_bytes -= len(data)
        self.other.transport.write(data)
        if self.queued_bytes <= MAX_QUEUED_BYTES:
            self.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        if self.other is not None and self.other.transport is not None:
            asyncio.get_running_loop().call_later(self.delay_s, self.other.transport.close)


async def serve(delay_s: float, port: int, target: int) -> None:
    loop = asyncio.get_running_loop()
    joining: dict[asyncio.Task[None], None] = {}

    def accepted() -> Far:
        near = Far(delay_s)
        task = loop.create_task(join(near))
        joining[task] = None
        task.add_done_callback(joining.pop)
        return near

    async def join(near: Far) -> None:
        try:
            _, far = await loop.create_connection(lambda: Far(delay_s), HOST, target)
        except OSError:
            if near.transport is not None:
                near.transport.close()
            return
        far.join(near)
        near.join(far)

    await loop.create_server(accepted, HOST, port)


async def main() -> None:
    delay_s = float(sys.argv[1]) / 1000
    for pair in sys.argv[2:]:
        port, target = map(int, pair.split(":"))
        await serve(delay_s, port, target)
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    import uvloop

    uvloop.run(main())
