"""The log gets a few lines a second about connections that are ended, and the number of the rest."""

import asyncio
import logging

from isthmus.core_broker.server.closings import LINES_A_SECOND, WINDOW_S, Closings


def test_a_flood_is_a_few_lines_and_a_number(caplog, monkeypatch):
    caplog.set_level(logging.INFO, "isthmus.core_broker.server")

    async def flood():
        loop = asyncio.get_running_loop()
        now = loop.time()
        monkeypatch.setattr(loop, "time", lambda: now)
        closings = Closings()
        for n in range(1_000):
            closings.tell("10.0.0.9", f"reason {n}")
        assert len(caplog.messages) == LINES_A_SECOND
        now += WINDOW_S
        closings.tell("10.0.0.9", "the next second")
        closings.summarise()  # nothing is left to say

    asyncio.run(flood())
    assert caplog.messages[0] == "closing the connection of 10.0.0.9: reason 0"
    assert caplog.messages[LINES_A_SECOND:] == [
        f"closed {1_000 - LINES_A_SECOND} more connections for reasons like these",
        "closing the connection of 10.0.0.9: the next second",
    ]
