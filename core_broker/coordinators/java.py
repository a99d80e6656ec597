"""Java's hashes, lengths and orders of strings, where a client can tell which language a coordinator is in."""

from __future__ import annotations

from collections.abc import Iterable

BUCKETS = 16  # of a HashMap with up to 12 entries


def java_hash(text: str) -> int:
    """String.hashCode: over UTF-16 units, as a signed 32-bit number."""
    result = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for i in range(0, len(units), 2):
        result = (31 * result + (units[i] << 8 | units[i + 1])) & 0xFFFFFFFF
    return result - (1 << 32) if result >> 31 else result


def java_length(text: str) -> int:
    """String.length: in UTF-16 units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def java_order(texts: Iterable[str]) -> list[str]:
    """The iteration order of a small HashMap: by bucket, within a bucket in order of insertion."""

    def bucket(text: str) -> int:
        unsigned = java_hash(text) & 0xFFFFFFFF
        return (unsigned ^ unsigned >> 16) % BUCKETS

    return sorted(texts, key=bucket)
