"""What holds descriptors and refers to itself (logs, loops) lets go of them when it is collected, at any later time."""

from __future__ import annotations

import gc
import os
import socket
import threading
from collections.abc import Iterator

import pytest

COUNTING = ("test_sending", "test_cold_sends")  # modules whose tests count descriptors


@pytest.fixture(autouse=True)
def nothing_open_of_other_tests(request: pytest.FixtureRequest) -> None:
    if request.module.__name__.rpartition(".")[2] in COUNTING:
        gc.collect()


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Ours and the client's."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        yield ours, theirs


@pytest.fixture
def senders(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The threads that called sendfile."""
    seen: list[int] = []
    sendfile = os.sendfile

    def told(*args: int) -> int:
        seen.append(threading.get_ident())
        return sendfile(*args)

    monkeypatch.setattr(os, "sendfile", told)
    return seen
