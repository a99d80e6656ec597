"""Varints, UUIDs in text form, error codes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.protocol.errors import DecodeError, ErrorCode, KafkaError
from isthmus.protocol.primitives import (
    ZERO_UUID,
    read_uvarint,
    skip_tagged_fields,
    uuid_from_str,
    uuid_to_str,
    write_uvarint,
)


@given(st.integers(0, 0xFFFFFFFF))
@settings(max_examples=50)
def test_unsigned_varints_round_trip(value):
    raw = write_uvarint(value)
    assert read_uvarint(b"-" + raw + b"-", 1) == (value, 1 + len(raw))


def test_varints_of_the_specification():
    assert [write_uvarint(n) for n in (0, 1, 127, 128, 300)] == [b"\0", b"\1", b"\x7f", b"\x80\1", b"\xac\2"]


def test_varints_that_are_too_long_are_decode_errors():
    for raw in (b"\xff\xff\xff\xff\x1f", b"\x80\x80\x80\x80\x80\0"):
        with pytest.raises(DecodeError):
            read_uvarint(raw, 0)
    with pytest.raises(ValueError):
        write_uvarint(-1)


def test_uuids_print_as_kafka_prints_them():
    assert uuid_to_str(ZERO_UUID) == "A" * 22
    raw = bytes(range(240, 256))
    assert uuid_to_str(raw) == "8PHy8_T19vf4-fr7_P3-_w"
    assert uuid_from_str(uuid_to_str(raw)) == raw
    for text in ("", "short", "8PHy8_T19vf4-fr7_P3-_", "8PHy8/T19vf4+fr7/P3+/w", "ä" * 22, "A" * 44):
        with pytest.raises(ValueError):
            uuid_from_str(text)


def test_tagged_fields_are_skipped_within_their_frame():
    assert skip_tagged_fields(b"\2\0\0\7\3abc-", 0) == 8
    for raw in (b"\1\0\4abc", b"\x7f\0\0"):
        with pytest.raises(DecodeError):
            skip_tagged_fields(raw, 0)


def test_error_codes_have_no_hole():
    assert [code.value for code in ErrorCode] == list(range(-1, max(ErrorCode) + 1))


def test_kafka_errors_say_code_and_reason():
    error = KafkaError.of(ErrorCode.NOT_LEADER_OR_FOLLOWER, "flights-0 is led by 2")
    assert error.retriable and error.code == 6
    assert str(error) == "NOT_LEADER_OR_FOLLOWER (6): flights-0 is led by 2"
    assert not KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION).retriable
    unknown = KafkaError(999)
    assert (unknown.code, unknown.name, unknown.retriable) == (999, "ERROR_999", False)
