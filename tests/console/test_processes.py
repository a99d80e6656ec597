"""What `isthmus status` finds out beside what the supervisor has saved."""

from __future__ import annotations

from typing import Any

from isthmus.console.processes import ask_brokers
from isthmus.deploy.supervisor import State
from tests.client.scripted import ScriptedBroker, World, simulate
from tests.running import run_by


@run_by(simulate)
async def test_a_broker_that_is_ready_and_does_not_answer_is_silent(world: World, /) -> None:
    for number in (2, 3):
        await ScriptedBroker(world, number).start()
    world.brokers[2].hangs = world.brokers[3].hangs = True
    rows: list[dict[str, Any]] = [
        {"kind": kind, "state": state, "address": f"broker{number}:9092", "reason": ""}
        for kind, state, number in (
            ("broker", State.READY, 1), ("broker", State.READY, 2), ("broker", State.BACKOFF, 3),
            ("mirror", State.READY, 3),
        )
    ]  # fmt: skip
    await ask_brokers(rows)
    assert [row["state"] for row in rows] == ["ready", "silent", "restarting", "ready"]
    assert "broker2:9092 did not answer within 2000 ms" in rows[1]["reason"] and not rows[0]["reason"]
