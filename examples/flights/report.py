"""What the demo leaves to look at: three plots as PNG and one HTML page that holds them with the answers."""

from __future__ import annotations

import base64
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import jinja2
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.dates import ConciseDateFormatter, date2num

from .check import Verdict
from .screen import cell
from .watch import History

FEW = 30  # departures that a mean is made of at the least
SHOWN = 10  # rows of an answer
NEW_YORK = ZoneInfo("America/New_York")
COLOURS = {
    "ewr": "#1b6ca8",
    "jfk": "#d1495b",
    "lga": "#2e8b57",
    "aggregate": "#444444",
    "stream": "#8e6c8a",
    "delta": "#c98b2b",
}

PAGE = """\
<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Isthmus: flights of 2013</title>
<style>
body{font:15px/1.5 system-ui,sans-serif;max-width:64rem;margin:2.5rem auto;padding:0 1.25rem;color:#1f2328}
h1{font-size:1.8rem;margin:0} h2{font-size:1.1rem;margin:2.5rem 0 .5rem} img{width:100%}
.lead{color:#57606a;margin:.25rem 0 1.5rem}
.checks{display:grid;grid-template-columns:repeat(auto-fit,minmax(11rem,1fr));gap:.75rem}
.check{border:1px solid #d0d7de;border-left:4px solid #17703a;border-radius:6px;padding:.5rem .8rem}
.check.wrong{border-left-color:#b3261e} .check b{display:block;font-variant-numeric:tabular-nums;color:#17703a}
.check.wrong b,.check.wrong p{color:#b3261e} .check p{margin:.25rem 0 0;font-size:.85rem}
.answers{columns:2 27rem;column-gap:3rem} section{break-inside:avoid;padding-top:.1rem}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
td,th{padding:.25rem .75rem .25rem 0;text-align:left;border-bottom:1px solid #eaeef2} th{color:#57606a;font-weight:600}
td.n,th.n{text-align:right;padding-right:0;padding-left:.75rem}
</style>
<h1>Three airports, one aggregate</h1>
<p class="lead">{{ lead }}</p>
<div class="checks">
{% for verdict in verdicts %}<div class="check{{ '' if verdict.right else ' wrong' }}">{{ verdict.place }}
<b>{{ verdict.lines()[0] }}</b>{% for line in verdict.lines()[1:] %}<p>{{ line }}</p>{% endfor %}</div>
{% endfor %}</div>
<h2>Records through time</h2><img alt="Records through time for each hop" src="data:image/png;base64,{{ hops }}">
<h2>Delay by hour and origin</h2>
<img alt="Mean delay by hour of day and origin" src="data:image/png;base64,{{ delays }}">
<h2>Planes in a late spell, by day</h2>
<img alt="Late spells that began on each day" src="data:image/png;base64,{{ spells }}">
<div class="answers">
{% for answer in answers %}<section><h2>{{ answer.title }}</h2>
<table><tr>{% for column in answer.columns %}
<th{% if answer.rows and answer.rows[0][loop.index0] is number %} class="n"{% endif %}>{{ column }}</th>
{% endfor %}</tr>
{% for row in answer.rows %}<tr>{% for value in row %}
<td{% if value is number %} class="n"{% endif %}>{{ value | cell }}</td>{% endfor %}</tr>
{% endfor %}</table></section>
{% endfor %}</div>
</html>
"""


def plot_hops(history: History, path: Path) -> None:
    """Records of each hop through time, the kills as vertical lines."""
    figure, axes = plt.subplots(figsize=(9, 4.5), dpi=120)
    times = [sample.at_s for sample in history.samples]
    for name in history.samples[-1].source:
        axes.plot(times, [s.source[name] for s in history.samples], color=COLOURS[name], label=f"{name}: produced")
        mirrored = [s.mirrored[name] for s in history.samples]
        axes.plot(times, mirrored, color=COLOURS[name], linestyle="--", label=f"{name}: in the aggregate")
    axes.plot(times, [s.streamed for s in history.samples], color=COLOURS["stream"], label="stream app: committed")
    if history.delta:
        axes.step(*zip(*history.delta, strict=True), where="post", color=COLOURS["delta"], label="rows in Delta")
    for number, (at_s, what) in enumerate(history.kills):
        before = number % 2 == 0  # on either side, since two kills may be close to each other
        axes.axvline(at_s, color="#b3261e", linewidth=1)
        axes.annotate(
            f"kill -9 {what}",
            (at_s, 0.98),
            xycoords=("data", "axes fraction"),
            xytext=(-3 if before else 3, 0),
            textcoords="offset points",
            rotation=90,
            va="top",
            ha="right" if before else "left",
            fontsize=8,
            color="#b3261e",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5, "alpha": 0.8},
        )
    axes.set(xlabel="seconds since the start", ylabel="records")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    _save(figure, path)


def plot_delays(hours: Mapping[tuple[str, int], Mapping[str, int]], path: Path) -> None:
    """Mean departure delay by hour of day in New York and origin, from the stream app's table."""
    sums: dict[str, list[list[int]]] = {}
    for (origin, hour_ms), counts in hours.items():
        hour = datetime.fromtimestamp(hour_ms / 1000, NEW_YORK).hour
        at = sums.setdefault(origin, [[0, 0] for _ in range(24)])[hour]
        at[0] += counts["delay_sum"]
        at[1] += counts["departed"]
    figure, axes = plt.subplots(figsize=(9, 4), dpi=120)
    for origin in sorted(sums):
        means = [total / count if count >= FEW else math.nan for total, count in sums[origin]]
        axes.plot(range(24), means, marker="o", markersize=3, color=COLOURS[origin.lower()], label=origin)
    axes.set(xlabel="hour of departure in New York", ylabel="mean delay, minutes", xlim=(0, 23))
    axes.axhline(0, color="#888", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    _save(figure, path)


def plot_spells(spells: Mapping[tuple[str, int], Mapping[str, Any]], path: Path) -> None:
    """How many planes' late spells began on each day in New York, and how many of them had several departures."""
    starts = {where: date2num(new_york(where[1]).date()) for where in spells}
    began = Counter(starts.values())
    several = Counter(starts[where] for where, spell in spells.items() if spell["departures"] > 1)
    days = sorted(began)
    figure, axes = plt.subplots(figsize=(9, 3), dpi=120)
    axes.bar(days, [began[day] for day in days], width=1.0, color=COLOURS["stream"], label="late spells")
    axes.bar(days, [several[day] for day in days], width=1.0, color=COLOURS["jfk"], label="of several departures")
    axes.set(ylabel="planes")
    axes.xaxis_date()
    axes.xaxis.set_major_formatter(ConciseDateFormatter(axes.xaxis.get_major_locator()))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.25)
    axes.legend(frameon=False, ncols=2)
    _save(figure, path)


def new_york(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, NEW_YORK)


def stream_answers(
    late: Mapping[int, Mapping[str, Any]], spells: Mapping[tuple[str, int], Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """What the stream app's topics say, as Spark's answers are."""
    longest = sorted(spells.items(), key=lambda each: (-each[1]["departures"], -each[1]["minutes"], each[0]))[:SHOWN]
    columns = ["plane", "model", "began", "departures", "airports", "minutes late", "most at once"]
    rows = [
        [tail, spell["model"] or "not known", f"{new_york(start_ms):%b %d %H:%M}"]
        + [spell[name] for name in ("departures", "airports", "minutes", "worst")]
        for (tail, start_ms), spell in longest
    ]
    delays: dict[str, list[int]] = defaultdict(list)
    for each in late.values():
        delays[each["manufacturer"] or "not known"].append(each["dep_delay"])
    makers = sorted(delays.items(), key=lambda each: (-len(each[1]), each[0]))[:SHOWN]
    return [
        {"title": "Ten longest late spells, from the stream app", "columns": columns, "rows": rows},
        {
            "title": "Late departures by maker of the plane, from the stream app",
            "columns": ["maker", "late departures", "mean delay, min"],
            "rows": [[maker, len(each), sum(each) / len(each)] for maker, each in makers],
        },
    ]


def _save(figure: Any, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


def write(
    folder: Path,
    history: History,
    hours: Mapping[tuple[str, int], Mapping[str, int]],
    spells: Mapping[tuple[str, int], Mapping[str, Any]],
    verdicts: Sequence[Verdict],
    answers: Sequence[Mapping[str, Any]],
    lead: str,
) -> Path:
    """Write hops.png, delays.png, spells.png and report.html into `folder`; the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    plot_hops(history, folder / "hops.png")
    plot_delays(hours, folder / "delays.png")
    plot_spells(spells, folder / "spells.png")
    plots = ("hops", "delays", "spells")
    images = {name: base64.b64encode((folder / f"{name}.png").read_bytes()).decode() for name in plots}
    environment = jinja2.Environment(autoescape=True)
    environment.filters["cell"] = cell
    (folder / "report.html").write_text(
        environment.from_string(PAGE).render(verdicts=verdicts, answers=answers, lead=lead, **images)
    )
    return folder / "report.html"
