"""How a process tells whoever started it that it is ready, and then that it lives: through a file, never by what it
prints.

The environment variable ISTHMUS_READY names the file. It is a FIFO where the other end waits, as the local supervisor
does, and a plain file where somebody looks for it, as a container's health check does. Without the variable nothing is
written. Its output belongs to the process, and to whatever it runs.

A process that is ready gives a sign of life every BEAT_S from its event loop: an empty line in a FIFO, a new time of a
plain file. One whose loop is blocked, or that is paused, gives none. The signal WHERE asks it where it is: it prints
that to stderr, whatever its loop does.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal  # allowed: of a process as a whole, by its __main__ alone
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

VARIABLE = "ISTHMUS_READY"
TEXT_MAX_BYTES = 1024  # of what it says, before a line feed; less than a FIFO takes in one piece
BEAT_S = 1.0
BEAT = b"\n"
# No other use of it is known; a process that does not know it ends.
WHERE = signal.SIGRTMIN + 5  # allowed: only a number


class Readiness:
    """`take` it once, before anything else runs; `tell` it when the process works, and let it `beat` from then on."""

    def __init__(self, path: str) -> None:
        self.path = path  # empty: nobody wants to know

    @classmethod
    def take(cls) -> Readiness:
        """Take the variable out of the environment, so that no process that is started from here speaks for this one,
        and remove a plain file that an earlier process left."""
        path = os.environ.pop(VARIABLE, "")
        with contextlib.suppress(OSError):
            if path and stat.S_ISREG(os.stat(path).st_mode):
                os.unlink(path)
        return cls(path)

    def tell(self, text: str) -> None:
        """Say that the process works, with what else is to be known, such as its address. Never raises, never waits."""
        if not self.path:
            return
        with contextlib.suppress(OSError):  # nobody waits any more
            file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK, 0o644)
            try:
                os.write(file, text.encode()[:TEXT_MAX_BYTES] + b"\n")
            finally:
                os.close(file)

    def tell_where_asked(self) -> None:
        """From now on print the stack of the main thread, most recent call first, when WHERE comes. Never raises."""
        if self.path:
            signal.signal(WHERE, signal.SIG_IGN)  # allowed: for want of a stderr; else it would end the process
            with contextlib.suppress(OSError, ValueError, AttributeError, RuntimeError):
                faulthandler.register(WHERE, all_threads=False)

    def beat(self, loop: asyncio.AbstractEventLoop) -> None:
        """Give a sign of life now, and every BEAT_S while `loop` runs. Never raises, never waits."""
        if not self.path:
            return
        with contextlib.suppress(OSError):  # nobody looks any more, or has not read what was said
            if stat.S_ISREG(os.stat(self.path).st_mode):
                os.utime(self.path)
            else:
                file = os.open(self.path, os.O_WRONLY | os.O_NONBLOCK)
                try:
                    os.write(file, BEAT)
                finally:
                    os.close(file)
        loop.call_later(BEAT_S, self.beat, loop)
