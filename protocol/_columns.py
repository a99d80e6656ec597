# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, auto_pickle=False
"""The memory that Arrow's columns of records are read into, in the two forms of `_records.py`.

Each record's bytes are put here by `_records.read_columns`, whose loop is where the cursor over a batch is: the
compiler inlines nothing from another module. What is rare is here: more space for keys, headers, the cut at the end.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import cython

if cython.compiled:
    from cython.cimports.cpython.bytearray import PyByteArray_FromStringAndSize, PyByteArray_Resize

if TYPE_CHECKING:
    from ..compiled import Readonly


@cython.cfunc
def _blank(size: cython.Py_ssize_t) -> bytearray:
    """A bytearray whose pages, when compiled, are not touched before they are written."""
    if cython.compiled:
        return PyByteArray_FromStringAndSize(cython.NULL, size)
    else:
        return bytearray(size)


@cython.final
@cython.cclass
class ColumnBuffers:
    """Arrow's buffers for the records of many sections: at most `rows` of them, in sections of `data_bytes` in all.

    `_records.read_columns` fills them section by section, then `finish` cuts them to what was written. Offsets into
    data are int32, as in Arrow's Binary. Validity bitmaps have a 1 for each value that is there. After CorruptBatch
    they are of no use.
    """

    rows: Readonly[cython.Py_ssize_t]
    capacity: cython.Py_ssize_t
    data_capacity: cython.Py_ssize_t
    data_used: cython.Py_ssize_t
    key_capacity: cython.Py_ssize_t
    key_size: Readonly[cython.Py_ssize_t]
    value_size: Readonly[cython.Py_ssize_t]
    key_nulls: Readonly[cython.Py_ssize_t]
    value_nulls: Readonly[cython.Py_ssize_t]
    offsets: Readonly[array[int]]
    timestamps: Readonly[array[int]]
    key_offsets: Readonly[array[int]]
    value_offsets: Readonly[array[int]]
    key_data: Readonly[bytearray]
    value_data: Readonly[bytearray]
    key_valid: Readonly[bytearray]
    value_valid: Readonly[bytearray]
    header_rows: Readonly[array[int] | None]
    header_key_offsets: Readonly[array[int]]
    header_value_offsets: Readonly[array[int]]
    header_key_data: Readonly[bytearray]
    header_value_data: Readonly[bytearray]
    header_nulls: Readonly[list[int]]

    def __init__(self, rows: cython.Py_ssize_t, data_bytes: cython.Py_ssize_t) -> None:
        if rows < 0 or data_bytes < 0 or data_bytes > 2147483647:
            raise ValueError(f"{rows} rows of {data_bytes} bytes do not fit in int32 offsets")
        self.rows = self.data_used = self.key_size = self.value_size = self.key_nulls = self.value_nulls = 0
        self.capacity = rows
        self.data_capacity = data_bytes
        self.offsets = array("q", (0,)) * rows
        self.timestamps = array("q", (0,)) * rows
        self.key_offsets = array("i", (0,)) * (rows + 1)
        self.value_offsets = array("i", (0,)) * (rows + 1)
        # Grows: space for all data, as values have it, would be faulted in and given back each time.
        self.key_capacity = data_bytes // 8
        self.key_data = _blank(self.key_capacity)
        self.value_data = _blank(data_bytes)
        self.key_valid = bytearray(b"\xff") * ((rows + 7) // 8)
        self.value_valid = bytearray(b"\xff") * ((rows + 7) // 8)
        self.header_rows = None

    @cython.cfunc
    def grow_keys(self, needed: cython.Py_ssize_t):
        capacity: cython.Py_ssize_t = min(max(needed, 2 * self.key_capacity), self.data_capacity)
        if cython.compiled:
            PyByteArray_Resize(self.key_data, capacity)
        else:
            self.key_data.extend(bytes(capacity - self.key_capacity))
        self.key_capacity = capacity

    @cython.cfunc
    def add_headers(self, headers: list, row: cython.Py_ssize_t):
        """Headers are rare: their buffers are made with the first and grow by Python's own methods."""
        if self.header_rows is None:
            self.header_rows = array("i", (0,))
            self.header_key_offsets = array("i", (0,))
            self.header_value_offsets = array("i", (0,))
            self.header_key_data = bytearray()
            self.header_value_data = bytearray()
            self.header_nulls = []
        self._pad_header_rows(row + 1)
        for key, value in headers:
            self.header_key_data += key
            self.header_key_offsets.append(len(self.header_key_data))
            if value is None:
                self.header_nulls.append(len(self.header_value_offsets) - 1)
            else:
                self.header_value_data += value
            self.header_value_offsets.append(len(self.header_value_data))
        self.header_rows.append(len(self.header_key_offsets) - 1)

    @cython.cfunc
    def _pad_header_rows(self, rows: cython.Py_ssize_t):
        """Rows without headers since the last that had some."""
        assert self.header_rows is not None
        missing: cython.Py_ssize_t = rows - len(self.header_rows)
        if missing > 0:
            self.header_rows.extend(array("i", (len(self.header_key_offsets) - 1,)) * missing)

    def finish(self) -> None:
        """Cuts the buffers to the rows and bytes written. Nothing can be added afterwards."""
        rows: cython.Py_ssize_t = self.rows
        self.capacity = rows
        self.data_capacity = self.data_used
        del self.offsets[rows:]
        del self.timestamps[rows:]
        del self.key_offsets[rows + 1 :]
        del self.value_offsets[rows + 1 :]
        del self.key_valid[(rows + 7) // 8 :]
        del self.value_valid[(rows + 7) // 8 :]
        del self.key_data[self.key_size :]
        del self.value_data[self.value_size :]
        if self.header_rows is not None:
            self._pad_header_rows(rows + 1)
