"""Modules that are not needed to start, so that a start is quick; they are loaded once the broker serves.

If the package is replaced under a running broker, for example by an upgrade, first requests of a kind and the stop must
still work. The modules need 1.2 MB together. Each blocks the loop for some milliseconds, so they are loaded one by one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from importlib import import_module

FIRST_AFTER_S = 1.0  # clients that waited for the start come first
PAUSE_S = 0.05  # after each, for requests

logger = logging.getLogger(__name__)


class Loading:
    """See the module. names: absolute module names."""

    def __init__(self, names: Sequence[str]) -> None:
        self._left = list(reversed(names))
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin; ends by itself or by `stop`."""
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
        except Exception as error:  # e.g. half a file, or no descriptor; the other modules are still loaded
            logger.error("cannot load module %s; what needs it does not work until a restart: %s", name, error)
        self._timer = asyncio.get_running_loop().call_later(PAUSE_S, self._load_one)
