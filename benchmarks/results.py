"""Figures of a run: medians, spreads and ratios, as a JSON line and as a Markdown table."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from integration_tests.brokers import ROOT
from integration_tests.peers.peers import java
from isthmus import __version__
from isthmus.protocol import records

from .network import congestion_control
from .sides import kafka_version
from .table import Case
from .warming import CALM

FOLDER = Path(__file__).with_name("results")
Samples = dict[str, list[dict[str, float]]]  # by side
COMPILING = "compiling"  # of a sample: the share of its CPU that is a JVM's compilers'


def facts(pairs: int, seconds: float, run_memory_gib: float = 0.0, with_java: bool = True) -> dict[str, Any]:
    """What a reader must know about the machine and the software to judge the figures."""
    said = []
    if with_java:
        said = subprocess.run([java(), "-version"], capture_output=True, text=True).stderr.splitlines()
    model = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "isthmus": f"{__version__} {commit(ROOT)}".strip(),
        "records": "compiled" if records.COMPILED else "plain Python",
        "python": platform.python_version(),
        "uvloop": metadata.version("uvloop"),
        "kafka": kafka_version(),
        "other": "Kafka",  # what Isthmus is measured beside
        "java": said[0] if said else "no Java",
        "confluent-kafka": metadata.version("confluent-kafka"),
        "cpu": model[0].partition(":")[2].strip() if model else platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory / (1 << 30), 1),
        "run_memory_gib": run_memory_gib or "all",
        "kernel": platform.release(),
        "congestion_control": congestion_control(),
        "read_ahead_kib": _read_ahead_kib(Path(tempfile.gettempdir())),
        "load_average": round(os.getloadavg()[0], 2),
        "pairs": pairs,
        "seconds": seconds,
    }


def commit(checkout: Path) -> str:
    """The short name of what is checked out; nothing outside of git."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, cwd=checkout, capture_output=True, text=True).stdout.strip()


def _read_ahead_kib(folder: Path) -> int | None:
    """Of the disk where sides have their data, None for one that tells of none: who maps files pays for it."""
    device = folder.stat().st_dev
    path = Path(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb")
    return int(path.read_text()) if path.exists() else None


def summary(case: Case, samples: Samples) -> list[dict[str, Any]]:
    """One row a figure: median, least, most and all of each side, and the median of the pairs' ratios."""
    rows = []
    for key, unit, lower in case.metrics:
        row: dict[str, Any] = {"case": case.name, "unit": unit, "lower_is_better": lower}
        values = {side: [each[key] for each in found] for side, found in samples.items()}
        for side, found in values.items():
            row[side] = {"median": statistics.median(found), "min": min(found), "max": max(found), "each": found}
        if len(values) == 2:
            ours, theirs = values.values()
            ratios = [a / b for a, b in zip(ours, theirs, strict=True) if b]
            row["ratio"] = statistics.median(ratios) if ratios else None
        row[COMPILING] = max((each.get(COMPILING, 0.0) for found in samples.values() for each in found), default=0.0)
        rows.append(row)
    return rows


def write(folder: Path, run: dict[str, Any], rows: Sequence[dict[str, Any]]) -> None:
    """Append the run to `folder`/runs.jsonl and its table to `folder`/runs.md."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "runs.jsonl", "a") as lines:
        lines.write(json.dumps({**run, "results": rows}) + "\n")
    with open(folder / "runs.md", "a") as tables:
        tables.write(markdown(run, rows) + "\n")


def markdown(run: dict[str, Any], rows: Sequence[dict[str, Any]]) -> str:
    head = (
        f"{run['time']}: Isthmus {run['isthmus']} (Python {run['python']}, uvloop {run['uvloop']}, records"
        f" {run['records']}) beside Kafka {run['kafka']} ({run['java']}); load by confluent-kafka"
        f" {run['confluent-kafka']}. {run['cores']} cores of {run['cpu']}, {run['memory_gib']} GiB,"
        f" Linux {run['kernel']} with {run['congestion_control']}, load average {run['load_average']} before the run."
        f" {run['pairs']} pairs of {run['seconds']:g} s, memory for the run: {run['run_memory_gib']}"
        f"{' GiB' * (run['run_memory_gib'] != 'all')}."
    )
    lines = [
        "",
        head,
        "",
        f"| case | figure | better | Isthmus | {run['other']} | Isthmus / {run['other']} |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        ratio = row.get("ratio")
        better = "less" if row["lower_is_better"] else "more"
        said = "" if ratio is None else f"{ratio:.2f}"
        sides = f"{_cell(row, 'Isthmus')} | {_cell(row, run['other'])}"
        lines.append(f"| {row['case']} | {row['unit']} | {better} | {sides} | {said} |")
    compiled = {row["case"]: row.get(COMPILING, 0.0) for row in rows}
    if told := [f"{case} ({share:.0%})" for case, share in compiled.items() if share >= CALM]:
        lines += ["", f"A sample's CPU was a JVM's compilers' by as much as: {', '.join(told)}."]
    return "\n".join(lines)


def _cell(row: dict[str, Any], side: str) -> str:
    found = row.get(side)
    return "" if found is None else f"{number(found['median'])} ({number(found['min'])} .. {number(found['max'])})"


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
