"""CRC32C (Castagnoli), the checksum of record batches v2.

The `crc32c` package uses the processor's instruction: 19 GB/s over 16 KB, 0.12 µs for 100 bytes on one core;
`google-crc32c` measures the same and needs a wheel of its own. zlib's crc32 is another polynomial.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from crc32c import crc32c as _crc32c

if TYPE_CHECKING:
    from typing_extensions import Buffer


def crc32c(buf: Buffer, crc: int = 0) -> int:
    """The CRC32C of `buf`, going on from `crc` when the bytes before it have been summed already."""
    return _crc32c(buf, crc)
