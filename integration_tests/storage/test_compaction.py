"""Compaction beside stock Kafka's: the same batches in, the same batches left, and Kafka's tools find them sound."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from integration_tests.brokers import BrokerProcess, running_broker
from integration_tests.differential.peer import Case, Peer
from integration_tests.differential.requests import SET, alter_request
from integration_tests.storage.dump import dump, sections
from integration_tests.storage.sides import Side, both, new_topic, send, stored
from isthmus.protocol.records import build_batch, decode_batch

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
OPTIONS: dict[str, object] = {"log.cleaner.backoff.ms": 100}
TOPIC_OPTIONS = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "min.cleanable.dirty.ratio": "1",  # not yet: one round is to see all
    "delete.retention.ms": "0",
}
DIRTY_MS = 60_000
KEYS = 1500
PRODUCERS = (70_001, 70_002)
LONELY = 70_003


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side, BrokerProcess]]:
    with both(tmp_path_factory.mktemp("compaction"), OPTIONS) as made:
        yield made


def batches(seed: int, count: int, now_ms: int) -> list[bytes]:
    """Batches of all codecs and sizes, with tombstones, headers and idempotent producers."""
    chance = random.Random(seed)
    sequences = dict.fromkeys(PRODUCERS, 0)
    made = []
    if seed == 0:  # a producer of which nothing but its sequence will be left
        head = {"producer_id": LONELY, "producer_epoch": 0, "base_sequence": 0}
        made.append(build_batch([(now_ms, b"lonely", b"1", ()), (now_ms, b"lonely", b"2", ())], "lz4", **head))
        made.append(build_batch([(now_ms, b"lonely", b"3", ())]))
    for n in range(count):
        rows: list[Any] = []
        for _ in range(chance.randint(1, 60)):
            key = b"key-%d" % int(KEYS * chance.random() ** 2)
            value = None if chance.random() < 0.15 else chance.randbytes(chance.randint(0, 700))
            headers = (("trace", b"x" * chance.randint(0, 9)),) if chance.random() < 0.1 else ()
            rows.append((now_ms + n - chance.randint(0, 5000), key, value, headers))
        producer = chance.choice((-1, *PRODUCERS)) if seed == 0 else -1
        head = {}
        if producer >= 0:
            head = {"producer_id": producer, "producer_epoch": 3, "base_sequence": sequences[producer]}
            sequences[producer] += len(rows)
        made.append(build_batch(rows, chance.choice(CODECS), **head))
    return made


def compact(side: Side, case: Case) -> None:
    """Let the cleaner go, wait until it is through, and stop it again."""
    active = side.active_base(case.name)
    for ratio in ("0.0", "1"):
        answer = case.prepare(alter_request(case.name, ("min.cleanable.dirty.ratio", SET, ratio)))
        assert answer.responses[0].error_code == 0, answer
        case.wait_until(lambda: side.checkpoint(case.name) == active, f"{case.name} is compacted up to {active}")


def test_same_input_leaves_the_same_batches_as_in_kafka(sides: Any) -> None:
    theirs, ours, broker = sides
    now_ms = int(time.time() * 1000) - DIRTY_MS
    name = "compacted"
    results: dict[str, list[Any]] = {}
    for side in (theirs, ours):
        case = Case(side.peer, 0, name)
        topic_id = new_topic(case, TOPIC_OPTIONS)
        results[side.peer.name] = []
        for round_number in range(3):
            send(case, topic_id, batches(round_number, 400 if round_number == 0 else 150, now_ms))
            compact(side, case)
            results[side.peer.name].append((side.active_base(name), stored(case, topic_id)))
    for (their_base, kafkas), (our_base, found) in zip(results["stock Kafka"], results["isthmus"], strict=True):
        assert our_base == their_base > 0
        cleaned = [batch for batch in kafkas if batch[0] < our_base]
        assert len(cleaned) > 100
        for expected, got in zip(kafkas, found, strict=True):
            assert got == expected
    first, second = results["isthmus"][0][1], results["isthmus"][1][1]
    assert any(batch[8] == "horizon" for batch in first) and any(batch[2] == 0 for batch in first)
    gone = [row[2] for batch in first for row in batch[9] if row[3] is None and batch[1] < results["isthmus"][0][0]]
    kept = {row[2] for batch in second for row in batch[9] if batch[1] < results["isthmus"][0][0]}
    assert gone and not set(gone) & kept  # delete.retention.ms=0: the second round removes tombstones of the first
    assert "compacted up to offset" in broker.log

    expected_end: dict[bytes, bytes | None] = {}
    for n in range(3):
        for data in batches(n, 400 if n == 0 else 150, now_ms):
            expected_end |= {row.key or b"": row.value for row in decode_batch(data)}
    for side in (theirs, ours):
        assert read_by_consumer(side.peer.address, name) == {k: v for k, v in expected_end.items() if v is not None}


def read_by_consumer(address: str, topic: str) -> dict[bytes, bytes]:
    """What a consumer that replays the topic from its beginning ends with."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "replay", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), 30)
    state: dict[bytes, bytes] = {}
    position = 0
    while position < end:
        messages = consumer.consume(5000, 5)
        assert messages, f"nothing came after offset {position} of {end}"
        for message in messages:
            assert not message.error()
            key, value = message.key() or b"", message.value()
            if value is None:
                state.pop(key, None)
            else:
                state[key] = value
            position = (message.offset() or 0) + 1
    consumer.close()
    return state


def test_dump_log_segments_finds_nothing_wrong_with_a_compacted_directory(sides: Any, tmp_path: Path) -> None:
    _, ours, _ = sides
    name = "dumped"
    case = Case(ours.peer, 0, name)
    topic_id = new_topic(case, TOPIC_OPTIONS)
    now_ms = int(time.time() * 1000) - DIRTY_MS
    for round_number in range(2):
        send(case, topic_id, batches(round_number, 250, now_ms))
        compact(ours, case)
    directory = ours.data / f"{name}-0"
    active = ours.active_base(name)
    logs = sorted(path for path in directory.glob("*.log") if int(path.stem) < active)
    indexes = sorted(path for path in directory.glob("*index") if int(path.stem) < active)
    text = dump(logs, "--deep-iteration")
    lines = [line for line in text.splitlines() if line.startswith("baseOffset: ")]
    assert len(lines) > 50 and all("isvalid: true" in line for line in lines)
    assert any("count: 0 " in line for line in lines)
    assert any("deleteHorizonMs: OptionalLong[" in line for line in lines)
    counted = sum(int(line.split("count: ")[1].split()[0]) for line in lines)
    assert text.count("\n| offset: ") == counted
    shown = sections(dump(indexes))
    assert all(shown[path.name].count("\n") - 1 == path.stat().st_size // (8 if path.suffix == ".index" else 12) or
               path.stat().st_size == 0 for path in indexes)  # fmt: skip
    dump(indexes, "--verify-index-only")
    dump(indexes, "--index-sanity-check")


def test_kill_in_the_middle_of_compaction_loses_no_last_value(tmp_path: Path) -> None:
    """Rounds are slowed down so that a kill meets them; after each start every key has the value it was given last."""
    settings = {**OPTIONS, "log.cleaner.io.max.bytes.per.second": 8_000_000}
    with running_broker(tmp_path, settings) as broker:
        data = tmp_path / "data"
        peer = Peer("isthmus", broker.bootstrap)
        case = Case(peer, 0, "killed")
        options = {**TOPIC_OPTIONS, "min.cleanable.dirty.ratio": "0"}
        topic_id = new_topic(case, options)
        state: dict[bytes, bytes | None] = {}
        seen = 0
        for n in range(6):
            made = batches(n + 1, 250, int(time.time() * 1000))
            send(case, topic_id, made)
            for each in made:
                state |= {row.key or b"": row.value for row in decode_batch(each)}
            case.wait_until(lambda: any(data.glob("killed-0/*.cleaned")), "a round is under way")
            seen += 1
            broker.kill()
            peer.close()
            broker.start()
            peer = Peer("isthmus", broker.bootstrap)
            case = Case(peer, 0, "killed")
            assert read_by_consumer(broker.bootstrap, "killed") == {k: v for k, v in state.items() if v is not None}
        assert seen == 6
        peer.close()
