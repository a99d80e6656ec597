"""Which partition a key belongs to: one rule for what an app writes, and for where it looks for a row.

A rule is a partitioner by librdkafka's name, or a function. Records of one key meet only where all that is read
together is partitioned by the same rule, which clients do not agree on (`docs/explanation/partitioners.md`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...client.partitioner import ANY, PARTITIONERS, Partitioner
from ..errors import AppError
from .plain_functions import refuse_async

KeyRule = str | Partitioner
PAGE = "docs/explanation/partitioners.md"
LOOK_EVERY = 32  # fetches of a topic, of which the keys of one are looked at
LOOK_KEYS = 20  # of one fetch
TELLING = 5  # so many keys tell by which partitioner a topic was written


def key_rule(value: Any, whose: str) -> KeyRule:
    """A partitioner as the client takes it. A function of (key, number of partitions), or, as Faust has it, of (key,
    all partitions, available partitions). Raises AppError for what is none."""
    if isinstance(value, str):
        if value not in PARTITIONERS:
            raise AppError(f"{whose}: there is no partitioner {value}: choose from {', '.join(PARTITIONERS)}")
        return value
    if not callable(value):
        raise AppError(f"{whose}: partitioner={value!r} is neither a name nor a function of (key, partitions)")
    refuse_async(f"partitioner= of {whose}", value)
    return value if isinstance(value, _Checked) else _Checked(value, whose)


class _Checked:
    """A function of the app's. What it returns is looked at: to the client it would be a record that is not taken."""

    def __init__(self, function: Callable[..., Any], whose: str) -> None:
        self.function = function
        self.whose = whose
        try:
            self.is_fausts = len(inspect.signature(function).parameters) >= 3
        except ValueError:  # a builtin without one
            self.is_fausts = False

    def __call__(self, key: bytes | None, count: int) -> int:
        given = (list(range(count)), list(range(count))) if self.is_fausts else (count,)
        found = self.function(key, *given)
        if not isinstance(found, int) or not 0 <= found < count:
            raise AppError(f"{self.whose}: its partitioner chose {found!r} of {count} partitions for key {key!r}")
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Checked) and other.function == self.function

    def __hash__(self) -> int:
        return hash(self.function)


def name_of(by: KeyRule) -> str:
    return by if isinstance(by, str) else getattr(getattr(by, "function", by), "__name__", repr(by))


def told(by: KeyRule) -> str:
    """As markers of tables have it. What a record without a key gets makes no difference, and functions cannot be
    compared."""
    return by.removesuffix("_random") if isinstance(by, str) else "a function"


def partition_of(key: bytes | None, count: int, by: KeyRule) -> int | None:
    """Of so many; None where the rule leaves the choice."""
    found = PARTITIONERS[by](key, count) if isinstance(by, str) else by(key, count)
    return None if found == ANY else found


class Places:
    """Whether the records of an input are where its rule puts their keys: of one fetch in LOOK_EVERY, the first
    LOOK_KEYS. seen: keys looked at; elsewhere: those that were not there."""

    def __init__(self, app: str, topic: str, rule: KeyRule) -> None:
        self.seen = self.elsewhere = 0
        self._app, self._topic, self._rule = app, topic, rule
        self._fetches = 0
        self._is_told = False

    def is_due(self) -> bool:
        """For each fetch: whether it is one to look at."""
        self._fetches += 1
        return self._fetches % LOOK_EVERY == 1

    def look(self, keys: Iterable[bytes | None], partition: int, count: int) -> str | None:
        """keys: of records in this partition of so many. Returns what to tell of it, the first time that there is."""
        some = [bytes(key) for key in keys if key]
        wrong = [key for key in some if partition_of(key, count, self._rule) not in (partition, None)]
        self.seen += len(some)
        self.elsewhere += len(wrong)
        if not wrong or self._is_told:
            return None
        self._is_told = True
        fits = [
            name
            for name in ("murmur2_random", "consistent_random", "fnv1a_random")
            if len(some) >= TELLING and all(partition_of(key, count, name) == partition for key in some)
        ]
        return (
            f"app {self._app}: topic {self._topic} is not partitioned by {name_of(self._rule)}: key {wrong[0]!r} "
            f"belongs in partition {partition_of(wrong[0], count, self._rule)} of {count}, and is in {partition} "
            f"({len(wrong)} of {len(some)} keys). What is read together with it may not meet its records"
            + (f". It seems to be partitioned by {fits[0]}" if fits else "")
            + f". See {PAGE}"
        )


def differing(rules: Mapping[str, KeyRule]) -> str | None:
    """rules: of topics that are read together. Says which differ, for records that have a key."""
    if len({each.removesuffix("_random") if isinstance(each, str) else each for each in rules.values()}) < 2:
        return None
    return ", ".join(f"{topic} by {name_of(each)}" for topic, each in sorted(rules.items()))
