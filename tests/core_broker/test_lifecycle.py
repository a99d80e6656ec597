"""A broker's process joins its cluster."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from isthmus.core_broker.cluster.image import MetadataImage
from isthmus.core_broker.config import BrokerConfig
from isthmus.core_broker.lifecycle import Lifecycle
from isthmus.protocol.messages import broker_registration
from tests.running import in_loop, run_by

EPOCH = 7


@run_by(in_loop)
async def test_process_is_registered_once_the_metadata_here_has_it() -> None:
    """Its image may still say that it leads, under the epoch of its last process."""
    image = MetadataImage("cluster")
    image.offset = EPOCH - 2
    applied = asyncio.Queue[int]()

    async def ask(request: Any, timeout_ms: float) -> Any:
        if isinstance(request, broker_registration.Request):
            return SimpleNamespace(error_code=0, broker_epoch=EPOCH)
        return await asyncio.Future()

    async def keep_epoch(epoch: int) -> None:
        pass

    async def changed() -> None:
        image.offset = await applied.get()

    lifecycle = Lifecycle(
        1, image, BrokerConfig(), ask, metadata_changed=changed, incarnation_id=bytes(16), directory_id=bytes(16),
        endpoints={}, features={}, previous_epoch=-1, keep_epoch=keep_epoch,
    )  # fmt: skip
    registering = asyncio.ensure_future(lifecycle.register(60_000))
    for offset in (EPOCH - 1, EPOCH):
        assert not registering.done()
        applied.put_nowait(offset)
        for _ in range(5):
            await asyncio.sleep(0)
    assert registering.done()
    await lifecycle.close()
