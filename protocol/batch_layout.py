"""The layout of a record batch's header, format 2 (KIP-98): where each of its fields is, in bytes, big-endian.

This is the one place that knows it. The compiled modules import these names, too, as C variables (see their .pxd).
"""

from __future__ import annotations

import struct

# Offset, type, field.
BASE_OFFSET_AT = 0  # int64
LENGTH_AT = 8  # int32, of all that follows it
LEADER_EPOCH_AT = 12  # int32
MAGIC_AT = 16  # int8
CRC_AT = 17  # uint32, CRC-32C of all that follows it
ATTRIBUTES_AT = 21  # int16
LAST_OFFSET_DELTA_AT = 23  # int32
BASE_TIMESTAMP_AT = 27  # int64
MAX_TIMESTAMP_AT = 35  # int64
PRODUCER_ID_AT = 43  # int64
PRODUCER_EPOCH_AT = 51  # int16
BASE_SEQUENCE_AT = 53  # int32
RECORDS_COUNT_AT = 57  # int32
HEADER_SIZE = 61

LENGTH_OVERHEAD = LEADER_EPOCH_AT  # base offset and length, which the length does not count
CRC_FROM = ATTRIBUTES_AT  # a broker may change the base offset and the leader epoch without a new CRC
PREFIX_SIZE = MAGIC_AT  # base offset, length and leader epoch
ATTRIBUTES_LOW_AT = ATTRIBUTES_AT + 1  # the byte that has all attributes in use

MAGIC = 2

# Attributes.
CODEC_MASK = 0x07
LAST_CODEC = 4  # zstd; 5 to 7 are reserved
LOG_APPEND_TIME = 0x08  # the records' timestamps are the broker's
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40  # the base timestamp is the time from which tombstones may go (KIP-534)
KNOWN_ATTRIBUTES = CODEC_MASK | LOG_APPEND_TIME | TRANSACTIONAL | CONTROL | DELETE_HORIZON

NO_TIMESTAMP = -1
SEQUENCE_MASK = 0x7FFFFFFF  # sequences go from 0 to 2**31 - 1 and begin at 0 again

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
