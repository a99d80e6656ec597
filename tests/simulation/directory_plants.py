"""Planted bugs of a data directory: its end, and its partitions' ends."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any
from unittest import mock

Plant = Callable[[contextlib.ExitStack], None]


def _replace(stack: contextlib.ExitStack, target: object, attribute: str, value: object) -> None:
    stack.enter_context(mock.patch.object(target, attribute, value))


def clean_stop_not_synced(stack: contextlib.ExitStack) -> None:
    """Where the volume cannot be synced at once, nothing is."""
    from isthmus.core_broker.storage.log.closing import LogEnd

    _replace(stack, LogEnd, "sync", lambda self: None)


def partitions_come_back(stack: contextlib.ExitStack) -> None:
    """A deletion is told before its directories' new names are on disk."""
    from isthmus.core_broker.storage.manager import LogManager

    async def settle(self: LogManager) -> None:
        pass

    _replace(stack, LogManager, "_settle_names", settle)


def rest_of_deletions_forgotten(stack: contextlib.ExitStack) -> None:
    """What a stop has left of deleted partitions stays for ever."""
    from isthmus.core_broker.storage.manager import LogManager

    real = LogManager._tidy

    def tidy(self: Any) -> list[str]:
        real(self)
        return []

    _replace(stack, LogManager, "_tidy", tidy)


PLANTS: dict[str, Plant] = {
    "clean-stop-not-synced": clean_stop_not_synced,
    "partitions-come-back": partitions_come_back,
    "rest-of-deletions-forgotten": rest_of_deletions_forgotten,
}
