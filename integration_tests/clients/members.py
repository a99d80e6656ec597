"""Group members of all client libraries as processes that write what happens to them into files."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from integration_tests.brokers import ROOT
from integration_tests.peers.peers import java_command

from . import java
from .member import HEARTBEAT_MS, SESSION_MS

PR_SET_PDEATHSIG = 1
PRCTL = ctypes.CDLL(None).prctl
JAVA_ASSIGNORS = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}


class Member:
    """A consumer process that writes what happens to it into a file."""

    def __init__(
        self, library: str, bootstrap: str, group: str, topic: str, folder: Path, name: str, **options: str
    ) -> None:
        """options: of `member.Options`; of franz-go, program: it, built, of the consumer protocol only."""
        self.path, self.errors = folder / f"{name}.jsonl", folder / f"{name}.log"
        self.killed_at_ms: int | None = None
        if library == "java":
            properties = folder / "consumer.properties"
            command = java_command(
                "VerifiableConsumer", "--bootstrap-server", bootstrap, "--group-id", group, "--topic", topic,
                "--verbose", "--command-config", str(properties), *_java_options(**options), jvm=java.JVM,
            )  # fmt: skip
            is_classic = options.get("protocol", "classic") == "classic"
            properties.write_text(f"heartbeat.interval.ms={HEARTBEAT_MS}\n" * is_classic)
        elif library == "franz-go":
            command = [options["program"], bootstrap, group, topic]
        else:
            command = [sys.executable, "-m", "integration_tests.clients.member", library, bootstrap, group, topic]
            command += [f"{name}={value}" for name, value in options.items()]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
        with open(self.path, "wb") as events, open(self.errors, "wb") as errors:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=events, stderr=errors, env=environment, cwd=folder,
                preexec_fn=lambda: PRCTL(PR_SET_PDEATHSIG, signal.SIGKILL),
            )  # fmt: skip

    def events(self) -> Iterator[dict]:
        for line in self.path.read_text().splitlines(keepends=True):
            if line.startswith("{") and line.endswith("\n"):
                yield json.loads(line)

    def owned(self) -> set[int]:
        """Partitions that it holds now."""
        held: set[int] = set()
        for event in self.events():
            named = {each["partition"] for each in event.get("partitions", ())}
            if event["name"] == "partitions_assigned":
                held |= named
            elif event["name"] == "partitions_revoked":
                held -= named
        return held

    def values(self) -> set[str]:
        return set(self.read())

    def read(self) -> list[str]:
        """Values of records, as often as it has read them."""
        return [event["value"] for event in self.events() if event["name"] == "record_data"]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.killed_at_ms = time.time_ns() // 1_000_000

    def stop(self, timeout_s: float = 30.0) -> None:
        """Have it leave its group and end."""
        self.process.terminate()
        self.process.wait(timeout_s)

    def state(self) -> str:
        end = self.errors.read_text(errors="replace")[-1500:]
        return f"{self.path.stem} owns {self.owned()}, has read {len(self.values())}; its log ends:\n{end}"


def wait_until(holds: Callable[[], bool], timeout_s: float, what: str, members: list[Member]) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "\n".join(
            [f"not within {timeout_s} s: {what}", *(m.state() for m in members)]
        )
        time.sleep(0.1)


def overlaps(members: Iterable[Member]) -> list[str]:
    """Partitions that were assigned to a member while another still had them, by what all have written."""
    moments = sorted(
        (event["timestamp"], event["name"] == "partitions_assigned", tp["topic"], tp["partition"], member.path.stem)
        for member in members
        for event in member.events()
        for tp in event.get("partitions", ())
    )
    killed = {each.path.stem: each.killed_at_ms for each in members if each.killed_at_ms is not None}
    owner: dict[tuple[str, int], str] = {}
    found = []
    for at, is_assigned, topic, partition, name in moments:
        holder = owner.get((topic, partition))
        if not is_assigned:
            if holder == name:
                del owner[topic, partition]
            continue
        if holder not in (None, name) and not killed.get(holder, at + 1) <= at:
            found.append(f"{topic}-{partition} was assigned to {name} while {holder} had it")
        owner[topic, partition] = name
    return found


def _java_options(protocol: str = "classic", assignor: str = "range", instance: str | None = None) -> list[str]:
    static = [] if instance is None else ["--group-instance-id", instance]
    if protocol == "consumer":
        return ["--group-protocol", "consumer", *static]
    return ["--session-timeout", str(SESSION_MS), "--assignment-strategy", JAVA_ASSIGNORS[assignor], *static]
