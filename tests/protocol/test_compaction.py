"""Log compaction of one batch, the same for the compiled and the plain form of the loops."""

from __future__ import annotations

import random
import struct
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.protocol.compression import NAMES
from isthmus.protocol.errors import KafkaError
from isthmus.protocol.records import build_batch, decode_batch, read_header, verify_crc, with_append_time

from .records_forms import COMPACTION_FORMS

T0 = 1_700_000_000_000
HORIZON = T0 + 86_400_000

# SipHash-2-4 of 128 bits, key 00 01 … 0f, message of n bytes 00 01 …: Aumasson's reference vectors, as OpenSSL has them
SIPHASH = {
    0: "a3817f04ba25a8e66df67214c7550293",
    1: "da87c1d86b99af44347659119b22fc45",
    7: "a1f1ebbed8dbc153c0b84aa61ff08239",
    8: "3b62a9ba6258f5610f83e264f31497b4",
    9: "264499060ad9baabc47f8b02bb6d71ed",
    16: "6ee2a4ca67b054bbfd3315bf85230577",
    63: "5150d1772f50834a503e069a973fbd7c",
}


@pytest.fixture(params=list(COMPACTION_FORMS))
def compaction(request: pytest.FixtureRequest) -> ModuleType:
    form = COMPACTION_FORMS[request.param]
    if request.param == "compiled" and not form.COMPILED:
        pytest.skip("the module is not compiled here")
    return form


def new_map(compaction: ModuleType, keys: int = 1000, max_bytes: int = 1 << 20) -> Any:
    return compaction.new_offset_map(max_bytes, 0.9, keys, random.Random(1))


def run_filter(compaction: ModuleType, batch: bytes, offsets: Any, now_ms: int = T0) -> Any:
    header = read_header(batch)
    return compaction.filter_batch(memoryview(batch), 0, header, offsets, now_ms, now_ms + 86_400_000)


def rows(batch: bytes) -> list[Any]:
    return [(r.offset, r.timestamp_ms, r.key, r.value, r.headers) for r in decode_batch(batch)]


# The map


@pytest.mark.parametrize("size", SIPHASH)
def test_hash_is_siphash(compaction: ModuleType, size: int) -> None:
    key = bytes(range(16))
    offsets = compaction.OffsetMap(2, 1, *struct.unpack("<QQ", key))
    assert struct.pack("<QQ", *offsets.hash_of(bytes(range(size)))).hex() == SIPHASH[size]


def test_map_holds_the_last_offset_of_each_key_up_to_its_limit(compaction: ModuleType) -> None:
    offsets = new_map(compaction, keys=3000)
    chance = random.Random(2)
    expected: dict[bytes, int] = {}
    for n in range(9000):
        key = b"key %d" % chance.randrange(2500)
        offsets.put(key, n)
        expected[key] = n
    assert offsets.size == len(expected)
    assert all(offsets.get(key) == at for key, at in expected.items())
    assert [offsets.get(b"other %d" % n) for n in range(100)] == [-1] * 100


def test_map_is_as_large_as_its_keys_need_and_never_larger_than_it_may_be(compaction: ModuleType) -> None:
    assert 10 <= new_map(compaction, keys=10).slots < 20
    bounded = new_map(compaction, keys=10**9, max_bytes=24_000)
    assert (bounded.slots, bounded.limit) == (1000, 900)
    with pytest.raises(ValueError, match="cannot be found"):
        new_map(compaction, max_bytes=24)


@pytest.mark.parametrize("codec", NAMES)
def test_map_batch_takes_keys_from_an_offset_on_and_says_when_it_is_full(compaction: ModuleType, codec: str) -> None:
    data = [(T0, b"k%d" % n if n != 3 else None, b"v", ()) for n in range(6)]
    batch = memoryview(build_batch(data, codec, base_offset=100))
    header = read_header(batch)
    offsets = new_map(compaction, keys=5)
    assert compaction.map_batch(batch, 0, header, offsets, 101)
    assert [offsets.get(b"k%d" % n) for n in range(6)] == [-1, 101, 102, -1, 104, 105]
    small = compaction.OffsetMap(10, 2, 1, 2)
    assert not compaction.map_batch(batch, 0, header, small, 0)
    assert (small.get(b"k0"), small.get(b"k1"), small.get(b"k2")) == (100, 101, -1)


# What stays of a batch


def test_batch_of_last_values_stays_as_it_is(compaction: ModuleType) -> None:
    batch = build_batch([(T0, b"a", b"1", ()), (T0, b"b", b"2", ())], base_offset=10)
    offsets = new_map(compaction)
    offsets.put(b"a", 10)
    offsets.latest_offset = 20
    found = run_filter(compaction, batch, offsets)
    assert (found.kept, found.data, found.max_timestamp) == (2, None, T0)


def test_batch_past_the_map_stays_with_what_would_go_before(compaction: ModuleType) -> None:
    batch = build_batch([(T0, None, b"1", ()), (T0, b"b", b"2", ())], base_offset=10)
    offsets = new_map(compaction)
    offsets.latest_offset = 9
    assert run_filter(compaction, batch, offsets).data is None


@pytest.mark.parametrize("codec", NAMES)
def test_replaced_records_go_and_the_rest_keeps_offsets_times_codec_and_producer(
    compaction: ModuleType, codec: str
) -> None:
    data: list[Any] = [
        (T0 + 5, b"a", b"old", ()),
        (T0 - 3, b"b", b"last", (("h", b"x"), ("n", None))),
        (T0 + 90_000, b"c", b"old", ()),
        (T0 + 7, None, b"no key", ()),
        (T0 + 70_000, b"d" * 300, b"v" * 9000, ()),
        (T0 + 1, b"a", b"new", ()),
        (T0 + 1, b"e", b"old", ()),
    ]
    head = {"producer_id": 7, "producer_epoch": 3, "base_sequence": 40, "partition_leader_epoch": 5}
    batch = build_batch(data, codec, base_offset=1000, **head)
    offsets = new_map(compaction)
    for key, at in {b"a": 1005, b"c": 2000, b"e": 1007}.items():
        offsets.put(key, at)
    offsets.latest_offset = 2000
    found = run_filter(compaction, batch, offsets)
    assert found.kept == 3
    assert verify_crc(found.data, 0, len(found.data))
    before, after = read_header(batch), read_header(found.data)
    assert rows(found.data) == [row for row in rows(batch) if row[0] in (1001, 1004, 1005)]
    assert (after.base_offset, after.last_offset, after.records_count) == (1000, 1006, 3)
    assert (after.base_timestamp, after.max_timestamp) == (T0 - 3, T0 + 70_000) and found.max_timestamp == T0 + 70_000
    for name in ("attributes", "producer_id", "producer_epoch", "base_sequence", "last_sequence"):
        assert getattr(after, name) == getattr(before, name)
    assert after.partition_leader_epoch == 5


def test_nothing_left_and_the_empty_batch_in_its_place(compaction: ModuleType) -> None:
    head = {"producer_id": 7, "producer_epoch": 3, "base_sequence": 40, "partition_leader_epoch": 5}
    batch = build_batch([(T0, b"a", b"1", ()), (T0 + 4, b"a", b"2", ())], "zstd", base_offset=10, **head)
    offsets = new_map(compaction)
    offsets.put(b"a", 12)
    offsets.latest_offset = 12
    assert run_filter(compaction, batch, offsets) == (0, b"", -1)
    empty = compaction.empty_batch(read_header(batch))
    header = read_header(empty)
    assert len(empty) == 61 and verify_crc(empty, 0, 61) and rows(empty) == []
    assert (header.base_offset, header.last_offset, header.records_count, header.codec) == (10, 11, 0, 0)
    assert (header.last_sequence, header.producer_id, header.producer_epoch) == (41, 7, 3)
    assert (header.base_timestamp, header.max_timestamp, header.partition_leader_epoch) == (-1, T0 + 4, 5)


@pytest.mark.parametrize("codec", NAMES)
def test_tombstone_gets_a_horizon_once_and_goes_when_it_has_passed(compaction: ModuleType, codec: str) -> None:
    batch = build_batch([(T0 + 3, b"a", None, ()), (T0 + 5, b"b", b"2", ())], codec, base_offset=10)
    offsets = new_map(compaction)
    offsets.latest_offset = 100
    first = run_filter(compaction, batch, offsets, now_ms=T0 + 1000)
    header = read_header(first.data)
    assert compaction.delete_horizon_ms(read_header(batch)) is None
    assert compaction.delete_horizon_ms(header) == header.base_timestamp == T0 + 1000 + 86_400_000
    assert header.max_timestamp == T0 + 5
    assert rows(first.data) == rows(batch)
    later = run_filter(compaction, first.data, offsets, now_ms=T0 + 1000 + 86_399_999)
    assert later.data is None
    last = run_filter(compaction, first.data, offsets, now_ms=T0 + 1000 + 86_400_000)
    assert rows(last.data) == rows(batch)[1:]
    assert compaction.delete_horizon_ms(read_header(last.data)) == header.base_timestamp  # as Kafka keeps it


def test_log_append_time_stays_the_time_of_every_record(compaction: ModuleType) -> None:
    plain = build_batch([(T0, b"a", b"1", ()), (T0 + 5, b"b", None, ())])
    batch = with_append_time(plain, 0, T0 + 77) + plain[61:]
    offsets = new_map(compaction)
    offsets.put(b"a", 5)
    offsets.latest_offset = 5
    found = run_filter(compaction, batch, offsets)
    header = read_header(found.data)
    assert header.is_log_append_time and header.max_timestamp == found.max_timestamp == T0 + 77
    assert rows(found.data) == [(1, T0 + 77, b"b", None, ())]


def test_marker_of_a_transaction_keeps_its_record_when_it_gets_a_horizon(compaction: ModuleType) -> None:
    marker = (T0, struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 4), ())
    batch = build_batch([marker], control=True, transactional=True, producer_id=9, producer_epoch=1, base_offset=3)
    found = compaction.with_delete_horizon(memoryview(batch), 0, read_header(batch), HORIZON)
    assert rows(found.data) == rows(batch)
    header = read_header(found.data)
    assert header.is_control and header.is_transactional and compaction.delete_horizon_ms(header) == HORIZON
    empty = compaction.empty_batch(header)
    assert compaction.with_delete_horizon(memoryview(empty), 0, read_header(empty), HORIZON) == (0, b"", -1)


@pytest.mark.parametrize("broken", [20, 70])
def test_bytes_that_have_changed_are_not_given_a_new_checksum(compaction: ModuleType, broken: int) -> None:
    batch = bytearray(build_batch([(T0, b"a", b"1" * 20, ()), (T0, b"b", b"2", ())]))
    batch[broken] ^= 1
    offsets = new_map(compaction)
    for use in (
        lambda: run_filter(compaction, bytes(batch), offsets),
        lambda: compaction.map_batch(memoryview(batch), 0, read_header(batch), offsets),
    ):
        with pytest.raises(KafkaError, match="CRC"):
            use()


ROW = st.tuples(
    st.integers(0, 2**60), st.sampled_from([None, b"", b"a", b"b", b"c" * 70]), st.sampled_from([None, b"", b"v" * 200])
)


@settings(max_examples=60, deadline=None)
@given(data=st.lists(ROW, min_size=1, max_size=12), codec=st.integers(0, 4), partly=st.booleans())
def test_both_forms_leave_the_same_bytes_and_what_a_plain_reading_of_the_rules_leaves(
    data: list[Any], codec: int, partly: bool
) -> None:
    batch = build_batch([(*row, ()) for row in data], codec, base_offset=5)
    limit = 5 + len(data) // 2 if partly else 100
    results = []
    for compaction in COMPACTION_FORMS.values():
        offsets = new_map(compaction)
        assert compaction.map_batch(memoryview(batch), 0, read_header(batch), offsets)
        offsets.latest_offset = limit
        results.append(run_filter(compaction, batch, offsets))
    assert results[0] == results[1]
    last = {key: at for at, (_, key, _) in enumerate(data, 5) if key is not None}
    stay = [row for row in rows(batch) if row[0] > limit or (row[2] is not None and last[row[2]] == row[0])]
    left = batch if results[0].data is None else results[0].data
    assert (rows(left) if left else []) == stay
