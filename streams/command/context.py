"""What a command of an app has in hand: `self` in functions that `@app.command` decorates, with Faust's names."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, ClassVar

import click
import orjson

from ..api import absent
from ..api.ansitable import drawn
from ..api.app import App


@dataclass
class AppCommand:
    """json: `--json` was said. quiet: nothing is printed; debug: `carp` prints. workdir, datadir, loglevel, logfile: as
    said before the command. kwargs: what the command was given.

    A subclass that has `run` is a command itself, of all apps of the program: `options` are its options, its docstring
    is its help. One that has none can be the `base` of commands.
    """

    app: App
    prog_name: str = ""
    json: bool = False
    quiet: bool = False
    debug: bool = False
    workdir: str | None = None
    datadir: str | None = None
    loglevel: str | None = None
    logfile: str | None = None
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    options: ClassVar[Sequence[Callable[[Any], Any]]] = ()
    UsageError = click.UsageError

    if not TYPE_CHECKING:  # type checkers know what there is

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(absent.said("AppCommand", name, dir(type(self))))

    def say(self, message: Any, file: IO[Any] | None = None, err: bool = False, **of_echo: Any) -> None:
        """Print a line, unless with --quiet. file, err: where, rather than to stdout."""
        if not self.quiet:
            click.echo(message, file=file, err=err, **of_echo)

    def carp(self, s: Any, **of_echo: Any) -> None:
        """Print a line with --debug."""
        if self.debug:
            self.say(f"#-- {s}", **of_echo)

    def dumps(self, obj: Any) -> str:
        return orjson.dumps(obj).decode()

    def tabulate(
        self, data: Iterable[Sequence[Any]], headers: Sequence[str] | None = None, title: str = "", **_: Any
    ) -> str:
        """Rows as a table; with --json as a list of objects."""
        rows = [list(row) for row in data]
        if self.json:
            return self.dumps([dict(zip(headers, row, strict=False)) for row in rows] if headers else rows)
        head = list(headers) if headers else [""] * (len(rows[0]) if rows else 1)
        return drawn(rows, head, title)

    @property
    def stdout(self) -> Any:
        return sys.stdout

    @property
    def stderr(self) -> Any:
        return sys.stderr
