"""Which partition a record goes to: by key as Kafka's Java client does it, else sticky for a batch's length."""

from __future__ import annotations

MASK = 0xFFFFFFFF
M = 0x5BD1E995
SEED = 0x9747B28C


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit murmur2, unsigned (org.apache.kafka.common.utils.Utils.murmur2)."""
    length = len(data)
    h = SEED ^ length
    whole = length & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * M & MASK
        k ^= k >> 24
        h = (h * M & MASK) ^ (k * M & MASK)
    if rest := length & 3:
        h ^= int.from_bytes(data[whole : whole + rest], "little")
        h = h * M & MASK
    h ^= h >> 13
    h = h * M & MASK
    return h ^ h >> 15


def partition_for_key(key: bytes, partitions: int) -> int:
    """The partition of a key among `partitions`, equal to that of every Java client's default partitioner."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
