"""Bugs planted on purpose, one at a time; `python -m tests.mutants` checks that a test sees each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """One bug: in `file`, the text `old`, which stands there once, becomes `new`; then one of `tests` must fail."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
