"""The test's end of a keeper: starts it, asks it, ends it. Plain blocking calls, from any thread."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

from .errors import IsthmusTestingError

CALL_TIMEOUT_S = 180.0  # more than any call takes that waits for less by itself
STOP_TIMEOUT_S = 60.0
SAID_MAX_BYTES = 4096  # of its stderr that an error shows


class Keeper:
    """A started keeper. setup: what it keeps, as its first line says it."""

    def __init__(self, setup: dict[str, Any]) -> None:
        self._lock = threading.Lock()
        self._number = 0
        self._read = bytearray()
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            (sys.executable, "-m", "isthmus.testing.keeper", str(os.getpid())),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr, bufsize=0,
            start_new_session=True,  # what ends the test's process group must leave it time to clean up
        )  # fmt: skip
        self._write(setup)

    @property
    def pid(self) -> int:
        return self._process.pid

    def call(self, name: str, /, **arguments: Any) -> Any:
        """Ask for what a coroutine of what is kept gives. IsthmusTestingError is what it refused, or that it died."""
        with self._lock:
            self._number += 1
            self._write({"id": self._number, "call": name, "with": arguments})
            answer = self._answer(self._number, name)
        if "error" in answer:
            raise IsthmusTestingError(answer["error"])
        return answer["value"]

    def stop(self) -> None:
        """End and remove all that is kept, and the keeper."""
        if self._process.poll() is None:
            with contextlib.suppress(IsthmusTestingError):  # it ends at the end of stdin as well
                with self._lock:
                    self._number += 1
                    self._write({"id": self._number, "call": "stop", "with": {}})
                    self._answer(self._number, "stop", STOP_TIMEOUT_S)
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # the processes that it started die with it
            self._process.wait()
        self._process.stdout.close()
        self._stderr.close()

    def _write(self, message: dict[str, Any]) -> None:
        assert self._process.stdin
        data = memoryview(json.dumps(message).encode() + b"\n")
        try:
            while data:
                data = data[self._process.stdin.write(data) or 0 :]
        except (BrokenPipeError, ValueError):
            raise self._died(str(message.get("call", "start"))) from None

    def _answer(self, number: int, name: str, timeout_s: float = CALL_TIMEOUT_S) -> dict[str, Any]:
        """Answers to calls that an exception, such as Ctrl-C, took their waiter from are passed over."""
        assert self._process.stdout
        deadline = time.monotonic() + timeout_s
        while True:
            while b"\n" in self._read:
                line, _, rest = self._read.partition(b"\n")
                self._read = bytearray(rest)
                answer: dict[str, Any] = json.loads(line)
                if answer["id"] == number:
                    return answer
            if not select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise IsthmusTestingError(f"{name}: the keeper (process {self.pid}) said nothing for {timeout_s:g} s")
            data = os.read(self._process.stdout.fileno(), 1 << 16)
            if not data:
                raise self._died(name)
            self._read += data

    def _died(self, name: str) -> IsthmusTestingError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        said = ""
        with contextlib.suppress(OSError, ValueError):
            self._stderr.seek(max(0, self._stderr.seek(0, os.SEEK_END) - SAID_MAX_BYTES))
            said = self._stderr.read().decode(errors="replace").strip()
        code = self._process.returncode
        return IsthmusTestingError(
            f"{name}: the keeper (process {self.pid}) is gone, exit code {code}, and all that it kept: "
            f"{said or 'it said nothing'}"
        )
