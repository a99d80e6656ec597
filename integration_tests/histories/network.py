"""A network and disks of a history's own, in namespaces that nobody else sees and that end with its process.

`enter` runs a module again where it may do so, without any rights outside. There, each node has an address of its own
and a file system of its own; the packets from one node to another can be dropped, one way or both. Node 0 is where the
clients are.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

INSIDE = "ISTHMUS_HISTORIES_INSIDE"
NAMESPACES = ("--user", "--map-root-user", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
CLIENTS = 0


def why_not() -> str:
    """Why there can be no such namespaces on this machine, or ""."""
    try:
        done = subprocess.run(["unshare", *NAMESPACES, "ip", "rule"], capture_output=True, text=True, timeout=60)
    except FileNotFoundError as error:
        return f"{error.filename} is not installed (util-linux)"
    return "" if done.returncode == 0 else f"namespaces are not allowed here: {done.stderr.strip()[:200]}"


def enter(module: str, arguments: Sequence[str]) -> None:
    """Replace this process by one that runs the module inside; returns when it is inside."""
    if os.environ.get(INSIDE):
        return
    os.environ[INSIDE] = "1"
    os.execvp("unshare", ["unshare", *NAMESPACES, sys.executable, "-m", module, *arguments])


class Network:
    """A star: each node in a network namespace, and a hub, where packets are dropped, that forwards between them."""

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self._holders: list[subprocess.Popen[str]] = []
        _run("ip", "link", "set", "lo", "up")
        self._hub = self._namespace()
        self._at_hub("ip", "link", "set", "lo", "up")
        # Else the hub would look up the way back, and so drop what goes the other way, too.
        for name in ("all", "default"):
            self._at_hub("sh", "-c", f"echo 0 > /proc/sys/net/ipv4/conf/{name}/rp_filter")
        self._at_hub("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        self._pids = [os.getpid(), *(self._namespace() for _ in range(nodes))]
        for node in range(nodes + 1):
            self._join(node)
        self._cuts: list[tuple[int, int]] = []

    def _namespace(self) -> int:
        """Pid of a process that holds a new network namespace; it ends with ours, the first of its pid namespace."""
        command = ["unshare", "--net", "sh", "-c", "echo made && exec sleep infinity"]
        holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._holders.append(holder)
        assert holder.stdout and holder.stdout.readline() == "made\n"
        return holder.pid

    def _join(self, node: int) -> None:
        gateway = f"10.0.{node}.1"
        pid = str(self._pids[node])
        self._at_hub("ip", "link", "add", f"v{node}", "type", "veth", "peer", "name", "eth0", "netns", pid)
        self._at_hub("ip", "addr", "add", f"{gateway}/24", "dev", f"v{node}")
        self._at_hub("ip", "link", "set", f"v{node}", "up")
        for command in (
            ["link", "set", "lo", "up"],
            ["addr", "add", f"{self.address(node)}/24", "dev", "eth0"],
            ["link", "set", "eth0", "up"],
            ["route", "add", "default", "via", gateway],
        ):
            _run(*self.inside(node), "ip", *command)

    def _at_hub(self, *command: str) -> None:
        _run("nsenter", f"--net=/proc/{self._hub}/ns/net", *command)

    def address(self, node: int) -> str:
        return f"10.0.{node}.2"

    def inside(self, node: int) -> list[str]:
        """What a command begins with to run at a node."""
        return ["nsenter", f"--net=/proc/{self._pids[node]}/ns/net"]

    def cut(self, source: int, target: int) -> None:
        """Drop all packets from one node to another, also those of connections that are open."""
        if (source, target) not in self._cuts:
            self._cuts.append((source, target))
            self._at_hub("ip", "rule", "add", *self._rule(source, target))

    def mend(self, source: int, target: int) -> None:
        if (source, target) in self._cuts:
            self._cuts.remove((source, target))
            self._at_hub("ip", "rule", "del", *self._rule(source, target))

    def _rule(self, source: int, target: int) -> list[str]:
        return ["from", self.address(source), "to", self.address(target), "blackhole"]

    def close(self) -> None:
        for each in self._holders:
            each.send_signal(signal.SIGKILL)
            each.wait()
            assert each.stdout
            each.stdout.close()


class Disk:
    """A file system in memory at `path`, which can be filled up."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.path = path
        _run("mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "none", str(path))

    @property
    def _filler(self) -> Path:
        return self.path / "filler"

    def fill(self) -> None:
        """Leave no room. Raises OSError if the file system is not there any more: it would fill up the machine's."""
        if not self.path.is_mount():
            raise OSError(f"{self.path} is no file system of its own any more: was the folder deleted?")
        subprocess.run(["dd", "if=/dev/zero", f"of={self._filler}", "bs=4096"], capture_output=True)

    def empty(self) -> None:
        """Give back what `fill` took."""
        self._filler.unlink(missing_ok=True)

    def close(self) -> None:
        _run("umount", "--lazy", str(self.path))


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
