"""What the demo shows while it works: one live line per datacenter, and above them what happened, kills in red."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from .check import Verdict
from .watch import History, Sample

BAR_WIDTH = 16
RATE_OVER_S = 1.0  # rates are those of the last second


class Screen:
    """Wraps a rich Live; outside of `with` it only prints."""

    def __init__(self, history: History, totals: Mapping[str, int]) -> None:
        self.console = Console(highlight=False, soft_wrap=True)
        self.history = history
        self.totals = totals  # datacenter -> events that it will have
        self.rows_in_delta = 0
        self.live = Live(console=self.console, refresh_per_second=8, transient=False)

    def __enter__(self) -> Screen:
        self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.live.stop()

    def say(self, text: str, style: str = "") -> None:
        at = f"{self.history.now_s():6.1f} s  "
        self.console.print(Text.assemble((at, "dim"), (text, style)))

    def killed(self, text: str) -> None:
        self.say(text, "bold red")

    def update(self, sample: Sample) -> None:
        before = next(
            (old for old in reversed(self.history.samples) if sample.at_s - old.at_s >= RATE_OVER_S),
            self.history.samples[0] if self.history.samples else sample,
        )
        span_s = max(sample.at_s - before.at_s, 0.001)
        grid = Table.grid(padding=(0, 1))
        for justify in ("left", "left", "right", "right", "right"):
            grid.add_column(justify=justify, no_wrap=True)
        for name, total in self.totals.items():
            have, mirrored = sample.source[name], sample.mirrored[name]
            rate = (have - before.source[name]) / span_s
            lag = have - mirrored
            grid.add_row(
                Text(name, style="bold"),
                ProgressBar(total=total, completed=have, width=BAR_WIDTH),
                f"{have:,} of {total:,}",
                f"{rate:,.0f} rec/s",
                Text(f"mirror lag {lag:,}", style="yellow" if lag else "green"),
            )
        everything = sum(self.totals.values())
        arrived = sum(sample.mirrored.values())
        arriving = (arrived - sum(before.mirrored.values())) / span_s
        grid.add_row(
            Text("aggregate", style="bold"),
            ProgressBar(total=everything, completed=arrived, width=BAR_WIDTH),
            f"{arrived:,} of {everything:,}",
            f"{arriving:,.0f} rec/s",
            Text(f"stream lag {arrived - sample.streamed:,}", style="yellow" if arrived > sample.streamed else "green"),
        )
        if self.rows_in_delta:
            grid.add_row(
                Text("delta", style="bold"),
                ProgressBar(total=everything, completed=self.rows_in_delta, width=BAR_WIDTH),
                f"{self.rows_in_delta:,} of {everything:,}",
            )
        self.live.update(Group(grid))

    def answer(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
        for i, column in enumerate(columns):
            numeric = all(isinstance(row[i], int | float) for row in rows)
            table.add_column(column, justify="right" if numeric else "left")
        for row in rows:
            table.add_row(*(cell(value) for value in row))
        self.console.print()
        self.console.print(table)

    def verdict(self, verdict: Verdict) -> None:
        style = "bold green" if verdict.right else "bold red"
        first, *rest = verdict.lines()
        self.console.print(Text.assemble((f"{verdict.place:<16}", "bold"), (first, style)))
        for line in rest:
            self.console.print(Text(f"  {line}", style="red"))


def cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
