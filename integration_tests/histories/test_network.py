"""The network of the histories: what is cut one way comes through the other way. A full disk has no room."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from integration_tests.histories import network

ECHO = """
import socket, sys
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("0.0.0.0", 7))
print("bound", flush=True)
while True:
    said, sender = server.recvfrom(100)
    print(said.decode(), flush=True)
"""
SAY = """
import socket, sys
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(sys.argv[2].encode(), (sys.argv[1], 7))
"""


def test_inside() -> None:
    if why := network.why_not():
        pytest.skip(why)
    command = [sys.executable, "-m", "integration_tests.histories.test_network"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "whole: 2 heard 1, 1 heard 2, 2 heard 0",
        "cut 1->2: 2 heard nothing, 1 heard 2, 2 heard 0",
        "mended: 2 heard 1, 1 heard 2, 2 heard 0",
        "disk: full, room again",
    ]


def inside() -> None:
    net = network.Network(2)
    ears = {}
    for node in (1, 2):
        command = [*net.inside(node), sys.executable, "-c", ECHO]
        ears[node] = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert ears[node].stdout.readline() == "bound\n"  # type: ignore[union-attr]

    def heard(listener: int, speaker: int) -> str:
        """A word of the speaker's, and then one that `listener` has for itself: it comes in any case."""
        for node, word in ((speaker, str(speaker)), (listener, "end")):
            subprocess.run([*net.inside(node), sys.executable, "-c", SAY, net.address(listener), word], check=True)
        words = []
        while (word := ears[listener].stdout.readline().strip()) != "end":  # type: ignore[union-attr]
            words.append(word)
        return f"{listener} heard {' '.join(words) or 'nothing'}"

    def all_heard() -> str:
        return ", ".join(heard(listener, speaker) for listener, speaker in ((2, 1), (1, 2), (2, 0)))

    print(f"whole: {all_heard()}")
    net.cut(1, 2)
    print(f"cut 1->2: {all_heard()}")
    net.mend(1, 2)
    print(f"mended: {all_heard()}")
    for each in ears.values():
        each.kill()
        each.communicate()
    net.close()
    with tempfile.TemporaryDirectory() as folder:
        disk = network.Disk(Path(folder) / "disk", 1 << 20)
        print(f"disk: {room(disk)}")
        disk.close()


def room(disk: network.Disk) -> str:
    disk.fill()
    told = []
    for _ in range(2):
        try:
            (disk.path / "file").write_bytes(bytes(5000))
            told.append("room again")
        except OSError as error:
            assert error.errno == errno.ENOSPC
            told.append("full")
        disk.empty()
    return ", ".join(told)


if __name__ == "__main__":
    network.enter("integration_tests.histories.test_network", [])
    assert os.getpid() == 1
    inside()
