"""`python -m isthmus.testing.keeper PID`: started by a test's process, which has that PID (see `..process`).

A line of JSON each way. The first one in says what to keep; each further one is a call, {"id", "call", "with"}, and is
answered by {"id", "value"} or {"id", "error"}. At `stop`, at the end of stdin, at SIGTERM, and when the process PID is
gone, all that was started is ended and removed, and so is this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, Protocol

from ...client.errors import ClientError
from ...deploy.errors import DeployError
from ...protocol.errors import KafkaError
from ..errors import IsthmusTestingError

LINE_MAX_BYTES = 16 << 20
STDIN, STDOUT, STDERR = 0, 1, 2


class Kept(Protocol):
    async def stop(self) -> None: ...


def make(setup: dict[str, Any]) -> Kept:
    """What a first line asks for."""
    match setup["keep"]:
        case "containers":
            from .reaper import Reaper

            return Reaper(setup["owner"])
        case "topology":
            from ...deploy.topology import parse, with_brokers
            from .testbed import Testbed

            topology, file = parse(setup["text"], setup["file"]), Path(setup["file"])
            if setup["brokers"] is not None:
                topology = with_brokers(topology, setup["brokers"])
            if setup["backend"] == "docker":
                from .containers import DockerTopology

                return Testbed(topology, DockerTopology(topology, file, setup["fixed_ports"]))
            from .local import LocalTopology

            return Testbed(topology, LocalTopology(topology, file, setup["fixed_ports"]))
    raise IsthmusTestingError(f"nothing to keep is called {setup['keep']}")


class Keeper:
    """Reads calls, runs each as a task of its own, answers."""

    def __init__(self, answers: int) -> None:
        self.answers = answers  # a file descriptor
        self.calls: dict[asyncio.Task[None], None] = {}

    async def run(self, reader: asyncio.StreamReader) -> None:
        kept: Kept | None = None
        stopping = None
        try:
            while line := await reader.readline():
                asked = json.loads(line)
                if kept is None:
                    kept = make(asked)
                elif asked["call"] == "stop":
                    stopping = asked["id"]
                    break
                else:
                    task = asyncio.get_running_loop().create_task(self._call(kept, asked))
                    self.calls[task] = None
                    task.add_done_callback(self.calls.pop)
        finally:
            for task in list(self.calls):
                task.cancel()
            await asyncio.gather(*self.calls, return_exceptions=True)
            if kept is not None:
                await kept.stop()
        if stopping is not None:
            self._answer({"id": stopping, "value": None})

    async def _call(self, kept: Kept, asked: dict[str, Any]) -> None:
        try:
            value = await getattr(kept, asked["call"])(**asked["with"])
            self._answer({"id": asked["id"], "value": value})
        except (DeployError, ClientError, KafkaError, OSError) as error:
            self._answer({"id": asked["id"], "error": str(error)})
        except Exception as error:
            self._answer({"id": asked["id"], "error": f"{type(error).__name__}: {error} (not foreseen)"})
            raise

    def _answer(self, answer: dict[str, Any]) -> None:
        data = memoryview(json.dumps(answer).encode() + b"\n")
        with contextlib.suppress(BrokenPipeError):  # who asked is gone
            while data:
                data = data[os.write(self.answers, data) :]


async def main(parent: int) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(LINE_MAX_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(os.dup(STDIN), "rb"))
    loop.add_signal_handler(signal.SIGTERM, reader.feed_eof)
    # The end of stdin alone does not tell: a child that the test forked may hold the other end, too.
    with contextlib.suppress(OSError):  # gone already; the next line sees it
        loop.add_reader(os.pidfd_open(parent), reader.feed_eof)
    if os.getppid() != parent:
        return
    answers = os.dup(STDOUT)
    os.dup2(STDERR, STDOUT)  # what anything prints is no answer
    await Keeper(answers).run(reader)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the test, which then ends this one
    asyncio.run(main(int(sys.argv[1])))
