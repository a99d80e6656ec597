"""What a changelog says when it is read back: rows as they were written, and the marker."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.streams.engine.checkpoint import MARKER, Marker, Position, Row, as_read, as_written
from isthmus.streams.errors import ChangelogError

ROWS = st.lists(
    st.tuples(
        st.one_of(st.binary(max_size=4), st.sampled_from([MARKER, b"\0" + MARKER, b"\0", b"\0\0", MARKER[1:]])),
        st.none() | st.binary(max_size=4),
    )
)


def read(records: list[Row], where: str = "app-t-changelog-0"):
    return as_read([row.key for row in records], [row.value for row in records], where)


@given(ROWS, st.integers(0, 3))
def test_rows_come_back_as_they_were_whatever_their_keys(rows, marker_at):
    records = as_written(rows)
    assert MARKER not in [row.key for row in records]
    assert read(records) == (rows, None)
    records.insert(marker_at, Row(MARKER, b"m"))
    assert read([*records, Row(MARKER, b"last")]) == (rows, b"last")


def test_a_marker_comes_back():
    marker = Marker("app", 7, ("t", "u"), {"in": Position(12, 3), "other": Position(0)}, {"in": "id"})
    assert Marker.decode(marker.encode(), "app", "where") == marker


def test_another_apps_changelog_is_refused():
    data = Marker("other", 1).encode()
    with pytest.raises(ChangelogError, match=r"where has a marker of app other, .* this is app app.*another id"):
        Marker.decode(data, "app", "where")
    later = orjson.dumps({**orjson.loads(Marker("app", 1).encode()), "format": 9})
    with pytest.raises(ChangelogError, match="marker of app app, format 9; this is app app, format 3"):
        Marker.decode(later, "app", "where")


@pytest.mark.parametrize("data", [b"1", b"{", b"{}", b'{"format":3,"app":"app"}'])
def test_what_is_no_marker_is_refused(data):
    with pytest.raises(ChangelogError, match=r"where has a record .* that is not a marker"):
        Marker.decode(data, "app", "where")


def test_a_record_without_a_key_is_no_row():
    with pytest.raises(ChangelogError, match="app-t-changelog-0 has a record without a key"):
        read([Row(b"k", b"v"), Row(None, b"v")])  # type: ignore[arg-type]
