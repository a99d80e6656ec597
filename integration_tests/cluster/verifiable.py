"""Kafka's VerifiableProducer and VerifiableConsumer, which print a JSON line for each record."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from integration_tests.peers.peers import java_command
from integration_tests.waiting import until

JVM = ("-XX:TieredStopAtLevel=1",)
END_S = 60


class Told:
    """What one of them has printed."""

    def __init__(self, process: subprocess.Popen[bytes], path: Path) -> None:
        self._process = process
        self._path = path
        self._read = 0  # bytes of what was printed
        self._events: dict[str, list[dict[str, Any]]] = {}

    def events(self, name: str) -> list[dict[str, Any]]:
        """All of that name until now, in order."""
        with open(self._path, "rb") as printed:
            printed.seek(self._read)
            whole = printed.read().rpartition(b"\n")[0]
        self._read += len(whole)
        for line in whole.splitlines():
            if line.startswith(b"{"):
                found = json.loads(line)
                self._events.setdefault(found.get("name", ""), []).append(found)
        return self._events.get(name, [])

    def goes_on(self, name: str, count: int = 200, within_s: float = 60.0) -> None:
        """Wait for so many more events of a name."""
        wanted = len(self.events(name)) + count
        until(lambda: len(self.events(name)) >= wanted, lambda: self._path.read_text()[-2000:], within_s)

    def end(self) -> None:
        """Have it end as by Ctrl-C: a producer waits for all that it has sent."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait(END_S)


@contextmanager
def verifiable(main: str, log: Path, *arguments: str) -> Iterator[Told]:
    """One of them, gone at the end."""
    with open(log, "wb") as out:
        process = subprocess.Popen(java_command(main, *arguments, heap="128m", jvm=JVM), stdout=out, stderr=out)
    try:
        yield Told(process, log)
    finally:
        process.kill()
        process.wait()


@contextmanager
def both(folder: Path, bootstrap: str, topic: str) -> Iterator[tuple[Told, Told]]:
    """A producer, idempotent, of 200 records a second with acks=all, and a consumer in a group; gone at the end."""
    to = ("--bootstrap-server", bootstrap, "--topic", topic)
    retries = folder / "retries.properties"  # else a VerifiableProducer has none
    retries.write_text("enable.idempotence=true\nretries=2147483647\n")
    sends = ("--throughput", "200", "--acks", "-1", "--command-config", str(retries))
    with (
        verifiable("VerifiableProducer", folder / "p.log", *to, *sends) as producer,
        verifiable("VerifiableConsumer", folder / "c.log", *to, "--group-id", "g", "--verbose") as consumer,
    ):
        yield producer, consumer
