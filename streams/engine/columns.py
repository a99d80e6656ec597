"""Records as columns: what a topic with `columns=` gives in place of events, `pyarrow.RecordBatch`es.

Their columns are key, value, timestamp, offset, partition, topic and headers. Keys and values without a type share the
memory that the fetched batches were read into; JSON objects become structs by Arrow's own reader, and no record is ever
a Python object. pyarrow is loaded by the first topic that has columns.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import datetime
from types import NoneType, UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from ...protocol.records import Columns
from ..errors import AppError
from .event import NO_WATERMARK, Carrier, Event

SCALARS = {bool: "bool_", int: "int64", float: "float64", str: "string", bytes: "binary"}
NAMES = ("key", "value", "timestamp", "offset", "partition", "topic", "headers")


class ColumnTypes(NamedTuple):
    """key: pyarrow's type of keys; value: of values, a struct for JSON objects, else binary."""

    key: Any
    value: Any


class Refused(ValueError):
    """Records that cannot be decoded; where they are is not known."""


def pyarrow() -> Any:
    """The package. Raises AppError where it is not there."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.json
    except ImportError as error:
        raise AppError("columns need the package pyarrow: pip install 'isthmus[arrow]'") from error
    return pyarrow


def column_types(topic: str, columns: Any, key_type: Any, is_json: bool) -> ColumnTypes:
    """columns: what values are: a `pyarrow.Schema` or a class whose annotations are the fields of a JSON object; True:
    bytes. key_type: str, int or float; bytes otherwise. Raises AppError for what Arrow has no type for."""
    pa = pyarrow()
    keys = {None: pa.binary(), bytes: pa.binary(), str: pa.string(), int: pa.int64(), float: pa.float64()}
    if key_type not in keys:
        raise AppError(f"topic {topic}: keys of {key_type!r} are no column; key_type= may be bytes, str, int or float")
    if columns is True:
        return ColumnTypes(keys[key_type], pa.binary())
    if not is_json:
        raise AppError(f"topic {topic}: only JSON becomes columns; columns=True gives the bytes of values")
    if isinstance(columns, pa.Schema):
        return ColumnTypes(keys[key_type], pa.struct(list(columns)))
    if not isinstance(columns, type):
        raise AppError(f"topic {topic}: columns={columns!r} is no pyarrow.Schema, no class with annotations, nor True")
    return ColumnTypes(keys[key_type], _struct_of(pa, topic, columns))


def _struct_of(pa: Any, topic: str, cls: type) -> Any:
    hints = get_type_hints(cls)
    if not hints:
        raise AppError(f"topic {topic}: {cls.__name__} annotates no fields, of which columns could be made")
    return pa.struct(
        [pa.field(name, _type_of(pa, f"topic {topic}: {cls.__name__}.{name}", hint)) for name, hint in hints.items()]
    )


def _type_of(pa: Any, where: str, hint: Any) -> Any:
    if get_origin(hint) in (Union, UnionType):
        others = [each for each in get_args(hint) if each is not NoneType]
        if len(others) == 1:
            return _type_of(pa, where, others[0])
    elif hint in SCALARS:
        return getattr(pa, SCALARS[hint])()
    elif hint is datetime:
        return pa.timestamp("us", "UTC")
    elif get_origin(hint) is list:
        return pa.list_(_type_of(pa, where, get_args(hint)[0]))
    elif isinstance(hint, type) and (dataclasses.is_dataclass(hint) or get_type_hints(hint)):
        return _struct_of(pa, where, hint)
    raise AppError(
        f"{where}: {hint!r} is no column; bool, int, float, str, bytes, datetime, lists of them, other such classes, "
        "and each of them or None are. Give a pyarrow.Schema for other types"
    )


def record_batch(found: Columns, types: ColumnTypes, topic: str, partition: int) -> Any:
    """Decoded records as one `pyarrow.RecordBatch`. Raises Refused."""
    from ...protocol import arrow  # allowed: pyarrow is there

    pa = pyarrow()
    count = found.count
    arrays = [
        _typed(pa, arrow.keys(found), types.key),
        _typed(pa, arrow.values(found), types.value),
        arrow.timestamps(found),
        arrow.offsets(found),
        pa.repeat(pa.scalar(partition, pa.int32()), count),
        pa.repeat(pa.scalar(topic), count),
        arrow.headers(found),
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(NAMES))


def decoded(
    found: Columns, types: ColumnTypes, topic: str, partition: int, refused: Callable[[int, str], bool]
) -> tuple[list[Any], int | None]:
    """Record batches of the records that can be decoded, and the offset of one at which they end, if they do. refused:
    told of each other record by its offset and what is wrong; whether the records after it are wanted."""
    from ...protocol import arrow  # allowed: pyarrow is there

    if not found.count:
        return [], None
    try:
        return [record_batch(found, types, topic, partition)], None
    except Refused:
        pass
    pa = pyarrow()
    plain = record_batch(found, ColumnTypes(pa.binary(), pa.binary()), topic, partition)
    offsets = arrow.offsets(found)
    kept: list[Any] = []
    for begin, end, problem in _split(pa, plain, types, 0, found.count):
        if problem is None:
            kept.append(_retyped(pa, plain.slice(begin, end - begin), types))
        elif not refused(offsets[begin].as_py(), problem):
            return kept, offsets[begin].as_py()
    return kept, None


def _split(pa: Any, plain: Any, types: ColumnTypes, begin: int, end: int) -> list[tuple[int, int, str | None]]:
    """Spans of rows that can be decoded, and each row that cannot, with what is wrong; in order."""
    try:
        _retyped(pa, plain.slice(begin, end - begin), types)
    except Refused as error:
        if end - begin == 1:
            return [(begin, end, str(error))]
        middle = (begin + end) // 2
        return _split(pa, plain, types, begin, middle) + _split(pa, plain, types, middle, end)
    return [(begin, end, None)]


def _retyped(pa: Any, plain: Any, types: ColumnTypes) -> Any:
    key, value, *others = plain.columns
    return pa.RecordBatch.from_arrays(
        [_typed(pa, key, types.key), _typed(pa, value, types.value), *others], names=list(NAMES)
    )


def _typed(pa: Any, column: Any, type_: Any) -> Any:
    if type_ == pa.binary():
        return column
    try:
        if not pa.types.is_struct(type_):
            text = column.cast(pa.string())
            return text if type_ == pa.string() else text.cast(type_)
        return _structs(pa, column, type_)
    except (pa.ArrowException, UnicodeError) as error:
        raise Refused(str(error)) from error


def _structs(pa: Any, column: Any, type_: Any) -> Any:
    """JSON objects as structs. Each is read as the field of an object of its own, so that none runs into the next."""
    text = column.cast(pa.string())  # Arrow's JSON reader does not check that it is UTF-8
    data = pa.compute.binary_join_element_wise(
        '{"v":', text, "}\n", "", null_handling="replace", null_replacement="null"
    )
    ends = memoryview(data.buffers()[1]).cast("i")
    begin, end = ends[data.offset], ends[data.offset + len(data)]
    joined = data.buffers()[2].slice(begin, end - begin)
    table = pa.json.read_json(
        pa.BufferReader(joined),
        read_options=pa.json.ReadOptions(use_threads=False, block_size=joined.size + 1),
        parse_options=pa.json.ParseOptions(
            explicit_schema=pa.schema([pa.field("v", type_)]), unexpected_field_behavior="ignore"
        ),
    )
    if table.num_rows != len(column):
        raise Refused("a value is more than one JSON object")
    return table.column("v").combine_chunks()


def batch_event(batch: Any, topic: str, partition: int, carrier: Carrier | None) -> Event:
    """An event with a record batch as its value: the offset is that of the first record, the time that of the last."""
    offset, times = batch.column("offset")[0].as_py(), batch.column("timestamp")
    latest = times[len(times) - 1].value
    return Event(None, batch, latest, topic, partition, offset, (), NO_WATERMARK, carrier)


def cut(events: list[Event], most: int) -> tuple[list[Event], list[Event]]:
    """The first rows of record batches, and what is left of them."""
    rows = 0
    for number, event in enumerate(events):
        batch = event.value
        room = most - rows
        if batch.num_rows > room:
            at = event.topic, event.partition, event.carrier
            first = [batch_event(batch.slice(0, room), *at)] if room else []
            return events[:number] + first, [batch_event(batch.slice(room), *at), *events[number + 1 :]]
        rows += batch.num_rows
    return events, []


def joined(batches: list[Any]) -> Any:
    """Record batches as one."""
    if len(batches) == 1:
        return batches[0]
    [whole] = pyarrow().Table.from_batches(batches).combine_chunks().to_batches()
    return whole


def is_columns(value: Any) -> bool:
    """Whether it is a record batch or a table of pyarrow's."""
    return type(value).__module__ == "pyarrow.lib" and hasattr(value, "num_rows")


def records_of(rows: Any, key: str) -> list[tuple[Any, Any, int | None]]:
    """(key, value, timestamp in ms) of each row of a record batch or table. key: the name of the column with keys,
    which need not be there. Values are the column `value`, or dicts of all columns but those of keys, timestamps and
    headers. Raises AppError for a table of which no values can be made."""
    names = rows.schema.names
    fields = [name for name in names if name not in (key, "timestamp", "headers")]
    if not fields:
        raise AppError(f"columns {', '.join(names)} are no values: a table needs a column value, or others")
    keys = rows.column(key).to_pylist() if key in names else [None] * rows.num_rows
    values = rows.column("value").to_pylist() if "value" in names else rows.select(fields).to_pylist()
    if "timestamp" not in names:
        return [(k, v, None) for k, v in zip(keys, values, strict=True)]
    pa = pyarrow()
    times = (
        pa.compute.cast(rows.column("timestamp"), pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64()).to_pylist()
    )
    return list(zip(keys, values, times, strict=True))
