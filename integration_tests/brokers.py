"""Isthmus brokers as real processes for tests: started on a free loopback port, killed and started again at will."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from integration_tests.peers.peers import free_ports, quorum_leader

ROOT = Path(__file__).resolve().parents[1]
START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 20.0
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"
_PR_SET_PDEATHSIG = 1


class BrokerFailed(AssertionError):
    """A broker ended or hung instead of getting ready; holds the end of its log."""


class BrokerProcess:
    """One `python -m isthmus.core_broker` on a folder: `data/` and `broker.log`. The port stays over restarts.

    root: the checkout whose code it runs. listen: other listeners, as NAME://HOST:PORT. inside: what its command begins
    with, to run in namespaces of its own.
    """

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, object] | None = None,
        root: Path = ROOT,
        listen: Sequence[str] = (),
        inside: Sequence[str] = (),
    ):
        self.folder = folder
        self.root = root
        self.inside = inside
        self.settings = dict(settings or {})
        self.listen = listen
        self.address = "127.0.0.1:0"
        self.process: subprocess.Popen[str] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def bootstrap(self) -> str:
        return self.address

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    @property
    def pid(self) -> int:
        assert self.process, "not started"
        return self.process.pid

    @property
    def log(self) -> str:
        path = self.folder / "broker.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def command(self) -> list[str]:
        options = [each for name, value in self.settings.items() for each in ("--set", f"{name}={value}")]
        module = [sys.executable, "-m", "isthmus.core_broker"]
        others = [part for each in self.listen for part in ("--listen", each)]
        return [*self.inside, *module, "--data", str(self.folder / "data"), "--listen", self.address, *others, *options]

    def start(self, timeout_s: float = START_TIMEOUT_S) -> BrokerProcess:
        """Start it and wait for its line `ready HOST:PORT`."""
        self.begin()
        return self.wait(timeout_s)

    def begin(self) -> None:
        """Start it."""
        if not self.port:  # one that nobody's connection is given while the broker is down
            self.address = f"127.0.0.1:{free_ports(1)[0]}"
        environment = {**os.environ, "PYTHONPATH": str(self.root / "src"), "PYTHONUNBUFFERED": "1"}
        with open(self.folder / "broker.log", "ab") as log:
            self.process = subprocess.Popen(
                self.command(), stdout=subprocess.PIPE, stderr=log, text=True, env=environment,
                cwd=self.folder, start_new_session=True, preexec_fn=die_with_parent,
            )  # fmt: skip

    def wait(self, timeout_s: float = START_TIMEOUT_S) -> BrokerProcess:
        """Wait for its line `ready HOST:PORT`."""
        said = self._first_line(timeout_s)
        if not said.startswith("ready "):
            self.kill()
            raise BrokerFailed(
                f"{' '.join(self.command())}\nsaid {said!r}, not ready; its log ends:\n{self.log[-3000:]}"
            )
        self.address = said.split()[1]
        return self

    def _first_line(self, timeout_s: float) -> str:
        assert self.process and self.process.stdout
        deadline = time.monotonic() + timeout_s
        while (left := deadline - time.monotonic()) > 0:
            if select.select([self.process.stdout], [], [], left)[0]:
                return self.process.stdout.readline().strip()
        return f"nothing for {timeout_s} s"

    def refusal(self, within_s: float) -> str:
        """Start one that must end of itself with exit code 1: the last line of its log."""
        self.begin()
        assert self.process
        try:
            assert self.process.wait(within_s) == 1, self.log
        finally:
            self.kill()
        return self.log.splitlines()[-1]

    def stop(self) -> int:
        """SIGTERM, and its exit code; kill -9 when it does not end."""
        assert self.process
        self.signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerFailed(
                f"pid {self.pid} did not end {STOP_TIMEOUT_S} s after SIGTERM:\n{self.log[-3000:]}"
            ) from None
        finally:
            self._close()

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        assert self.process
        self.signal(signal.SIGKILL)
        self.process.wait()
        self._close()

    def signal(self, number: int) -> None:
        """SIGSTOP and SIGCONT make it hang and go on; nothing happens when it does not run."""
        if self.alive():
            os.kill(self.pid, number)

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def _close(self) -> None:
        if self.process and self.process.stdout:
            self.process.stdout.close()


@contextlib.contextmanager
def running_broker(folder: Path, settings: Mapping[str, object] | None = None) -> Iterator[BrokerProcess]:
    """A broker that is gone at the end, and also when this process is killed."""
    broker = BrokerProcess(folder, settings).start()
    try:
        yield broker
    finally:
        if broker.alive():
            broker.kill()


class BrokerCluster:
    """Brokers 1 to `size`, each a voter of the metadata quorum, on free loopback ports. inside: of each broker."""

    def __init__(
        self,
        folder: Path,
        size: int = 3,
        settings: Mapping[str, object] | None = None,
        root: Path = ROOT,
        inside: Sequence[str] = (),
    ) -> None:
        ports = free_ports(2 * size)
        voters = ",".join(f"{number}@127.0.0.1:{ports[2 * number - 1]}" for number in range(1, size + 1))
        self.brokers: dict[int, BrokerProcess] = {}
        for number in range(1, size + 1):
            own = {
                "node.id": number,
                "cluster.id": CLUSTER_ID,
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": voters,
                "default.replication.factor": min(size, 3),
                "offsets.topic.replication.factor": min(size, 3),
                **(settings or {}),
            }
            listen = [f"CONTROLLER://127.0.0.1:{ports[2 * number - 1]}"]
            self.brokers[number] = BrokerProcess(folder / f"b{number}", own, root, listen, inside)
            self.brokers[number].address = f"127.0.0.1:{ports[2 * number - 2]}"

    @property
    def bootstrap(self) -> str:
        return ",".join(each.address for each in self.brokers.values())

    def start(self) -> BrokerCluster:
        """Start all that do not run: each needs a majority of the others."""
        begun = [each for each in self.brokers.values() if not each.alive()]
        for each in begun:
            each.begin()
        for each in begun:
            each.wait()
        return self

    def controller(self) -> int:
        """Node id of the active controller, as the first broker that answers tells; -1 while there is none."""
        for each in self.brokers.values():
            with contextlib.suppress(OSError):
                if each.alive():
                    return quorum_leader(each.port)
        return -1

    def kill(self) -> None:
        for each in self.brokers.values():
            if each.alive():
                each.signal(signal.SIGCONT)
                each.kill()


@contextlib.contextmanager
def running_cluster(
    folder: Path,
    size: int = 3,
    settings: Mapping[str, object] | None = None,
    root: Path = ROOT,
    inside: Sequence[str] = (),
) -> Iterator[BrokerCluster]:
    """A cluster whose brokers are gone at the end, and also when this process is killed."""
    cluster = BrokerCluster(folder, size, settings, root, inside)
    try:
        yield cluster.start()
    finally:
        cluster.kill()


def die_with_parent() -> None:
    """For a child between fork and exec: it is killed when the thread that starts it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
