"""`python -m benchmarks.plots [--results FOLDER] [--to docs/images]`: plots of `sweeps.jsonl`, an SVG file a sweep.

Of each side, sweep and x the newest line counts. Both axes are logarithmic.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from . import results

COLOURS = {"Isthmus": "#0b6e99", "Kafka": "#b5651d"}
# of a sweep: its x axis, and figure, axis label of each panel
PANELS: dict[str, tuple[str, tuple[tuple[str, str], ...]]] = {
    "partitions": ("partitions", (("rate", "MB/s in, spread over all"), ("loaded", "memory, MiB"))),
    "connections": (
        "connections, one 100 B record a request",
        (("rate", "requests/s"), ("cpu", "CPU-µs a request"), ("rss", "memory, MiB")),
    ),
    "sizes": ("bytes a record", (("rate", "MB/s in"), ("cpu", "CPU-s/GB"), ("rss", "memory, MiB"))),
}


def newest(lines: list[dict[str, Any]]) -> dict[str, dict[str, dict[float, dict[str, Any]]]]:
    """By sweep, side and x."""
    found: dict[str, dict[str, dict[float, dict[str, Any]]]] = {}
    for line in lines:
        found.setdefault(line["sweep"], {}).setdefault(line["side"], {})[line["x"]] = line
    return found


def draw(sweep: str, sides: dict[str, dict[float, dict[str, Any]]], path: Path) -> None:
    label, panels = PANELS[sweep]
    figure, axes = plt.subplots(1, len(panels), figsize=(4.2 * len(panels), 3.4), layout="constrained")
    for axis, (key, title) in zip(axes, panels, strict=True):
        for side, by_x in sorted(sides.items()):
            xs = sorted(by_x)
            axis.plot(xs, [by_x[x][key] for x in xs], marker="o", label=side, color=COLOURS.get(side))
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlabel(label)
        axis.set_ylabel(title)
        axis.grid(True, which="both", alpha=0.25)
    axes[0].legend()
    plt.rcParams["svg.hashsalt"] = sweep  # the same file for the same figures
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plots", description=__doc__)
    parser.add_argument("--results", type=Path, default=results.FOLDER)
    parser.add_argument("--to", type=Path, default=Path("docs/images"))
    given = parser.parse_args()
    kept = given.results / "sweeps.jsonl"
    if not kept.exists():
        print(f"plots: {kept} is not there: run python -m benchmarks.sweeps all first", file=sys.stderr)
        return 1
    given.to.mkdir(parents=True, exist_ok=True)
    for sweep, sides in newest([json.loads(line) for line in kept.read_text().splitlines()]).items():
        path = given.to / f"benchmark-{sweep}.svg"
        draw(sweep, sides, path)
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
