"""How a process tells that it works: to a FIFO, to a plain file, to nobody."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from isthmus.readiness import BEAT_S, TEXT_MAX_BYTES, VARIABLE, Readiness


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "ready"))
    return tmp_path / "ready"


def test_a_plain_file_is_there_once_it_is_told(path: Path) -> None:
    path.write_text("of an earlier process")
    readiness = Readiness.take()
    assert VARIABLE not in os.environ  # a child does not speak for it
    assert not path.exists()
    readiness.tell("127.0.0.1:9092")
    assert path.read_text() == "127.0.0.1:9092\n"


def test_who_waits_at_a_fifo_is_told(path: Path) -> None:
    os.mkfifo(path)
    end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    Readiness.take().tell("x" * 2 * TEXT_MAX_BYTES)
    assert os.read(end, 4 * TEXT_MAX_BYTES) == b"x" * TEXT_MAX_BYTES + b"\n"
    os.close(end)


def test_nobody_who_waits_is_no_trouble(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(path)
    Readiness.take().tell("it does not wait")
    monkeypatch.setenv(VARIABLE, str(path / "no" / "folder"))
    Readiness.take().tell("it does not raise")
    Readiness.take().tell("nobody asks")


class Loop:
    """Timers that a test fires."""

    def __init__(self) -> None:
        self.due: list[tuple[float, object]] = []

    def call_later(self, delay_s: float, call: object, *arguments: object) -> None:
        self.due.append((delay_s, (call, *arguments)))


def test_signs_of_life_are_empty_lines_and_go_on(path: Path) -> None:
    os.mkfifo(path)
    end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    readiness, loop = Readiness.take(), Loop()
    readiness.tell("here")
    for _ in range(2):
        readiness.beat(loop)  # type: ignore[arg-type]
    assert os.read(end, 100) == b"here\n\n\n"
    assert loop.due == [(BEAT_S, (readiness.beat, loop))] * 2
    os.close(end)
    readiness.beat(loop)  # type: ignore[arg-type]  # nobody looks any more, for now
    assert len(loop.due) == 3


def test_a_sign_of_life_is_a_new_time_of_a_plain_file(path: Path) -> None:
    readiness, loop = Readiness.take(), Loop()
    readiness.tell("here")
    os.utime(path, (0, 0))
    readiness.beat(loop)  # type: ignore[arg-type]
    assert path.stat().st_mtime > 0 and path.read_text() == "here\n"


def test_without_anybody_who_asks_there_are_no_timers() -> None:
    loop = Loop()
    Readiness("").beat(loop)  # type: ignore[arg-type]
    assert loop.due == []
