"""The codecs against other libraries' writers and readers, their framings and their bounds."""

from __future__ import annotations

import gzip
import struct
import tracemalloc
import zlib
from typing import Any

import cramjam
import lz4.frame
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.protocol.compression import NAMES, CompressionError, codec_id, compress, decompress, decompressed_pieces
from isthmus.protocol.records import CorruptBatch, validate_batch

from .framings import FRAMINGS

TEXT = b'{"carrier": "UA", "flight": 1545, "tailnum": "N14228", "origin": "EWR"}' * 3000  # past several xerial blocks
XERIAL = b"\x82SNAPPY\0\0\0\0\1\0\0\0\1"


def xerial(*blocks: bytes) -> bytes:
    return XERIAL + b"".join(struct.pack(">i", len(block)) + block for block in blocks)


def raw_snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


@pytest.mark.parametrize("codec", NAMES)
@given(data=st.binary(max_size=2000) | st.integers(0, 200_000).map(lambda n: TEXT[:n]))
@settings(max_examples=40, deadline=None)
def test_round_trip(codec: str, data: bytes) -> None:
    packed = compress(codec, data)
    assert isinstance(packed, bytes)
    assert decompress(codec, packed, len(data)) == data
    assert decompress(codec_id(codec), memoryview(bytearray(packed))) == data
    assert compress(codec_id(codec), memoryview(data)) == packed


def test_ids_are_kafkas() -> None:
    assert [codec_id(name) for name in ("none", "gzip", "snappy", "lz4", "zstd")] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("codec", ["", "LZ4", "brotli", 5, 6, 7, -1, None])
def test_unknown_codec(codec: Any) -> None:
    for call in (codec_id, lambda c: compress(c, b""), lambda c: decompress(c, b"")):
        with pytest.raises(CompressionError, match="codec"):
            call(codec)


def test_snappy_is_written_in_xerial_blocks_of_32_kb() -> None:
    packed = compress("snappy", TEXT)
    assert packed.startswith(XERIAL)
    position, sizes = 16, []
    while position < len(packed):
        (size,) = struct.unpack_from(">i", packed, position)
        sizes.append(len(bytes(cramjam.snappy.decompress_raw(packed[position + 4 : position + 4 + size]))))
        position += 4 + size
    assert position == len(packed)
    assert sizes == [32768] * (len(TEXT) // 32768) + [len(TEXT) % 32768]


def test_snappy_is_read_unframed_framed_joined_and_empty() -> None:
    assert decompress("snappy", raw_snappy(TEXT)) == TEXT
    assert decompress("snappy", xerial(raw_snappy(TEXT[:70_000]), raw_snappy(TEXT[70_000:]))) == TEXT
    assert decompress("snappy", xerial(raw_snappy(b"ab")) + xerial(raw_snappy(b""), raw_snappy(b"cd"))) == b"abcd"
    assert decompress("snappy", XERIAL) == b""
    assert decompress("snappy", raw_snappy(b"")) == b""


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff" * 4,
        b"\xff" * 5,
        b"\x05",
        b"\x05\x00a",
        XERIAL[:8],
        XERIAL[:12],
        XERIAL + b"\0\0\0\5ab",
        XERIAL + b"\xff\xff\xff\xff",
        XERIAL + b"\0\0\0\0",
        xerial(raw_snappy(b"abc")) + XERIAL[:10],
        b"\xff\xff\xff\x7f" + b"\0" * 10,
    ],
)
def test_wrong_snappy(data: bytes) -> None:
    with pytest.raises(CompressionError):
        decompress("snappy", data)


def test_gzip_of_any_level_and_of_several_members() -> None:
    assert decompress("gzip", gzip.compress(TEXT, 9)) == TEXT
    assert decompress("gzip", gzip.compress(TEXT[:9]) + gzip.compress(b"") + gzip.compress(TEXT[9:])) == TEXT
    assert gzip.decompress(compress("gzip", TEXT)) == TEXT
    with pytest.raises(CompressionError):
        decompress("gzip", zlib.compress(TEXT))


# Of lz4 the default level, 9, is the fast compressor, as in Kafka.
@pytest.mark.parametrize(("codec", "fast", "small"), [("gzip", 1, 9), ("lz4", 9, 17), ("zstd", -20, 19)])
def test_levels(codec: str, fast: int, small: int) -> None:
    data = b"".join(b"record %d of many, value %d;" % (n, n * n) for n in range(3000))
    sizes = [len(compress(codec, data, level)) for level in (fast, small)]
    assert sizes[1] < sizes[0]
    for level in (fast, small):
        assert decompress(codec, compress(codec, data, level)) == data
    assert compress(codec, data) == compress(codec, data, {"gzip": -1, "lz4": 9, "zstd": 3}[codec])


@pytest.mark.parametrize("options", [{}, {"store_size": False}, {"content_checksum": True, "block_checksum": True}])
@pytest.mark.parametrize("linked", [False, True])
def test_lz4_frames_of_other_writers(options: dict[str, bool], linked: bool) -> None:
    for block in (lz4.frame.BLOCKSIZE_MAX64KB, lz4.frame.BLOCKSIZE_MAX4MB):
        packed = lz4.frame.compress(TEXT, block_size=block, block_linked=linked, **options)
        assert decompress("lz4", packed) == TEXT
        assert decompress("lz4", packed, len(TEXT)) == TEXT


def lz4_claiming(size: int) -> bytes:
    """A frame of TEXT that claims another size, with the checksum of its head made right."""
    frame = bytearray(lz4.frame.compress(TEXT, store_size=True))
    frame[6:14] = size.to_bytes(8, "little")
    for checksum in range(256):
        frame[14] = checksum
        try:
            assert lz4.frame.get_frame_info(bytes(frame))["content_size"] == size
        except RuntimeError:
            continue
        return bytes(frame)
    raise AssertionError("no checksum is right")


@pytest.mark.parametrize("bound", [len(TEXT), 1 << 30])
def test_no_room_is_made_for_what_an_lz4_frame_claims(bound: int) -> None:
    assert decompress("lz4", lz4_claiming(len(TEXT)), bound) == TEXT
    for size in (len(TEXT) - 1, len(TEXT) + 1, 1 << 30, 1 << 62, (1 << 64) - 1):
        tracemalloc.start()
        try:
            with pytest.raises(CompressionError):
                decompress("lz4", lz4_claiming(size), bound)
            assert tracemalloc.get_traced_memory()[1] < 64 << 20
        finally:
            tracemalloc.stop()


def test_lz4_is_read_by_other_readers() -> None:
    assert bytes(cramjam.lz4.decompress(compress("lz4", TEXT))) == TEXT


def test_zstd_with_and_without_content_size() -> None:
    zstandard = pytest.importorskip("zstandard")
    for level in (1, 3, 19):
        for size in (0, 10, 255, 256, 65_791, 65_792, len(TEXT)):
            data = TEXT[:size]
            for told in (True, False):
                packed = zstandard.ZstdCompressor(level, write_content_size=told).compress(data)
                assert decompress("zstd", packed, size) == data
                assert decompress("zstd", packed) == data
    assert zstandard.ZstdDecompressor().decompress(compress("zstd", TEXT), max_output_size=len(TEXT)) == TEXT


def test_zstd_of_several_frames_and_of_high_ratio() -> None:
    assert decompress("zstd", compress("zstd", b"ab") + compress("zstd", TEXT)) == b"ab" + TEXT
    packed = bytes(cramjam.zstd.compress(bytes(30_000_000)))
    assert len(packed) < 30_000
    assert decompress("zstd", packed) == bytes(30_000_000)


@pytest.mark.parametrize("what", FRAMINGS)
def test_what_kafka_takes_is_taken_and_no_more(what: str) -> None:
    batch = FRAMINGS[what].batch()
    if FRAMINGS[what].kafka_takes:
        assert validate_batch(batch).header.records_count == 20
    else:
        with pytest.raises(CorruptBatch):
            validate_batch(batch)


@pytest.mark.parametrize("codec", NAMES)
@pytest.mark.parametrize("piece_bytes", [1000, 32768, 100_000, len(TEXT) - 1, len(TEXT)])
def test_pieces_are_bounded_and_together_the_whole(codec: str, piece_bytes: int) -> None:
    pieces = [bytes(piece) for piece in decompressed_pieces(codec, compress(codec, TEXT), piece_bytes, len(TEXT))]
    assert b"".join(pieces) == TEXT
    least = 32768 if codec == "snappy" else 0  # a block of it is not cut
    assert all(0 < len(piece) <= max(piece_bytes, least) for piece in pieces)


def test_many_small_frames_are_joined_to_pieces() -> None:
    joined = {
        "gzip": gzip.compress(TEXT[:100]) * 1000 + gzip.compress(b"") * 10,
        "snappy": XERIAL + xerial(raw_snappy(TEXT[:100]), raw_snappy(b""))[16:] * 1000,
        "zstd": compress("zstd", TEXT[:100]) * 1000,
    }
    for codec, data in joined.items():
        pieces = list(decompressed_pieces(codec, data, 10_000, 10_000))
        assert b"".join(pieces) == TEXT[:100] * 1000
        assert len(pieces) <= 11


@pytest.mark.parametrize("codec", NAMES)
def test_bound_is_exact(codec: str) -> None:
    packed = compress(codec, TEXT)
    assert decompress(codec, packed, len(TEXT)) == TEXT
    for bound in (len(TEXT) - 1, 1000, 0):
        with pytest.raises(CompressionError, match=f"more than {bound} bytes"):
            decompress(codec, packed, bound)


@pytest.mark.parametrize("codec", NAMES[1:])
def test_a_bomb_takes_no_memory_past_its_bound(codec: str) -> None:
    packed = compress(codec, bytes(64 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(CompressionError):
            decompress(codec, packed, 1 << 20)
        assert tracemalloc.get_traced_memory()[1] < 6 << 20  # a piece, the next one and what joins them
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", NAMES[1:])
@given(data=st.binary(max_size=200))
@settings(max_examples=100, deadline=None)
def test_any_bytes_give_bytes_or_compression_error(codec: str, data: bytes) -> None:
    magic = {"gzip": b"\x1f\x8b\x08", "snappy": XERIAL, "lz4": b"\x04\x22\x4d\x18", "zstd": b"\x28\xb5\x2f\xfd"}[codec]
    for bad in (data, magic + data, compress(codec, TEXT[:500])[: 40 + len(data)] + data):
        try:
            assert len(decompress(codec, bad, 1 << 16)) <= 1 << 16
        except CompressionError:
            pass


@pytest.mark.parametrize("codec", NAMES[1:])
def test_cut_data_is_an_error_at_every_length(codec: str) -> None:
    packed = compress(codec, TEXT[:3000])
    for size in range(len(packed)):
        if codec == "snappy" and 16 <= size < 20:
            continue  # the header alone is an empty stream, as to Kafka's reader with less than a block's size after it
        with pytest.raises(CompressionError):
            decompress(codec, packed[:size])
        with pytest.raises(CompressionError):
            decompress(codec, packed[:size], 3000)
