# mypy: ignore-errors
"""What rows of tables are after a restart: run as `tables.py faust` or `tables.py isthmus`, it prints one JSON object.

A row is written by the table's own means, and read from those bytes into a table in memory. An outcome is a repr of key
and value; of an error, that it is one.
"""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import UTC, datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID

IS_FAUST = not TYPE_CHECKING and sys.argv[1] == "faust"
if IS_FAUST:
    import faust
else:
    import isthmus.streams as faust
    from isthmus.streams.engine.stores.memory import MemoryStore


class Item(faust.Record, namespace="t.Item", coerce=True):
    sku: str
    price: Decimal
    at: datetime | None = None


class Order(faust.Record, namespace="t.Order"):
    id: str
    items: list[Item]
    tags: dict[str, int] = {}  # as Faust's users write it


ITEM = Item(sku="s", price=Decimal("1.50"), at=datetime(2020, 1, 2, tzinfo=UTC))
ORDER = Order(id="o", items=[ITEM], tags={"a": 1})
RAW = faust.Schema(key_type=str, value_type=bytes, key_serializer="raw", value_serializer="raw")
CASES = {  # options, key, value
    "record": ({"key_type": str, "value_type": Order}, "k", ORDER),
    "record with a default": ({"key_type": str, "value_type": Order}, "k", Order(id="o", items=[])),
    "coerced record": ({"key_type": str, "value_type": Item}, "k", ITEM),
    "record without a type": ({}, "k", ORDER),
    "record as key": ({"key_type": Item, "value_type": int}, ITEM, 1),
    "record as key without a type": ({}, ITEM, 1),
    "text and int": ({"key_type": str, "value_type": int}, "k", 1),
    "int key": ({"key_type": int, "value_type": int}, 7, 1),
    "float": ({"key_type": str, "value_type": float}, "k", 1.5),
    "bool": ({"key_type": str, "value_type": bool}, "k", True),
    "bytes": ({"key_type": bytes, "value_type": bytes}, b"\xff", b"\xfe"),
    "raw by a schema": ({"schema": RAW}, "k", b"\xfe"),
    "dict": ({"key_type": str}, "k", {"a": [1, 2.5, None, {"b": "c"}]}),
    "without types": ({}, "k", {"a": 1}),
    "int key without types": ({}, 7, 1),
    "tuple": ({"key_type": str}, "k", (1, "a")),
    "tuple as key": ({}, ("a", 1), 1),
    "set": ({"key_type": str, "value_type": set[int]}, "k", {1, 2}),
    "decimal": ({"key_type": str, "value_type": Decimal}, "k", Decimal("1.50")),
    "datetime": ({"key_type": str, "value_type": datetime}, "k", datetime(2020, 1, 2, tzinfo=UTC)),
    "uuid as key": ({"key_type": UUID, "value_type": int}, UUID(int=7), 1),
    "bytes in a dict": ({"key_type": str}, "k", {"a": b"\xff"}),
}
app = faust.App("t", broker="kafka://127.0.0.1:1", store="memory://")


async def restored(number: int, options: dict[str, Any], key: Any, value: Any) -> Any:
    table = app.Table(f"t{number}", **options)
    if not IS_FAUST:
        written, read = MemoryStore(table.spec), MemoryStore(table.spec)
        written.set(key, value)
        read.restore(written.take_changes(), 1)
        return read.rows
    topic = table.changelog_topic
    key_bytes, _ = topic.prepare_key(key, None)
    value_bytes, _ = topic.prepare_value(value, None)
    message = SimpleNamespace(key=key_bytes, value=value_bytes, headers={}, partition=0, topic="t", offset=0)
    table.apply_changelog_batch([await topic.decode(message, propagate=True)])
    return table.data.data


async def main() -> None:
    found = {}
    for number, (name, (options, key, value)) in enumerate(CASES.items()):
        try:
            [[restored_key, restored_value]] = (await restored(number, options, key, value)).items()
            same = type(restored_key) is type(key) and type(restored_value) is type(value)
            equal = same and (restored_key, restored_value) == (key, value)
            found[name] = f"{'equal' if equal else 'other'}: {restored_key!r}: {restored_value!r}"
        except Exception as error:
            found[name] = f"error: {type(error).__name__}"
    print(json.dumps(found))


asyncio.run(main())
