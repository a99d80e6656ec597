"""Versions of tables: what rows of an earlier or later version of the code become when a task is restored. Pure.

A table's marker says of which version its rows are. Where the code has another one, migrations are run over all rows of
the partition, and what they make is written by the task's first checkpoint, in one transaction with a marker of the new
version: until then a kill leaves all rows as they were, and the next restoration begins again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from ..errors import AppError, ChangeRefused
from .described import differences
from .migration import DROP, Migration
from .stores.store import Store
from .tables import TableSpec
from .task import Task

MIGRATED_ROWS_MAX = 2_000_000  # of a table's partition: they are in memory, and in one transaction

Rewritten = tuple[bytes, bytes | None]  # a row as the changelog has it; None: it is no more


def path(spec: TableSpec, version: int) -> list[Migration]:
    """The fewest migrations by which rows of this version become the table's; none where they are. Raises ChangeRefused
    where there is no way."""
    ways: dict[int, list[Migration]] = {version: []}
    waiting = deque(ways)
    while waiting and spec.version not in ways:
        at = waiting.popleft()
        for each in spec.migrations:
            if each.from_version == at and each.to_version not in ways:
                ways[each.to_version] = [*ways[at], each]
                waiting.append(each.to_version)
    if spec.version in ways:
        return ways[spec.version]
    step = f"from_version={version}, to_version={spec.version}" if version > spec.version else f"from_version={version}"
    raise ChangeRefused(
        f"table {spec.name} has rows of version {version}, and the code has version {spec.version}: declare how they "
        f"change, @{spec.name}.migration({step}), or run the code that has version {version}"
    )


def prepare(task: Task) -> dict[str, int]:
    """Make rows of a restored task those of the present code. Returns how many rows of which tables were rewritten.
    Raises ChangeRefused for rows that are not what the code takes them for."""
    done: dict[str, int] = {}
    if any(marker.topology != task.topology for marker in task.found.values()):
        task.changed = True  # markers of what the task is now: those of tables that part must not name what they left
    for table, store in task.stores.items():
        marker = task.found.get(table)
        if marker is None:
            store.settle()
            continue
        version = marker.table.get("version", 1)
        steps = path(store.spec, version)
        if not steps:
            check_alike(store.spec, marker.table)
            store.settle()
            continue
        done[table] = store.migrate(partial(rewritten, store.spec, steps))
        task.changed = True
    return done


def check_alike(spec: TableSpec, before: Mapping[str, Any]) -> None:
    """Raises ChangeRefused where rows of one version mean something else now."""
    found = differences(before, spec.description)
    if found:
        raise ChangeRefused(
            f"table {spec.name} has rows of version {spec.version} that mean something else now: {'; '.join(found)}. "
            "Give it the old settings again, or a new name, with which it begins empty"
            + ("" if spec.part else f", or version={spec.version + 1} with a migration of its rows")
        )


def rewritten(spec: TableSpec, steps: list[Migration], rows: Iterable[tuple[bytes, bytes]]) -> Iterator[Rewritten]:
    """Rows that are no more, then those that there are; what has not changed is in neither. Raises ChangeRefused for a
    row that a migration does not take, or makes what is no row."""
    before: dict[bytes, bytes] = {}
    made: dict[bytes, tuple[Any, Any]] = {}
    merge = next((each.merge for each in reversed(steps) if each.merge is not None), None)
    for number, (key, value) in enumerate(rows):
        if number >= MIGRATED_ROWS_MAX:
            raise ChangeRefused(
                f"table {spec.name} has more than {MIGRATED_ROWS_MAX} rows in a partition, which cannot be migrated in "
                "one transaction: let a new table take them in, by an agent that reads the changelog"
            )
        before[key] = value
        row = _migrated(spec, steps, key, value)
        if row is None:
            continue
        new_key = spec.canonical_key(row[0])
        data = spec.encode_key(new_key)
        if data in made:
            if merge is None:
                raise ChangeRefused(
                    f"table {spec.name}: two rows of version {steps[0].from_version} become the row {new_key!r}: give "
                    "the migration merge=, which returns one value for two"
                )
            row = (new_key, merge(made[data][1], row[1]))
        made[data] = (new_key, row[1])
    for key in before:
        if key not in made:
            yield key, None
    for key, (new_key, new_value) in made.items():
        written = spec.encode_value(new_key, new_value)
        if before.get(key) != written:
            yield key, written


def _migrated(spec: TableSpec, steps: list[Migration], key: bytes, value: bytes) -> tuple[Any, Any] | None:
    """One row through all steps; None: it is dropped."""
    try:
        row = steps[0].read(key, value, spec.windows is not None)
        for step in steps:
            made = step.function(*row)
            if made is DROP:
                return None
            row = made if step.with_keys else (row[0], made)
            new_key, new_value = row
        spec.encode_value(new_key, new_value)
        return new_key, new_value
    except AppError:
        raise
    except Exception as error:
        raise ChangeRefused(
            f"table {spec.name}: the migration of version {steps[0].from_version} to {spec.version} raised "
            f"{type(error).__name__}: {error}, at the row of key {key.decode(errors='replace')}"
        ) from error


def settled(store: Store, rows: list[tuple[bytes, bytes]]) -> Iterator[tuple[Any, Any]]:
    """Keys and values of restored rows. Raises ChangeRefused for one that the code cannot read, with its key."""
    spec = store.spec
    try:
        return iter(list(spec.decode_rows(rows)))
    except Exception as error:
        for key, value in rows:
            try:
                list(spec.decode_rows([(key, value)]))
            except Exception as cause:
                raise ChangeRefused(
                    f"table {spec.name}: the row of key {key.decode(errors='replace')} is not what the code says it "
                    f"is: {cause}. What it was written as has changed: give the table version={spec.version + 1} and "
                    f"@{spec.name}.migration(from_version={spec.version}), or run the code that wrote it"
                ) from error
        raise
