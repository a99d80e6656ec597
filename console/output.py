"""What a person, or with --json a program, is shown: tables, records and errors. Every command speaks through here."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text for people.")]

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)

FOLDED = (
    "address",
    "assigned",
    "details",
    "next_try",
    "reads",
    "reason",
    "target",
)  # texts that may be long; a column of nothing but empty ones is left out
MIN_FOLDED = 20
MAX_WIDTH = 10_000

STATE_STYLES = {
    "ready": "green", "MIRRORING": "green", "Stable": "green", "finished": "green",
    "starting": "yellow", "restarting": "yellow", "CATCHING_UP": "yellow", "SOURCE_UNAVAILABLE": "yellow",
    "NO_TOPICS": "yellow",
    "silent": "red", "failed": "red", "stopped": "red", "DIVERGED": "bold red", "GAP": "bold red", "FAILED": "bold red",
    "SOURCE_RECREATED": "bold red", "gone": "red",
}  # fmt: skip


Column = str | tuple[str, str]  # a key of the rows, or that and its title


def show(rows: Iterable[Mapping[str, Any]], columns: Sequence[Column], as_json: bool, empty: str) -> None:
    """Rows as a table of `columns`, or all they hold as a JSON array. `empty` is said when there are none.

    On a terminal long texts are folded into their column; elsewhere each row is one line, for grep and awk.
    """
    rows = list(rows)
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    if not rows:
        out.print(empty)
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    keys = []
    for column in columns:
        key, title = (column, column) if isinstance(column, str) else column
        if key in FOLDED and all(row.get(key) in (None, "") for row in rows):
            continue
        keys.append(key)
        numeric = all(isinstance(row.get(key), int | float | None) for row in rows)
        table.add_column(
            title.replace("_", " "),
            justify="right" if numeric else "left",
            overflow="fold",
            no_wrap=key not in FOLDED,
            min_width=MIN_FOLDED if key in FOLDED else None,
        )
    for row in rows:
        table.add_row(*(_cell(row.get(key)) for key in keys))
    if out.is_terminal:
        out.print(table)
    else:
        for line in out.render_lines(table, out.options.update(width=MAX_WIDTH), pad=False):
            print("".join(segment.text for segment in line).rstrip())


def done(message: str, facts: Mapping[str, Any], as_json: bool) -> None:
    """What a command did: a sentence, or its facts as a JSON object."""
    if as_json:
        print(json.dumps(dict(facts)))
    else:
        out.print(message)


def time_text(at_ms: int) -> str:
    """A time in UTC for people."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(" ", "milliseconds").replace("+00:00", "Z")


def nothing() -> contextlib.nullcontext[None]:
    """In place of what is only shown on a terminal."""
    return contextlib.nullcontext()


def fail(message: str) -> None:
    """One error on stderr, without a traceback."""
    err.print(Text.assemble(("error: ", "bold red"), message))


def note(message: str) -> None:
    """What a person should know though all went well, on stderr."""
    err.print(Text.assemble(("note: ", "bold yellow"), message))


def _cell(value: Any) -> Text:
    text = "" if value is None else str(value)
    return Text(text, style=STATE_STYLES.get(text, ""))


def stdout_closed() -> None:
    """The reader went away (`| head`): leave without a word."""
    sys.stderr.close()
