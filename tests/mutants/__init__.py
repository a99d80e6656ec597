"""Bugs planted on purpose, one at a time; `python -m tests.mutants` checks that a test sees each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
