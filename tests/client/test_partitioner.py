"""Keys go where Kafka's Java client sends them."""

from __future__ import annotations

import pytest

from isthmus.client.partitioner import murmur2, partition_for_key

# org.apache.kafka.common.utils.UtilsTest.testMurmur2
VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("key", VECTORS)
def test_murmur2_is_kafkas(key: bytes) -> None:
    assert murmur2(key) == VECTORS[key] & 0xFFFFFFFF


def test_the_partition_is_the_positive_hash_modulo_partitions() -> None:
    for key, value in VECTORS.items():
        for partitions in (1, 3, 12):
            assert partition_for_key(key, partitions) == (value & 0x7FFFFFFF) % partitions
