from __future__ import annotations

import os
import random

import crc32c as another
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.protocol.crc import crc32c


def bitwise(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_vectors_of_rfc_3720() -> None:
    assert crc32c(b"") == 0
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E
    assert crc32c(bytes(range(31, -1, -1))) == 0x113FDB5C


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_goes_on_from_an_earlier_sum(first: bytes, second: bytes) -> None:
    assert crc32c(memoryview(second), crc32c(bytearray(first))) == crc32c(first + second) == bitwise(first + second)


@pytest.mark.parametrize("most", [600, 5_000, 300_000])
def test_is_what_another_one_finds(most: int) -> None:
    """Of any length and wherever it begins: what is too short for the wide registers is summed in other ways."""
    picks, data = random.Random(most), memoryview(bytearray(os.urandom(most + 64)))
    for _ in range(2_000):
        start, size = picks.randrange(64), picks.randrange(most)
        piece, part = data[start : start + size], picks.randint(0, size)
        assert crc32c(piece) == another.crc32c(piece) == crc32c(piece[part:], crc32c(piece[:part]))
