"""What the tables of an app are, as its changelogs keep it, to be compared with what they are later. Pure.

Only what the meaning of rows depends on is in it: which step makes them, and the lengths of its windows. How long rows
are kept may change at any time. How long a step's windows wait for late events may not be more than rows were kept: a
window that has closed would begin anew with a late event, and be given again without all that was in it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from .feeding import FEEDS, UNFED

COMPUTES = "computes"  # what a step makes of values: its columns, or its name
GRACE, KEPT = "grace_ms", "kept_ms"  # how long windows wait for late events, and how long their rows are there, at most
PARTITIONER = "partitioner"  # by which the app itself brings records to the table
BRIDGED_BY = "bridged_by"  # of a sub-topology: by which bridges bring records to its tables
VALUE_TYPE, KEY_TYPE = "value_type", "key_type"  # classes, by their names; none: rows are of any type
ROWS_OF = "rows_of"  # tables of whose rows a group's or a join's are made
KEYS = "keys"  # as what the keys of a step's records are read
GIVEN_BY, WAITING = "given_by", "waiting"  # of rows that are events: the step that gives them later, and how many
_COMPARED_ELSEWHERE = frozenset(
    ("version", "part", GRACE, KEPT, PARTITIONER, VALUE_TYPE, ROWS_OF, FEEDS, UNFED, GIVEN_BY, WAITING, KEYS)
)
_PLAIN_KEYS = ("bool", "bytes", "float", "int", "str")  # keys of these types are written alike with and without a type


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, str]:
    """What rows of a table were made by, and are made by now, where that is not the same, in words, by name. What an
    earlier release did not keep is not known to differ."""
    names = [name for name in {**before, **now} if name not in _COMPARED_ELSEWHERE and before]
    found = {
        name: _changed(name, before, now)
        for name in names
        if before.get(name) != now.get(name) and not (name == KEY_TYPE and _is_refined(before, now))
    }
    if PARTITIONER in before and PARTITIONER in now and not _rules(before) & _rules(now):
        found[PARTITIONER] = (
            f"{PARTITIONER} was {before[PARTITIONER]}, and is {now[PARTITIONER]}: keys would come to other tasks than "
            "their rows are in"
        )
    if KEYS in before and KEYS in now and before[KEYS] != now[KEYS]:
        found[KEYS] = f"keys were read as {before[KEYS]}, and are read as {now[KEYS]}, which does not find the rows"
    if ROWS_OF in before and before[ROWS_OF] != now.get(ROWS_OF):
        was, are = (", ".join(of.get(ROWS_OF, ())) or "no table" for of in (before, now))
        found[ROWS_OF] = f"it was made of the rows of {was}, and is made of those of {are}"
    if KEPT in before and now.get(GRACE, 0) > before[KEPT]:
        found[GRACE] = (
            f"windows that ended over {before[KEPT]} ms ago are gone, and with a grace of {now[GRACE]} ms late events "
            "would begin them anew"
        )
    return found


def _rules(said: Mapping[str, Any]) -> set[str]:
    """By which records are brought to a table. Which of what an app sends comes to it is found in the code as well as
    may be, by later releases better: so some of them may differ where the app has not changed."""
    return set(said[PARTITIONER].split(", "))


def doubts(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What has changed of the types that rows of one version have, and may be meant: a class may have another name, and
    a type be told that rows have had before. Rows are read as they were written."""
    found = []
    if KEY_TYPE in {*before, *now} and _is_refined(before, now):
        found.append(f"{_changed(KEY_TYPE, before, now)}: rows whose keys are of another type are not found by those")
    if VALUE_TYPE in before and before[VALUE_TYPE] != now.get(VALUE_TYPE):
        found.append(f"{_changed(VALUE_TYPE, before, now)}: rows that are there are not made anew of it")
    return found


def _changed(name: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    return f"{name} was {_told(before.get(name))}, and is {_told(now.get(name))}"


def _is_refined(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether the type of keys is told now, or not told any more, and they are written alike all the same."""
    was, is_now = before.get(KEY_TYPE), now.get(KEY_TYPE)
    return was != is_now and (was is None or is_now is None) and (was or is_now) in _PLAIN_KEYS


def name_of(kind: Any) -> str | None:
    """A type as text, without its modules: a class may move to another one."""
    if kind is None:
        return None
    return str(kind.__name__) if isinstance(kind, type) else re.sub(r"(?:\w+|<locals>)\.", "", str(kind))


def _told(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={of}" for name, of in value.items())
    return "none" if value is None else str(value)


def digest_of(topics: Iterable[str], tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Of a sub-topology: what it reads, and what its tables are."""
    said = orjson.dumps([sorted(topics), dict(tables)], option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(said).hexdigest()[:16]
