"""Kafka Streams' own word count, as its release has it: counts, restarts from its changelog alone, goes on.

Under at_least_once, and under exactly_once_v2, where a read of the counts sees committed ones only, and the program and
its broker are killed while they count.
"""

from __future__ import annotations

import signal
from collections import Counter
from functools import partial
from pathlib import Path

from integration_tests.clients.records import create_topics
from integration_tests.peers.peers import java_command

from .processes import TRANSACTION, Brokers, last_values, produce, running, until

DEMO = "org.apache.kafka.streams.examples.wordcount.WordCountDemo"
APPLICATION = "word-count"
INPUT, OUTPUT = "streams-plaintext-input", "streams-wordcount-output"
LINES = [f"all streams lead to kafka {n % 7}" for n in range(200)]
WORDS = sum(len(line.split()) for line in LINES)


def word_count(brokers: Brokers, _programs: Path, folder: Path) -> None:
    run(brokers, folder, "at_least_once")


def word_count_once(brokers: Brokers, _programs: Path, folder: Path) -> None:
    run(brokers, folder, "exactly_once_v2", with_kills=True)


def run(brokers: Brokers, folder: Path, guarantee: str, with_kills: bool = False) -> None:
    bootstrap = brokers()
    create_topics(bootstrap, [INPUT, OUTPUT], 2)
    properties = folder / "streams.properties"
    expected: Counter[str] = Counter()

    def send() -> None:
        produce(bootstrap, INPUT, [(None, line.encode()) for line in LINES], "lz4")
        for line in LINES:
            expected.update(line.split())

    def is_under_way() -> bool:
        """Of what the last call of `send` has sent, something is counted."""
        return total(bootstrap) > sum(expected.values()) - WORDS

    def counted() -> bool:
        counts = last_values(bootstrap, OUTPUT)
        return {key and key.decode(): int.from_bytes(value or b"", "big") for key, value in counts.items()} == expected

    for state in ("first", "second"):  # the second has the counts from the changelog alone
        properties.write_text(
            f"bootstrap.servers={bootstrap}\nstate.dir={folder / state}\ncommit.interval.ms=200\n"
            f"application.id={APPLICATION}\nauto.offset.reset=earliest\nstatestore.cache.max.bytes=0\n"
            f"processing.guarantee={guarantee}\nsession.timeout.ms=6000\n"
        )
        command = java_command(DEMO, str(properties), profile="streams")
        if with_kills:
            with running(command, folder, state, ends=signal.SIGKILL) as log:
                send()
                until(is_under_way, partial(found, bootstrap, log))
            with running(command, folder, state) as log:
                send()
                until(is_under_way, partial(found, bootstrap, log))
                brokers.restart(bootstrap, TRANSACTION, APPLICATION)
                until(counted, partial(found, bootstrap, log))
        with running(command, folder, state) as log:
            send()
            until(counted, partial(found, bootstrap, log))
        assert counted()


def total(bootstrap: str) -> int:
    """Of all counts."""
    return sum(int.from_bytes(value or b"", "big") for value in last_values(bootstrap, OUTPUT).values())


def found(bootstrap: str, log: Path) -> object:
    return last_values(bootstrap, OUTPUT), log.read_text(errors="replace")[-2000:]
