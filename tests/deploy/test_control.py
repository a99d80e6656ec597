"""How a command reaches a supervisor: asked and answered, refused, gone, silent, somebody else's words."""

from __future__ import annotations

import asyncio
import socket
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from isthmus.deploy.control import SOCKET, Control, Say, ask, reachable
from isthmus.deploy.errors import DeployError, SupervisorError


def served(folder: Path, handle: Any, work: Callable[[], Any]) -> Any:
    """What `work` gives, in a thread, while a supervisor serves."""

    async def main() -> Any:
        control = Control(folder, handle)
        await control.start()
        try:
            return await asyncio.to_thread(work)
        finally:
            await control.stop()

    return asyncio.run(main())


async def echo(request: Mapping[str, Any], say: Say) -> Mapping[str, Any]:
    for each in request["tell"]:
        say(each)
    if "refuse" in request:
        raise DeployError(request["refuse"])
    return {"told": len(request["tell"])}


def test_what_happens_meanwhile_is_told_and_then_the_answer(tmp_path: Path):
    said: list[str] = []
    answer = served(tmp_path, echo, lambda: ask(tmp_path, {"tell": ["a", "ü\nb"]}, said.append))
    assert (said, answer) == (["a", "ü\nb"], {"told": 2})


def test_what_is_refused_is_raised_where_it_was_asked(tmp_path: Path):
    with pytest.raises(DeployError, match="no such process"):
        served(tmp_path, echo, lambda: ask(tmp_path, {"tell": ["a"], "refuse": "no such process"}))


def test_a_folder_may_have_a_path_that_is_too_long_for_a_socket(tmp_path: Path):
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    assert served(folder, echo, lambda: ask(folder, {"tell": []})) == {"told": 0}


def test_only_its_user_may_ask_and_nothing_is_left_of_it(tmp_path: Path):
    (tmp_path / SOCKET).touch()  # of one that was killed
    mode = served(tmp_path, echo, lambda: (tmp_path / SOCKET).stat().st_mode)
    assert (stat.S_ISSOCK(mode), stat.S_IMODE(mode)) == (True, 0o600)
    assert not (tmp_path / SOCKET).exists()
    with pytest.raises(SupervisorError, match="takes no commands"):
        ask(tmp_path, {})


def test_one_that_says_nothing_is_said_to_hang(tmp_path: Path):
    with socket.socket(socket.AF_UNIX) as deaf:
        with reachable(tmp_path) as path:
            deaf.bind(path)
        deaf.listen()
        with pytest.raises(SupervisorError, match="has said nothing for 0 s: it hangs"):
            ask(tmp_path, {}, quiet_s=0.05)


def test_one_that_ends_meanwhile_is_said_to(tmp_path: Path):
    async def never(request: Mapping[str, Any], say: Say) -> Mapping[str, Any]:
        say("begun")
        return await asyncio.Event().wait() or {}

    async def main() -> None:
        control = Control(tmp_path, never)
        await control.start()
        loop, begun = asyncio.get_running_loop(), asyncio.Event()
        asked = loop.run_in_executor(None, ask, tmp_path, {}, lambda text: loop.call_soon_threadsafe(begun.set))
        await begun.wait()
        await control.stop()
        with pytest.raises(SupervisorError, match="ended before it was done"):
            await asked

    asyncio.run(main())


def test_other_words_harm_nobody(tmp_path: Path):
    def work() -> Any:
        with socket.socket(socket.AF_UNIX) as line, reachable(tmp_path) as path:
            line.connect(path)
            line.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert line.recv(100) == b""
        return ask(tmp_path, {"tell": []})

    assert served(tmp_path, echo, work) == {"told": 0}
