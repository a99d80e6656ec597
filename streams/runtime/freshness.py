"""How old what a consumer has read is: since when it has not been at the end of a partition."""

from __future__ import annotations

from collections.abc import Iterable

from ...client import Consumer, TopicPartition


class Freshness:
    """Looks at a consumer after each poll. Times are the loop's, in seconds.

    A partition that was read to the end which an answer of its leader has told was as new as that answer. One that is
    behind is as old as that moment was the last time, and one that was never at its end has no age.
    """

    def __init__(self) -> None:
        self._whole_at: dict[TopicPartition, float] = {}

    def look(self, consumer: Consumer) -> None:
        for tp, progress in consumer.progress().items():
            if progress.lag == 0 and (at := consumer.answered_at(tp)) is not None:
                self._whole_at[tp] = at

    def whole_at(self, tps: Iterable[TopicPartition]) -> float | None:
        """When all of these were read to their ends the last time. None: one of them never was."""
        found = [self._whole_at.get(tp) for tp in tps]
        return None if None in found else min((at for at in found if at is not None), default=None)

    def forget(self, but: Iterable[TopicPartition]) -> None:
        """Forget all partitions but these."""
        self._whole_at = {tp: self._whole_at[tp] for tp in but if tp in self._whole_at}
