"""What appends leave in the log beside stock Kafka: times, codecs and their levels, limits, and where segments end."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from integration_tests.brokers import BrokerProcess
from integration_tests.differential.peer import Case
from integration_tests.differential.requests import produce_request
from integration_tests.storage.sides import Side, both, new_topic, send, stored, stored_bytes
from isthmus.protocol.records import build_batch

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
KINDS = ("uncompressed", "gzip", "snappy", "lz4", "zstd", "producer")
MINUTE_MS = 60_000


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side, BrokerProcess]]:
    with both(tmp_path_factory.mktemp("appends"), {}) as made:
        yield made


def a_batch(chance: random.Random, codec: str, now_ms: int, count: int = 20, size: int = 200, **head: Any) -> bytes:
    rows = [
        (
            now_ms - chance.randint(0, 5000),
            b"key %d" % n,
            chance.randbytes(size // 2) + b"word " * (size // 10),
            (("h", b"x"),),
        )
        for n in range(count)
    ]
    return build_batch(rows, codec, **head)


def on_both(sides: Any, name: str, options: dict[str, str], batches: list[bytes]) -> list[tuple[Side, Case, bytes]]:
    """The same batches to a topic of the same options on both."""
    made = []
    for side in sides[:2]:
        case = Case(side.peer, 0, name)
        topic_id = new_topic(case, options)
        send(case, topic_id, batches)
        made.append((side, case, topic_id))
    return made


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("clock", ["CreateTime", "LogAppendTime"])
def test_batches_of_every_codec_are_stored_as_kafka_stores_them(sides: Any, kind: str, clock: str) -> None:
    now_ms = int(time.time() * 1000) - MINUTE_MS
    chance = random.Random(f"{kind}{clock}")
    producer = {"producer_id": 9001, "producer_epoch": 0, "base_sequence": 0}
    batches = [a_batch(chance, codec, now_ms) for codec in CODECS]
    batches.append(a_batch(chance, "gzip", now_ms, count=1, **producer))
    options = {"compression.type": kind, "message.timestamp.type": clock}
    results = []
    for _, case, topic_id in on_both(sides, f"codec-{kind}-{clock}", options, batches):
        found = stored(case, topic_id)
        if clock == "LogAppendTime":
            assert all(abs(batch[7] - time.time() * 1000) < MINUTE_MS for batch in found)
            assert all(row[1] == batch[7] for batch in found for row in batch[9])
            found = [(*batch[:7], "now", batch[8], [(r[0], "now", *r[2:]) for r in batch[9]]) for batch in found]
        results.append(found)
    assert results[0] == results[1]
    assert len(results[0]) == len(batches)


@pytest.mark.parametrize(("kind", "levels"), [("gzip", ("1", "9", "-1"))])
def test_levels_change_sizes_in_the_same_direction(sides: Any, kind: str, levels: tuple[str, ...]) -> None:
    chance = random.Random(kind)
    rows = [(5, b"k", b"".join(b"%d," % chance.randint(0, 999) for _ in range(40)), ()) for _ in range(200)]
    batch = build_batch(rows)
    sizes: list[list[int]] = [[], []]
    for level in levels:
        options = {"compression.type": kind, f"compression.{kind}.level": level}
        for number, (_, case, topic_id) in enumerate(on_both(sides, f"level-{kind}{level}", options, [batch])):
            [(_, _, header)] = stored_bytes(case, topic_id)
            sizes[number].append(header.size_bytes)
    seen = f"{kind}: levels {levels}, bytes stored by Kafka and by us: {sizes}"
    for a, b in itertools.combinations(range(len(levels)), 2):
        if abs(sizes[0][a] - sizes[0][b]) > 0.03 * sizes[0][a]:  # else it is a matter of releases of the library
            assert (sizes[0][a] < sizes[0][b]) == (sizes[1][a] < sizes[1][b]), seen
    assert all(abs(ours - theirs) < 0.1 * theirs for theirs, ours in zip(*sizes, strict=True)), seen


def answers(sides: Any, name: str, options: dict[str, str], batches: list[bytes]) -> list[list[Any]]:
    """The error code, offset and time that each side gave to each batch."""
    found = []
    for side in sides[:2]:
        case = Case(side.peer, 0, name)
        topic_id = new_topic(case, options)
        given = []
        for data in batches:
            [part] = case.prepare(produce_request(case, data, topic_id)).responses[0].partition_responses
            given.append((part.error_code, part.base_offset, len(part.record_errors)))
        found.append(given)
    return found


def test_size_limits_before_and_after_recompression(sides: Any) -> None:
    now_ms = int(time.time() * 1000)
    chance = random.Random(1)
    small, plain = a_batch(chance, "gzip", now_ms), a_batch(chance, "none", now_ms)
    for kind, limit, batches in (
        ("uncompressed", len(small) + 10, [small]),  # fits as it comes, not as it would be stored
        ("uncompressed", len(plain) + 100, [small, plain]),
        ("gzip", len(plain) - 1, [plain, small]),  # the first would fit only once compressed
        ("producer", len(small), [small, plain]),
    ):
        options = {"compression.type": kind, "max.message.bytes": str(limit)}
        theirs, ours = answers(sides, f"limit-{kind}-{limit}", options, batches)
        assert ours == theirs, (kind, limit)


def test_every_timestamp_of_a_batch_is_limited(sides: Any) -> None:
    now_ms = int(time.time() * 1000)
    old, fine, ahead = now_ms - 3_600_000, now_ms, now_ms + 600_000
    batches = [
        build_batch([(stamp, b"k", b"v", ()) for stamp in stamps], codec)
        for stamps in ([fine, old], [old, fine], [fine, fine], [fine, ahead], [ahead, fine], [-1, fine], [-1])
        for codec in ("none", "lz4")
    ]
    for clock in ("CreateTime", "LogAppendTime"):
        options = {
            "message.timestamp.type": clock,
            "message.timestamp.before.max.ms": "600000",
            "message.timestamp.after.max.ms": "60000",
        }
        theirs, ours = answers(sides, f"times-{clock}", options, batches)
        assert [each[:2] for each in ours] == [each[:2] for each in theirs], clock
    assert any(code for code, *_ in answers(sides, "times-again", options | {"message.timestamp.type": "CreateTime"},
                                            batches)[1])  # fmt: skip


@pytest.mark.parametrize(
    "options",
    [
        {"segment.bytes": "1048576"},
        {"segment.ms": "3000"},
        {"segment.ms": "3000", "message.timestamp.type": "LogAppendTime"},
        {"segment.index.bytes": "80", "index.interval.bytes": "0"},
        {"segment.index.bytes": "60", "index.interval.bytes": "3000"},
        {"cleanup.policy": "compact", "max.compaction.lag.ms": "3000"},
    ],
    ids=lambda options: " ".join(f"{key}={value}" for key, value in options.items()),
)
def test_segments_end_where_kafkas_end(sides: Any, options: dict[str, str]) -> None:
    chance = random.Random(str(options))
    now_ms = int(time.time() * 1000) - 10 * MINUTE_MS
    batches = []
    for n in range(150):
        size = 3000 if "segment.bytes" in options else 100
        stamp = now_ms + 100 * n + chance.randint(-900, 900)
        batches.append(a_batch(chance, chance.choice(CODECS), stamp, count=chance.randint(1, 40), size=size))
    name = "roll-" + "-".join(options).replace(".", "_")[:100] + str(len(str(options)))
    bases = [side.segments(name) for side, _, _ in on_both(sides, name, options, batches)]
    if options.get("message.timestamp.type") == "LogAppendTime":
        assert len(bases[0]) == len(bases[1]) == 1  # all of it came within less than segment.ms
    else:
        assert len(bases[0]) > 2
        assert bases[1] == bases[0]
