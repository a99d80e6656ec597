"""What a process leaves behind when it dies: its children, whatever they have made of their groups and sessions.

Each supervised process carries a mark in its environment, which its children inherit. A child that has put away its
environment is still known by its session.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path

VARIABLE = "ISTHMUS_SUPERVISED"
SWEEP_PAUSE_S = 0.01
SWEEPS = 500  # what is in a system call that cannot be interrupted may take a while; then it is let be


def mark(folder: Path, name: str) -> str:
    """The value of VARIABLE for the process `name` of the supervisor of `folder`."""
    return f"{folder.resolve()}:{name}"


def of_process(pid: int, its_mark: str) -> list[int]:
    """Processes that a child of the supervisor has left: of the session that it led, or with its mark."""
    wanted = f"\0{VARIABLE}={its_mark}\0".encode()
    return _found(lambda session, environment: session == pid or wanted in environment)


def of_folder(folder: Path) -> list[int]:
    """Processes that any child of any supervisor of `folder` has left."""
    wanted = f"\0{VARIABLE}={mark(folder, '')}".encode()
    return _found(lambda session, environment: wanted in environment)


async def end(find: Callable[[], list[int]]) -> None:
    """SIGKILL what `find` finds until it finds nothing more."""
    for _ in range(SWEEPS):
        pids = find()
        if not pids:
            return
        kill(pids)
        await asyncio.sleep(SWEEP_PAUSE_S)


def kill(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _found(is_meant: Callable[[int, bytes], bool]) -> list[int]:
    """Living processes, but this one, by their session and their environment, each entry between two zero bytes."""
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdigit() and int(each.name) != os.getpid():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                state, _, _, session = (each / "stat").read_text().rpartition(")")[2].split()[:4]
                if state != "Z" and is_meant(int(session), _environment(each)):
                    found.append(int(each.name))
    return found


def _environment(process: Path) -> bytes:
    with contextlib.suppress(OSError):  # of another user
        return b"\0" + (process / "environ").read_bytes()
    return b""
