"""Modules that a start leaves for their first use, so that it is quick, loaded once the broker serves.

A package that is replaced under a running broker, by an upgrade say, must not break requests that nobody has made yet,
nor the stop. They cost 1.2 MB together; each takes some milliseconds of the loop, so they come one at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from importlib import import_module

FIRST_AFTER_S = 1.0  # those who waited for the start come first
PAUSE_S = 0.05  # after each, for requests

logger = logging.getLogger(__name__)


class Loading:
    """See the module. names: of the modules, absolute."""

    def __init__(self, names: Sequence[str]) -> None:
        self._left = list(reversed(names))
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin; ends by itself, or with `stop`."""
        self._timer = asyncio.get_running_loop().call_later(FIRST_AFTER_S, self._load_one)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _load_one(self) -> None:
        self._timer = None
        if not self._left:
            return
        name = self._left.pop()
        try:
            import_module(name)
        except Exception as error:  # half a file, no descriptor for it, …: the other modules are loaded all the same
            logger.error("%s cannot be loaded, and what needs it will not work until a restart: %s", name, error)
        self._timer = asyncio.get_running_loop().call_later(PAUSE_S, self._load_one)
