"""Probes of rare states: functions of the product are wrapped for one run, and what they are seen at is counted.

A probe looks at arguments before a function, or after it, and at what it gives; the product is as it is.
"""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any
from unittest import mock

RARE = "rare: "  # before the names, among the counters
Seen = Iterable[str | bool]  # names of states; False for none


class Probes:
    """Wraps functions for as long as the stack is open. Each `see` gives the names of the states that it has seen."""

    def __init__(self, stack: contextlib.ExitStack, counters: Counter[str]) -> None:
        self._stack = stack
        self._counters = counters

    def count(self, seen: Seen) -> None:
        for name in seen:
            if name:
                self._counters[f"{RARE}{name}"] += 1

    def before(self, target: object, attribute: str, see: Callable[..., Seen]) -> None:
        real = getattr(target, attribute)

        @functools.wraps(real)
        def wrapped(*args: Any, **options: Any) -> Any:
            self.count(see(*args, **options))
            return real(*args, **options)

        self._stack.enter_context(mock.patch.object(target, attribute, wrapped))

    def after(self, target: object, attribute: str, see: Callable[..., Seen]) -> None:
        """see(result, *arguments); the result is the error where one is raised."""
        real = getattr(target, attribute)

        @functools.wraps(real)
        def wrapped(*args: Any, **options: Any) -> Any:
            try:
                result = real(*args, **options)
            except Exception as error:
                self.count(see(error, *args, **options))
                raise
            self.count(see(result, *args, **options))
            return result

        self._stack.enter_context(mock.patch.object(target, attribute, wrapped))
