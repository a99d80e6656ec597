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
        self._changed = threading.Condition()
        self._number = 0
        self._answers: dict[int, dict[str, Any] | None] = {}  # to the calls that wait, by number
        self._reading = False  # whether a thread reads for all that wait
        self._read = b""  # of an answer that has not come whole
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

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def call(self, name: str, /, **arguments: Any) -> Any:
        """Ask for what a coroutine of what is kept gives. IsthmusTestingError is what it refused, or that it died."""
        return self._ask(name, arguments, CALL_TIMEOUT_S)

    def _ask(self, name: str, arguments: dict[str, Any], timeout_s: float) -> Any:
        with self._changed:
            self._number += 1
            number = self._number
            self._answers[number] = None
            self._write({"id": number, "call": name, "with": arguments})
            try:
                answer = self._await(number, name, time.monotonic() + timeout_s)
            finally:
                del self._answers[number]  # what comes after Ctrl-C is for nobody
        if "error" in answer:
            raise IsthmusTestingError(answer["error"])
        return answer["value"]

    def stop(self) -> None:
        """End and remove all that is kept, and the keeper."""
        if self._process.poll() is None:
            with contextlib.suppress(IsthmusTestingError):  # it ends at the end of stdin as well
                self._ask("stop", {}, STOP_TIMEOUT_S)
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

    def _await(self, number: int, name: str, deadline: float) -> dict[str, Any]:
        """Of the threads that wait, one reads for all. `_changed` is held, but while this one waits or reads."""
        while (answer := self._answers[number]) is None:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise IsthmusTestingError(f"{name}: the keeper (process {self.pid}) did not answer in time")
            if self._reading:
                self._changed.wait(left_s)
                continue
            self._reading = True
            self._changed.release()
            try:
                data = self._receive(left_s)
            finally:
                self._changed.acquire()
                self._reading = False
                self._changed.notify_all()
            if data == b"":
                raise self._died(name)
            self._take(data or b"")
        return answer

    def _receive(self, timeout_s: float) -> bytes | None:
        """None: nothing came. Empty: nothing will come any more."""
        assert self._process.stdout
        if not select.select([self._process.stdout], [], [], timeout_s)[0]:
            return None
        return os.read(self._process.stdout.fileno(), 1 << 16)

    def _take(self, data: bytes) -> None:
        *lines, rest = (self._read + data).split(b"\n")
        self._read = rest
        for line in lines:
            answer: dict[str, Any] = json.loads(line)
            if answer["id"] in self._answers:
                self._answers[answer["id"]] = answer

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
