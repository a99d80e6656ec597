"""A topic has as many partitions as the broker says that knows most."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from isthmus.client.errors import ConnectionLost, RequestTimeout
from isthmus.streams.runtime.growth import PASSED_OVER_S, Growth
from tests.running import in_loop, run_by

from .running import Clock


class Brokers:
    """Each knows a number of partitions of `in`; None: it does not answer. The client has asked the first."""

    def __init__(self, *known: int | None) -> None:
        self.known = dict(enumerate(known))
        self.nodes = dict.fromkeys(self.known, "localhost:9092")
        self.asked: list[int] = []

    async def refresh_metadata(self, topics: Sequence[str]) -> None:
        if all(count is None for count in self.known.values()):
            raise ConnectionLost("no broker answers")

    def partitions(self, topic: str) -> list[int]:
        return list(range(next(count for count in self.known.values() if count is not None)))

    async def request(self, message: Any, node: int, timeout_ms: float) -> Any:
        self.asked.append(node)
        count = self.known[node]
        if count is None:
            raise RequestTimeout(f"node {node}")
        assert [each.name for each in message.topics] == ["in"] and not message.allow_auto_topic_creation
        return SimpleNamespace(topics=[SimpleNamespace(name="in", partitions=list(range(count)))])


@run_by(in_loop)
async def test_the_broker_counts_that_knows_of_the_growth_whichever_was_asked_first() -> None:
    for known in ((2, 2, 3), (3, 2, 2), (2, 3, None)):
        assert await Growth(Brokers(*known)).counts(["in"]) == {"in": 3}  # type: ignore[arg-type]


@run_by(in_loop)
async def test_a_broker_that_does_not_answer_is_not_waited_for_at_each_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    brokers = Brokers(2, None)
    growth = Growth(brokers)  # type: ignore[arg-type]
    for _ in range(2):
        assert await growth.counts(["in"]) == {"in": 2}
    assert brokers.asked == [0, 1, 0]
    clock.now, brokers.known[1] = PASSED_OVER_S, 3
    assert await growth.counts(["in"]) == {"in": 3}


@run_by(in_loop)
async def test_where_no_broker_answers_nothing_is_known() -> None:
    with pytest.raises(ConnectionLost):
        await Growth(Brokers(None, None)).counts(["in"])  # type: ignore[arg-type]
