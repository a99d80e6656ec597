"""The codecs of record batches behind two calls, `compress` and `decompress`, by Kafka's names or ids.

What is decompressed may come from anyone, so every codec is bounded by `max_bytes` before memory is taken for it.
Snappy is written in xerial's framing, as Java's clients do, and read in that and in none, as librdkafka writes.

Libraries, MB/s of plain JSON in 16 KB (1 MB), compress and decompress, on one core:
  lz4     lz4 1880 (1400), 5030 (5190); cramjam 1135 (904), 671 (1860)
  snappy  cramjam 1830 (1420), 3910 (3290)
  zstd    cramjam 521 (640), 999 (2050); zstandard, a context a call, 529 (662), 1043 (2180)
  gzip    zlib level 6 198 (88), 1083 (1008); isal level 1, a quarter larger, 992 (1140), 1780 (2230)
zstandard doubles the small case when its contexts are kept, but they are not safe to share between threads.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import cramjam
import lz4.frame

if TYPE_CHECKING:
    from typing_extensions import Buffer

NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
IDS = {name: number for number, name in enumerate(NAMES)}

DECOMPRESSED_BYTES_MAX = 256 << 20  # of one batch, where the caller says nothing else

LZ4_DEFAULT_LEVEL = 9

_LZ4_SLOW_MIN = 3
_ZSTD_DEFAULT_LEVEL = 3
_XERIAL_MAGIC = b"\x82SNAPPY\0"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\0\0\0\1\0\0\0\1"  # version 1, readable since version 1
_XERIAL_BLOCK_BYTES = 32 << 10  # as Java's SnappyOutputStream
_SNAPPY_RATIO_MAX = 22  # a copy is 3 bytes for at most 64
_LZ4_MAGIC = bytes.fromhex("04224d18")
_LZ4_HAS_SIZE = 8  # a bit of the byte after the magic
_LZ4_RATIO_MAX = 256  # a match of any length is a byte for every 255
_ZSTD_FIRST_RATIO = 256  # more than this is not believed before it is seen
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


class CompressionError(ValueError):
    """Bytes that their codec cannot read, that would pass the bound, or a codec that is not known."""


def codec_id(codec: str | int) -> int:
    """0 to 4 for a codec's name or id. Raises CompressionError for any other."""
    number = IDS.get(codec) if isinstance(codec, str) else codec
    if number is None or not 0 <= number < len(NAMES):
        raise CompressionError(f"unknown compression codec {codec!r}; known are {', '.join(NAMES)}")
    return number


def compress(codec: str | int, data: Buffer, level: int | None = None) -> bytes:
    """`data` as one block of the codec; of none, as bytes.

    level: as Kafka has it in compression.gzip.level, compression.lz4.level and compression.zstd.level (KIP-390);
    None for the codec's default. The others have none.
    """
    return _CODECS[codec_id(codec)].compress(data, level)


def decompress(codec: str | int, data: Buffer, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> bytes | bytearray:
    """The plain bytes of a batch's records section. Raises CompressionError past `max_bytes` and for bad bytes."""
    number = codec_id(codec)
    try:
        return _CODECS[number].decompress(memoryview(data).cast("B"), max_bytes)
    except CompressionError:
        raise
    except (cramjam.DecompressionError, RuntimeError, ValueError, EOFError, zlib.error) as error:
        raise CompressionError(f"{NAMES[number]} data of {len(memoryview(data))} bytes: {error}") from error


def _too_large(codec: str, max_bytes: int) -> CompressionError:
    return CompressionError(f"{codec} data of more than {max_bytes} bytes when decompressed")


def _plain(data: Buffer, level: int | None) -> bytes:
    return data if isinstance(data, bytes) else bytes(data)


def _plain_bounded(data: memoryview, max_bytes: int) -> bytes:
    if len(data) > max_bytes:
        raise _too_large("plain", max_bytes)
    return bytes(data)


def _gzip(data: Buffer, level: int | None) -> bytes:
    out = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)  # -1 stands for 6
    return out.compress(data) + out.flush()


def _gunzip(data: memoryview, max_bytes: int) -> bytes:
    """All members: gzip allows several, and Java's reader takes them."""
    out = b""
    rest: Buffer = data
    while True:
        member = zlib.decompressobj(31)
        part = member.decompress(rest, max_bytes - len(out) + 1)
        out = out + part if out else part
        if len(out) > max_bytes:
            raise _too_large("gzip", max_bytes)
        if not member.eof:
            raise CompressionError("gzip data ends in the middle")
        if not member.unused_data:
            return out
        rest = member.unused_data


def _snappy(data: Buffer, level: int | None) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts.append(len(block).to_bytes(4, "big"))
        parts.append(block)
    return b"".join(parts)


def _unsnappy(data: memoryview, max_bytes: int) -> bytes | bytearray:
    if bytes(data[:8]) != _XERIAL_MAGIC:
        return _unsnappy_block(data, max_bytes, max_bytes)
    parts: list[bytes | bytearray] = []
    position, room, end = len(_XERIAL_HEADER), max_bytes, len(data)
    while position < end:
        if bytes(data[position : position + 8]) == _XERIAL_MAGIC:  # streams may be joined
            position += len(_XERIAL_HEADER)
            continue
        start = position + 4
        size = int.from_bytes(data[position:start], "big")
        position = start + size
        if start > end or position > end:
            raise CompressionError(f"xerial block of {size} bytes at byte {start - 4} of {end}")
        part = _unsnappy_block(data[start:position], room, max_bytes)
        room -= len(part)
        parts.append(part)
    if position > end:
        raise CompressionError(f"xerial header cut at byte {end}")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _unsnappy_block(data: memoryview, room: int, max_bytes: int) -> bytearray:
    size = shift = 0
    for byte in data[:5]:
        size |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
    else:
        raise CompressionError("snappy data without a length")
    if size > room:
        raise _too_large("snappy", max_bytes)
    if size > len(data) * _SNAPPY_RATIO_MAX:
        raise CompressionError(f"snappy data of {len(data)} bytes claims to hold {size}")
    out = bytearray(size)
    if size and cramjam.snappy.decompress_raw_into(data, out) != size:
        raise CompressionError(f"snappy data holds less than the {size} bytes it claims")
    return out


def _lz4(data: Buffer, level: int | None) -> bytes:
    # As in Kafka the default level, 9, is the fast compressor, and every other one the slow one at that level.
    speed = 0 if level is None or level == LZ4_DEFAULT_LEVEL else max(level, _LZ4_SLOW_MIN)
    # Kafka's Java reader takes frames of independent blocks only ("Dependent block stream is unsupported").
    return lz4.frame.compress(data, compression_level=speed, store_size=False, block_linked=False)


def _unlz4(data: memoryview, max_bytes: int) -> bytes:
    size, most = _lz4_content_size(data), len(data) * _LZ4_RATIO_MAX
    if size > most:  # the library would make room for it
        raise CompressionError(f"lz4 data of {len(data)} bytes claims to hold {size}")
    if most <= max_bytes:
        return lz4.frame.decompress(data)  # three times as fast as the bounded reader, and cannot pass the bound
    reader = lz4.frame.LZ4FrameDecompressor()
    out = reader.decompress(data, max_length=max_bytes)
    if not reader.eof:
        if not reader.needs_input or len(out) >= max_bytes:
            raise _too_large("lz4", max_bytes)
        raise CompressionError("lz4 data ends in the middle")
    return out


def _lz4_content_size(data: memoryview) -> int:
    """What the frame tells (LZ4 frame format, 1.6), else 0."""
    if len(data) < 14 or not data[4] & _LZ4_HAS_SIZE or bytes(data[:4]) != _LZ4_MAGIC:
        return 0
    return int.from_bytes(data[6:14], "little")


def _zstd(data: Buffer, level: int | None) -> bytes:
    return bytes(cramjam.zstd.compress(data, level=_ZSTD_DEFAULT_LEVEL if level is None else level))


def _unzstd(data: memoryview, max_bytes: int) -> bytearray:
    """Into a buffer of the size the frame tells, or of a guess that grows up to the bound."""
    size = _zstd_content_size(data)
    if size is None:
        size = 8 * len(data)
    size = min(size, _ZSTD_FIRST_RATIO * len(data) + 65536, max_bytes)
    while True:
        out = bytearray(size)
        try:
            written = cramjam.zstd.decompress_into(data, out)
        except cramjam.DecompressionError as error:
            if "whole buffer" not in str(error):
                raise
            if size >= max_bytes:
                raise _too_large("zstd", max_bytes) from None
            size = min(4 * size + 1024, max_bytes)
            continue
        del out[written:]
        return out


def _zstd_content_size(data: memoryview) -> int | None:
    """The first frame's content size, where it tells (RFC 8878, 3.1.1.1)."""
    if len(data) < 6 or bytes(data[:4]) != _ZSTD_MAGIC:
        raise CompressionError("not a zstd frame")
    descriptor = data[4]
    single_segment = descriptor >> 5 & 1
    flag = descriptor >> 6
    if not flag and not single_segment:
        return None
    start = 6 - single_segment + (0, 1, 2, 4)[descriptor & 3]
    size = 1 << flag
    return int.from_bytes(data[start : start + size], "little") + (256 if flag == 1 else 0)


class _Codec(NamedTuple):
    compress: Callable[[Buffer, int | None], bytes]
    decompress: Callable[[memoryview, int], bytes | bytearray]


_CODECS = (
    _Codec(_plain, _plain_bounded),
    _Codec(_gzip, _gunzip),
    _Codec(_snappy, _unsnappy),
    _Codec(_lz4, _unlz4),
    _Codec(_zstd, _unzstd),
)
