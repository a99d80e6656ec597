"""Ways to frame one batch's records in each codec, and whether stock Kafka takes them: what its producers' and
consumers' readers make of joined, empty, skippable, cut and damaged frames.

`integration_tests/clients/test_framings.py` asks Kafka itself.
"""

from __future__ import annotations

import gzip
import io
import struct
import zlib
from typing import NamedTuple

import cramjam
import lz4.frame
import zstandard

from isthmus.protocol.compression import NAMES
from isthmus.protocol.crc import crc32c
from isthmus.protocol.records import HEADER_SIZE, build_batch

PLAIN = build_batch([(1_700_000_000_000 + n, b"k%d" % n, b"value %d " % n * 20, ()) for n in range(20)])
RECORDS = PLAIN[HEADER_SIZE:]
A, B = RECORDS[:500], RECORDS[500:]
XERIAL = b"\x82SNAPPY\0\0\0\0\1\0\0\0\1"


class Framing(NamedTuple):
    codec: str
    data: bytes
    kafka_takes: bool = True

    def batch(self) -> bytes:
        """A producer's batch whose records are framed so."""
        out = bytearray(PLAIN[:HEADER_SIZE] + self.data)
        struct.pack_into(">i", out, 8, len(out) - 12)
        struct.pack_into(">h", out, 21, NAMES.index(self.codec))
        struct.pack_into(">I", out, 17, crc32c(memoryview(out)[21:]))
        return bytes(out)


def skippable(size: int, kind: int = 0) -> bytes:
    return bytes([0x50 + kind]) + b"\x2a\x4d\x18" + struct.pack("<i", size) + b"x" * size


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


def zstd_streamed(data: bytes, window_log: int = 20) -> bytes:
    """Without the size of its content, and with a checksum."""
    options = zstandard.ZstdCompressionParameters.from_level(
        3, window_log=window_log, write_content_size=False, write_checksum=True
    )
    out = zstandard.ZstdCompressor(compression_params=options).compressobj()
    return out.compress(data) + out.flush()


def named_gzip(data: bytes) -> bytes:
    out = io.BytesIO()
    with gzip.GzipFile("a name", "wb", fileobj=out) as file:
        file.write(data)
    return out.getvalue()


def lz4_frame(data: bytes, **options: bool) -> bytes:
    return lz4.frame.compress(data, **{"block_linked": False, "store_size": False, **options})


def snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def xerial(*blocks: bytes) -> bytes:
    return XERIAL + b"".join(struct.pack(">i", len(block)) + block for block in map(snappy, blocks))


FRAMINGS = {
    "zstd, a skippable frame before": Framing("zstd", skippable(5) + zstd(RECORDS)),
    "zstd, the last kind of skippable frame": Framing("zstd", skippable(5, 15) + zstd(RECORDS)),
    "zstd, an empty skippable frame before": Framing("zstd", skippable(0) + zstd(RECORDS)),
    "zstd, a skippable frame between": Framing("zstd", zstd(A) + skippable(3) + zstd(B)),
    "zstd, a skippable frame after": Framing("zstd", zstd(RECORDS) + skippable(9)),
    "zstd, a cut skippable frame after": Framing("zstd", zstd(RECORDS) + skippable(9)[:-1]),
    "zstd, two frames": Framing("zstd", zstd(A) + zstd(B)),
    "zstd, an empty frame before": Framing("zstd", zstd(b"") + zstd(RECORDS)),
    "zstd, an empty frame after": Framing("zstd", zstd(RECORDS) + zstd(b"")),
    "zstd, a cut empty frame after": Framing("zstd", zstd(RECORDS) + zstd(b"")[:-1]),
    "zstd, no content size": Framing("zstd", zstd_streamed(RECORDS)),
    "zstd, two frames without content size": Framing("zstd", zstd_streamed(A) + zstd_streamed(B)),
    "zstd, an empty frame without content size before": Framing("zstd", zstd_streamed(b"") + zstd_streamed(RECORDS)),
    "zstd, a window of 128 MiB": Framing("zstd", zstd_streamed(RECORDS, 27)),
    "zstd, a window of 256 MiB": Framing("zstd", zstd_streamed(RECORDS, 28), False),
    "zstd, two bytes of a frame after": Framing("zstd", zstd(RECORDS) + b"\x28\xb5"),
    "zstd, other bytes after": Framing("zstd", zstd(RECORDS) + b"junk", False),
    "zstd, a zero after": Framing("zstd", zstd(RECORDS) + b"\0", False),
    "zstd, no magic": Framing("zstd", zstd(RECORDS)[4:], False),
    "zstd, cut": Framing("zstd", zstd(RECORDS)[:-1], False),
    "zstd, a cut checksum": Framing("zstd", zstd_streamed(RECORDS)[:-1], False),
    "zstd, a wrong checksum": Framing("zstd", zstd_streamed(RECORDS)[:-4] + b"\xaa" * 4, False),
    "gzip, two members": Framing("gzip", gzip.compress(A) + gzip.compress(B)),
    "gzip, an empty member before": Framing("gzip", gzip.compress(b"") + gzip.compress(RECORDS)),
    "gzip, an empty member after": Framing("gzip", gzip.compress(RECORDS) + gzip.compress(b"")),
    "gzip, a name": Framing("gzip", named_gzip(A) + named_gzip(B)),
    "gzip, other bytes after": Framing("gzip", gzip.compress(RECORDS) + b"junk" * 7),
    "gzip, zeros after": Framing("gzip", gzip.compress(RECORDS) + bytes(30)),
    "gzip, a zero after": Framing("gzip", gzip.compress(RECORDS) + b"\0"),
    "gzip, a cut header after": Framing("gzip", gzip.compress(RECORDS) + gzip.compress(b"")[:5]),
    "gzip, a cut member after": Framing("gzip", gzip.compress(A) + gzip.compress(B)[:-1], False),
    "gzip, a wrong checksum": Framing("gzip", gzip.compress(A) + gzip.compress(B)[:-8] + bytes(8), False),
    "gzip, cut": Framing("gzip", gzip.compress(RECORDS)[:-1], False),
    "gzip, zlib's frame": Framing("gzip", zlib.compress(RECORDS), False),
    "lz4, linked blocks": Framing("lz4", lz4_frame(RECORDS, block_linked=True)),
    "lz4, content size": Framing("lz4", lz4_frame(RECORDS, store_size=True)),
    "lz4, checksums": Framing("lz4", lz4_frame(RECORDS, content_checksum=True, block_checksum=True)),
    "lz4, an empty frame after": Framing("lz4", lz4_frame(RECORDS) + lz4_frame(b"")),
    "lz4, a skippable frame after": Framing("lz4", lz4_frame(RECORDS) + skippable(5)),
    "lz4, other bytes after": Framing("lz4", lz4_frame(RECORDS) + b"junk"),
    "lz4, two frames": Framing("lz4", lz4_frame(A) + lz4_frame(B), False),
    "lz4, an empty frame before": Framing("lz4", lz4_frame(b"") + lz4_frame(RECORDS), False),
    "lz4, a skippable frame before": Framing("lz4", skippable(5) + lz4_frame(RECORDS), False),
    "lz4, no end mark": Framing("lz4", lz4_frame(RECORDS)[:-4], False),
    "lz4, cut": Framing("lz4", lz4_frame(RECORDS)[:-1], False),
    "lz4, a cut checksum": Framing("lz4", lz4_frame(RECORDS, content_checksum=True)[:-2], False),
    "snappy, no frame": Framing("snappy", snappy(RECORDS)),
    "snappy, blocks": Framing("snappy", xerial(A, B)),
    "snappy, joined streams": Framing("snappy", xerial(A) + xerial(B)),
    "snappy, an empty block before": Framing("snappy", xerial(b"", RECORDS)),
    "snappy, an empty block after": Framing("snappy", xerial(RECORDS, b"")),
    "snappy, a header after": Framing("snappy", xerial(RECORDS) + XERIAL),
    "snappy, three bytes after": Framing("snappy", xerial(RECORDS) + b"jun"),
    "snappy, another version": Framing("snappy", XERIAL[:8] + bytes(8) + xerial(RECORDS)[16:]),
    "snappy, a block of no bytes": Framing("snappy", XERIAL + bytes(4) + xerial(RECORDS)[16:], False),
    "snappy, a cut header after": Framing("snappy", xerial(RECORDS) + XERIAL[:8], False),
    "snappy, no frame and a byte after": Framing("snappy", snappy(RECORDS) + b"j", False),
    "snappy, cut": Framing("snappy", xerial(RECORDS)[:-1], False),
}
