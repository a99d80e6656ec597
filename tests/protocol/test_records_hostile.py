"""Bytes made to harm: wrong counts, lengths, varints and codecs. Both forms answer CorruptBatch, and alike."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.protocol.compression import NAMES, compress

from .records_forms import COMPILED, FORMS, PLAIN, decode_columns
from .test_records import ROWS, raw_batch, records, repacked

__all__ = ["records"]

RECORD = b"\x0c\x00\x00\x00\x01\x01\x00"  # null key, null value, no headers

DECODERS: dict[str, Callable[..., Any]] = {
    "batch": lambda form, buf, **options: [repr(r) for r in form.decode_batch(buf, **options)],
    "iter": lambda form, buf, **options: [repr(r) for r in form.iter_records(buf, **options)],
    "lists": lambda form, buf, **options: tuple(form.decode_lists(buf, **options)),
    "lists with headers": lambda form, buf, **options: tuple(form.decode_lists_with_headers(buf, **options)),
    "columns": lambda form, buf, **options: described(decode_columns(form, buf, **options)),
    "pieces": lambda form, buf, **options: list(map(described, form.iter_columns(buf, piece_bytes=9, **options))),
}


def described(columns: Any) -> list[Any]:
    found = [getattr(columns, name) for name in type(columns).__slots__]
    headers = columns.headers
    if headers is not None:
        found.extend(getattr(headers, name) for name in type(headers).__slots__)
        found.remove(headers)
    return found


def outcome(decode: Callable[..., Any], form: ModuleType, buf: bytes, **options: Any) -> Any:
    try:
        return decode(form, buf, **options)
    except form.CorruptBatch as error:
        return str(error)


def assert_forms_agree(buf: bytes, **options: Any) -> None:
    for name, decode in DECODERS.items():
        assert outcome(decode, COMPILED, buf, **options) == outcome(decode, PLAIN, buf, **options), name


def assert_corrupt(records: ModuleType, batch: bytes) -> None:
    for decode in (*(lambda buf, d=d: d(records, buf) for d in DECODERS.values()), records.validate_batch):
        with pytest.raises(records.CorruptBatch):
            decode(batch)


def varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes((*out, value))


def record(*parts: bytes, size: int | None = None) -> bytes:
    body = b"".join(parts)
    return varint(len(body) if size is None else size) + body


HUGE = (2**63 - 1, -(2**63), 2**31, 2**31 - 1, -(2**31), -2, 2**62, 2**40, 1000)

WRONG = {
    "no bytes": (b"", 1),
    "one record fewer than claimed": (RECORD, 2),
    "one record more than claimed": (RECORD + record(b"\0\0\2\1\1\0"), 1),
    "bytes after the records": (RECORD + b"\0", 1),
    "a claim of 2**31-1 records": (RECORD * 3, 2**31 - 1),
    "record of size 0": (b"\0" * 7, 1),
    "record too small": (record(b"\0\0\0\1\1") + b"\0" * 8, 1),
    "record longer than its parts": (record(b"\0\0\0\1\1\0\0"), 1),
    "record shorter than its parts": (record(b"\0\0\0\1\1\0", b"", size=6)[:1] + b"\0\0\0\1\2x\0", 1),
    "endless varint as a size": (b"\xff" * 40, 1),
    "varint of 11 bytes": (b"\x8c" + b"\x80" * 9 + b"\0" + RECORD[1:], 1),
    "varint past 64 bits": (b"\x8c" + b"\x80" * 8 + b"\2" + RECORD[1:], 1),
    "timestamp cut by the record": (record(b"\0" + b"\xff" * 5), 1),
    "offset cut by the record": (record(b"\0\0" + b"\xff" * 4), 1),
    "key size cut by the record": (record(b"\0\0\0" + b"\xff" * 3), 1),
    "value size cut by the record": (record(b"\0\0\0\1" + b"\xff" * 2), 1),
    "header count cut by the record": (record(b"\0\0\0\1\1" + b"\xff"), 1),
    "key to the end of the record": (record(b"\0\0\0", varint(3), b"abc"), 1),
    "value to the end of the record": (record(b"\0\0\0\1", varint(2), b"ab"), 1),
    "same offset twice": (RECORD * 2, 2),
    "offset beyond the last": (record(b"\0\0", varint(5), b"\1\1\0"), 1),
    "negative offset": (record(b"\0\0", varint(-1), b"\1\1\0"), 1),
    "offset of 2**63-1": (record(b"\0\0", varint(2**63 - 1), b"\1\1\0"), 1),
    "negative header count": (record(b"\0\0\0\1\1", varint(-1)), 1),
    "header with a null key": (record(b"\0\0\0\1\1\2", varint(-1), varint(-1)), 1),
    "more headers than bytes": (record(b"\0\0\0\1\1", varint(2**40)), 1),
    "headers cut": (record(b"\0\0\0\1\1\4", b"\2k\1"), 1),
    **{f"record of size {n}": (varint(n) + RECORD[1:], 1) for n in HUGE},
    **{f"key of size {n}": (record(b"\0\0\0", varint(n), b"\1\0"), 1) for n in HUGE},
    **{f"value of size {n}": (record(b"\0\0\0\1", varint(n), b"\0\0"), 1) for n in HUGE},
    **{f"header key of size {n}": (record(b"\0\0\0\1\1\2", varint(n), b"\0\0"), 1) for n in HUGE},
    **{f"header value of size {n}": (record(b"\0\0\0\1\1\2\2k", varint(n), b"\0"), 1) for n in HUGE},
}


@pytest.mark.parametrize("codec", NAMES)
@pytest.mark.parametrize("what", WRONG)
def test_wrong_records_are_corrupt(records: ModuleType, what: str, codec: str) -> None:
    body, count = WRONG[what]
    assert_corrupt(records, raw_batch(records, compress(codec, body), count, attributes=NAMES.index(codec)))


def test_wrong_crc_is_corrupt_unless_not_asked_for(records: ModuleType) -> None:
    batch = bytearray(records.build_batch(ROWS))
    batch[20] ^= 1
    assert_corrupt(records, bytes(batch))
    assert len(records.decode_batch(batch, check_crc=False)) == len(ROWS)
    assert len(records.decode_lists(batch, check_crc=False).keys) == len(ROWS)
    assert decode_columns(records, batch, check_crc=False).count == len(ROWS)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_reserved_codec_is_walked_and_checked_but_not_decoded(records: ModuleType, codec: int) -> None:
    batch = raw_batch(records, bytes(range(256)), 9, attributes=codec)
    ((position, header),) = records.walk(batch)
    assert (position, header.codec) == (0, codec)
    assert records.verify_crc(batch, 0, header.size_bytes)
    assert_corrupt(records, batch)


@pytest.mark.parametrize("codec", NAMES[1:])
def test_cut_and_wrong_compressed_data_are_corrupt(records: ModuleType, codec: str) -> None:
    number = NAMES.index(codec)
    data = compress(codec, RECORD)
    for body in (b"", data[:1], data[:-1], data[: len(data) // 2], b"\xff" * 30, bytes(30)):
        assert_corrupt(records, raw_batch(records, body, 1, attributes=number))


@pytest.mark.parametrize("codec", NAMES)
def test_decompressed_size_is_bounded(records: ModuleType, codec: str) -> None:
    batch = records.build_batch([(0, None, bytes(100_000), ())], codec)
    assert len(records.decode_batch(batch, max_bytes=200_000)) == 1
    if codec == "none":
        return
    for decode in DECODERS.values():
        with pytest.raises(records.CorruptBatch, match="more than 50000"):
            decode(records, batch, max_bytes=50_000)
    with pytest.raises(records.CorruptBatch, match="more than 50000"):
        records.validate_batch(batch, max_bytes=50_000)


def test_decode_batch_of_a_cut_batch_is_corrupt(records: ModuleType) -> None:
    batch = records.build_batch(ROWS)
    for size in (0, 60, 61, len(batch) - 1):
        with pytest.raises(records.CorruptBatch):
            records.decode_batch(batch[:size])
        with pytest.raises(records.CorruptBatch):
            records.validate_batch(batch[:size])


def test_control_bit_of_a_client_does_not_hide_corruption(records: ModuleType) -> None:
    with pytest.raises(records.CorruptBatch):
        records.validate_batch(raw_batch(records, b"\xff" * 20, 2, attributes=32))


@given(
    body=st.binary(max_size=120),
    count=st.integers(0, 12),
    delta=st.integers(0, 20),
    codec=st.sampled_from([0, 0, 1, 2, 3, 4]),
)
@settings(max_examples=300, deadline=None)
def test_both_forms_agree_on_any_bytes(body: bytes, count: int, delta: int, codec: int) -> None:
    assert_forms_agree(raw_batch(COMPILED, body, count, last_offset_delta=delta, attributes=codec))


@pytest.mark.parametrize("codec", NAMES)
def test_both_forms_agree_on_mutated_batches(codec: str) -> None:
    """Flips, cuts, doubled and foreign bytes, past the CRC and with it."""
    chance = random.Random(codec)
    rows = [
        (
            1000 + i,
            None if i % 5 == 0 else b"k%d" % i,
            b"v" * (i % 90),
            (("h", b"x"), ("n", None)) if i % 4 == 0 else (),
        )
        for i in range(40)
    ]
    pristine = COMPILED.build_batch(rows, codec)
    changed = 0
    for _ in range(250):
        batch = bytearray(pristine)
        for _ in range(chance.choice((1, 1, 2, 8))):
            at = chance.randrange(17, len(batch))
            kind = chance.randrange(4)
            if kind == 0:
                batch[at] ^= 1 << chance.randrange(8)
            elif kind == 1:
                batch[at] = chance.choice((0, 1, 2, 127, 128, 254, 255))
            elif kind == 2:
                batch[at : at + chance.randrange(9)] = chance.randbytes(chance.randrange(9))
            else:
                del batch[max(at, 61) :]
                if len(batch) == 61:
                    break
        struct.pack_into(">i", batch, 8, max(len(batch), 61) - 12)
        data = bytes(batch).ljust(61, b"\0")
        changed += outcome(DECODERS["batch"], COMPILED, data, check_crc=False) != outcome(
            DECODERS["batch"], COMPILED, pristine
        )
        assert_forms_agree(data, check_crc=False, max_bytes=1 << 20)
        assert_forms_agree(repacked(COMPILED, data), max_bytes=1 << 20)
        with pytest.raises(COMPILED.CorruptBatch):
            COMPILED.validate_batch(data) if data != pristine else COMPILED.read_header(b"")
    assert changed > 200


def test_sections_outside_their_buffer_are_refused() -> None:
    for form in FORMS.values():
        batch = form.build_batch(ROWS)
        header = form.read_header(batch)
        for start, stop in ((-1, 5), (5, 4), (0, len(batch) + 1), (2**62, 2**62 + 1)):
            with pytest.raises(ValueError, match="not within"):
                form._records.Section(batch, start, stop, header)
        buffers = form.ColumnBuffers(3, 10)
        with pytest.raises(ValueError, match="do not fit"):
            form._records.read_columns(form._records.Section(batch, 61, len(batch), header), buffers)
