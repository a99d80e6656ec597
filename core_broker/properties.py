"""Java's properties files, which Kafka's `server.properties` is one of: options by name, as text.

Follows java.util.Properties.load: comments begin with `#` or `!`, a name ends at `=`, `:` or a space, a line that ends
in an odd number of backslashes goes on in the next one. Of a name that stands twice the last value counts.
"""

from __future__ import annotations

import re

from .option import ConfigError

_SPACES = " \t\f"
_NAME = re.compile(r"(?:\\.|[^\\=: \t\f])*")
_BETWEEN = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(u.{0,4}|.|$)", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse(text: str, path: str) -> dict[str, str]:
    """The options of a file, which is called `path`. ConfigError names the line that is none."""
    options = {}
    for number, line in _logical_lines(text):
        found = _NAME.match(line)
        end = found.end() if found else 0
        value = line[_BETWEEN.match(line, end).end() :]  # type: ignore[union-attr]  # it matches nothing, too
        try:
            options[_unescaped(line[:end])] = _unescaped(value)
        except ValueError:
            raise ConfigError(f"{path}:{number}: \\u must be followed by four hexadecimal digits") from None
    return options


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Number of the first line and text of each that is neither blank nor a comment, with those that go on joined."""
    found: list[tuple[int, str]] = []
    goes_on = False
    for number, natural in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        line = natural.lstrip(_SPACES)
        if not goes_on and (not line or line[0] in "#!"):
            continue
        ends_in = len(line) - len(line.rstrip("\\"))
        part = line[:-1] if ends_in % 2 else line
        if goes_on:
            first, before = found[-1]
            found[-1] = first, before + part
        else:
            found.append((number, part))
        goes_on = bool(ends_in % 2)
    return found


def _unescaped(text: str) -> str:
    def plain(found: re.Match[str]) -> str:
        what = found[1]
        if what[:1] != "u":
            return _CONTROLS.get(what, what)
        if len(what) != 5:
            raise ValueError(what)
        return chr(int(what[1:], 16))

    return _ESCAPE.sub(plain, text)
