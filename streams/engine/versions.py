"""Versions of tables: what rows of an earlier or later version of the code become when a task is restored. Pure.

A table's marker says of which version its rows are. Where the code has another one, migrations are run over all rows of
the partition, and what they make is written by the task's first checkpoint, in one transaction with a marker of the new
version: until then a kill leaves all rows as they were, and the next restoration begins again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any

from ..errors import ChangeRefused
from .described import BRIDGED_BY, COMPUTES, PARTITIONER, differences
from .feeding import FED_ROWS_MAX, new_steps, unfed
from .migration import DROP, Migration
from .steps import in_steps
from .stores.store import Store
from .tables import TableSpec
from .task import Task

MIGRATED_ROWS_MAX = 2_000_000  # of a table's partition: they are in memory, and in one transaction

Rewritten = tuple[bytes, bytes | None]  # a row as the changelog has it; None: it is no more


def path(spec: TableSpec, before: Mapping[str, Any]) -> list[Migration]:
    """The fewest migrations by which rows become the table's; none where they are of its version. before: what they
    were (`TableSpec.description`). Raises ChangeRefused where there is no way, and where they mean something else."""
    version = before.get("version", 1)
    check_alike(spec, before)
    new_steps(spec.name, before, spec.description)
    if version == spec.version or spec.derived is not None:
        return []
    if spec.adopt is not None:
        if not isinstance(before.get(COMPUTES), Mapping):
            raise ChangeRefused(
                f"table {spec.name} has rows of version {version} that were not made of columns: give the step a new "
                "name, with which it begins empty"
            )
        anew = _fates(spec, before)["begun anew"]
        if anew and spec.takes_out:
            raise ChangeRefused(
                f"table {spec.name} is of groups of a table's rows, and column {anew[0]} is new: rows that are there "
                "would be taken out of it without having been put in. Leave it out, or give the step and the table "
                "that its rows are of new names, with which both begin empty"
            )
        return [Migration(version, spec.version, spec.adopt(before), codec=spec.codec)]
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
    declare = f"declare how they change, @{spec.name}.migration({step}), or "
    if spec.part:  # a step has no way back
        declare = f"give the step migrate={{{version}: a function}}, or " if version < spec.version else ""
    raise ChangeRefused(
        f"table {spec.name} has rows of version {version}, and the code has version {spec.version}: {declare}run the "
        f"code that has version {version}"
    )


def adopted(spec: TableSpec, before: Mapping[str, Any]) -> str:
    """What becomes of the columns of a step whose rows are of another version, for people."""
    return ", ".join(
        f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} {fate}"
        for fate, names in _fates(spec, before).items()
        if names
    )


def _fates(spec: TableSpec, before: Mapping[str, Any]) -> dict[str, list[str]]:
    was, now = before[COMPUTES], spec.made_by[COMPUTES]
    return {
        "kept": [name for name in now if was.get(name) == now[name]],
        "begun anew": [name for name in now if was.get(name) != now[name]],
        "dropped": [name for name in was if name not in now],
    }


def prepare(task: Task) -> Generator[None, None, dict[str, int]]:
    """Make rows of a restored task those of the present code, and find its windows, in steps of some rows. Returns how
    many rows of which tables were rewritten. Raises ChangeRefused for rows that are not what the code says."""
    done: dict[str, int] = {}
    if any(marker.topology != task.topology for marker in task.found.values()):
        task.changed = True  # markers of what the task is now: those of tables that part must not name what they left
    for table, store in sorted(task.stores.items(), key=lambda each: each[1].spec.derived is not None):
        marker, spec = task.found.get(table), store.spec
        yield from store.count()
        if marker is None:
            yield from store.settle()
            continue
        check_bridged(table, marker.topology.get(BRIDGED_BY), task.topology.get(BRIDGED_BY))
        steps = path(spec, marker.table)
        if steps:
            making = rewritten(spec, steps, store.encoded())
        elif spec.derived is not None and marker.table.get("version", 1) != spec.version:
            making = _derived(spec, task.stores[spec.derived.of], store.encoded())
        else:
            yield from store.settle()
            continue
        changes: list[Rewritten] = []
        for each in making:
            if each is not None:
                changes.append(each)
            yield
        yield from store.migrate(changes)
        done[table] = len(changes)
        task.changed = True
    for table, marker in task.found.items():
        _feed(task, table, marker.table)
    yield from task.open_windows()
    return done


def _feed(task: Task, table: str, before: Mapping[str, Any]) -> None:
    """Note which steps are to be given the rows of a table, and which have missed changes of it."""
    store, now = task.stores[table], task.stores[table].spec.description
    if missed := unfed(before, now):
        task.unfed[table] = missed
    if steps := new_steps(table, before, now):
        if len(store.rows) > FED_ROWS_MAX:
            raise ChangeRefused(
                f"table {table} has more than {FED_ROWS_MAX} rows in a partition, which cannot be given to step "
                f"{steps[0]} in one transaction: rescale the app to more partitions, or compute its tables again, "
                "`isthmus streams reset`"
            )
        task.feeding[table] = steps
        task.changed = True


def _derived(spec: TableSpec, of: Store, rows: Iterable[tuple[bytes, bytes]]) -> Iterator[Rewritten | None]:
    """The same as `rewritten`, for rows that are made anew of those of another table, which are of this version."""
    assert spec.derived is not None
    before: dict[bytes, bytes] = {}
    for some in in_steps(rows):
        before.update(some)
        yield None
    made: dict[bytes, bytes] = {}
    for key, row in of.rows.items():
        try:
            made[spec.encode_key(key)] = spec.encode_value(key, spec.derived.made(row))
        except Exception as error:
            raise ChangeRefused(f"table {spec.name}: its row of key {key!r} cannot be made anew: {error}") from error
        yield None
    yield from ((key, None) for key in before if key not in made)
    yield from ((key, value) for key, value in made.items() if before.get(key) != value)


def check_alike(spec: TableSpec, before: Mapping[str, Any]) -> None:
    """Raises ChangeRefused where rows of one version mean something else now; rows of a step's windows also where those
    have changed, whatever their version."""
    version = before.get("version", 1)
    found = differences(before, spec.description)
    if version != spec.version:
        found = {name: said for name, said in found.items() if name == PARTITIONER or (spec.part and name != COMPUTES)}
    if not found:
        return
    ways = ["Give it the old settings again", "or a new name, with which it begins empty"]
    if PARTITIONER in found:
        ways.append("or compute all tables again, `isthmus streams reset`: no migration moves rows to another task")
    elif not spec.part:
        ways.append(f"or version={version + 1} with a migration of its rows")
    elif list(found) == [COMPUTES] and spec.adopt is not None and not spec.takes_out:
        ways.append(f"or version={version + 1}: columns keep what they have, and new ones begin with what comes")
    raise ChangeRefused(
        f"table {spec.name} has rows of version {version} that mean something else now: {'; '.join(found.values())}. "
        + ", ".join(ways)
    )


def check_bridged(table: str, before: str | None, now: str | None) -> None:
    """Raises ChangeRefused where bridges would bring records of a key to another task than their rows are in. None: no
    topic of the table is bridged, or it was not kept by which rule."""
    if None not in (before, now) and before != now:
        raise ChangeRefused(
            f"table {table} has rows of records that the app has brought to its tasks by {PARTITIONER} {before}, and "
            f"would bring by {now}: keys would come to other tasks than their rows are in. Give the app "
            f"producer_{PARTITIONER}={before}, or its topics the {PARTITIONER} that they had, or compute all tables "
            "again, `isthmus streams reset`: no migration moves rows to another task"
        )


def rewritten(
    spec: TableSpec, steps: list[Migration], rows: Iterable[tuple[bytes, bytes]]
) -> Iterator[Rewritten | None]:
    """None for each row that was looked at, or has not changed; rows that are no more, then those that there are.
    Raises ChangeRefused for a row that a migration does not take, or makes what is no row."""
    before: dict[bytes, bytes] = {}
    made: dict[bytes, tuple[Any, Any]] = {}
    merge = next((each.merge for each in reversed(steps) if each.merge is not None), None)
    for number, (key, value) in enumerate(rows):
        if number >= MIGRATED_ROWS_MAX:
            raise ChangeRefused(
                f"table {spec.name} has more than {MIGRATED_ROWS_MAX} rows in a partition, which cannot be migrated in "
                "one transaction: let a new table take them in, by an agent that reads the changelog"
            )
        yield None
        before[key] = value
        row = _migrated(spec, steps, key, value)
        if row is None:
            continue
        new_key = row[0]
        data = spec.encode_key(new_key)
        if data in made:
            if merge is None:
                raise ChangeRefused(
                    f"table {spec.name}: two rows of version {steps[0].from_version} become the row {new_key!r}: give "
                    "the migration merge=, which returns one value for two"
                )
            row = (new_key, _merged(spec, merge, made[data][1], row))
        made[data] = (new_key, row[1])
    for key in before:
        if key not in made:
            yield key, None
    for key, (new_key, new_value) in made.items():
        written = spec.encode_value(new_key, new_value)
        yield (key, written) if before.get(key) != written else None


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
        new_key = spec.canonical_key(new_key)
        spec.encode_key(new_key)
        spec.encode_value(new_key, new_value)
        return new_key, new_value
    except Exception as error:
        raise ChangeRefused(
            f"table {spec.name}: the migration of version {steps[0].from_version} to {spec.version} raised "
            f"{type(error).__name__}: {error}, at the row of key {key.decode(errors='replace')}"
        ) from error


def _merged(spec: TableSpec, merge: Callable[[Any, Any], Any], value: Any, row: tuple[Any, Any]) -> Any:
    try:
        made = merge(value, row[1])
        spec.encode_value(row[0], made)
        return made
    except Exception as error:
        raise ChangeRefused(
            f"table {spec.name}: merge= of the migration raised {type(error).__name__}: {error}, at the row of key "
            f"{row[0]!r}"
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
