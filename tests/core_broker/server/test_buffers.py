"""Memory of half-read requests is used again, within bounds."""

from __future__ import annotations

import pytest

from isthmus.core_broker.server.buffers import CLASSES_BYTES, KEPT_BYTES, SMALL_BYTES, Buffers


@pytest.mark.parametrize("size", [1, SMALL_BYTES, SMALL_BYTES + 1, *CLASSES_BYTES, CLASSES_BYTES[-1] + 1])
def test_a_buffer_is_large_enough_and_no_larger_than_its_class(size):
    given = len(Buffers().take(size))
    assert size <= given <= max(size, min((each for each in CLASSES_BYTES if each >= size), default=size))


@pytest.mark.parametrize("size", CLASSES_BYTES)
def test_what_was_given_back_last_is_taken_first(size):
    buffers = Buffers()
    first, second = buffers.take(size), buffers.take(size)
    buffers.give(first)
    buffers.give(second)
    assert buffers.take(size) is second
    assert buffers.take(size) is first
    assert buffers.kept_bytes == 0


@pytest.mark.parametrize("size", [10, SMALL_BYTES, CLASSES_BYTES[-1] + 1])
def test_small_and_huge_ones_are_not_kept(size):
    buffers = Buffers()
    buffers.give(buffers.take(size))
    assert buffers.kept_bytes == 0


def test_no_more_is_kept_than_the_bound():
    buffers = Buffers()
    for taken in [buffers.take(CLASSES_BYTES[1]) for _ in range(20)]:
        buffers.give(taken)
    assert KEPT_BYTES - CLASSES_BYTES[1] < buffers.kept_bytes <= KEPT_BYTES


def test_what_nobody_used_since_the_last_trim_goes():
    buffers = Buffers()
    for taken in [buffers.take(CLASSES_BYTES[0]) for _ in range(3)]:
        buffers.give(taken)
    buffers.trim()
    kept = buffers.take(CLASSES_BYTES[0])
    buffers.give(kept)
    buffers.trim()  # two of three lay unused
    assert buffers.kept_bytes == CLASSES_BYTES[0]
    assert buffers.take(CLASSES_BYTES[0]) is kept
    buffers.give(kept)
    buffers.trim()
    buffers.trim()
    assert buffers.kept_bytes == 0
