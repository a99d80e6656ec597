"""What all sides read: JSON events of 75 bytes in order of their time, by 1,000 keys; and what must come of them.

The batches of a run are made before it, so that its topic is filled at once.
"""

from __future__ import annotations

import random
import socket
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.frames import PRODUCE_VERSION, produce_frame
from isthmus.client.partitioner import partition_for_key
from isthmus.protocol.header import decode_response_header
from isthmus.protocol.messages import produce
from isthmus.protocol.records import build_batch

PARTITIONS = 4
KEYS = 1000
WINDOW_MS = 10_000
EVENT_MS = 1  # from one to the next, in event time: a window of a key has ten
SEED = 32
FIRST_ID = 1_000_000  # so that all are of one length
VALUE = b'{"id":%d,"user":"u%03d","amount":%.2f,"kind":"order","currency":"EUR"}'
BATCH_EVENTS = 1000
KEPT = {"retention.ms": "-1"}  # whatever the events' times are
Batches = list[tuple[int, bytes]]  # partition, and a batch for it


@dataclass(frozen=True)
class Events:
    """Of a run: `warm` that come first, and those that are counted; how often each count is in the rows at its end."""

    warm: int
    counted: int
    warming: Batches
    counting: Batches
    by_key: Counter[int]
    by_window: Counter[int]


def events(warm: int, counted: int, codec: str) -> Events:
    begin_ms = int(time.time()) // 3600 * 3_600_000 - 3_600_000
    chance = random.Random(SEED)
    partition_of = [partition_for_key(_key(key), PARTITIONS) for key in range(KEYS)]
    keys = [chance.randrange(KEYS) for _ in range(warm + counted)]

    def batches(numbers: Sequence[int]) -> Batches:
        made: Batches = []
        for start in range(0, len(numbers), BATCH_EVENTS * PARTITIONS):
            rows: list[list[tuple[int, bytes, bytes, tuple[()]]]] = [[] for _ in range(PARTITIONS)]
            for number in numbers[start : start + BATCH_EVENTS * PARTITIONS]:
                key = keys[number]
                value = VALUE % (FIRST_ID + number, key, 10 + number % 9_000 / 100)
                rows[partition_of[key]].append((begin_ms + number * EVENT_MS, _key(key), value, ()))
            made += [(partition, build_batch(some, codec)) for partition, some in enumerate(rows) if some]
        return made

    return Events(
        warm,
        counted,
        batches(range(warm)),
        batches(range(warm, warm + counted)),
        Counter(Counter(keys).values()),
        Counter(Counter((number * EVENT_MS // WINDOW_MS, key) for number, key in enumerate(keys)).values()),
    )


def wide(count: int) -> Batches:
    """Each event with a key of its own, of 13 bytes."""
    rows: list[list[tuple[int, bytes, bytes, tuple[()]]]] = [[] for _ in range(PARTITIONS)]
    made: Batches = []
    now_ms = int(time.time() * 1000)
    for number in range(count):
        key = b"user-%08d" % number
        partition = partition_for_key(key, PARTITIONS)
        rows[partition].append((now_ms, key, b"1", ()))
        if len(rows[partition]) == BATCH_EVENTS:
            made.append((partition, build_batch(rows[partition], "lz4")))
            rows[partition].clear()
    return made + [(partition, build_batch(some, "lz4")) for partition, some in enumerate(rows) if some]


def ticks() -> Batches:
    """An event in each partition."""
    now_ms = int(time.time() * 1000)
    return [(each, build_batch([(now_ms, b"tick-%d" % each, b"1", ())])) for each in range(PARTITIONS)]


def send(address: str, topic: str, batches: Iterable[tuple[int, bytes]]) -> None:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port))) as line, line.makefile("rb") as answers:
        for partition, batch in batches:
            line.sendall(produce_frame(topic, partition, batch))
            answer = answers.read(int.from_bytes(answers.read(4), "big"))
            at = decode_response_header(answer, produce.API.response_header_version(PRODUCE_VERSION))[1]
            [[taken]] = [
                each.partition_responses for each in produce.API.decode_response(answer, at, PRODUCE_VERSION).responses
            ]
            if taken.error_code:
                raise RuntimeError(f"{topic}-{partition} was not filled: error {taken.error_code}")


def _key(number: int) -> bytes:
    return b"u%03d" % number
