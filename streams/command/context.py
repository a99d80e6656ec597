"""What a command of an app has in hand: `self` in functions that `@app.command` decorates, with Faust's names."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import click
import orjson

from ..api.ansitable import drawn
from ..api.app import App


@dataclass
class AppCommand:
    """as_json: `--json` was said. is_quiet: nothing is printed; is_debug: `carp` prints."""

    app: App
    prog_name: str = ""
    as_json: bool = False
    is_quiet: bool = False
    is_debug: bool = False

    UsageError = click.UsageError

    def say(self, message: Any, **_: Any) -> None:
        """Print a line, unless with --quiet."""
        if not self.is_quiet:
            click.echo(message)

    def carp(self, message: Any, **_: Any) -> None:
        """Print a line with --debug."""
        if self.is_debug:
            self.say(f"#-- {message}")

    def dumps(self, value: Any) -> str:
        return orjson.dumps(value).decode()

    def tabulate(
        self, data: Iterable[Sequence[Any]], headers: Sequence[str] | None = None, title: str = "", **_: Any
    ) -> str:
        """Rows as a table; with --json as a list of objects."""
        rows = [list(row) for row in data]
        if self.as_json:
            return json.dumps([dict(zip(headers, row, strict=False)) for row in rows] if headers else rows)
        head = list(headers) if headers else [""] * (len(rows[0]) if rows else 1)
        return drawn(rows, head, title)

    @property
    def stdout(self) -> Any:
        return sys.stdout
