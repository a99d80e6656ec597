"""Strings as Java sees them; the values are a JVM's."""

from __future__ import annotations

from isthmus.core_broker.coordinators.java import java_hash, java_length, java_order, java_sort_key, java_uuid_hash


def test_hash_codes():
    assert [java_hash(text) for text in ("", "a", "group", "Ünïcode", "🙂")] == [0, 97, 98629247, 1055301514, 1772965]
    assert java_hash("polygenelubricants") == -(2**31)


def test_lengths():
    assert [java_length(text) for text in ("", "group", "Ünïcode", "🙂")] == [0, 5, 7, 2]


def test_order_of_strings():
    assert sorted(["\uffff", "🙂", "z"], key=java_sort_key) == ["z", "🙂", "\uffff"]


def test_hash_of_an_id():
    assert java_uuid_hash(bytes(range(16))) == 0x00000000  # words that differ in the same bits
    assert java_uuid_hash(b"\x80" + bytes(14) + b"\x01") == 0x80000001


def test_order_of_a_hash_map():
    """As stock Kafka chose among protocols that as many members like."""
    assert java_order(["cooperative-sticky", "range", "roundrobin", "sticky"]) == [
        "sticky",
        "range",
        "roundrobin",
        "cooperative-sticky",
    ]
