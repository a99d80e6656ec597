"""Stream apps of Isthmus beside those of others: `python -m benchmarks.streams [WORKLOAD...] [--quick]`.

One broker of ours, one core for the app, all sides in turn, several rounds; a figure is the median, with the least and
the most. CPU-seconds are those of the app's process, from when it has done its first events on: a tenth as many as are
counted, of a JVM twice as many. What a side counted must be right, or it has no figure. Rows say what a side could not
do.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import results
from integration_tests.brokers import running_broker
from integration_tests.peers.peers import PeerError

from . import own
from .events import Events, events
from .measuring import Figures, run
from .sides import ON_DISK, SIDES, WORKLOADS, Side

EVENTS, QUICK_EVENTS = 1_000_000, 50_000
REASON_LETTERS = 300
BASE = SIDES[0].name
BROKER = {"group.initial.rebalance.delay.ms": 0, "log.segment.delete.delay.ms": 1000}


class Made:
    """The events of a run, by their number."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.kept: dict[tuple[int, int, str], Events] = {}

    def of(self, side: Side) -> Events:
        counted = int(self.count * side.share)
        shape = int(counted * side.warm), counted, side.codec
        if shape not in self.kept:
            self.kept[shape] = events(*shape)
        return self.kept[shape]


def measure(names: Sequence[str], sides: Sequence[Side], address: str, count: int, rounds: int) -> list[dict[str, Any]]:
    made = Made(count)
    chosen = [(name, side) for name in names for side in sides if name in ON_DISK or not side.name.endswith("disk")]
    found: dict[tuple[str, str], list[Figures]] = {}
    failed: dict[tuple[str, str], str] = {}
    for number in range(rounds):
        for name, side in chosen:
            try:
                figures = run(side, name, address, made.of(side))
            except (RuntimeError, OSError, AssertionError, PeerError) as error:
                failed[name, side.name] = str(error)
                print(f"{name}, {side.name}: {error}", file=sys.stderr, flush=True)
                continue
            found.setdefault((name, side.name), []).append(figures)
            said = ", ".join(f"{figure:,.0f} {unit}" for unit, figure in figures.items())
            print(f"{number + 1}: {name}, {side.name}: {said}", file=sys.stderr, flush=True)
    return [
        _row(name, side.name, found.get((name, side.name), []), failed.get((name, side.name))) for name, side in chosen
    ]


def _row(workload: str, side: str, found: list[Figures], error: str | None) -> dict[str, Any]:
    row: dict[str, Any] = {"workload": workload, "side": side, "runs": len(found)}
    if error:
        row["error"] = error
    for unit in found[0] if found else ():
        row[unit] = [each[unit] for each in found]
    return row


def table(rows: Sequence[dict[str, Any]]) -> str:
    lines = [
        "| workload | side | thousand events a CPU-second | of Isthmus' agent | thousand events/s | MiB |",
        "|---|---|---|---|---|---|",
    ]
    bases: dict[str, float] = {}
    for row in rows:
        begin = f"| {row['workload']} | {row['side']} | "
        if not row["runs"]:
            lines.append(f"{begin}{' '.join(row['error'].split())[:REASON_LETTERS]} | | | |")
            continue
        each = row["events_per_cpu_s"]
        middle = statistics.median(each)
        bases.setdefault(row["workload"], middle)
        lines.append(
            f"{begin}{middle / 1000:.1f} ({min(each) / 1000:.1f} to {max(each) / 1000:.1f})"
            f" | {middle / bases[row['workload']]:.3f} | {statistics.median(row['events_per_s']) / 1000:.1f}"
            f" | {statistics.median(row['rss_mib']):.0f} |"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.streams", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    own_names = list(own.CASES)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"workloads: {', '.join(WORKLOADS)}; ours alone: {', '.join(own_names)}",
    )
    parser.add_argument("--events", type=int, default=EVENTS, help=f"that are counted (default {EVENTS:,})")
    parser.add_argument("--rounds", type=int, default=3, help="how often each side runs (default 3)")
    parser.add_argument("--quick", action="store_true", help=f"one round of {QUICK_EVENTS:,} events")
    parser.add_argument(
        "--side", action="append", default=[], metavar="TEXT", help="sides with this in their names alone"
    )
    parser.add_argument("--results", type=Path, default=results.FOLDER, help="folder that keeps the runs")
    given = parser.parse_args()
    names = given.names or [*WORKLOADS, *own_names]
    if unknown := [name for name in names if name not in WORKLOADS and name not in own_names]:
        parser.error(f"no {', '.join(unknown)}; there are {', '.join([*WORKLOADS, *own_names])}")
    count, rounds = (QUICK_EVENTS, 1) if given.quick else (given.events, given.rounds)
    sides = [side for side in SIDES if not given.side or any(text in side.name for text in given.side)]
    facts = results.facts(rounds, 0.0)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="isthmus-bench-") as folder, running_broker(Path(folder), BROKER) as broker:
        os.sched_setaffinity(broker.pid, set(sorted(os.sched_getaffinity(0))[:-1]) or os.sched_getaffinity(0))
        rows += measure([name for name in names if name in WORKLOADS], sides, broker.address, count, rounds)
        alone = [own.CASES[name](broker.address, count, rounds) for name in names if name in own_names]
    said = "\n\n".join([table(rows)] * bool(rows) + [each.text for each in alone])
    print(f"{facts['time']}: Isthmus {facts['isthmus']}, {count:,} events, {rounds} rounds\n\n{said}")
    given.results.mkdir(parents=True, exist_ok=True)
    with open(given.results / "streams.jsonl", "a") as lines:
        lines.write(
            json.dumps({**facts, "events": count, "rows": rows, "own": [each.figures for each in alone]}) + "\n"
        )
    return int(any("error" in row for row in rows))


if __name__ == "__main__":
    sys.exit(main())
