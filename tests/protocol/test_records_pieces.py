"""Batches that expand to much more than they are: decoded in pieces, with the same records and in bounded memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from isthmus.protocol.compression import NAMES, compress

from .framings import snappy
from .records_forms import COMPILED, decode_columns
from .test_records import ROWS, T0, fields, raw_batch, records
from .test_records_columns import table

__all__ = ["records"]

COMPRESSED = NAMES[1:]
MIB = 1 << 20


def joined(parts: Iterator[Any]) -> dict[str, list[Any]]:
    """The columns of all parts."""
    found: dict[str, list[Any]] = {}
    for part in parts:
        rows = table(part)
        rows.setdefault("headers", [[]] * part.count)
        for name, column in rows.items():
            found.setdefault(name, []).extend(column)
    return found


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("piece_bytes", [1, 7, 100, 71_000, 150_000])
def test_pieces_hold_the_records_of_the_whole(records: ModuleType, codec: str, piece_bytes: int) -> None:
    """ROWS has records of 7 to 70,000 bytes, so that varints, headers and values are cut."""
    buf = b"".join(records.build_batch(ROWS * 3, each, base_offset=18 * i) for i, each in enumerate(("none", codec)))
    whole = table(decode_columns(records, buf))
    for low, high in ((0, 36), (20, 31)):
        parts = list(records.iter_columns(buf, from_offset=low, to_offset=high, piece_bytes=piece_bytes))
        assert joined(iter(parts)) == {name: column[low:high] for name, column in whole.items()}
        nexts = [part.next_offset for part in parts]
        assert nexts == sorted(nexts) and nexts[-1] == 36
        assert all(part.next_offset == part.offsets[-1] + 1 for part in parts[:-1] if part.count and high == 36)


@pytest.mark.parametrize("codec", [codec for codec in COMPRESSED if codec != "snappy"])  # whose blocks are not cut
def test_record_pieces_hold_the_records_of_the_whole(records: ModuleType, codec: str) -> None:
    rows = [(T0 + n, b"k", b"v" * (n % 50), ()) for n in range(200)]
    pieces = list(records.record_pieces(records.build_batch(rows, codec), max_bytes=100))
    assert len(pieces) > 20
    assert fields([each for piece in pieces for each in piece]) == rows


def test_summaries_of_pieces_are_those_of_the_whole(records: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    stamps = [5, -1, 9, 9, 3, 8, -1, 7]
    rows = [(at, None if n == 2 else b"k" * 60, b"", ()) for n, at in enumerate(stamps)]
    plain = records.build_batch(rows, base_offset=40)
    whole = records.validate_batch(plain)[1:]
    assert whole == (9, 42, 3, 1, True)
    pieces = records._sections

    def small(*args: Any, **options: Any) -> Any:
        return pieces(*args, **{**options, "piece_bytes": 50})

    monkeypatch.setattr(records, "_sections", small)
    assert records.validate_batch(records.build_batch(rows, "zstd", base_offset=40))[1:] == whole


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_record_that_does_not_fit_is_named_after_those_before_it(records: ModuleType, codec: str) -> None:
    rows = [(T0, None, b"small", ())] * 9 + [(T0, None, bytes(100_000), ()), (T0, None, b"after", ())]
    batch = records.build_batch(rows, codec, base_offset=70)
    for decode in (records.record_pieces, records.iter_columns):
        found: list[Any] = []
        with pytest.raises(records.TooLargeToDecode, match=r"after offset 78, .* more than 50000 bytes .*: 100011"):
            found.extend(decode(batch, max_bytes=50_000))
        assert sum(len(each) if isinstance(each, list) else each.count for each in found) == 9
        assert sum(1 for _ in records.iter_records(batch, max_bytes=100_100)) == 11


def test_a_block_that_cannot_be_cut_is_named_by_its_batch(records: ModuleType) -> None:
    """librdkafka writes snappy without xerial's frame."""
    plain = records.build_batch([(T0, None, bytes(100_000), ())])
    batch = raw_batch(records, snappy(plain[61:]), 1, base_offset=70, attributes=NAMES.index("snappy"))
    assert len(list(records.iter_records(batch))) == 1
    with pytest.raises(records.TooLargeToDecode, match=r"the batch at offset 70 of .* more than 50000 bytes"):
        list(records.iter_records(batch, max_bytes=50_000))


READERS: dict[str, Callable[[bytes], int]] = {
    "iter_columns": lambda buf: sum(each.count for each in COMPILED.iter_columns(buf)),
    "iter_records": lambda buf: sum(1 for _ in COMPILED.iter_records(buf)),
    "validate_batch": lambda buf: COMPILED.validate_batch(buf).header.records_count,
}


@pytest.mark.skipif(not COMPILED.COMPILED, reason="128 MiB of records take the plain loops too long")
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("codec", COMPRESSED)
def test_memory_does_not_depend_on_what_a_batch_expands_to(codec: str, reader: str) -> None:
    batch = COMPILED.build_batch([(T0, None, bytes(100_000), ())] * 1300, codec)  # 124 MiB
    tracemalloc.start()
    try:
        assert READERS[reader](batch) == 1300
        assert tracemalloc.get_traced_memory()[1] < len(batch) + 32 * MIB
    finally:
        tracemalloc.stop()


def test_records_beyond_those_claimed_are_found_in_a_later_piece(records: ModuleType) -> None:
    record = b"\x0c\0\0\0\1\1\0"
    batch = raw_batch(records, compress("zstd", record + b"\0" * 100), 1, attributes=NAMES.index("zstd"))
    for decode in (records.record_pieces, records.iter_columns):
        with pytest.raises(records.CorruptBatch, match="is not claimed"):
            list(decode(batch, max_bytes=7))
