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
from tests.simulation.runner import Simulation, run_checked

EPOCH = 7


def lifecycle_of(image: MetadataImage, ask: Any, changed: Any) -> Lifecycle:
    async def keep_epoch(epoch: int, incarnation_id: bytes) -> None:
        pass

    return Lifecycle(
        1, image, BrokerConfig(), ask, metadata_changed=changed, incarnation_id=bytes(16), directory_id=bytes(16),
        endpoints={}, features={}, previous_epoch=-1, keep_epoch=keep_epoch,
    )  # fmt: skip


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

    async def changed() -> None:
        image.offset = await applied.get()

    lifecycle = lifecycle_of(image, ask, changed)
    registering = asyncio.ensure_future(lifecycle.register(60_000))
    for offset in (EPOCH - 1, EPOCH):
        assert not registering.done()
        applied.put_nowait(offset)
        for _ in range(5):
            await asyncio.sleep(0)
    assert registering.done()
    await lifecycle.close()


@run_by(run_checked)
async def test_session_lasts_for_its_time_from_when_a_heartbeat_was_sent(sim: Simulation, /) -> None:
    image = MetadataImage("cluster")
    image.offset = EPOCH
    answers = asyncio.Queue[bool]()  # whether the broker is fenced

    async def ask(request: Any, timeout_ms: float) -> Any:
        if isinstance(request, broker_registration.Request):
            return SimpleNamespace(error_code=0, broker_epoch=EPOCH)
        return SimpleNamespace(error_code=0, is_fenced=await answers.get(), should_shut_down=False)

    lifecycle = lifecycle_of(image, ask, asyncio.Event().wait)
    await lifecycle.register(60_000)
    await asyncio.sleep(1)
    assert not lifecycle.has_session
    answers.put_nowait(False)
    await asyncio.sleep(0.9)
    assert lifecycle.has_session
    await asyncio.sleep(0.2)
    assert not lifecycle.has_session  # of the 2 s 1 had passed before the answer
    answers.put_nowait(False)
    await asyncio.sleep(0.1)
    assert lifecycle.has_session
    answers.put_nowait(True)
    await asyncio.sleep(1)
    assert not lifecycle.has_session
    await lifecycle.close()
