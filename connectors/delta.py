"""A small exactly-once Delta writer for `foreachBatch`: Delta's own log remembers which micro-batches are in it.

Each batch is one Delta commit that carries an application transaction (app id, batch id); a batch that Spark replays
after a crash is found there and left out. Written by delta-rs, so no jar is needed; a batch passes through the
driver's memory, so bound it (`maxOffsetsPerTrigger`).

delta-rs casts a batch to the table's types, and cuts values that do not fit: 10.99 is 10 in a BIGINT column. So the two
schemas are compared before each write, and a type that cannot hold every value of the batch's is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError as DeltaRsError
from deltalake.exceptions import TableNotFoundError
from pyspark.sql import DataFrame

from .errors import DeltaError

QUERY_ID = "sql.streaming.queryId"  # Spark's local property; the id stays as long as the checkpoint


class DeltaWriter:
    """`stream.writeStream.foreachBatch(DeltaWriter(path, app_id)).option("checkpointLocation", …)`.

    path: of the table, made at the first batch. app_id: names this query; several may write to one table.
    merge_schema: Delta's mergeSchema: columns of a batch that the table lacks are added to it, and columns that a batch
    lacks are null. Types are never changed.
    """

    def __init__(self, path: str | Path, app_id: str, *, merge_schema: bool = False) -> None:
        self.path = str(path)
        self.app_id = app_id
        self.merge_schema = merge_schema

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Append the batch, unless the table has it already.

        Raises DeltaError where table and checkpoint are not of one query, since batches would be lost or doubled, and
        where the batch's columns do not fit the table's.
        """
        query = batch.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
        checkpoint = int.from_bytes(blake2b(query.encode(), digest_size=7).digest()) if query else 0
        table = self._table()
        last = _version(table, self.app_id)
        if last >= 0 and _version(table, f"{self.app_id}.checkpoint") != checkpoint:
            raise DeltaError(
                f"the Delta table {self.path} has batches 0 to {last} of '{self.app_id}' from another checkpoint than "
                "this query's: go on with that checkpoint, write to another table, or choose another app id"
            )
        if last >= batch_id:
            return
        if batch_id != last + 1:
            missing = f"{last + 1} to {batch_id - 1}"
            raise DeltaError(
                f"batches {missing} of '{self.app_id}' are not in the Delta table {self.path}, though the checkpoint "
                "says so: was the table removed? Restore it, or remove the checkpoint too"
            )
        rows = batch.toArrow()
        if table is not None:
            self._compare(pa.schema(table.schema().to_arrow()), rows.schema)
            if self.merge_schema:  # the table's older rows have nothing in a column that is added
                rows = rows.cast(pa.schema([_nullable(field) for field in rows.schema]))
        try:
            write_deltalake(
                self.path if table is None else table,
                rows,
                mode="append",
                schema_mode="merge" if self.merge_schema else None,
                commit_properties=CommitProperties(
                    app_transactions=[
                        Transaction(self.app_id, batch_id),
                        Transaction(f"{self.app_id}.checkpoint", checkpoint),
                    ]
                ),
            )
        except DeltaRsError as error:
            raise DeltaError(f"the Delta table {self.path} does not take batch {batch_id}: {error}") from error

    def committed(self) -> int:
        """Id of the last micro-batch in the table; -1 when there is none."""
        return _version(self._table(), self.app_id)

    def rows(self) -> int:
        """Rows in the table, by its log alone."""
        table = self._table()
        return 0 if table is None else table.count()

    def _table(self) -> DeltaTable | None:
        try:
            return DeltaTable(self.path)
        except TableNotFoundError:
            return None

    def _compare(self, table: pa.Schema, batch: pa.Schema) -> None:
        wrong = list(_differences(table, batch, self.merge_schema))
        if wrong:
            raise DeltaError(f"the batch does not fit the Delta table {self.path}: {'; '.join(wrong)}")


def _version(table: DeltaTable | None, app_id: str) -> int:
    version = None if table is None else table.transaction_version(app_id)
    return -1 if version is None else version


# Schemas: pyarrow's, of the table and of a batch


def _differences(table: Iterable[pa.Field], batch: Iterable[pa.Field], merges: bool, at: str = "") -> Iterator[str]:
    """What does not fit, a sentence each. at: path of the column whose fields these are, with a dot at its end."""
    has = {field.name: field for field in table}
    given = {field.name: field for field in batch}
    for name, field in has.items():
        if name in given:
            yield from _type_differences(f"{at}{name}", field.type, given[name].type, merges)
        elif not merges or not field.nullable:
            way = "give it a value" if not field.nullable else "add it to the batch, or set merge_schema=True for nulls"
            yield f"column {at}{name} ({type_name(field.type)}) of the table is not in the batch: {way}"
    folded = {name.lower(): name for name in has}
    for name, field in given.items():
        if name in has:
            continue
        column = f"column {at}{name} ({type_name(field.type)})"
        if other := folded.get(name.lower()):
            yield f"{column} is called {at}{other} in the table: rename it"
        elif not merges:
            yield f"{column} is not in the table: drop it from the batch, or set merge_schema=True to add it"


def _type_differences(column: str, table: pa.DataType, batch: pa.DataType, merges: bool) -> Iterator[str]:
    types = pa.types
    if types.is_struct(table) and types.is_struct(batch):
        yield from _differences(table, batch, merges, f"{column}.")
    elif types.is_map(table) and types.is_map(batch):
        yield from _type_differences(f"{column}.key", table.key_type, batch.key_type, merges)
        yield from _type_differences(f"{column}.value", table.item_type, batch.item_type, merges)
    elif types.is_list(table) and (types.is_list(batch) or types.is_large_list(batch)):
        yield from _type_differences(f"{column}.element", table.value_type, batch.value_type, merges)
    elif not _holds(table, batch):
        has, given = type_name(table), type_name(batch)
        way = f"cast it to {has}, write to another table, or rewrite this one"
        yield f"column {column} is {has} in the table and {given} in the batch: {way}"


def _holds(table: pa.DataType, batch: pa.DataType) -> bool:
    """Whether a column of the table's type holds every value of the batch's as it is."""
    has, given = type_name(table), type_name(batch)
    if has == given or given == "void":
        return True
    if pa.types.is_decimal(table) and pa.types.is_decimal(batch):
        return table.scale >= batch.scale and table.precision - table.scale >= batch.precision - batch.scale
    return has in WIDER.get(given, ())


# Type of a batch -> types of a table that have all its values
WIDER: Mapping[str, tuple[str, ...]] = {
    "tinyint": ("smallint", "int", "bigint", "float", "double"),
    "smallint": ("int", "bigint", "float", "double"),
    "int": ("bigint", "double"),
    "float": ("double",),
}

NAMES: Mapping[pa.DataType, str] = {
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.date32(): "date",
    pa.null(): "void",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.string_view(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.binary_view(): "binary",
}


def type_name(type_: pa.DataType) -> str:
    """As Spark's SQL has it. Of a timestamp it counts whether there is a time zone: all are kept in UTC."""
    types = pa.types
    if types.is_timestamp(type_):
        return "timestamp" if type_.tz else "timestamp_ntz"
    if types.is_decimal(type_):
        return f"decimal({type_.precision},{type_.scale})"
    if types.is_struct(type_):
        return f"struct<{','.join(f'{field.name}:{type_name(field.type)}' for field in type_)}>"
    if types.is_map(type_):
        return f"map<{type_name(type_.key_type)},{type_name(type_.item_type)}>"
    if types.is_list(type_) or types.is_large_list(type_):
        return f"array<{type_name(type_.value_type)}>"
    return NAMES.get(type_, str(type_))


def _nullable(field: pa.Field) -> pa.Field:
    """The field, and all in it, without NOT NULL; keys of a map apart."""
    type_, types = field.type, pa.types
    if types.is_struct(type_):
        type_ = pa.struct([_nullable(each) for each in type_])
    elif types.is_map(type_):
        type_ = pa.map_(type_.key_field, _nullable(type_.item_field))
    elif types.is_list(type_):
        type_ = pa.list_(_nullable(type_.value_field))
    return pa.field(field.name, type_, True)
