# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, auto_pickle=False
"""The loops of log compaction, in the two forms of `_records.py`: which offset a key has last, which records stay.

It has no policy and no I/O; `compaction.py` is its only user. Keys are not kept: a key is its SipHash-2-4 of 128 bits
under a key that the caller draws at random, so that nobody can make two of his keys collide (Aumasson and Bernstein,
"SipHash: a fast short-input PRF", 2012). Records are read by `_records.Section`, which compares every length.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import cython

from ._records import Section
from .batch_layout import HEADER_SIZE

if cython.compiled:
    from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING
    from cython.cimports.isthmus.protocol._writing import _minus, _put_varint, _varint_size
    from cython.cimports.libc.string import memcpy
else:
    from ._writing import _minus, _put_varint, _varint_size


if TYPE_CHECKING:
    from ..compiled import Public, Readonly

COMPILED = cython.compiled

SLOT_BYTES = 24  # hash, offset

_MASK: cython.ulonglong = 2**64 - 1  # C wraps and Python does not
_INIT_0: cython.ulonglong = 0x736F6D6570736575
_INIT_1: cython.ulonglong = 0x646F72616E646F6D
_INIT_2: cython.ulonglong = 0x6C7967656E657261
_INIT_3: cython.ulonglong = 0x7465646279746573
_GROWTH: cython.Py_ssize_t = 16  # bytes that a record's length and timestamp delta may grow by


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _rotl(x: cython.ulonglong, bits: cython.int) -> cython.ulonglong:
    return ((x << bits) | (x >> (64 - bits))) & _MASK


@cython.final
@cython.cclass
class OffsetMap:
    """Hash of a key -> its last offset, in an open table of `slots` entries of SLOT_BYTES, of which `limit` are used.

    size: keys so far. latest_offset: up to which the log is in here, set by the caller; -1 for nothing.
    """

    slots: Readonly[cython.Py_ssize_t]
    limit: Readonly[cython.Py_ssize_t]
    size: Readonly[cython.Py_ssize_t]
    latest_offset: Public[cython.longlong]
    _table: array[int]
    _k0: cython.ulonglong
    _k1: cython.ulonglong

    def __init__(
        self, slots: cython.Py_ssize_t, limit: cython.Py_ssize_t, k0: cython.ulonglong, k1: cython.ulonglong
    ) -> None:
        if not 0 < limit < slots:
            raise ValueError(f"{limit} keys cannot be found in a table of {slots} slots")
        self.slots = slots
        self.limit = limit
        self.size = 0
        self.latest_offset = -1
        self._k0 = k0
        self._k1 = k1
        self._table = array("Q", (0,)) * (3 * slots)

    def put(self, key: bytes, offset: cython.longlong) -> None:
        """What `map_records` does with a record."""
        self._put(key, 0, len(key), offset)

    def get(self, key: bytes) -> int:
        """The last offset of a key, -1 for one that is not here."""
        return self._get(key, 0, len(key))

    def hash_of(self, key: bytes) -> tuple[int, int]:
        """The two 64-bit halves of a key's hash."""
        return self._hash(key, 0, len(key))

    @cython.cfunc
    @cython.exceptval(check=False)
    def _hash(
        self, b: cython.p_const_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t
    ) -> tuple[cython.ulonglong, cython.ulonglong]:
        v0: cython.ulonglong = _INIT_0 ^ self._k0
        v1: cython.ulonglong = _INIT_1 ^ self._k1 ^ 0xEE
        v2: cython.ulonglong = _INIT_2 ^ self._k0
        v3: cython.ulonglong = _INIT_3 ^ self._k1
        word: cython.ulonglong
        byte: cython.ulonglong
        low: cython.ulonglong = 0
        i: cython.Py_ssize_t = 0
        n: cython.Py_ssize_t
        left: cython.Py_ssize_t
        rounds: cython.int
        step: cython.int = 0  # 0: words of the key, 1: the last word, 2 and 3: the two halves of the result
        while True:
            rounds = 2
            word = 0
            if step < 2:
                left = size - i
                n = 8 if left >= 8 else left
                while n > 0:
                    n -= 1
                    byte = b[at + i + n]
                    word = (word << 8) | byte
                if left >= 8:
                    i += 8
                else:
                    byte = size & 0xFF
                    word |= byte << 56
                    step = 1
                v3 ^= word
            elif step == 2:
                v2 ^= 0xEE
                rounds = 4
            else:
                v1 ^= 0xDD
                rounds = 4
            while rounds > 0:
                rounds -= 1
                v0 = (v0 + v1) & _MASK
                v2 = (v2 + v3) & _MASK
                v1 = _rotl(v1, 13) ^ v0
                v3 = _rotl(v3, 16) ^ v2
                v0 = _rotl(v0, 32)
                v2 = (v2 + v1) & _MASK
                v0 = (v0 + v3) & _MASK
                v1 = _rotl(v1, 17) ^ v2
                v3 = _rotl(v3, 21) ^ v0
                v2 = _rotl(v2, 32)
            if step < 2:
                v0 ^= word
                if step == 1:
                    step = 2
            elif step == 2:
                low = v0 ^ v1 ^ v2 ^ v3
                step = 3
            else:
                return low, v0 ^ v1 ^ v2 ^ v3

    @cython.cfunc
    @cython.exceptval(check=False)
    def _find(self, b: cython.p_const_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Where in the table a key's three words are; if it is not here, where they go, ~index."""
        low: cython.ulonglong
        high: cython.ulonglong
        i: cython.Py_ssize_t
        end: cython.Py_ssize_t = 3 * self.slots
        table: cython.p_ulonglong
        low, high = self._hash(b, at, size)
        i = 3 * cython.cast(cython.Py_ssize_t, low % cython.cast(cython.ulonglong, self.slots))
        if cython.compiled:
            table = self._table.data.as_ulonglongs
        else:
            table = self._table
        while table[i + 2]:
            if table[i] == low and table[i + 1] == high:
                return i
            i += 3
            if i == end:
                i = 0
        table[i] = low
        table[i + 1] = high
        return ~i

    @cython.cfunc
    @cython.exceptval(check=False)
    def _put(
        self, b: cython.p_const_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t, offset: cython.longlong
    ) -> cython.void:
        i: cython.Py_ssize_t = self._find(b, at, size)
        table: cython.p_ulonglong
        if i < 0:
            i = ~i
            self.size += 1
        if cython.compiled:
            table = self._table.data.as_ulonglongs
        else:
            table = self._table
        table[i + 2] = offset + 1

    @cython.cfunc
    @cython.exceptval(check=False)
    def _get(self, b: cython.p_const_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.longlong:
        i: cython.Py_ssize_t = self._find(b, at, size)
        table: cython.p_ulonglong
        if i < 0:
            return -1
        if cython.compiled:
            table = self._table.data.as_ulonglongs
        else:
            table = self._table
        return cython.cast(cython.longlong, table[i + 2]) - 1


def map_records(section: Section, offsets: OffsetMap) -> bool:
    """Takes the keys of the section's records; False when the map was full before the last."""
    while section.next():
        if section.key_size >= 0:
            if offsets.size >= offsets.limit:
                return False
            offsets._put(section.b, section.key_at, section.key_size, section.offset)
    return True


def mark_records(
    section: Section, offsets: OffsetMap, drops_tombstones: cython.bint, marks: bytearray
) -> tuple[int, int]:
    """Appends to `marks` a byte for each record, 1 for one that stays: (how many stay, tombstones among them).

    A record stays when it is past the map, or is the last of its key and, with `drops_tombstones`, has a value.
    """
    kept: cython.Py_ssize_t = 0
    tombstones: cython.Py_ssize_t = 0
    stays: cython.bint
    while section.next():
        if section.offset > offsets.latest_offset:
            stays = True
        elif section.key_size < 0 or (drops_tombstones and section.value_size < 0):
            stays = False
        else:
            stays = section.offset >= offsets._get(section.b, section.key_at, section.key_size)
        if stays:
            kept += 1
            if section.value_size < 0:
                tombstones += 1
        marks.append(stays)
    return kept, tombstones


def rewrite_records(
    section: Section, marks: bytearray, kept: cython.Py_ssize_t, size_bytes: cython.Py_ssize_t, has_base: cython.bint,
    base_timestamp: cython.longlong,
) -> tuple[bytearray, int, int]:  # fmt: skip
    """(61 empty bytes and the marked records, their base timestamp, their largest timestamp).

    kept: how many are marked, at least one. size_bytes: of all the section's records. Offset deltas stay; timestamp
    deltas count from `base_timestamp` if `has_base`, else from the first record that is kept.
    """
    out: bytearray = bytearray(HEADER_SIZE + size_bytes + kept * _GROWTH)
    o: cython.p_uchar
    at: cython.Py_ssize_t = HEADER_SIZE
    rest: cython.Py_ssize_t
    body: cython.Py_ssize_t
    capacity: cython.Py_ssize_t = len(out)
    stamp: cython.longlong
    delta: cython.longlong
    top: cython.longlong = 0
    first: cython.bint = True
    if cython.compiled:
        o = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(out))
    else:
        o = out
    while section.next():
        if not marks[section.row - 1]:
            continue
        stamp = section.timestamp_ms
        if first:
            first = False
            top = stamp
            if not has_base:
                base_timestamp = stamp
        elif stamp > top:
            top = stamp
        delta = _minus(stamp, base_timestamp)
        rest = section.p - section.key_at
        body = 1 + _varint_size(delta) + _varint_size(section.delta) + _varint_size(section.key_size) + rest
        if body + 5 > capacity - at:
            raise ValueError(f"record {section.row} does not fit in {capacity} bytes with {kept} records")
        at = _put_varint(o, at, body)
        o[at] = 0
        at = _put_varint(o, at + 1, delta)
        at = _put_varint(o, at, section.delta)
        at = _put_varint(o, at, section.key_size)
        if cython.compiled:
            memcpy(o + at, section.b + section.key_at, rest)
        else:
            o[at : at + rest] = section.b[section.key_at : section.p]
        at += rest
    del out[at:]
    return out, base_timestamp, top
