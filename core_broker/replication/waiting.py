"""Answers that wait for replicas or the disk: when an append counts as acknowledged, for clients and mirrors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ...protocol.errors import ErrorCode, KafkaError
from ..purgatory import Answer, Pending, Purgatory
from .partition import Partition

ALL = -1  # acks: of all in-sync replicas


def when_acknowledged(
    ends: Iterable[tuple[Partition, int]],
    acks: int,
    settle: Callable[[], Answer],
    purgatory: Purgatory,
    timeout_ms: int,
) -> Pending:
    """A Pending that is answered by `settle()` when all before each end offset is acknowledged, or time is up."""
    waits = list(ends)
    left = len(waits)

    def reached() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            pending.complete(settle())

    def stop_waiting() -> None:
        for cancel in cancels:
            cancel()

    cancels: list[Any] = []
    pending = Pending(settle, stop_waiting)
    for partition, end in waits:
        cancels.append(partition.wait_for_acknowledgement(end, acks, reached))
    return purgatory.add(pending, timeout_ms)


def why_unacknowledged(partition: Partition, end: int, acks: int) -> KafkaError | None:
    """What who has appended is told when the wait is over; None if all before the end offset is acknowledged."""
    failure = partition.failure
    if not partition.core.is_acknowledged(end, acks):
        return failure or KafkaError(ErrorCode.REQUEST_TIMED_OUT)
    if acks == ALL and len(partition.isr) < partition.least_in_sync:
        return KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    return None
