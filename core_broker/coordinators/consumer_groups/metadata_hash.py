"""What the topics of a group are like, as one number (KIP-1101): where it changes, partitions are assigned anew.

Kafka 4.4 keeps the number in the group's records, so that it is to be the same here: XXH3 of 64 bits, seed 0, over the
fields as hash4j writes them: numbers in little endian, strings in UTF-16 units with their count behind.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from xxhash import xxh3_64_intdigest

from ...cluster.image import MetadataImage
from ..java import java_length, java_sort_key

NO_TOPIC = 0
NO_TOPICS = 0
_MAGIC = b"\x00"  # the version of this way of hashing
_LONG = struct.Struct("<q")


def topic_hash(name: str, image: MetadataImage) -> int:
    """Of a topic: id, name, and of each partition the racks of its replicas. As a signed number; 0 if there is none."""
    topic = image.topics.get(name)
    if topic is None:
        return NO_TOPIC
    # Of the id each half is one number.
    parts = [_MAGIC, topic.id[7::-1], topic.id[:7:-1], _string(name), _int(len(topic.partitions))]
    for index in range(len(topic.partitions)):
        parts.append(_int(index))
        brokers = [image.brokers.get(replica) for replica in topic.partitions[index].replicas]
        racks = [broker.rack for broker in brokers if broker is not None and broker.rack is not None]
        for rack in sorted(racks, key=java_sort_key):
            parts += _int(java_length(rack)), _string(rack)
    return _digest(b"".join(parts))


def group_hash(topics: Mapping[str, int]) -> int:
    """Of all topics that a group reads, by their hashes; 0 if there are none."""
    if not topics:
        return NO_TOPICS
    return _digest(b"".join(_LONG.pack(topics[name]) for name in sorted(topics, key=java_sort_key)))


def _int(value: int) -> bytes:
    return value.to_bytes(4, "little")


def _string(text: str) -> bytes:
    return text.encode("utf-16-le", "surrogatepass") + _int(java_length(text))


def _digest(data: bytes) -> int:
    unsigned = xxh3_64_intdigest(data)
    return unsigned - (1 << 64) if unsigned >> 63 else unsigned
