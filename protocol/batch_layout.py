"""The layout of a record batch's header, format 2 (KIP-98): where each of its fields is, in bytes, big-endian.

This is the one place that knows it. In the compiled modules that import them the annotated ones are C constants.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import cython

# Offset, type, field.
BASE_OFFSET_AT: cython.Py_ssize_t = 0  # int64
LENGTH_AT: cython.Py_ssize_t = 8  # int32, of all that follows it
LEADER_EPOCH_AT: cython.Py_ssize_t = 12  # int32
MAGIC_AT: cython.Py_ssize_t = 16  # int8
CRC_AT: cython.Py_ssize_t = 17  # uint32, CRC-32C of all that follows it
ATTRIBUTES_AT: cython.Py_ssize_t = 21  # int16
LAST_OFFSET_DELTA_AT: cython.Py_ssize_t = 23  # int32
BASE_TIMESTAMP_AT: cython.Py_ssize_t = 27  # int64
MAX_TIMESTAMP_AT: cython.Py_ssize_t = 35  # int64
PRODUCER_ID_AT: cython.Py_ssize_t = 43  # int64
PRODUCER_EPOCH_AT: cython.Py_ssize_t = 51  # int16
BASE_SEQUENCE_AT: cython.Py_ssize_t = 53  # int32
RECORDS_COUNT_AT: cython.Py_ssize_t = 57  # int32
HEADER_SIZE: cython.Py_ssize_t = 61

LENGTH_OVERHEAD: cython.Py_ssize_t = LEADER_EPOCH_AT  # base offset and length, which the length does not count
CRC_FROM: cython.Py_ssize_t = ATTRIBUTES_AT  # a broker may change base offset and leader epoch without a new CRC
PREFIX_SIZE: cython.Py_ssize_t = MAGIC_AT  # base offset, length and leader epoch
ATTRIBUTES_LOW_AT: cython.Py_ssize_t = ATTRIBUTES_AT + 1  # the byte that has all attributes in use

MAGIC: cython.int = 2

# Attributes.
CODEC_MASK: cython.int = 0x07
LAST_CODEC: cython.int = 4  # zstd; 5 to 7 are reserved
LOG_APPEND_TIME: cython.int = 0x08  # the records' timestamps are the broker's
TRANSACTIONAL: cython.int = 0x10
CONTROL: cython.int = 0x20
DELETE_HORIZON: cython.int = 0x40  # the base timestamp is the time from which tombstones may go (KIP-534)
KNOWN_ATTRIBUTES: cython.int = CODEC_MASK | LOG_APPEND_TIME | TRANSACTIONAL | CONTROL | DELETE_HORIZON

NO_TIMESTAMP: cython.longlong = -1
SEQUENCE_MASK: cython.longlong = 0x7FFFFFFF  # sequences go from 0 to 2**31 - 1 and begin at 0 again

# base offset, length, leader epoch, magic, CRC, attributes, last offset delta, base timestamp, max timestamp, producer
# id, producer epoch, base sequence, records count
HEADER = struct.Struct(">qiibIhiqqqhii")
PREFIX = struct.Struct(">qii")  # base offset, length, leader epoch
BOUNDS = struct.Struct(">qi11xi8xq14xi")  # base offset, length, last offset delta, max timestamp, records count
LENGTH = struct.Struct(">i")
CRC = struct.Struct(">I")
ATTRIBUTES = struct.Struct(">h")
FORM = struct.Struct(">8xi4xb")  # length and format ("magic"): where formats before 2 have them, too
FORM_AND_ATTRIBUTES = struct.Struct(">8xi4xb5xB")  # and the low byte of the attributes
assert HEADER.size == BOUNDS.size == HEADER_SIZE and PREFIX.size == PREFIX_SIZE
