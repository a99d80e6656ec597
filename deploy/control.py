"""How a command reaches the supervisor of a folder: by a socket in it, one request a connection, JSON a line each way.

What comes back is any number of `{"said": text}`, each as it happens, and one `{"answer": …}` or `{"error": text}`.
Only the user who runs the supervisor may connect. Nothing is known here of what is asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from .errors import DeployError, SupervisorError

SOCKET = "control"
LINE_MAX_BYTES = 8 << 20  # a topology of the greatest size, as JSON
BACKLOG = 8
# How long a supervisor may say nothing in the middle of what it does: a broker stops, starts and gets in sync again.
QUIET_S = 300.0

Say = Callable[[str], None]
Handle = Callable[[Mapping[str, Any], Say], Awaitable[Mapping[str, Any]]]


class Control:
    """The supervisor's end. `handle` is called for each request, several at once; what it raises as DeployError is
    told. A request goes on when whoever asked is gone."""

    def __init__(self, folder: Path, handle: Handle) -> None:
        self.folder = folder
        self.handle = handle
        self._server: asyncio.Server | None = None
        self._asked: dict[asyncio.Task[None], None] = {}

    async def start(self) -> None:
        """Raises OSError: the folder takes no socket."""
        (self.folder / SOCKET).unlink(missing_ok=True)  # of one that was killed
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        os.fchmod(made.fileno(), 0o600)
        with reachable(self.folder) as path:
            made.bind(path)
        self._server = await asyncio.start_unix_server(self._serve, sock=made, limit=LINE_MAX_BYTES, backlog=BACKLOG)

    async def end_requests(self) -> None:
        """End what is under way; whoever asked is told that it did not come to its end."""
        asked = list(self._asked)
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)

    async def stop(self) -> None:
        """End what is under way, too."""
        if self._server:
            self._server.close()
        await self.end_requests()
        (self.folder / SOCKET).unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._asked[task] = None
        try:
            request = json.loads(await reader.readline())
            try:
                answer: Mapping[str, Any] = {
                    "answer": await self.handle(request, lambda text: _tell(writer, {"said": text}))
                }
            except DeployError as error:
                answer = {"error": str(error)}
            _tell(writer, answer)
            await writer.drain()
        except (ValueError, OSError):
            pass  # whoever it is does not speak so, or has gone
        finally:
            del self._asked[task]
            writer.close()


def ask(folder: Path, request: Mapping[str, Any], say: Say = lambda text: None, quiet_s: float = QUIET_S) -> Any:
    """What the supervisor of `folder` answers; `say` is told what happens meanwhile.

    quiet_s: how long it may say nothing. Raises DeployError with what it refused; SupervisorError: it cannot be asked.
    """
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.settimeout(quiet_s)
            with reachable(folder) as path:
                line.connect(path)
            line.sendall(json.dumps(request).encode() + b"\n")
            with line.makefile("rb") as answers:
                for each in answers:
                    said = json.loads(each)
                    if "said" in said:
                        say(said["said"])
                    elif "error" in said:
                        raise DeployError(said["error"])
                    else:
                        return said["answer"]
        raise SupervisorError(f"the supervisor of {folder} ended before it was done: see {folder / 'logs'}")
    except TimeoutError:
        raise SupervisorError(
            f"the supervisor of {folder} has said nothing for {quiet_s:.0f} s: it hangs, or is paused"
        ) from None
    except OSError as error:
        raise SupervisorError(
            f"the supervisor of {folder} takes no commands ({error.strerror}): was it started by another version? "
            "`isthmus down` and `isthmus up` help"
        ) from None


def _tell(writer: asyncio.StreamWriter, what: Mapping[str, Any]) -> None:
    if not writer.is_closing():
        writer.write(json.dumps(what).encode() + b"\n")


@contextlib.contextmanager
def reachable(folder: Path) -> Iterator[str]:
    """A path of the socket that is short enough for one, however long the folder's is."""
    held = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{held}/{SOCKET}"
    finally:
        os.close(held)
