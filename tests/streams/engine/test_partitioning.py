"""The rule by which keys are in partitions, and what is said of inputs that follow another one."""

import pytest

from isthmus.client.partitioner import PARTITIONERS
from isthmus.streams import App, AppError
from isthmus.streams.engine.partitioning import LOOK_EVERY, PAGE, Places, differing, key_rule, partition_of

COUNT = 12
KEYS = [b"key-%d" % number for number in range(60)]


def keys_in(partition: int, name: str) -> list[bytes]:
    return [key for key in KEYS if PARTITIONERS[name](key, COUNT) == partition]


def fausts(key, all_partitions, available):
    return all_partitions[len(key) % len(available)]


def ours(key, count):
    return len(key) % count


def test_a_rule_is_a_name_or_a_function_of_ours_or_of_fausts_kind():
    assert partition_of(b"abc", 5, key_rule("murmur2_random", "the app")) == PARTITIONERS["murmur2"](b"abc", 5)
    assert partition_of(None, 5, key_rule("murmur2_random", "the app")) is None
    assert [partition_of(b"abcdefg", 5, key_rule(each, "the app")) for each in (ours, fausts)] == [2, 2]
    assert key_rule(ours, "topic a") == key_rule(ours, "topic b")
    for wrong in ("crc32", 3):
        with pytest.raises(AppError, match="topic orders: "):
            App("app").topic("orders", partitioner=wrong)


def test_a_function_that_chooses_no_partition_is_the_apps_fault():
    with pytest.raises(AppError, match=r"topic orders: its partitioner chose 7 of 3 partitions for key b'k'"):
        key_rule(lambda key, count: 7, "topic orders")(b"k", 3)


def test_an_input_whose_keys_are_elsewhere_is_told_of_once_with_what_it_seems_to_be():
    places = Places("app", "orders", "murmur2_random")
    assert places.look(keys_in(3, "murmur2_random"), 3, COUNT) is None
    assert places.look([None, b""], 3, COUNT) is None
    librdkafkas = keys_in(3, "consistent_random")
    told = places.look(librdkafkas, 3, COUNT)
    assert "topic orders is not partitioned by murmur2_random" in told
    assert "It seems to be partitioned by consistent_random" in told
    assert PAGE in told
    assert places.look(librdkafkas, 3, COUNT) is None
    wrong = sum(PARTITIONERS["murmur2"](key, COUNT) != 3 for key in librdkafkas)
    assert (places.seen, places.elsewhere) == (len(keys_in(3, "murmur2")) + 2 * len(librdkafkas), 2 * wrong)


def test_one_fetch_in_many_is_looked_at():
    places = Places("app", "orders", "murmur2_random")
    assert sum(places.is_due() for _ in range(LOOK_EVERY * 3)) == 3


def test_topics_that_are_read_together_must_have_one_rule():
    assert differing({"a": key_rule(ours, "a"), "b": key_rule(ours, "b")}) is None
    assert differing({"a": "murmur2", "b": "murmur2_random"}) is None  # records with a key are in the same place
    said = differing({"a": "murmur2_random", "b": key_rule(ours, "b")})
    assert said == "a by murmur2_random, b by ours"
