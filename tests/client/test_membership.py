"""The heart of a member: what ends it is told."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from isthmus.client.membership import Heart, Polls
from isthmus.protocol.errors import ErrorCode, KafkaError

DEADLINE_S = 20.0


@pytest.mark.parametrize(
    "error", [ZeroDivisionError("a defect"), KafkaError.of(ErrorCode.GROUP_AUTHORIZATION_FAILED)], ids=["ours", "group"]
)
def test_an_error_that_ends_the_heart_is_told(error: Exception) -> None:
    asyncio.run(asyncio.wait_for(told_of(error), DEADLINE_S))


async def told_of(error: Exception) -> None:
    told: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
    beats = 0

    async def beat() -> bool:
        nonlocal beats
        beats += 1
        if beats == 1:
            raise KafkaError.of(ErrorCode.COORDINATOR_NOT_AVAILABLE)  # another attempt may help
        raise error

    async def stalled() -> None: ...

    client: Any = SimpleNamespace(back_off_ms=lambda attempt: 0)
    heart = Heart(client, "g", 0.0, Polls(None), beat, stalled, told.set_result)
    heart.start()
    assert await told is error
    assert beats == 2
    await heart.stop()
