"""How old rows are that somebody may be answered with."""

from types import SimpleNamespace
from typing import Any

from isthmus.client import TopicPartition
from isthmus.streams.runtime.freshness import Freshness

ONE, OTHER = TopicPartition("changelog", 0), TopicPartition("changelog", 1)


class Reader:
    """A consumer. told: by partition, how many records it is behind the end that was told, and when that was."""

    def __init__(self) -> None:
        self.told: dict[TopicPartition, tuple[int, float]] = {}

    def progress(self) -> dict[TopicPartition, Any]:
        return {tp: SimpleNamespace(lag=lag) for tp, (lag, _) in self.told.items()}

    def answered_at(self, tp: TopicPartition) -> float:
        return self.told[tp][1]


def test_rows_are_as_old_as_the_last_end_that_was_told_and_reached() -> None:
    freshness, reader = Freshness(), Reader()

    def seen(**told: tuple[int, float]) -> tuple[float | None, float | None]:
        reader.told = {{"one": ONE, "other": OTHER}[name]: each for name, each in told.items()}
        freshness.look(reader)  # type: ignore[arg-type]
        return freshness.whole_at([ONE]), freshness.whole_at([ONE, OTHER])

    assert seen(one=(0, 5.0), other=(2, 5.0)) == (5.0, None)
    assert seen(one=(3, 9.0), other=(0, 7.0)) == (5.0, 5.0)  # the first is behind again
    assert seen(one=(0, 9.0), other=(0, 7.0)) == (9.0, 7.0)
    freshness.forget([OTHER])
    assert freshness.whole_at([ONE]) is None and freshness.whole_at([OTHER]) == 7.0
