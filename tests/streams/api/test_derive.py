"""What is brought to the topic of a stream that another one is derived from."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from isthmus.streams.api.derive import Step
from isthmus.streams.api.rpc import request_headers
from isthmus.streams.engine.event import Event
from tests.running import in_loop, run_by


class Target:
    """sent: keys, by whether they went at once."""

    def __init__(self, sent: dict[bool, list[Any]], is_at_once: bool = False) -> None:
        self.sent = sent
        self.is_at_once = is_at_once

    def at_once(self) -> Target:
        return Target(self.sent, True)

    async def send(self, *, key: Any, value: Any, headers: Any) -> None:
        self.sent.setdefault(self.is_at_once, []).append(key)


class Stream:
    def __init__(self, *events: Event) -> None:
        self._events = events

    async def events(self) -> AsyncIterator[Event]:
        for event in self._events:
            yield event


@run_by(in_loop)
async def test_a_request_goes_on_at_once_since_who_has_asked_may_hold_up_the_commit() -> None:
    target: Any = Target({})
    asked = request_headers("replies", "1")
    stream: Any = Stream(Event("a", 1, 0, "in", 0, 0), Event("b", 2, 0, "in", 0, 1, asked))
    await Step(target, target, [], lambda value: value * 10).forward(stream)
    assert target.sent == {False: [10], True: [20]}
