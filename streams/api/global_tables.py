"""`GlobalTable` and `SetGlobalTable`: tables of which each worker has all rows.

Any agent, page or timer reads any row where it runs. Agents write them; who writes a row of a key should be one task,
as with other tables, or the last one to commit counts. A worker sees its own writes at once, and those of others once
they are committed and have come to it. Agents that use such a table are not bound to others for that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..engine.serialized_rows import SerializedCodec
from ..engine.table_codec import TableCodec
from ..engine.tables import TableSpec
from ..errors import AppError
from .sets import SetTable
from .tables import Table
from .topics import Topic


class GlobalTable(Table):
    """Made by `App.GlobalTable`. A dict with all rows of all workers; of a topic's records, if it is made of one."""


class SetGlobalTable(SetTable):
    """Made by `App.SetGlobalTable`: a `SetTable` of which each worker has all sets."""


TYPES = ("key_type", "value_type", "key_serializer", "value_serializer", "schema")


def view_of(spec: TableSpec, topic: Topic, options: Mapping[str, Any]) -> None:
    """Have a table's rows be the last value of each key of a topic. Raises AppError for what cannot be."""
    said = [name for name in TYPES if options.get(name) is not None]
    if said:
        raise AppError(f"table {spec.name}: {said[0]}= is the topic's: declare it there, app.topic(…, {said[0]}=…)")
    if len(topic.names) != 1:
        raise AppError(f"table {spec.name}: a global table is of one topic, not of {', '.join(topic.names)}")
    if topic.serialization.schema is not None:
        raise AppError(
            f"table {spec.name}: topic {topic.names[0]} is read by methods of its own Schema, which look at whole "
            "messages; a global table needs key_type=, value_type= and serializers"
        )
    spec.source = topic.names[0]
    spec.codec = SerializedCodec(TableCodec(), topic.serialization.key, topic.serialization.value)
