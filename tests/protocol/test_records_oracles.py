"""Batches of aiokafka's, kafka-python's and librdkafka's making are read alike by us, and ours by them."""

from __future__ import annotations

import importlib
import importlib.util
import struct
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.protocol.compression import NAMES

from .records_forms import FORMS, decode_columns
from .test_records import ROWS, T0, fields, headers, payloads, records

__all__ = ["records"]

PEERS = ("aiokafka", "kafka")


def peer_build(peer: str, rows: list[Any], codec: int, base_offset: int, **producer: int) -> bytes:
    module = importlib.import_module(f"{peer}.record.default_records")
    builder = module.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=producer.get("producer_id", -1),
        producer_epoch=producer.get("producer_epoch", -1),
        base_sequence=producer.get("base_sequence", -1),
        batch_size=1 << 30,
    )
    for i, (timestamp, key, value, record_headers) in enumerate(rows):
        assert builder.append(i, timestamp, key, value, list(record_headers)) is not None
    batch = bytearray(builder.build())
    struct.pack_into(">q", batch, 0, base_offset)
    return bytes(batch)


def peer_read(peer: str, buf: bytes) -> list[Any]:
    memory = importlib.import_module(f"{peer}.record.memory_records").MemoryRecords(buf)
    out = []
    while (batch := memory.next_batch()) is not None:
        assert batch.validate_crc()
        out.extend((r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch)
    return out


def ours(form: ModuleType, buf: bytes) -> list[Any]:
    return [(r.offset, *fields([r])[0]) for r in form.iter_records(buf)]


@pytest.mark.parametrize("codec", NAMES)
@pytest.mark.parametrize("peer", PEERS)
def test_what_a_peer_builds_we_read(records: ModuleType, peer: str, codec: str) -> None:
    pytest.importorskip(peer)
    buf = b"".join(peer_build(peer, ROWS, NAMES.index(codec), base) for base in (0, 6, 100))
    wanted = [(base + i, *row) for base in (0, 6, 100) for i, row in enumerate(ROWS)]
    assert ours(records, buf) == wanted == peer_read(peer, buf)
    assert records.validate_batch(buf).dense
    assert records.read_header(buf).codec == NAMES.index(codec)
    lists = records.decode_lists(buf)
    assert list(zip(*lists, strict=True)) == [row[:4] for row in wanted]
    columns = decode_columns(records, buf)
    assert (columns.count, columns.next_offset) == (18, 106)
    assert bytes(columns.value_data) == b"".join(row[3] or b"" for row in wanted)


@pytest.mark.parametrize("codec", NAMES)
@pytest.mark.parametrize("peer", PEERS)
def test_what_we_build_a_peer_reads(records: ModuleType, peer: str, codec: str) -> None:
    pytest.importorskip(peer)
    buf = b"".join(records.build_batch(ROWS, codec, base_offset=base) for base in (0, 6, 100))
    assert peer_read(peer, buf) == [(base + i, *row) for base in (0, 6, 100) for i, row in enumerate(ROWS)]


@pytest.mark.parametrize("peer", PEERS)
@given(
    rows=st.lists(st.tuples(st.integers(0, 2**62), payloads, payloads, headers), min_size=1, max_size=30),
    producer_id=st.integers(0, 2**62),
    base_sequence=st.integers(0, 2**31 - 1),
)
@settings(max_examples=30, deadline=None)
def test_plain_batches_are_a_peers_byte_for_byte(
    peer: str, rows: list[Any], producer_id: int, base_sequence: int
) -> None:
    pytest.importorskip(peer)
    producer = {"producer_id": producer_id, "producer_epoch": 3, "base_sequence": base_sequence}
    for form in FORMS.values():
        batch = form.build_batch(rows, base_offset=9, partition_leader_epoch=0, **producer)
        theirs = bytearray(peer_build(peer, rows, 0, 9, **producer))
        struct.pack_into(">i", theirs, 12, 0)  # peers differ in the epoch, which the CRC does not cover
        assert batch == bytes(theirs)


@pytest.mark.parametrize("codec", NAMES)
def test_both_forms_read_random_rows_as_a_peer_does(codec: str) -> None:
    pytest.importorskip("aiokafka")
    rows = [(T0 + i * i, None if i % 3 else b"k" * i, b"v" * (i * 37 % 999), ()) for i in range(300)]
    buf = peer_build("aiokafka", rows, NAMES.index(codec), 0)
    for form in FORMS.values():
        assert fields(form.decode_batch(buf)) == rows


@pytest.mark.parametrize("codec", NAMES)
def test_what_librdkafka_builds_we_read(records: ModuleType, codec: str) -> None:
    """Fetched from librdkafka 2.16.1's own mock cluster: it leaves a batch plain that its codec does not shrink.

    Four batches: 30 rows, one of 90 random bytes, three with empty and null parts and headers, 30 with a header.
    """
    buf = (Path(__file__).parent / "data" / f"librdkafka-{codec}.bin").read_bytes()
    number = NAMES.index(codec)
    found = [header for _, header in records.walk(buf)]
    assert [(header.codec, header.records_count) for header in found] == [(number, 30), (0, 1), (0, 3), (number, 30)]
    assert all(records.validate_batch(buf, position).dense for position, _ in records.walk(buf))
    rows = ours(records, buf)
    assert [(row[0], row[1]) for row in rows] == [(i, T0 + i) for i in range(64)]
    assert rows[29][2:] == (b"N00029", b'{"carrier":"UA","row":29}' * 4, ())
    assert rows[30][2] is None and len(rows[30][3]) == 90
    assert rows[31][2:] == (b"", b"", (("h", b"v"), ("null", None), ("e", b"")))
    assert [row[2:] for row in rows[32:34]] == [(b"k", None, ()), (None, None, ())]
    assert rows[63][2:] == (b"N00029", b'{"carrier":"DL","row":29}' * 4, (("trace", b"29"),))
    columns = decode_columns(records, buf)
    assert columns.count == columns.next_offset == 64
    assert records.decode_lists(buf).values == [row[3] for row in rows]
    if importlib.util.find_spec("aiokafka"):
        assert rows == peer_read("aiokafka", buf)
