"""Java's properties files, such as Kafka's `server.properties`: options by name, as text.

Follows java.util.Properties.load: comments begin with `#` or `!`; a name ends at `=`, `:` or a space; a line that ends
with an odd number of backslashes continues on the next line. If a name appears twice, the last value counts.
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
    """The options of the file `path`. A ConfigError names the invalid line."""
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
    """(number of its first line, text) of each logical line that is neither blank nor a comment."""
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
