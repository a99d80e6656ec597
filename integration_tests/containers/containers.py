"""A broker of the image, started by plain `docker run` as docs/how-to/containers.md does, and gone with its volume."""

from __future__ import annotations

import json
import os
import subprocess
import time
import uuid
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from integration_tests.peers.peers import free_ports
from isthmus.deploy.engine import EngineError, docker

LABEL = "isthmus.tests"
INSIDE = "127.0.0.1:9093"  # a listener for those in the container's own network
READY_TIMEOUT_S = 60.0
EVENTS_TIMEOUT_S = 60.0


class BrokerContainer:
    """`arguments` are the broker's, after those that give it its data and addresses. `options` are docker run's."""

    def __init__(self, image: str, arguments: Sequence[str] = (), port: int = 0, options: Sequence[str] = ()) -> None:
        self.name = f"isthmus-test-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self.image = image
        self.port = port or free_ports(1)[0]
        self.options = options
        self.changed_s = 0.0  # when its state was last changed from here: older events do not count
        advertised = f"OUTSIDE://127.0.0.1:{self.port},INSIDE://{INSIDE}"
        self.arguments = (
            "broker", "--data=/data", "--listen=OUTSIDE://0.0.0.0:9092", f"--listen=INSIDE://{INSIDE}",
            "--set=listener.security.protocol.map=INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
            f"--set=advertised.listeners={advertised}", *arguments,
        )  # fmt: skip

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> BrokerContainer:
        docker("volume", "create", "--label", LABEL, self.name)
        try:
            self.run()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            print(f"log of {self.name}:\n{self.log()[-3000:]}")
        self.remove()

    def run(self) -> None:
        self.changed_s = time.time()
        docker(
            *("run", "--detach", "--name", self.name, "--label", LABEL, "--init", "--read-only", "--tmpfs", "/tmp"),
            *("--volume", f"{self.name}:/data", "--publish", f"127.0.0.1:{self.port}:9092", *self.options),
            *(self.image, *self.arguments),
        )

    def remove(self) -> None:
        for command in (("rm", "--force", self.name), ("volume", "rm", "--force", self.name)):
            try:
                docker(*command)
            except EngineError as error:  # a container that was never made
                if "o such container" not in str(error):
                    raise

    def until_ready(self) -> float:
        """Wait for the line `ready HOST:PORT`; gives the seconds since the container was started by the engine."""
        line = follow(("docker", "logs", "--follow", "--timestamps", self.name), " ready ", READY_TIMEOUT_S)
        return stamp_s(line.split()[0]) - stamp_s(self.inspect()["State"]["StartedAt"])

    def until_health(self, wanted: str) -> None:
        """Wait until the engine's health check says so, since the last `run` or `signal`."""
        command = ("docker", "events", "--since", f"{self.changed_s:.3f}", "--filter", f"container={self.name}")
        follow((*command, "--filter", f"event=health_status: {wanted}"), f"health_status: {wanted}", EVENTS_TIMEOUT_S)

    def execute(self, *command: str) -> str:
        """Run a command in the container; EngineError when it fails."""
        return docker("exec", self.name, *command)

    def signal(self, name: str) -> None:
        """To the broker itself: the init above it passes on most signals, but not STOP and KILL."""
        self.changed_s = time.time()
        self.execute("sh", "-c", f"kill -{name} $(cat /proc/1/task/1/children)")

    def cpu_s(self) -> float:
        """Processor time that the broker has used: unlike the time that passes, it is the same on a busy machine."""
        stat = self.execute("sh", "-c", "read pid </proc/1/task/1/children; cat /proc/$pid/stat; getconf CLK_TCK")
        *_, line, ticks = stat.splitlines()
        user, system = line.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / int(ticks)

    def log(self) -> str:
        done = subprocess.run(
            ("docker", "logs", self.name), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
        return done.stdout

    def inspect(self) -> Any:
        return json.loads(docker("inspect", "--type", "container", self.name))[0]


def follow(command: Sequence[str], wanted: str, timeout_s: float) -> str:
    """The first line of a command's output that holds `wanted`; AssertionError when it does not come in time."""
    said = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout
        # `timeout` ends what waits for ever, and so the loop below.
        watch = subprocess.Popen(("sh", "-c", f"sleep {timeout_s}; kill {process.pid}"), start_new_session=True)
        try:
            for line in process.stdout:
                said.append(line)
                if wanted in line:
                    return line
        finally:
            os.killpg(watch.pid, 9)
            watch.wait()
            process.kill()
    raise AssertionError(f"{' '.join(command)} did not say {wanted!r} within {timeout_s:.0f} s but {''.join(said)!r}")


def stamp_s(text: str) -> float:
    """Seconds since the epoch of a time as Docker writes it, 2026-11-21T10:30:00.123456789Z."""
    whole, _, fraction = text.rstrip("Z").partition(".")
    return time.mktime(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")) + float(f"0.{fraction or 0}")
