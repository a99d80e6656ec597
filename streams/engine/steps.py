"""Many rows, some at a time: who looks at a million of them gives others a turn between two steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

STEP_ROWS = 1_000

T = TypeVar("T")


def in_steps(rows: Iterable[T]) -> Iterator[list[T]]:
    left = iter(rows)
    while some := list(islice(left, STEP_ROWS)):
        yield some
