"""A recovery's pass over a segment, in both forms, against a plain reading of the same headers."""

from __future__ import annotations

import random
import struct
from types import ModuleType
from typing import Any

import pytest

from isthmus.protocol.crc import crc32c
from isthmus.protocol.records import build_batch

from .records_forms import WALK_FORMS

HEADER = struct.Struct(">qiibIhiqqqhii")
BASE = 1000
INTERVAL = 300
KEEPS = 5
MS = 1_700_000_000_000


@pytest.fixture(params=WALK_FORMS)
def walk(request: pytest.FixtureRequest) -> ModuleType:
    return WALK_FORMS[request.param]


def placed(data: bytes, base_offset: int, epoch: int) -> bytes:
    return struct.pack(">q", base_offset) + data[8:12] + struct.pack(">i", epoch) + data[16:]


def segment(chance: random.Random, batches: int, transactions: bool = False) -> bytes:
    """Batches of rising epochs with holes between, of several producers and none."""
    out = b""
    offset = BASE
    for n in range(batches):
        producer: dict[str, Any] = {}
        if chance.random() < 0.7:
            producer = {"producer_id": chance.randint(7, 9), "producer_epoch": 0, "base_sequence": n}
            if transactions and chance.random() < 0.2:
                producer["transactional"] = True
        rows = [(MS + chance.randint(-50, 50) + n, b"k", bytes(chance.randint(0, 90)), ())] * chance.randint(1, 4)
        out += placed(build_batch(rows, **producer), offset, n * 3 // batches)
        offset += len(rows) + chance.choice((0, 0, 3))
    return out


def headers(data: bytes) -> list[tuple[int, tuple[int, ...]]]:
    found = []
    position = 0
    while position < len(data):
        row = HEADER.unpack_from(data, position)
        found.append((position, row))
        position += row[1] + 12
    return found


def scan_in_pieces(walk: ModuleType, data: bytes, piece: int) -> tuple[Any, list[Any], list[Any], list[Any]]:
    scan = walk.BatchScan(BASE, INTERVAL, KEEPS)
    points, epochs, producers = [], [], []
    while not scan.stopped and scan.end < len(data):
        scan.take(data[scan.end : scan.end + max(piece, scan.wanted)], len(data) - scan.end)
        points += scan.points
        epochs += scan.epochs
        producers += scan.producers
    return scan, points, epochs, producers


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("piece", [61, 1000, 1 << 20])
def test_scan_finds_what_the_headers_say(walk: ModuleType, seed: int, piece: int) -> None:
    data = segment(random.Random(seed), 60)
    wanted_points, wanted_epochs = [], []
    newest, newest_offset, since, epoch = -1, BASE, 0, -1
    rows = headers(data)
    for position, (base, length, leader_epoch, _, _, _, delta, _, timestamp, *_) in rows:
        if timestamp > newest:
            newest, newest_offset = timestamp, base + delta
        if since > INTERVAL:
            wanted_points.append((base + delta - BASE, position, newest, newest_offset - BASE))
            since = 0
        since += length + 12
        if leader_epoch != epoch:
            wanted_epochs.append((leader_epoch, base))
            epoch = leader_epoch
    scan, points, epochs, producers = scan_in_pieces(walk, data, piece)
    assert (points, epochs) == (wanted_points, wanted_epochs)
    assert (scan.end, scan.stopped, scan.batches) == (len(data), False, 60)
    assert scan.last_offset == rows[-1][1][0] + rows[-1][1][6]
    assert (scan.max_timestamp, scan.max_timestamp_offset) == (newest, newest_offset)
    assert scan.first_timestamp == rows[0][1][8]
    assert scan.bytes_since_index == since
    for producer_id in (7, 8, 9):
        own = [row for row in rows if row[1][9] == producer_id]
        assert [row for row in producers if row[1][9] == producer_id][-KEEPS:] == own[-KEEPS:]
    assert all(row in rows for row in producers)


def test_of_many_batches_of_a_producer_the_last_are_given(walk: ModuleType) -> None:
    data = segment(random.Random(1), 100)
    _, _, _, producers = scan_in_pieces(walk, data, 1 << 20)
    rows = [row for row in headers(data) if row[1][9] >= 0]
    assert len(producers) == 3 * KEEPS < len(rows)
    assert [row[0] for row in producers] == sorted(row[0] for row in producers)


def test_with_transactions_all_are_given_in_order(walk: ModuleType) -> None:
    data = segment(random.Random(2), 100, transactions=True)
    _, _, _, producers = scan_in_pieces(walk, data, 1 << 20)
    assert producers == [row for row in headers(data) if row[1][9] >= 0]


def test_any_flipped_bit_under_a_crc_stops_before_its_batch(walk: ModuleType) -> None:
    data = segment(random.Random(3), 4)
    starts = [position for position, _ in headers(data)]
    for position in range(len(data)):
        start = max(each for each in starts if each <= position)
        if position - start in (*range(8), *range(12, 16)):
            continue  # base offset and leader epoch are outside of the CRC
        broken = data[:position] + bytes([data[position] ^ 0x10]) + data[position + 1 :]
        scan = walk.BatchScan(BASE, INTERVAL, KEEPS)
        scan.take(broken, len(broken))
        assert scan.end == start, f"byte {position - start} of a batch"
        assert scan.stopped or scan.wanted


@pytest.mark.parametrize("base", [BASE - 1, BASE + 1, BASE + 2**31])
def test_offsets_that_do_not_rise_or_are_too_far_stop_it(walk: ModuleType, base: int) -> None:
    first = placed(build_batch([(MS, b"k", b"v", ())] * 2), BASE, 0)
    second = placed(build_batch([(MS, b"k", b"v", ())]), base, 0)
    scan = walk.BatchScan(BASE, INTERVAL, KEEPS)
    scan.take(first + second, len(first + second))
    assert (scan.end, scan.stopped, scan.last_offset) == (len(first), True, BASE + 1)


def test_batch_that_is_cut_by_the_buffer_is_asked_for_and_by_the_file_refused(walk: ModuleType) -> None:
    data = placed(build_batch([(MS, b"k", bytes(500), ())]), BASE, 0)
    scan = walk.BatchScan(BASE, INTERVAL, KEEPS)
    scan.take(data[:100], len(data))
    assert (scan.end, scan.stopped, scan.wanted) == (0, False, len(data))
    scan.take(data[:100], len(data) - 1)
    assert (scan.end, scan.stopped) == (0, True)


def test_header_alone_will_do_where_the_checksum_is_known(walk: ModuleType) -> None:
    data = placed(build_batch([(MS, b"k", bytes(500), ())]), BASE, 0)
    for wrong in (1, 0):
        scan = walk.BatchScan(BASE, INTERVAL, KEEPS)
        scan.take(data[:61], len(data), crc32c(data[21:]) ^ wrong)
        assert (scan.end, scan.stopped) == ((0, True) if wrong else (len(data), False))
