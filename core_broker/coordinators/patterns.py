"""Regular expressions of clients: RE2's, as Kafka's are, whose time grows with the text and never explodes.

Python's own `re` backtracks, so that one pattern of a client could hold up all others. The library is loaded when the
first pattern comes: most brokers see none. Kafka has RE2 in Java, which takes patterns of any size.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

MAX_PATTERN_LENGTH = 65_536  # characters
MAX_REPETITIONS = 4_096  # of ?, *, + and {} in one: the library's time for a run of them grows with its square
MAX_PATTERN_BYTES = 1 << 20  # of memory that one pattern takes: its program, and the states that it has met
STEPS_A_TURN = 1_000_000  # some milliseconds of the loop where a pattern is hostile, some texts of others

# How Kafka's RE2 words what is wrong, by how this one does.
_KAFKAS_WORDS = {
    "bad repetition operator": "invalid nested repetition operator",
    "invalid named capture group": "invalid named capture",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid perl operator: (?<=": "invalid named capture",
    "invalid perl operator: (?<!": "invalid named capture",
    "invalid repetition size": "invalid repeat count",
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "no argument for repetition operator": "missing argument to repetition operator",
    "trailing \\": "trailing backslash at end of expression",
    "unexpected )": "regexp/syntax: internal error",
}


class PatternError(Exception):
    """A pattern that cannot be used; the message is RE2's, as Kafka words it."""


class Pattern:
    """One compiled regular expression, which has to match the whole of a text. size: of its program; to match a text
    takes so many steps a character at most, each some nanoseconds."""

    def __init__(self, text: str) -> None:
        """Raises PatternError: no regular expression, one too large, or a broker without the library."""
        self.text = text
        if len(text) > MAX_PATTERN_LENGTH:
            raise PatternError(f"longer than {MAX_PATTERN_LENGTH} characters")
        if sum(map(text.count, "?*+{")) > MAX_REPETITIONS:
            raise PatternError(f"more than {MAX_REPETITIONS} repetitions")
        try:
            import re2
        except ImportError:
            raise PatternError("this broker runs without google-re2, which it needs for them") from None
        try:
            self._compiled: Any = re2.compile(text, _options(re2))
        except re2.error as error:
            raise PatternError(_in_kafkas_words(error.args[0].decode("utf-8", "replace"))) from None
        finally:
            re2.purge()  # it would keep the last 128
        self.size: int = self._compiled.programsize

    def matches(self, text: str) -> bool:
        return self._compiled.fullmatch(text.encode()) is not None


async def match_in_turns(pattern: Pattern, texts: Iterable[str]) -> frozenset[str]:
    """Those of the texts that match. Others have their turn on the loop after about STEPS_A_TURN, and at the end."""
    found: set[str] = set()
    steps = 0
    for text in texts:
        if pattern.matches(text):
            found.add(text)
        steps += pattern.size * len(text)
        if steps >= STEPS_A_TURN:
            steps = 0
            await asyncio.sleep(0)
    await asyncio.sleep(0)
    return frozenset(found)


def _options(re2: Any) -> Any:
    options = re2.Options()
    options.max_mem = MAX_PATTERN_BYTES
    options.never_capture = True
    options.log_errors = False
    return options


def _in_kafkas_words(error: str) -> str:
    """error: what is wrong, and after a colon where."""
    what, _, _ = error.partition(": ")
    return _KAFKAS_WORDS.get(error) or _KAFKAS_WORDS.get(what, what)
