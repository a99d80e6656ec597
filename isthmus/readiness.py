"""How a process tells whoever started it that it is ready: through a file, never by what it prints.

The environment variable ISTHMUS_READY names the file. It is a FIFO where the other end waits, as the local supervisor
does, and a plain file where somebody looks for it, as a container's health check does. Without the variable nothing is
written. Its output belongs to the process, and to whatever it runs.
"""

from __future__ import annotations

import contextlib
import os
import stat

VARIABLE = "ISTHMUS_READY"
TEXT_MAX_BYTES = 1024  # of what it says, before a line feed; less than a FIFO takes in one piece


class Readiness:
    """`take` it once, before anything else runs; `tell` it when the process works."""

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
