"""Reads an app's tables from outside, without the app: from its changelog, up to the last end markers that count.

The format of the changelog is in `engine/changelog.py`; `runtime/worker.py` writes it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..client import Client
from .engine.changelog import Positions
from .engine.codecs import decode_table_value
from .engine.tables import split_key
from .errors import AppError
from .runtime.loading import load_partition


class TableRow(NamedTuple):
    """One committed row. window_start_ms: None if the table has no windows."""

    task: int
    table: str
    key: Any
    window_start_ms: int | None
    value: Any


@dataclass
class Committed:
    """All tables of an app, and the input positions that they include."""

    rows: list[TableRow] = field(default_factory=list)
    positions: Positions = field(default_factory=dict)


async def read(client: Client, app_id: str, windowed: tuple[str, ...] = ()) -> Committed:
    """The committed state of every task of an app; `windowed` names the tables that have windows."""
    topic = f"{app_id}-changelog"
    await client.refresh_metadata([topic])
    partitions = client.partitions(topic)
    if not partitions:
        raise AppError(f"there is no topic {topic}: app {app_id} never ran against this cluster")
    found = Committed()
    for number in partitions:
        restored = await load_partition(client, app_id, topic, number)
        for name, each in restored.positions.items():
            found.positions.setdefault(name, {}).update(each)
        for data, value in restored.rows.items():
            table, key = split_key(data)
            start = None
            if table in windowed:
                key, start = key
            found.rows.append(TableRow(number, table, key, start, decode_table_value(value)))
    return found
