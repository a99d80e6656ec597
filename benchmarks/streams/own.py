"""What is measured of Isthmus alone: exactly_once, restoring, latency, memory of rows."""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.workers import asked, cpu_seconds
from integration_tests.brokers import ROOT
from integration_tests.peers.peers import rss_bytes
from isthmus.client.admin import Admin, NewTopic

from .events import KEPT, PARTITIONS, events, send, ticks, wide
from .measuring import program, run, wait_for
from .sides import COUNT, DISK, MAP, MEMORY, SIDES, Side

COMMIT_S = 0.1  # of exactly_once, by default
COPY, WIDE = "copy", "wide"  # workloads of the app that are measured here alone
RATE, LATENCY_S, SKIP_S = 10_000, 20.0, 5.0
READY_S = 120.0
MIB = 1 << 20
[AGENT, PIPELINE] = [side for side in SIDES if side.name in ("Isthmus, agent", "Isthmus, pipeline")]
_numbers = itertools.count(os.getpid() * 1000)


@dataclass(frozen=True)
class Found:
    """As Markdown, and as figures."""

    text: str
    figures: dict[str, Any]


def exactly_once(address: str, count: int, rounds: int) -> Found:
    """CPU-seconds an event beside at_least_once, both with commits of 100 ms, in turn."""
    made = events(count // 10, count, "lz4")
    lines = ["| exactly_once beside at_least_once | thousand events a CPU-second | dearer by |", "|---|---|---|"]
    figures: dict[str, Any] = {}
    for workload, side in itertools.product((MAP, COUNT), (AGENT, PIPELINE)):
        pairs = []
        for _ in range(rounds):
            pair = []
            for guarantee in ("at_least_once", "exactly_once"):
                given = replace(side, guarantee=guarantee, commit_s=COMMIT_S)
                pair.append(run(given, workload, address, made)["events_per_cpu_s"])
            pairs.append(pair)
        least, once = (statistics.median(each) for each in zip(*pairs, strict=True))
        dearer = statistics.median(pair[0] / pair[1] for pair in pairs) - 1
        lines.append(f"| {workload}, {side.style} | {once / 1000:.0f} beside {least / 1000:.0f} | {dearer:.0%} |")
        figures[f"{workload}, {side.style}"] = pairs
    return Found("\n".join(lines), figures)


def restoring(address: str, count: int, rounds: int) -> Found:
    """A table of as many keys is counted, and restored by a new process that has no files."""
    lines = ["| store | rows restored a CPU-second | rows/s | MiB for them | MiB on disk |", "|---|---|---|---|---|"]
    figures: dict[str, Any] = {}
    for store in MEMORY, DISK:
        side = replace(AGENT, store=store)
        empty, full = _starts(side, address, 0, 1), _starts(side, address, count, rounds)
        more = {name: statistics.median(each[name] for each in full) - empty[0][name] for name in empty[0]}
        lines.append(
            f"| {store} | {count / more['cpu_s']:,.0f} | {count / more['wall_s']:,.0f} | {more['rss'] / MIB:.0f}"
            f" | {more['disk'] / MIB:.0f} |"
        )
        figures[store] = {"empty": empty, "each": full}
    return Found("\n".join(lines), figures)


def _starts(side: Side, address: str, rows: int, rounds: int) -> list[dict[str, float]]:
    """From the start of a process until it has restored so many rows, and has counted an event in each partition."""
    app = f"bench-{next(_numbers)}"
    topic = f"{app}-in"
    names = {"BENCH_APP": app, "BENCH_TOPIC": topic, "BENCH_OUT": f"{app}-out"}
    asked(address, lambda client: Admin(client).create_topics([NewTopic(topic, PARTITIONS, 1, KEPT)]))
    send(address, topic, [*wide(rows), *ticks()])
    sent = rows + PARTITIONS
    with program(side, WIDE, address, names) as process:
        wait_for(process, address, app, sent)
    found = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="isthmus-bench-") as folder:
            send(address, topic, ticks())
            sent += PARTITIONS
            begun = time.perf_counter()
            with program(side, WIDE, address, {**names, "BENCH_FOLDER": folder}) as process:
                wait_for(process, address, app, sent)
                disk = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
                found.append({
                    "wall_s": time.perf_counter() - begun, "cpu_s": cpu_seconds(process.pid),
                    "rss": rss_bytes(process.pid), "disk": disk,
                })  # fmt: skip
    return found


def latency(address: str, count: int, rounds: int) -> Found:
    """Of a map that copies 100 B records, 10,000/s: from when one was due until a consumer of the output has it."""
    lines = ["| map at 10,000 events/s | p50 ms | p99 ms | longest ms |", "|---|---|---|---|"]
    figures: dict[str, Any] = {}
    for side, guarantee, linger in itertools.product((AGENT, PIPELINE), ("at_least_once",), ("0.005", "0")):
        found = []
        for _ in range(rounds):
            app = f"bench-{next(_numbers)}"
            names = {"BENCH_APP": app, "BENCH_TOPIC": f"{app}-in", "BENCH_OUT": f"{app}-out", "PRODUCER_LINGER": linger}
            made = [NewTopic(names[each], 1, 1, KEPT) for each in ("BENCH_TOPIC", "BENCH_OUT")]
            asked(address, lambda client, made=made: Admin(client).create_topics(made))  # type: ignore[misc]
            with program(replace(side, guarantee=guarantee), COPY, address, names) as process:
                assert process.stdout
                process.stdout.readline()
                found.append(_latencies(address, names["BENCH_TOPIC"], names["BENCH_OUT"]))
        said = [statistics.median(each[name] for each in found) for name in ("p50_ms", "p99_ms", "max_ms")]
        name = f"{side.style}, linger of {float(linger) * 1000:g} ms"
        lines.append(f"| {name} | {' | '.join(f'{each:.1f}' for each in said)} |")
        figures[name] = found
    return Found("\n".join(lines), figures)


def _latencies(address: str, topic: str, out: str) -> dict[str, float]:
    def load(what: str, name: str, *more: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "benchmarks.openloop", what, address, name, *more]
        return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)

    with load("tail", out, f"--skip={SKIP_S:g}") as tail:
        try:
            assert tail.stdout
            if tail.stdout.readline() != "ready\n":
                raise RuntimeError("the tail did not get ready")
            with load("produce", topic, f"--rate={RATE}", f"--seconds={LATENCY_S:g}") as producer:
                producer.wait()
            said, _ = tail.communicate(timeout=READY_S)
        finally:
            tail.kill()
    figures: dict[str, float] = json.loads(said)
    return figures


CASES: dict[str, Callable[[str, int, int], Found]] = {
    "exactly-once": exactly_once,
    "restoring": restoring,
    "latency": latency,
}
