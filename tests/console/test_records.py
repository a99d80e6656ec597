"""A record as a line: text as it is; bytes that are none as text for people, and unchanged for programs."""

from __future__ import annotations

import json

import pytest

from isthmus.client import TopicPartition
from isthmus.console.records import line_of
from isthmus.protocol.records import Record

TP = TopicPartition("t", 2)
BINARY, AS_BASE64 = b"\x80\xff v", "gP8gdg=="


def as_json(key: bytes | None, value: bytes | memoryview | None, *headers: tuple[str, bytes | None]) -> dict:
    row = json.loads(line_of(TP, Record(5, 1_000, key, value, headers), as_json=True))
    assert [row.pop(name) for name in ("topic", "partition", "offset", "timestamp_ms")] == ["t", 2, 5, 1_000]
    return row


def test_text_is_told_as_it_is():
    assert as_json("ü".encode(), b"") == {"key": "ü", "value": "", "headers": []}
    assert as_json(None, None, ("a", b"1"), ("a", None)) == {
        "key": None, "value": None, "headers": [{"name": "a", "value": "1"}, {"name": "a", "value": None}],
    }  # fmt: skip


def test_bytes_that_are_no_text_are_base64_in_json():
    assert as_json(BINARY, memoryview(BINARY), ("a", BINARY)) == {
        "key_base64": AS_BASE64, "value_base64": AS_BASE64, "headers": [{"name": "a", "value_base64": AS_BASE64}],
    }  # fmt: skip
    assert as_json(b"text", b"\xed\xa0\x80") == {"key": "text", "value_base64": "7aCA", "headers": []}  # a surrogate


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [(None, b"v", "v"), (b"k", b"v", "k\tv"), (b"", None, "\t"), (BINARY, BINARY, "\\x80\\xff v\t\\x80\\xff v")],
)
def test_a_line_for_people(key, value, line):
    assert line_of(TP, Record(5, 1_000, key, value, ()), as_json=False) == line
