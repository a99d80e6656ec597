"""Reads an app's tables from outside, without the app: from their changelogs, up to what is committed.

The format of a changelog is in `engine/checkpoint.py`; `runtime/commits.py` writes it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from ..client import Client
from ..client.partitioner import partition_for_key
from .engine.checkpoint import Position
from .engine.codecs import canonical_key, encode_table_key
from .engine.key_text import encodings, readings
from .engine.operators.session_windows import SessionWindowAggregate
from .engine.operators.sliding_windows import SlidingWindowAggregate
from .engine.operators.table_sources import TableSource
from .engine.operators.time_windows import TimeWindowAggregate
from .engine.stores.memory import MemoryStore
from .engine.tables import TableSpec
from .engine.task import Task, TaskId
from .engine.topic_names import changelog
from .engine.untyped_rows import UntypedCodec
from .errors import AppError
from .runtime.loading import load

_SESSIONS = SessionWindowAggregate.__name__
_OF_WINDOWS = (TimeWindowAggregate.__name__, SlidingWindowAggregate.__name__, _SESSIONS)


class TableRow(NamedTuple):
    """One committed row. window_start_ms: None if the table has no windows."""

    partition: int
    table: str
    key: Any
    window_start_ms: int | None
    value: Any


class Window(NamedTuple):
    """What a row of a window says. end_ms: of a session, the time of its last event. value: of a step's window, what it
    has added up so far."""

    key: Any
    start_ms: int
    end_ms: int
    value: Any


@dataclass
class Committed:
    """Tables of an app, and the input positions that they include: topic -> partition -> position. partitions: of each
    table; made_by: what their markers say of them (`engine/described.py`)."""

    rows: list[TableRow] = field(default_factory=list)
    made_by: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    positions: dict[str, dict[int, Position]] = field(default_factory=dict)
    partitions: dict[str, list[int]] = field(default_factory=dict)


async def read(
    client: Client,
    app_id: str,
    tables: Sequence[str],
    windowed: Sequence[str] = (),
    partitions: Sequence[int] | None = None,
) -> Committed:
    """The committed rows of tables of an app; `windowed` names those that have windows. partitions: only these are
    read. Raises AppError for a table that the app never had on this cluster."""
    found = Committed()
    for name in tables:
        found.partitions[name] = await partitions_of(client, app_id, name)
        wanted = [each for each in found.partitions[name] if partitions is None or each in partitions]
        spec = TableSpec(name, codec=UntypedCodec())
        tasks = [Task(app_id, TaskId(name, p), {name: MemoryStore(spec)}) for p in wanted]
        await load(client, tasks, partial(changelog, app_id))
        for task in tasks:
            task.restored()
            for _ in task.stores[name].settle():
                pass
            if name in task.found:
                found.made_by[name] = task.found[name].table
            for input_topic, at in task.positions.items():
                found.positions.setdefault(input_topic, {})[task.partition] = at
            for key, value in task.stores[name].rows.items():
                start = None
                if name in windowed:
                    key, start = key
                found.rows.append(TableRow(task.partition, name, key, start, value))
    return found


def window_of(row: TableRow, made_by: Mapping[str, Any]) -> Window | None:
    """The window that a row is of; None: its table has none. made_by: what is known of the table."""
    key, value, step = row.key, row.value, made_by.get("step")
    if step in _OF_WINDOWS or (step is None and "size_ms" in made_by):
        of, start_ms = key
        result = value if step is None else value[0]
        return Window(of, start_ms, value[1] if step == _SESSIONS else start_ms + made_by["size_ms"], result)
    if step == TableSource.__name__ and isinstance(key, tuple) and list(map(type, key[1:])) == [int, int]:
        of, start_ms, end_ms = key
        return Window(of, start_ms, end_ms, value)  # a table of the results of windows
    return None


async def partitions_of(client: Client, app_id: str, table: str) -> list[int]:
    """Raises AppError for a table that the app never had on this cluster."""
    topic = changelog(app_id, table)
    await client.refresh_metadata([topic])
    partitions = client.partitions(topic)
    if not partitions:
        raise AppError(f"there is no topic {topic}: app {app_id} never ran with a table {table} against this cluster")
    return list(partitions)


def places_of(key: str, partitions: int) -> list[int]:
    """Where the row of a key may be, as it is typed: in the partition of records with this key, which is that of a
    table's rows; of a global table, in that of the row's own key. An app may store rows under other keys than its
    records have: these are anywhere."""
    known = encodings(key)
    for each in readings(key):
        with contextlib.suppress(TypeError):  # what cannot be a table's key
            known.append(encode_table_key(canonical_key(each)))
    return list(dict.fromkeys(partition_for_key(data, partitions) for data in known))
