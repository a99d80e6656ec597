"""Thousands of hostile connections: the broker's memory hardly grows, and a good client's p99 at most doubles."""

from __future__ import annotations

import resource
import select
import statistics
import struct
import subprocess
import sys

import pytest

from integration_tests.brokers import ROOT, BrokerProcess
from integration_tests.clients.records import create_topics

from .sockets import MIB, Good, connect, is_closed, produce_frame, rss

FEW, MANY = 4_000, 20_000  # connections
WAVE = 1_000  # held at the same time; a wave ends before the next begins
PAUSE_S = 0.0005  # between two connections, so that they come at a steady 1,000 a second or more
WAVE_TIMEOUT_S = 60.0
GROWTH_BYTES = 32 * MIB
SLOWER = 2.0
ATTEMPTS = 3  # of the comparison of times: this machine may have other things to do
QUIET_RUNS = 5
HELD = 8_000  # at once, where so many files may be open
FILES_SHARE = 0.7


class Attacker:
    """The process that makes the connections, so that the good client here is measured alone."""

    def __init__(self, port: int, pause_s: float = PAUSE_S):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "integration_tests.hostile.attacker", str(port), str(pause_s)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
        )  # fmt: skip

    def begin(self, count: int) -> None:
        assert self.process.stdin
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()

    def is_through(self, timeout_s: float = 0) -> bool:
        assert self.process.stdout
        return bool(select.select([self.process.stdout], [], [], timeout_s)[0])

    def made(self) -> int:
        assert self.is_through(WAVE_TIMEOUT_S) and self.process.stdout
        return int(self.process.stdout.readline())

    def __enter__(self) -> Attacker:
        return self

    def __exit__(self, *_: object) -> None:
        with self.process:
            self.process.kill()


def attack(attacker: Attacker, good: Good, broker: BrokerProcess, before: int, count: int) -> tuple[float, float, int]:
    """p99 of the good client without and with hostile connections, by turns, and the most that memory grew."""
    quiet, attacked, most, made = [], [], 0, 0
    while made < count:
        quiet += [good.p99_s() for _ in range(QUIET_RUNS)]
        attacker.begin(WAVE)
        while not attacker.is_through():
            attacked.append(good.p99_s())
            most = max(most, rss(broker) - before)
        made += attacker.made()
    return statistics.median(quiet), statistics.median(attacked), most


@pytest.mark.parametrize(
    ("count", "growth_bytes", "timed"),
    [(FEW, 8 * MIB, False), pytest.param(MANY, GROWTH_BYTES, True, marks=pytest.mark.soak)],
)
def test_crowd_takes_little_memory_and_a_good_client_is_served_as_before(
    broker: BrokerProcess, count: int, growth_bytes: int, timed: bool
):
    """Times are judged by `make soak` alone: on a machine that does other things they say little."""
    create_topics(broker.bootstrap, ["good"])
    with Attacker(broker.port) as attacker, Good(broker.port, produce_frame("good", bytes(1_000))) as good:
        good.p99_s()  # all code has run once
        before = rss(broker)
        said = []
        for _ in range(ATTEMPTS):
            quiet, attacked, grown = attack(attacker, good, broker, before, count)
            said.append(f"p99 {quiet * 1000:.3f} ms, attacked {attacked * 1000:.3f} ms, memory +{grown / MIB:.1f} MiB")
            print(said[-1])
            assert grown < growth_bytes
            if not timed or attacked <= SLOWER * quiet:
                break
        else:
            pytest.fail("; ".join(said))
        with connect(broker.port) as sock:  # and garbage is still known as such
            sock.sendall(struct.pack(">i", -1))
            assert is_closed(sock, 5)


def test_a_crowd_held_at_once_takes_little_memory(broker: BrokerProcess):
    count = min(HELD, int(resource.getrlimit(resource.RLIMIT_NOFILE)[1] * FILES_SHARE))
    with Attacker(broker.port, pause_s=0) as attacker, Good(broker.port) as good:
        good.p99_s()
        before = most = rss(broker)
        attacker.begin(count)
        while not attacker.is_through(0.05):
            good.ask()
            most = max(most, rss(broker))
        assert attacker.made() == count
        print(f"{count} at once: +{(most - before) / MIB:.1f} MiB")
        assert most - before < GROWTH_BYTES
