"""Counts by name, without zeros."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)


def add(counts: dict[K, int], names: Iterable[K], step: int) -> None:
    """Count names up or down."""
    for name in names:
        count = counts.get(name, 0) + step
        if count:
            counts[name] = count
        else:
            counts.pop(name, None)
