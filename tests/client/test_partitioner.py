"""Keys go where Kafka's Java client, or librdkafka, sends them."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.client import Producer, partitioner
from isthmus.client.cluster import TopicMetadata
from isthmus.client.errors import ClientError
from isthmus.client.partitioner import (
    ANY,
    KEYS_REMEMBERED,
    PARTITIONERS,
    Partitioner,
    ProducerTopic,
    fnv1a,
    murmur2,
    partition_for_key,
)
from tests.client.producing import begun
from tests.client.scripted import World, simulate, started_client
from tests.running import run_by


def plain_murmur2() -> Callable[[bytes], int]:
    """As it runs where nothing is compiled."""
    spec = importlib.util.spec_from_file_location("plain_murmur2", Path(partitioner.__file__).parent / "_murmur2.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert not module.COMPILED
    found: Callable[[bytes], int] = module.murmur2
    return found


# org.apache.kafka.common.utils.UtilsTest.testMurmur2
VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
# Sarama's, in librdkafka's rdfnv1a.c
FNV1A = {
    b"kafka": 0x0D33C4E1,
    b"giberish123456789": 0x77A58295,
    b"1234": 0x023BDD03,
    b"234": 0x2DEA3CD2,
    b"34": 0x740FA83E,
    b"4": 0x310CA263,
    b"PreAmbleWillBeRemoved,ThePrePartThatIs": 0x65CBD69C,
}


FORMS = {"compiled": murmur2, "plain": plain_murmur2()}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("key", VECTORS)
def test_murmur2_is_kafkas(key: bytes, form: str) -> None:
    assert FORMS[form](key) == VECTORS[key] & 0xFFFFFFFF


@given(st.binary(max_size=70))
def test_both_forms_of_murmur2_agree(key: bytes) -> None:
    assert FORMS["compiled"](key) == FORMS["plain"](key)


def test_the_partition_is_the_positive_hash_modulo_partitions() -> None:
    for key, value in VECTORS.items():
        for partitions in (1, 3, 12):
            assert partition_for_key(key, partitions) == (value & 0x7FFFFFFF) % partitions


@pytest.mark.parametrize("key", FNV1A)
def test_fnv1a_is_saramas(key: bytes) -> None:
    assert fnv1a(key) == FNV1A[key]


def test_each_name_has_its_hash_and_its_way_with_records_without_a_key() -> None:
    def chosen(name: str, *keys: bytes | None) -> list[int]:
        return [PARTITIONERS[name](key, 1000) for key in keys]

    # `printf 123456789 | crc32`, the check value of CRC-32, is cbf43926
    keys = (b"123456789", b"", None)
    assert chosen("consistent", *keys) == [0xCBF43926 % 1000, 0, 0]
    assert chosen("consistent_random", *keys) == [0xCBF43926 % 1000, ANY, ANY]
    empty = (murmur2(b"") & 0x7FFFFFFF) % 1000
    assert chosen("murmur2", b"abc", b"", None) == [479470107 % 1000, empty, empty]
    assert chosen("murmur2_random", b"abc", b"", None) == [479470107 % 1000, empty, ANY]
    empty = fnv1a(b"") % 1000
    assert chosen("fnv1a", b"4", b"", None) == [0x310CA263 % 1000, empty, empty]
    assert chosen("fnv1a_random", b"4", b"", None) == [0x310CA263 % 1000, empty, ANY]
    assert chosen("random", b"4", b"", None) == [ANY, ANY, ANY]


def topic(partitioner: str | Partitioner, partitions: int = 5) -> ProducerTopic:
    found = ProducerTopic("t", partitioner)
    found.learn(TopicMetadata(leaders=dict.fromkeys(range(partitions), 1)))
    return found


def test_what_may_go_anywhere_stays_until_its_batch_is_full() -> None:
    made = topic("random")
    random = Random(1)
    assert len({made.partition(key, random) for key in (b"a", b"b", None) for _ in range(20)}) == 1
    found = set()
    for _ in range(100):
        made.sticky = None  # as a full batch does
        found.add(made.partition(b"a", random))
    assert found == set(range(5))


def test_choices_are_remembered_until_the_topic_grows_and_not_for_ever() -> None:
    made = topic("murmur2_random")
    random = Random(1)
    for number in range(KEYS_REMEMBERED + 10):
        made.partition(b"%d" % number, random)
    assert len(made.key_partitions) <= KEYS_REMEMBERED
    assert made.partition(b"abc", random) == 479470107 % 5
    assert made.partition_by("consistent", b"123456789", random) == 0xCBF43926 % 5
    made.learn(TopicMetadata(leaders=dict.fromkeys(range(7), 1)))
    assert made.partition(b"abc", random) == 479470107 % 7
    assert made.partition_by("consistent", b"123456789", random) == 0xCBF43926 % 7
    with pytest.raises(ClientError, match="there is no partitioner md5"):
        made.partition_by("md5", b"abc", random)


def test_a_function_is_asked_for_each_record_and_its_choice_must_be_a_partition() -> None:
    asked: list[tuple[bytes | None, int]] = []
    choices: list[Any] = [4, 0, 5, -1, None]

    def choose(key: bytes | None, partitions: int) -> int:
        asked.append((key, partitions))
        choice: int = choices[len(asked) - 1]
        return choice

    made = topic(choose)
    assert [made.partition(key, Random(1)) for key in (b"k", b"k")] == [4, 0]
    for wrong in choices[2:]:
        with pytest.raises(ClientError, match=f"topic t has 5 partitions, and the partitioner chose {wrong} for key"):
            made.partition(None, Random(1))
    assert asked == [(b"k", 5), (b"k", 5), (None, 5), (None, 5), (None, 5)]


@run_by(simulate)
async def test_a_producer_partitions_as_it_was_told(world: World, /) -> None:
    world.add_topic("t", 3)
    producer = await begun(world, partitioner="consistent")
    assert [(await producer.send("t", b"", key)).partition for key in (b"123456789", None)] == [0xCBF43926 % 3, 0]
    assert (await producer.send("t", b"", b"123456789", partition=2)).partition == 2
    with pytest.raises(ClientError, match=r"there is no partitioner md5: choose from murmur2, .*, or pass a function"):
        Producer(world.client, partitioner="md5")


@run_by(simulate)
async def test_a_function_that_fails_fails_its_record_alone_whether_the_topic_is_new_or_not(world: World, /) -> None:
    world.add_topic("t", 3)
    client = await started_client(world)

    def choose(key: bytes | None, partitions: int) -> int:
        return {b"a": 2, b"b": 1}[key or b""]

    producer = Producer(client, partitioner=choose)
    await producer.start()
    world.to_close.append(producer.close)
    sent = [producer.send("t", b"", key) for key in (b"a", b"c", b"b")]
    found = await asyncio.gather(*sent, return_exceptions=True)
    assert isinstance(found[1], KeyError)
    assert [each.partition for each in found if not isinstance(each, BaseException)] == [2, 1]
    with pytest.raises(KeyError):
        producer.send("t", b"", b"c")
    assert (await producer.send("t", b"", b"a")).partition == 2
    assert producer.buffered_bytes == 0
