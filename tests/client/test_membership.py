"""The heart of a member: what ends it is told."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from isthmus.client.membership import Heart, Polls
from isthmus.protocol.errors import ErrorCode, KafkaError
from tests.streams.virtual_time import VirtualLoop

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


def test_a_group_that_does_not_answer_for_longer_than_a_session_is_told_of() -> None:
    """Since the last that was answered was sent: an answer may lie there while the process is paused."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        answers = True

        async def beat() -> bool:
            if not answers:
                raise KafkaError.of(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            await asyncio.sleep(0.5)
            return True

        async def stalled() -> None: ...

        client: Any = SimpleNamespace(back_off_ms=lambda attempt: 1_000)
        heart = Heart(client, "g", 1.0, Polls(None), beat, stalled, lambda error: None)
        assert heart.unheard_s(0.0) == 0.0, "it is no member yet"
        heart.start()
        await asyncio.sleep(20.2)  # heartbeats are sent at 1, 2.5, … 19 s
        assert heart.unheard_s(10.0) == 0.0
        answers = False
        await asyncio.sleep(8.7)
        assert heart.unheard_s(10.0) == 0.0
        await asyncio.sleep(0.2)
        assert heart.unheard_s(10.0) == pytest.approx(loop.time() - 19.0)
        answers = True
        await asyncio.sleep(3.0)
        assert heart.unheard_s(10.0) == 0.0
        await heart.stop()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(run())
