"""Kafka Streams' own word count, as its release has it: counts, restarts from its changelog alone, goes on.

Under at_least_once, and under exactly_once_v2, where a read of the counts sees committed ones only.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from integration_tests.clients.records import create_topics
from integration_tests.peers.peers import java_command

from .processes import Brokers, last_values, produce, running, until

DEMO = "org.apache.kafka.streams.examples.wordcount.WordCountDemo"
INPUT, OUTPUT = "streams-plaintext-input", "streams-wordcount-output"
LINES = [f"all streams lead to kafka {n % 7}" for n in range(200)]


def word_count(brokers: Brokers, _programs: Path, folder: Path) -> None:
    run(brokers, folder, "at_least_once")


def word_count_once(brokers: Brokers, _programs: Path, folder: Path) -> None:
    run(brokers, folder, "exactly_once_v2")


def run(brokers: Brokers, folder: Path, guarantee: str) -> None:
    bootstrap = brokers()
    create_topics(bootstrap, [INPUT, OUTPUT], 2)
    properties = folder / "streams.properties"
    expected: Counter[str] = Counter()

    def counted() -> bool:
        found = last_values(bootstrap, OUTPUT)
        return {key and key.decode(): int.from_bytes(value or b"", "big") for key, value in found.items()} == expected

    for state in ("first", "second"):  # the second has the counts from the changelog alone
        properties.write_text(
            f"bootstrap.servers={bootstrap}\nstate.dir={folder / state}\ncommit.interval.ms=200\n"
            "application.id=word-count\nauto.offset.reset=earliest\nstatestore.cache.max.bytes=0\n"
            f"processing.guarantee={guarantee}\n"
        )
        command = java_command(DEMO, str(properties), profile="streams")
        with running(command, folder, state) as log:
            produce(bootstrap, INPUT, [(None, line.encode()) for line in LINES], "lz4")
            for line in LINES:
                expected.update(line.split())
            until(counted, lambda: (last_values(bootstrap, OUTPUT), log.read_text(errors="replace")[-2000:]))
        assert counted()
