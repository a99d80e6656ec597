# C declarations for _columns.py, read by the compiler only, as _records.pxd is.

from cpython.array cimport array
from cpython.bytearray cimport PyByteArray_FromStringAndSize, PyByteArray_Resize


cdef class ColumnBuffers:
    cdef readonly Py_ssize_t rows
    cdef Py_ssize_t capacity
    cdef Py_ssize_t data_capacity
    cdef Py_ssize_t data_used
    cdef Py_ssize_t key_room
    cdef readonly Py_ssize_t key_size
    cdef readonly Py_ssize_t value_size
    cdef readonly Py_ssize_t key_nulls
    cdef readonly Py_ssize_t value_nulls
    cdef readonly array offsets
    cdef readonly array timestamps
    cdef readonly array key_offsets
    cdef readonly array value_offsets
    cdef readonly bytearray key_data
    cdef readonly bytearray value_data
    cdef readonly bytearray key_valid
    cdef readonly bytearray value_valid
    cdef readonly array header_rows
    cdef readonly array header_key_offsets
    cdef readonly array header_value_offsets
    cdef readonly bytearray header_key_data
    cdef readonly bytearray header_value_data
    cdef readonly list header_nulls

    cdef grow_keys(self, Py_ssize_t needed)
    cdef add_headers(self, list headers, Py_ssize_t row)
    cdef _pad_header_rows(self, Py_ssize_t rows)
