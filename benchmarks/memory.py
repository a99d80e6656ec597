"""Memory that the machine has promised and not given yet."""

from __future__ import annotations

import os
import tempfile

A_SECOND_BYTES = 1 << 29  # about what a sample writes in a second
WRITE_BYTES = 1 << 20


def touch_memory(seconds: float) -> None:
    """Fill the page cache and free it, so that a sample of so many seconds finds pages which the machine really has.

    A virtual machine's host gives memory page by page when it is first written, and takes free pages back within
    seconds: a gigabyte written to the page cache cost 0.2 s of CPU where the pages were there and 2.4 s where they
    were not. What a file just removed had is what the next one is given.
    """
    block = bytes(WRITE_BYTES)
    with tempfile.TemporaryFile(prefix="isthmus-bench-") as file:
        for _ in range(0, int(A_SECOND_BYTES * seconds), WRITE_BYTES):
            os.write(file.fileno(), block)
