"""What the tables of an app are, as its changelogs keep it, to be compared with what they are later. Pure.

Only what the meaning of rows depends on is in it: which step makes them, and the lengths of its windows. How long rows
are kept may change at any time. How long a step's windows wait for late events may not be more than rows were kept: a
window that has closed would begin anew with a late event, and be given again without all that was in it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

COMPUTES = "computes"  # what a step makes of values: its columns, or its name
GRACE, KEPT = "grace_ms", "kept_ms"  # how long windows wait for late events, and how long their rows are there, at most
PARTITIONER = "partitioner"  # by which the app itself brings records to the table
_COMPARED_ELSEWHERE = ("version", "part", GRACE, KEPT, PARTITIONER)


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, str]:
    """What rows of a table were made by, and are made by now, where that is not the same, in words, by name. What an
    earlier release did not keep is not known to differ."""
    names = [name for name in {**before, **now} if name not in _COMPARED_ELSEWHERE and before]
    found = {
        name: f"{name} was {_told(before.get(name))}, and is {_told(now.get(name))}"
        for name in names
        if before.get(name) != now.get(name)
    }
    if PARTITIONER in before and PARTITIONER in now and before[PARTITIONER] != now[PARTITIONER]:
        found[PARTITIONER] = (
            f"{PARTITIONER} was {before[PARTITIONER]}, and is {now[PARTITIONER]}: keys would come to other tasks than "
            "their rows are in"
        )
    if KEPT in before and now.get(GRACE, 0) > before[KEPT]:
        found[GRACE] = (
            f"windows that ended over {before[KEPT]} ms ago are gone, and with a grace of {now[GRACE]} ms late events "
            "would begin them anew"
        )
    return found


def _told(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={of}" for name, of in value.items())
    return "none" if value is None else str(value)


def digest_of(topics: Iterable[str], tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Of a sub-topology: what it reads, and what its tables are."""
    said = orjson.dumps([sorted(topics), dict(tables)], option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(said).hexdigest()[:16]
