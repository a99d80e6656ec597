"""The codecs of record batches behind three calls, `compress`, `decompress` and `decompressed_pieces`, by Kafka's names
or ids.

What is decompressed may come from anyone. It is given out in pieces of a bounded size, so that memory depends on the
caller's bounds and not on what the data expands to. What Kafka's own readers take is taken: gzip of several members and
with other bytes after the last, zstd of several, empty and skippable frames, lz4 of one frame and whatever follows it.
Snappy is written in xerial's framing, as Java's clients do, and read in that and in none, as librdkafka writes.

Libraries, MB/s of plain JSON in 16 KB (1 MB), compress and decompress, on one core:
  lz4     lz4 1880 (1400), 5030 (5190); cramjam 1135 (904), 671 (1860)
  snappy  cramjam 1830 (1420), 3910 (3290)
  zstd    zstandard, a context a call, 529 (662), 1043 (2180); cramjam 521 (640), 999 (2050), and no pieces
  gzip    zlib level 6 198 (88), 1083 (1008); isal level 1, a quarter larger, 992 (1140), 1780 (2230)
zstandard doubles the small case when its contexts are kept, but they are not safe to share between threads.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import cramjam
import lz4.frame
import zstandard

if TYPE_CHECKING:
    from typing_extensions import Buffer

Plain = bytes | bytearray  # what was decompressed

NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
IDS = {name: number for number, name in enumerate(NAMES)}

DECOMPRESSED_BYTES_MAX = 256 << 20  # of one batch, where the caller says nothing else

LZ4_DEFAULT_LEVEL = 9

_LZ4_SLOW_MIN = 3
_ZSTD_DEFAULT_LEVEL = 3
_GZIP_MAGIC = b"\x1f\x8b\x08"  # with the one method, deflate
_XERIAL_MAGIC = b"\x82SNAPPY\0"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\0\0\0\1\0\0\0\1"  # version 1, readable since version 1
_XERIAL_BLOCK_BYTES = 32 << 10  # as Java's SnappyOutputStream
_SNAPPY_RATIO_MAX = 22  # a copy is 3 bytes for at most 64
_LZ4_MAGIC = bytes.fromhex("04224d18")
_LZ4_HAS_SIZE = 8  # a bit of the byte after the magic
_LZ4_RATIO_MAX = 256  # a match of any length is a byte for every 255
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE = b"\x2a\x4d\x18"  # after a byte from 0x50 to 0x5f
_ZSTD_BLOCK_BYTES_MAX = 128 << 10
_PART_BYTES_MAX = 4 << 20  # asked of a codec at once, which takes as much memory before it knows what there is
_ZSTD_WINDOW_BYTES_MAX = 128 << 20  # as zstd's own default, and so Kafka's


_ERRORS = (cramjam.DecompressionError, zstandard.ZstdError, RuntimeError, ValueError, EOFError, zlib.error)


class CompressionError(ValueError):
    """Bytes that their codec cannot read, that would pass the bound, or a codec that is not known."""


class DecompressedTooLarge(CompressionError):
    """Bytes that would pass the caller's bound when they are decompressed."""


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


def decompress(codec: str | int, data: Buffer, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> Plain:
    """The plain bytes of a batch's records section. Raises CompressionError for bad bytes, DecompressedTooLarge past
    `max_bytes`."""
    pieces = decompressed_pieces(codec, data, max(max_bytes, 1), max_bytes)
    plain = next(pieces, b"")
    if len(plain) > max_bytes or next(pieces, None) is not None:
        raise _too_large(NAMES[codec_id(codec)], max_bytes)
    return plain


def decompressed_pieces(codec: str | int, data: Buffer, piece_bytes: int, max_bytes: int) -> Iterator[Plain]:
    """The plain bytes of a batch's records section in pieces of at most `piece_bytes`; none of them is empty.

    A piece is larger only where the codec cannot be cut (a block of snappy), up to `max_bytes`. Beside a piece, memory
    is taken for the next one and for zstd's window (128 MiB at most). Raises as `decompress`, also after some pieces.
    """
    number = codec_id(codec)
    view = memoryview(data).cast("B")
    try:
        found = _CODECS[number].decompress(view, piece_bytes, max_bytes)
    except _ERRORS as error:
        raise _unreadable(number, view, error) from error
    if isinstance(found, (bytes, bytearray)):
        return iter((found,)) if found else iter(())
    return _pieces(number, view, found, piece_bytes)


def _pieces(number: int, view: memoryview, parts: Iterable[Plain], piece_bytes: int) -> Iterator[Plain]:
    try:
        yield from _joined(parts, piece_bytes)
    except _ERRORS as error:
        raise _unreadable(number, view, error) from error


def _unreadable(number: int, view: memoryview, error: Exception) -> CompressionError:
    if isinstance(error, CompressionError):
        return error
    return CompressionError(f"{NAMES[number]} data of {len(view)} bytes: {error}")


def _joined(parts: Iterable[Plain], piece_bytes: int) -> Iterator[Plain]:
    """Small parts joined to pieces of at most `piece_bytes`; a larger part is a piece. Leaves empty parts out."""
    held: list[Plain] = []
    size = 0
    for part in parts:
        more = len(part)
        if not more:
            continue
        if held and size + more > piece_bytes:
            yield held[0] if len(held) == 1 else b"".join(held)
            held, size = [], 0
        held.append(part)
        size += more
    if held:
        yield held[0] if len(held) == 1 else b"".join(held)


def _too_large(codec: str, max_bytes: int) -> DecompressedTooLarge:
    return DecompressedTooLarge(f"{codec} data of more than {max_bytes} bytes when decompressed")


def _plain(data: Buffer, level: int | None) -> bytes:
    return data if isinstance(data, bytes) else bytes(data)


def _plain_parts(data: memoryview, piece_bytes: int, max_bytes: int) -> Iterator[Plain]:
    for start in range(0, len(data), piece_bytes):
        yield bytes(data[start : start + piece_bytes])


def _gzip(data: Buffer, level: int | None) -> bytes:
    out = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)  # -1 stands for 6
    return out.compress(data) + out.flush()


def _gunzip_parts(data: memoryview, piece_bytes: int, max_bytes: int) -> Iterator[Plain]:
    """All members. As in Java's reader, bytes after a member that are no member's header end the data."""
    rest: Buffer = data
    while True:
        member = zlib.decompressobj(31)
        while not member.eof:
            part = member.decompress(rest, piece_bytes)
            rest = member.unconsumed_tail
            if not part and not rest and not member.eof:
                raise CompressionError("gzip data ends in the middle")
            yield part
        rest = member.unused_data
        if not _begins_with_gzip_header(rest):
            return


def _begins_with_gzip_header(data: bytes) -> bool:
    """Whether `data` begins with a whole header of a member (RFC 1952, 2.3)."""
    if len(data) < 10 or not data.startswith(_GZIP_MAGIC):
        return False
    flags, end = data[3], 10
    if flags & 4:  # extra field
        end += 2 + int.from_bytes(data[end : end + 2], "little")
    for has_text in (flags & 8, flags & 16):  # name, comment
        if has_text:
            end = data.find(b"\0", end) + 1 or len(data) + 1
    if flags & 2:  # CRC of the header
        end += 2
    return end <= len(data)


def _snappy(data: Buffer, level: int | None) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts.append(len(block).to_bytes(4, "big"))
        parts.append(block)
    return b"".join(parts)


def _unsnappy(data: memoryview, piece_bytes: int, max_bytes: int) -> Plain | Iterator[Plain]:
    if bytes(data[:8]) != _XERIAL_MAGIC:
        return _unsnappy_block(data, max_bytes)
    return _xerial_parts(data, max_bytes)


def _xerial_parts(data: memoryview, max_bytes: int) -> Iterator[Plain]:
    """A block after the other. As in Java's reader, fewer than four bytes after a block end the data."""
    position, end = len(_XERIAL_HEADER), len(data)
    while position + 4 <= end:
        if bytes(data[position : position + 8]) == _XERIAL_MAGIC:  # streams may be joined
            position += len(_XERIAL_HEADER)
            continue
        start = position + 4
        size = int.from_bytes(data[position:start], "big")
        position = start + size
        if position > end:
            raise CompressionError(f"xerial block of {size} bytes at byte {start - 4} of {end}")
        yield _unsnappy_block(data[start:position], max_bytes)
    if position > end:
        raise CompressionError(f"xerial header cut at byte {end}")


def _unsnappy_block(data: memoryview, max_bytes: int) -> bytearray:
    size = shift = 0
    for byte in data[:5]:
        size |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
    else:
        raise CompressionError("snappy data without a length")
    if size > max_bytes:
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


def _unlz4(data: memoryview, piece_bytes: int, max_bytes: int) -> Plain | Iterator[Plain]:
    """The first frame. As in Kafka's reader, what follows it is not looked at."""
    size = _lz4_content_size(data)
    if size > len(data) * _LZ4_RATIO_MAX:  # the library would allocate so much
        raise CompressionError(f"lz4 data of {len(data)} bytes claims to hold {size}")
    if _lz4_at_most(data) <= piece_bytes:
        return lz4.frame.decompress(data)  # three times as fast as the bounded reader
    return _lz4_parts(data, piece_bytes)


def _lz4_parts(data: memoryview, piece_bytes: int) -> Iterator[Plain]:
    reader = lz4.frame.LZ4FrameDecompressor()
    part_bytes = min(piece_bytes, _PART_BYTES_MAX)
    part = reader.decompress(data, max_length=part_bytes)
    while True:
        yield part
        if reader.eof:
            return
        part = reader.decompress(b"", max_length=part_bytes)
        if not part and not reader.eof:
            raise CompressionError("lz4 data ends in the middle")


def _lz4_at_most(data: memoryview) -> int:
    """How much the frame can hold, by its blocks (LZ4 frame format, 1.6)."""
    if len(data) < 7 or bytes(data[:4]) != _LZ4_MAGIC:
        return len(data) * _LZ4_RATIO_MAX
    flags = data[4]
    block_bytes = 1 << (8 + 2 * (data[5] >> 4 & 7))
    checksum = 4 if flags & 16 else 0
    at = 7 + (8 if flags & _LZ4_HAS_SIZE else 0) + (4 if flags & 1 else 0)
    found = 0
    while size := int.from_bytes(data[at : at + 4], "little") & 0x7FFFFFFF:
        found += min(block_bytes, size * _LZ4_RATIO_MAX)
        at += 4 + size + checksum
    return found


def _lz4_content_size(data: memoryview) -> int:
    """What the frame tells (LZ4 frame format, 1.6), else 0."""
    if len(data) < 14 or not data[4] & _LZ4_HAS_SIZE or bytes(data[:4]) != _LZ4_MAGIC:
        return 0
    return int.from_bytes(data[6:14], "little")


def _zstd(data: Buffer, level: int | None) -> bytes:
    return zstandard.ZstdCompressor(_ZSTD_DEFAULT_LEVEL if level is None else level).compress(memoryview(data))


def _unzstd(data: memoryview, piece_bytes: int, max_bytes: int) -> Plain | Iterator[Plain]:
    frames = _zstd_frames(data)
    frame = next(frames, None)
    if frame is None:
        return b""
    others = deque(frames, maxlen=1)  # the last of them; all are looked at
    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES_MAX)
    if not others and frame.at_most <= min(piece_bytes, _PART_BYTES_MAX):
        return decompressor.decompress(data[frame.start : frame.end], max_output_size=frame.at_most or 1)
    end = others[0].end if others else frame.end
    return _zstd_parts(decompressor, data[:end], piece_bytes)


def _zstd_parts(decompressor: zstandard.ZstdDecompressor, frames: memoryview, piece_bytes: int) -> Iterator[Plain]:
    with decompressor.stream_reader(frames, read_across_frames=True) as reader:
        while part := reader.read(min(piece_bytes, _PART_BYTES_MAX)):
            yield part


class _ZstdFrame(NamedTuple):
    """Where a frame with content lies, and the most bytes that it can hold."""

    start: int
    end: int
    at_most: int


def _zstd_frames(data: memoryview) -> Iterator[_ZstdFrame]:
    """The frames with content, by the headers of their blocks (RFC 8878, 3.1). As in Kafka's reader, a frame that is
    cut after a whole one ends the data. Raises CompressionError."""
    position, end = 0, len(data)
    has_whole = False
    while position < end:
        magic = bytes(data[position : position + 4])
        if 0x50 <= magic[0] <= 0x5F and _ZSTD_SKIPPABLE.startswith(magic[1:]):
            after = position + 8 + int.from_bytes(data[position + 4 : position + 8], "little")
        elif not _ZSTD_MAGIC.startswith(magic):
            raise CompressionError(f"no zstd frame at byte {position} of {end}")
        elif (frame := _zstd_frame(data, position)).end <= end:
            yield frame
            after = frame.end
        else:
            after = frame.end
        if after > end:
            if has_whole:
                return
            raise CompressionError(f"zstd data is cut: a frame of {end} bytes needs more than {after - position}")
        has_whole = True
        position = after
    if not has_whole:
        raise CompressionError("zstd data without a frame")


def _zstd_frame(data: memoryview, start: int) -> _ZstdFrame:
    """The frame at `start`; its end lies past that of the data where it is cut."""
    cut = _ZstdFrame(start, len(data) + 1, 0)
    position = start + 5
    if position > len(data):
        return cut
    descriptor = data[start + 4]
    single_segment = descriptor >> 5 & 1
    size_flag = descriptor >> 6
    size_bytes = (single_segment, 2, 4, 8)[size_flag]
    if not single_segment and position < len(data):
        exponent, mantissa = data[position] >> 3, data[position] & 7
        window_bytes = (1 << (10 + exponent)) * (8 + mantissa) // 8
        if window_bytes > _ZSTD_WINDOW_BYTES_MAX:
            raise CompressionError(f"zstd frame with a window of {window_bytes} bytes, Kafka takes 128 MiB")
    position += 1 - single_segment + (0, 1, 2, 4)[descriptor & 3]
    content_bytes = int.from_bytes(data[position : position + size_bytes], "little") + (256 if size_flag == 1 else 0)
    position += size_bytes
    at_most, is_last = 0, 0
    while not is_last:
        if position + 3 > len(data):
            return cut
        head = data[position] | data[position + 1] << 8 | data[position + 2] << 16
        is_last, kind, size = head & 1, head >> 1 & 3, head >> 3
        at_most += _ZSTD_BLOCK_BYTES_MAX if kind >= 2 else min(size, _ZSTD_BLOCK_BYTES_MAX)  # 0 raw, 1 repeats a byte
        position += 3 + (1 if kind == 1 else size)
    position += 4 if descriptor & 4 else 0  # checksum
    if size_bytes:
        if content_bytes > at_most:  # the library would allocate so much
            raise CompressionError(f"zstd frame of {position - start} bytes claims to hold {content_bytes}")
        at_most = content_bytes
    return _ZstdFrame(start, position, at_most)


class _Codec(NamedTuple):
    """decompress: (data, piece_bytes, max_bytes) -> all, where that is one piece, or its parts. A part that can be cut
    is at most a piece."""

    compress: Callable[[Buffer, int | None], bytes]
    decompress: Callable[[memoryview, int, int], Plain | Iterator[Plain]]


_CODECS = (
    _Codec(_plain, _plain_parts),
    _Codec(_gzip, _gunzip_parts),
    _Codec(_snappy, _unsnappy),
    _Codec(_lz4, _unlz4),
    _Codec(_zstd, _unzstd),
)
