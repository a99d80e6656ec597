"""What a person, or with --json a program, is shown: tables, records and errors. Every command speaks through here."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text for people.")]

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)

STATE_STYLES = {
    "ready": "green", "MIRRORING": "green", "Stable": "green", "finished": "green",
    "starting": "yellow", "restarting": "yellow", "CATCHING_UP": "yellow", "SOURCE_UNAVAILABLE": "yellow",
    "failed": "red", "stopped": "red", "DIVERGED": "bold red", "GAP": "bold red", "FAILED": "bold red",
    "SOURCE_RECREATED": "bold red", "gone": "red",
}  # fmt: skip


def show(rows: Iterable[Mapping[str, Any]], columns: Sequence[str], as_json: bool, empty: str) -> None:
    """Rows as a table of `columns`, or all they hold as a JSON array. `empty` is said when there are none."""
    rows = list(rows)
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    if not rows:
        out.print(empty)
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        numeric = all(isinstance(row.get(column), int | float | None) for row in rows)
        table.add_column(column.replace("_", " "), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_cell(row.get(column)) for column in columns))
    out.print(table)


def done(message: str, facts: Mapping[str, Any], as_json: bool) -> None:
    """What a command did: a sentence, or its facts as a JSON object."""
    if as_json:
        print(json.dumps(dict(facts)))
    else:
        out.print(message)


def fail(message: str) -> None:
    """One error on stderr, without a traceback."""
    err.print(Text.assemble(("error: ", "bold red"), message))


def _cell(value: Any) -> Text:
    text = "" if value is None else str(value)
    return Text(text, style=STATE_STYLES.get(text, ""))


def stdout_closed() -> None:
    """The reader went away (`| head`): leave without a word."""
    sys.stderr.close()
