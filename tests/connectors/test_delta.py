"""The Delta writer: each micro-batch once, whatever is replayed; and it says when table and checkpoint do not fit."""

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from isthmus.connectors.delta import DeltaWriter
from isthmus.connectors.errors import DeltaError


class Batch:
    """Stands for Spark's micro-batch: rows, and the query's id in a local property."""

    def __init__(self, rows, query="q1"):
        self.rows = rows
        self.query = query

    @property
    def sparkSession(self):
        return self

    sparkContext = sparkSession

    def getLocalProperty(self, name):
        return self.query

    def toArrow(self):
        return pa.table({"value": pa.array(self.rows, pa.binary())})


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
