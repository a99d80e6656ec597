"""Log lines about connections that the broker itself closes: a few a second, then a count of the rest."""

from __future__ import annotations

import asyncio
import logging

log = logging.getLogger(__name__)

LINES_A_SECOND = 10
WINDOW_S = 1.0


class Closings:
    """A client that sends garbage at a high rate must not fill the log, nor cost the broker a line each time."""

    def __init__(self) -> None:
        self._until = 0.0  # loop time at which the next lines may be written
        self._lines = 0
        self._unsaid = 0

    def tell(self, client_host: str, reason: str, level: int = logging.INFO) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._until:
            self.summarise()
            self._until, self._lines = now + WINDOW_S, 0
        if self._lines < LINES_A_SECOND:
            self._lines += 1
            log.log(level, "closing the connection of %s: %s", client_host, reason)
        else:
            self._unsaid += 1

    def summarise(self) -> None:
        """Log how many there were since the last line. The idle timer calls this, too, so that no count waits long."""
        if self._unsaid:
            log.info("closed %d more connections for reasons like these", self._unsaid)
            self._unsaid = 0
