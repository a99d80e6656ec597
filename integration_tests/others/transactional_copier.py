"""Kafka's own TransactionalMessageCopier, with random aborts, killed again and again: each message is copied once."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path

from integration_tests.brokers import die_with_parent
from integration_tests.clients.records import create_topics
from integration_tests.peers.peers import java_command

from .clients import JVM
from .processes import Brokers, produce, records

COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
INPUT, OUTPUT, GROUP = "to-copy", "copied", "copiers"
PARTITIONS, MESSAGES, SIZE = 2, 600, 20  # messages: of a partition; size: messages of a transaction
KILLS = 2  # of each copier
TIMEOUT_MS = 5_000  # of a transaction that its copier left open


def copy(brokers: Brokers, _programs: Path, folder: Path) -> None:
    bootstrap = brokers()
    create_topics(bootstrap, [INPUT, OUTPUT], PARTITIONS)
    produce(bootstrap, INPUT, [(f"{n}", f"{n}".encode()) for n in range(PARTITIONS * MESSAGES)])
    sent = by_partition(bootstrap, INPUT)
    chance = random.Random(1)
    for partition in range(PARTITIONS):
        for left in range(KILLS, -1, -1):
            run_copier(bootstrap, partition, folder, kill_at=chance.randint(2, 6) if left else None)
    copied = [value for _, _, value in records(bootstrap, OUTPUT)]
    assert sorted(copied, key=int_of) == sorted((each for rows in sent.values() for each in rows), key=int_of)
    for rows in by_partition(bootstrap, OUTPUT).values():  # messages of one input partition stay in their order
        for theirs in sent.values():
            there = set(rows)
            own = set(theirs)
            assert [each for each in rows if each in own] == [each for each in theirs if each in there]
    assert len(records(bootstrap, OUTPUT, "read_uncommitted")) > len(copied), "nothing was aborted"


def run_copier(bootstrap: str, partition: int, folder: Path, kill_at: int | None) -> None:
    """To its end, or until it has told so many times how far it is; then it is killed with a transaction open."""
    command = java_command(
        COPIER, "--input-topic", INPUT, "--input-partition", str(partition), "--output-topic", OUTPUT,
        "--broker-list", bootstrap, "--transactional-id", f"copier-{partition}", "--consumer-group", GROUP,
        "--transaction-size", str(SIZE), "--transaction-timeout", str(TIMEOUT_MS), "--enable-random-aborts",
        jvm=JVM,
    )  # fmt: skip
    with open(folder / f"copier-{partition}.log", "ab") as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, preexec_fn=die_with_parent
        )
    told = []
    try:
        assert process.stdout is not None
        for line in process.stdout:
            told.append(json.loads(line))
            if told[-1].get("stage") == "ShutdownComplete":
                break
            if kill_at is not None and len(told) >= kill_at:
                return
        assert told and told[-1].get("stage") == "ShutdownComplete" and not told[-1]["remaining"], told[-3:]
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def by_partition(bootstrap: str, topic: str) -> dict[int, list[bytes | None]]:
    found: dict[int, list[bytes | None]] = {n: [] for n in range(PARTITIONS)}
    for partition, _, value in records(bootstrap, topic):
        found[partition].append(value)
    return found


def int_of(value: bytes | None) -> int:
    assert value is not None
    return int(value)
