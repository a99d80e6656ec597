"""Which task a row is of, when its table gets another number of partitions. Pure.

A row is where the records of its key are: in most tables its key is the records', in some it is a part of the row's
key, or of its value. Rows that say what was seen, and not what it counted to, are in all tasks then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


class _Everywhere:
    def __repr__(self) -> str:
        return "EVERYWHERE"


EVERYWHERE = _Everywhere()  # in place of a record's key: the row is of all tasks


@dataclass(frozen=True)
class Placement:
    """record_key: of a row's key and value, the key of its records, or EVERYWHERE. needs_value: it is asked with the
    value, and not about rows that were deleted; else with None. is_numbered: the last part of the row's key is a number
    that is one of its task alone. merge: of tables whose rows are in all tasks, what becomes of the values that one key
    has in several tasks; None: there is one, or all are equal."""

    record_key: Callable[[Any, Any], Any]
    needs_value: bool = False
    is_numbered: bool = False
    merge: Callable[[Sequence[Any]], Any] | None = None


def _own(key: Any, value: Any) -> Any:
    return key


def _first(key: Any, value: Any) -> Any:
    return key[0]


def _of_event(key: Any, value: Any) -> Any:
    return value[0]


def _of_timer(key: Any, value: Any) -> Any:
    """A timer without a key is of the task."""
    return EVERYWHERE if key[2] is None else key[2]


def _anywhere(key: Any, value: Any) -> Any:
    return EVERYWHERE


def _all_of(values: Sequence[Any]) -> Any:
    return sorted({each for value in values for each in value})


BY_KEY = Placement(_own)
BY_FIRST = Placement(_first)  # of a row's key: (key, start of a window), and so on
BY_EVENT = Placement(_of_event, needs_value=True, is_numbered=True)  # (timestamp, number) -> a packed event
BY_TIMER = Placement(_of_timer, needs_value=True)
FARTHEST = Placement(_anywhere, needs_value=True, merge=max)  # how far something is, once no task is behind another
SEEN = Placement(_anywhere, needs_value=True, merge=_all_of)  # id -> times at which it was seen
