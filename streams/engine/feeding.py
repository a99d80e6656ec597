"""Steps that need all rows of a table, and not its changes alone: groups of rows, and joins of tables. Pure.

A table's marker names the steps that have had all its changes, each with the tables behind it. One that is not among
them is new: it is given the rows that are there before any change, and what it makes of them is committed with the
first marker that names it. Who has missed changes is named, too: nothing could be given to it that makes it whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import ChangeRefused

FEEDS, UNFED = "feeds", "unfed"  # in markers: those that have all changes, and those that had them once
FED_ROWS_MAX = 2_000_000  # of a table's partition: what comes of them is in one transaction

Feeds = Mapping[str, Sequence[str]]  # step -> the tables behind it


def new_steps(table: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Those that are to be given all rows of a table. before, now: what it was and is (`TableSpec.description`). Raises
    ChangeRefused for a step that cannot be made whole. What an earlier release has not kept is taken to be as it is."""
    had: Feeds | None = before.get(FEEDS)
    if had is None:
        return []
    gone: Feeds = before.get(UNFED, {})
    known = {each for tables in had.values() for each in tables}
    left = {each for tables in gone.values() for each in tables} - known
    found = []
    for step, tables in now.get(FEEDS, {}).items():
        new = [each for each in tables if each not in known]
        if lacking := [each for each in new if each in left]:
            raise ChangeRefused(
                f"table {table} has changed while {' and '.join(lacking)}, made of its rows by step {step}, was not in "
                "the code. Take it out of the code again, or give the step and what is behind it new names: they are "
                "filled with the rows that are there"
            )
        if new and (len(new) < len(tables) or step in had or step in gone):
            raise ChangeRefused(
                f"table {table} has rows that {' and '.join(new)}, which is new behind step {step}, has not, and what "
                "has them would have them twice. Give it a step of its own, with another name=, which is filled with "
                "the rows that are there"
            )
        if new:
            found.append(step)
    return found


def unfed(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, list[str]]:
    """Steps that miss the changes of a table from now on, or have missed some, and the tables behind them that do."""
    is_fed: Feeds = now.get(FEEDS, {})
    known = {each for tables in is_fed.values() for each in tables}
    once = {**before.get(UNFED, {}), **before.get(FEEDS, {})}
    return {step: [each for each in once[step] if each not in known] for step in sorted(once) if step not in is_fed}
