"""What the topics of a group are, beside Kafka's own classes: patterns of subscriptions, and the hash of metadata."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from integration_tests.protocol.kafkas_messages import ask
from isthmus.core_broker.cluster.image import MetadataImage
from isthmus.core_broker.coordinators.consumer_groups.metadata_hash import group_hash, topic_hash
from isthmus.core_broker.coordinators.patterns import Pattern, PatternError
from isthmus.protocol.messages import metadata_records as r
from isthmus.protocol.primitives import uuid_to_str

KAFKAS_GROUPS = Path(__file__).with_name("Groups.java")
NAMES = ["a", "ab", "abc", "orders", "orders-1", "Orders", "a.b", "a_b", "aaa", "bbb", "0", "order", "-", "foo", "oo-1"]
PATTERNS = [
    *(
        "orders.*",
        "orders-[0-9]+",
        "a|b|abc",
        "(?i)orders",
        "[[:alpha:]]+",
        r"\w+",
        r"\Qa.b\E",
        "a{3}",
        "a{2,}",
        ".{3}",
    ),
    *(
        "",
        "^a$",
        "(?:ab)?c?",
        "(?P<x>a)b",
        "(?<x>a)b",
        "[^a]*",
        r"a\.b",
        r"\pL+",
        r"\p{Greek}",
        "(a+)+",
        "(?s).*",
        "a??",
    ),
    *(
        "(",
        ")",
        "a)",
        "[a",
        "a**",
        "(?=a)",
        "(?!a)",
        "(?<=a)b",
        "(?<!a)b",
        "*a",
        "+",
        "a{1001}",
        "a{2,1}",
        "\\",
        r"\8",
        r"(a)\1",
    ),
    *("(?P<n", "(?P<>a)", "[b-a]", r"\pX", "(?z)", "[[:foo:]]", "a{1000}{1000}", "(?P=n)", "?", "a|*", "[]", "[]a]"),
]
TOKENS = [
    "a",
    "b",
    "o",
    "-",
    ".",
    "*",
    "+",
    "?",
    "|",
    "(",
    ")",
    "(?:",
    "[",
    "]",
    "^",
    "$",
    "{2}",
    "{1,3}",
    r"\d",
    r"\w",
    "[a-o]",
]
MADE = 2_000
# Java's RE2 has no byte but characters, refuses two groups of one name, and does not mind how large a pattern is.
OURS_ALONE = {r"\C": True, "(?P<n>a)(?P<n>b)": True, "((a{100}){100}){100}": False}


def ours(pattern: str) -> dict[str, Any]:
    try:
        compiled = Pattern(pattern)
    except PatternError as error:
        return {"error": str(error)}
    return {"names": [name for name in NAMES if compiled.matches(name)]}


def kafkas(patterns: list[str]) -> list[dict[str, Any]]:
    return ask([{"ask": "pattern", "pattern": pattern, "names": NAMES} for pattern in patterns], KAFKAS_GROUPS)


def test_patterns_mean_the_same_and_are_refused_in_the_same_words() -> None:
    chance = random.Random(31)
    made = ["".join(chance.choices(TOKENS, k=chance.randint(1, 7))) for _ in range(MADE)]
    patterns = PATTERNS + made
    wrong = {
        pattern: (own, theirs)
        for pattern, own, theirs in zip(patterns, map(ours, patterns), kafkas(patterns), strict=True)
        if own != theirs
    }
    assert not wrong


def test_where_the_two_libraries_differ() -> None:
    """So that nobody wonders; and if one day they agree, the reference page is to say so."""
    for (pattern, only_we_take_it), theirs in zip(OURS_ALONE.items(), kafkas(list(OURS_ALONE)), strict=True):
        assert ("names" in ours(pattern), "names" in theirs) == (only_we_take_it, not only_we_take_it), pattern


RACKS = [
    None,
    "",
    "a",
    "b",
    "Z",
    "eu-central-1",
    "é",
    "\uffff",
    "🙂",
]  # the last two sort by UTF-16 the other way round


def cluster_with_topics(chance: random.Random) -> MetadataImage:
    image = MetadataImage("cluster")
    records: list[Any] = [
        r.RegisterBrokerRecord(broker_id=broker, incarnation_id=chance.randbytes(16), broker_epoch=broker, rack=rack)
        for broker, rack in enumerate(RACKS)
    ]
    for number in range(40):
        topic_id = chance.randbytes(16)
        records.append(r.TopicRecord(name=f"topic-{number}" * chance.randint(1, 9), topic_id=topic_id))
        for index in range(chance.randint(1, 70)):
            replicas = [chance.randrange(len(RACKS) + 1) for _ in range(chance.randint(1, 4))]  # one is not registered
            records.append(
                r.PartitionRecord(
                    partition_id=index, topic_id=topic_id, replicas=replicas, isr=replicas, leader=replicas[0]
                )
            )
    image.apply(records, len(records) - 1, 0)
    return image


def racks_of(image: MetadataImage, name: str) -> list[list[str]]:
    brokers = [[image.brokers.get(each) for each in one.replicas] for one in image.topics[name].partitions.values()]
    return [[each.rack for each in one if each is not None and each.rack is not None] for one in brokers]


def test_hashes_of_topics_and_of_groups() -> None:
    chance = random.Random(31)
    image = cluster_with_topics(chance)
    hashes = {name: topic_hash(name, image) for name in image.topics}
    groups = [{}, *(dict(chance.sample(sorted(hashes.items()), size)) for size in range(1, len(hashes)))]
    asked: list[dict[str, Any]] = [
        {"ask": "topic hash", "name": name, "id": uuid_to_str(topic.id), "racks": racks_of(image, name)}
        for name, topic in image.topics.items()
    ]
    asked += [{"ask": "group hash", "topics": topics} for topics in groups]
    own = [*hashes.values(), *map(group_hash, groups)]
    assert own == [answer["hash"] for answer in ask(asked, KAFKAS_GROUPS)]
    assert topic_hash("missing", image) == 0
