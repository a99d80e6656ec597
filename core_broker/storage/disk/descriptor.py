"""A file descriptor of the operating system that closes itself."""

from __future__ import annotations

import os
from collections.abc import Callable


class Descriptor:
    """An open file of the operating system, closed with the last reference to it."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self.fd)
