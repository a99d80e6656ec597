"""The Delta writer: each micro-batch once, whatever is replayed; and it says when table and checkpoint, or the types
of table and batch, do not fit."""

from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from isthmus.connectors.delta import DeltaWriter
from isthmus.connectors.errors import DeltaError


class Batch:
    """Stands for Spark's micro-batch: rows, and the query's id in a local property."""

    def __init__(self, rows, query="q1"):
        self.rows = rows if isinstance(rows, pa.Table) else pa.table({"value": pa.array(rows, pa.binary())})
        self.query = query

    @property
    def sparkSession(self):
        return self

    sparkContext = sparkSession

    def getLocalProperty(self, name):
        return self.query

    def toArrow(self):
        return self.rows


def values(path):
    return sorted(DeltaTable(str(path)).to_pyarrow_table().column("value").to_pylist())


def test_each_batch_is_appended_once(tmp_path):
    write = DeltaWriter(tmp_path / "t", "app")
    assert (write.committed(), write.rows()) == (-1, 0)
    write(Batch([b"a", b"b"]), 0)
    write(Batch([b"c"]), 1)
    assert (write.committed(), write.rows()) == (1, 3)
    assert values(tmp_path / "t") == [b"a", b"b", b"c"]


def test_a_replayed_batch_is_left_out_also_by_another_writer(tmp_path):
    DeltaWriter(tmp_path / "t", "app")(Batch([b"a"]), 0)
    DeltaWriter(tmp_path / "t", "app")(Batch([b"a"]), 0)
    assert values(tmp_path / "t") == [b"a"]


def test_an_empty_batch_counts_as_one(tmp_path):
    write = DeltaWriter(tmp_path / "t", "app")
    write(Batch([]), 0)
    write(Batch([b"a"]), 1)
    assert write.committed() == 1


def test_two_queries_write_to_one_table(tmp_path):
    one, two = DeltaWriter(tmp_path / "t", "one"), DeltaWriter(tmp_path / "t", "two")
    one(Batch([b"a"], "q1"), 0)
    two(Batch([b"b"], "q2"), 0)
    one(Batch([b"c"], "q1"), 1)
    two(Batch([b"b"], "q2"), 0)
    assert values(tmp_path / "t") == [b"a", b"b", b"c"]


def test_a_table_that_was_removed_is_not_begun_in_the_middle(tmp_path):
    with pytest.raises(DeltaError, match="batches 0 to 6 of 'app' are not in the Delta table"):
        DeltaWriter(tmp_path / "t", "app")(Batch([b"a"]), 7)


def test_a_new_checkpoint_on_an_old_table_skips_nothing_silently(tmp_path):
    write = DeltaWriter(tmp_path / "t", "app")
    write(Batch([b"a"]), 0)
    with pytest.raises(DeltaError, match="from another checkpoint"):
        write(Batch([b"b"], "q2"), 0)
    assert values(tmp_path / "t") == [b"a"]


# --- The table's schema and a batch's ---------------------------------------------------------------------------------


def column(type_, *found, name="price"):
    return pa.table({name: pa.array(found, type_)})


def written(path, first, then, **more):
    """What is in a table made of `first` once `then` was appended to it, row by row."""
    write = DeltaWriter(path / "t", "app", **more)
    write(Batch(first), 0)
    write(Batch(then), 1)
    return sorted(DeltaTable(str(path / "t")).to_pyarrow_table().to_pylist(), key=repr)


def struct(**types):
    return pa.struct(list(types.items()))


NOON = datetime(2026, 1, 1, 12)
UTC, NTZ = pa.timestamp("us", "UTC"), pa.timestamp("us")
MISFITS = {
    "a fraction": (pa.int64(), 10, pa.float64(), 10.99, "price is bigint in the table and double in the batch"),
    "a narrower integer": (pa.int32(), 10, pa.int64(), 11, "price is int in the table and bigint in the batch"),
    "an integer past 2**53": (pa.float64(), 1.5, pa.int64(), 2**53 + 1, "price is double .* bigint in the batch"),
    "a narrower float": (pa.float32(), 1.5, pa.float64(), 0.1, "price is float .* double in the batch"),
    "text of a number": (pa.string(), "a", pa.int64(), 1, "price is string .* bigint in the batch"),
    "a truth value": (pa.bool_(), True, pa.int32(), 5, "price is boolean .* int in the batch"),
    "a day": (pa.date32(), date(2026, 1, 1), UTC, NOON, "price is date .* timestamp in the batch"),
    "a zone lost": (NTZ, NOON, UTC, NOON, "price is timestamp_ntz .* timestamp in the batch"),
    "a zone added": (UTC, NOON, NTZ, NOON, "price is timestamp .* timestamp_ntz in the batch"),
    "decimals after the point": (
        pa.decimal128(10, 2), Decimal("1.25"), pa.decimal128(12, 4), Decimal("1.2345"),
        r"price is decimal\(10,2\) in the table and decimal\(12,4\) in the batch",
    ),
    "decimals before the point": (
        pa.decimal128(10, 4), Decimal("1.25"), pa.decimal128(10, 2), Decimal("1.25"), r"price .* decimal\(10,2\)",
    ),
    "a field of a struct": (
        struct(x=pa.int64()), {"x": 1}, struct(x=pa.float64()), {"x": 9.75}, "price.x is bigint .* double",
    ),
    "an element": (pa.list_(pa.int64()), [1], pa.list_(pa.float64()), [2.75], "price.element is bigint .* double"),
    "a value of a map": (
        pa.map_(pa.string(), pa.int64()), [("a", 1)], pa.map_(pa.string(), pa.float64()), [("a", 1.75)],
        "price.value is bigint .* double",
    ),
    "a struct": (struct(x=pa.int64()), {"x": 1}, pa.int64(), 1, "price is struct<x:bigint> .* bigint in the batch"),
}  # fmt: skip


@pytest.mark.parametrize("merge_schema", [False, True])
@pytest.mark.parametrize("what", MISFITS)
def test_a_type_that_does_not_hold_the_batchs_values_is_refused(tmp_path, what, merge_schema):
    has, value, given, other, said = MISFITS[what]
    write = DeltaWriter(tmp_path / "t", "app", merge_schema=merge_schema)
    write(Batch(column(has, value)), 0)
    with pytest.raises(DeltaError, match=f"the Delta table {tmp_path / 't'}: column {said}.*: cast it to") as caught:
        write(Batch(column(given, other)), 1)
    assert "\n" not in str(caught.value)
    assert (write.committed(), write.rows()) == (0, 1)
    write(Batch(column(has, value)), 1)
    assert write.rows() == 2


@pytest.mark.parametrize(
    ("has", "given", "value"),
    [
        (pa.int64(), pa.int32(), 7),
        (pa.float64(), pa.int32(), 7),
        (pa.float64(), pa.float32(), 0.5),
        (pa.decimal128(12, 4), pa.decimal128(10, 2), Decimal("1.2500")),
        (UTC, pa.timestamp("us", "Europe/Berlin"), NOON),
        (pa.int64(), pa.null(), None),
    ],
)
def test_a_type_that_holds_them_all_is_written(tmp_path, has, given, value):
    assert column(has, value).to_pylist()[0] in written(tmp_path, column(has, None), column(given, value))


def test_columns_are_found_by_name(tmp_path):
    first = pa.table({"price": [1], "count": [2]})
    assert written(tmp_path, first, pa.table({"count": [20], "price": [10]})) == [
        {"price": 1, "count": 2},
        {"price": 10, "count": 20},
    ]


def test_a_column_more_is_added_where_that_is_asked_for(tmp_path):
    more = pa.table(
        [pa.array([2.5]), pa.array(["x"]), pa.array([{"a": 1}])],
        pa.schema(
            [
                pa.field("price", pa.float64()),
                pa.field("note", pa.string(), False),  # as a literal is in Spark
                pa.field("deep", pa.struct([pa.field("a", pa.int64(), False)]), False),
            ]
        ),
    )
    said = r"column note \(string\) is not in the table: drop it from the batch, or set merge_schema=True"
    with pytest.raises(DeltaError, match=said):
        written(tmp_path / "no", column(pa.float64(), 1.5), more)
    assert written(tmp_path / "yes", column(pa.float64(), 1.5), more, merge_schema=True) == [
        {"price": 1.5, "note": None, "deep": None},
        {"price": 2.5, "note": "x", "deep": {"a": 1}},
    ]
    with pytest.raises(DeltaError, match=r"column s.y \(bigint\) is not in the table"):
        written(tmp_path / "nested", pa.table({"s": [{"x": 1}]}), pa.table({"s": [{"x": 1, "y": 2}]}))


def test_a_column_that_is_missing_is_null_where_that_is_asked_for(tmp_path):
    first = pa.table({"price": [1], "note": ["x"]})
    with pytest.raises(DeltaError, match=r"column note \(string\) of the table is not in the batch"):
        written(tmp_path / "no", first, column(pa.int64(), 2))
    found = written(tmp_path / "yes", first, column(pa.int64(), 2), merge_schema=True)
    assert found == [{"price": 1, "note": "x"}, {"price": 2, "note": None}]


def not_null(*found):
    return pa.table([pa.array(found, pa.int64())], pa.schema([pa.field("price", pa.int64(), False)]))


@pytest.mark.parametrize("merge_schema", [False, True])
def test_a_null_for_a_column_that_takes_none_is_refused(tmp_path, merge_schema):
    more = {"merge_schema": merge_schema}
    with pytest.raises(DeltaError, match=f"{tmp_path / 'null' / 't'} does not take batch 1"):
        written(tmp_path / "null", not_null(1), column(pa.int64(), None), **more)
    with pytest.raises(DeltaError, match=r"column price \(bigint\) of the table is not in the batch: give it a value"):
        written(tmp_path / "none", not_null(1), pa.table({"note": ["x"]}), **more)
    assert len(written(tmp_path / "fits", not_null(1), column(pa.int64(), 2), **more)) == 2


def test_a_name_in_another_case_is_not_another_column(tmp_path):
    with pytest.raises(DeltaError, match=r"column Price .* is called price in the table: rename it"):
        written(tmp_path, column(pa.int64(), 1), column(pa.int64(), 2, name="Price"), merge_schema=True)
