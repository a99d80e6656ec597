"""Kafka's own TransactionalMessageCopier, with random aborts, killed again and again: each message is copied once.

One copier a partition, and two in one group, whose commits carry their membership. The broker that coordinates their
transactions is killed, too.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from integration_tests.brokers import die_with_parent
from integration_tests.clients.records import create_topics
from integration_tests.peers.peers import java_command

from .clients import JVM
from .processes import TRANSACTION, Brokers, produce, records, until

COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
INPUT, OUTPUT, GROUP = "to-copy", "copied", "copiers"
PARTITIONS, MESSAGES, SIZE = 2, 600, 20  # messages: of a partition; size: messages of a transaction
GROUP_MESSAGES = 20_000  # of a partition: more than a group copies between two disturbances
BETWEEN = 200  # messages that each copier of a group must copy between two of them
TIMEOUT_MS = 5_000  # of a transaction that its copier left open


def copy(brokers: Brokers, _programs: Path, folder: Path) -> None:
    run(brokers, folder, kills=4)


def run(brokers: Brokers, folder: Path, kills: int) -> None:
    """kills: of each partition's copier, before the one that comes to its end, and has its broker killed."""
    bootstrap = brokers()
    send(bootstrap, MESSAGES)
    chance = random.Random(1)
    for partition in range(PARTITIONS):
        for left in range(kills, -1, -1):
            then = None if left else partial(brokers.restart, bootstrap, TRANSACTION, name(partition))
            run_copier(bootstrap, partition, folder, chance.randint(2, 6), then)
    check(bootstrap)


def copy_in_group(brokers: Brokers, _programs: Path, folder: Path) -> None:
    bootstrap = brokers()
    send(bootstrap, GROUP_MESSAGES)
    with ExitStack() as ends:
        copiers = [Copier(bootstrap, folder, number) for number in range(PARTITIONS)]
        for copier in copiers:
            ends.callback(copier.kill)
        for victim in (*copiers, None):
            until(lambda: all(each.copied() >= BETWEEN or each.is_done() for each in copiers), states(copiers))
            assert not any(each.is_done() for each in copiers), "there was too little to copy"
            if victim is None:
                brokers.restart(bootstrap, TRANSACTION, "in-group-0")
            else:
                victim.kill()
            for each in copiers:
                each.go_on()
        while not all(each.is_done() for each in copiers):  # minutes, on three busy nodes: but they get on
            until(partial(get_on, copiers, [each.copied() for each in copiers]), states(copiers))
    check(bootstrap)


def get_on(copiers: Sequence[Copier], before: Sequence[int]) -> bool:
    """Whether they have copied more than before, or all."""
    return [each.copied() for each in copiers] != before or all(each.is_done() for each in copiers)


def states(copiers: Sequence[Copier]) -> Callable[[], object]:
    return lambda: [each.state() for each in copiers]


class Copier:
    """One of the group, as a process that is started again when it was killed."""

    def __init__(self, bootstrap: str, folder: Path, number: int) -> None:
        self._command = command(bootstrap, f"in-group-{number}", 0, "--group-mode", "--use-group-metadata")
        self._folder = folder
        self._said = folder / f"in-group-{number}.jsonl"
        self._from = 0  # of what it has said, what is of before the last disturbance
        self._start()

    def _start(self) -> None:
        with open(self._said, "ab") as said, open(self._said.with_suffix(".log"), "ab") as errors:
            self._process = subprocess.Popen(self._command, stdout=said, stderr=errors, preexec_fn=die_with_parent)

    def _events(self) -> list[dict[str, Any]]:
        lines = self._said.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("\n")]

    def copied(self) -> int:
        """Messages since the last disturbance."""
        events = self._events()[self._from :]
        return int(events[-1]["totalProcessed"] - events[0]["totalProcessed"]) if events else 0

    def is_done(self) -> bool:
        code = self._process.poll()
        assert code in (None, 0, -signal.SIGKILL), self.state()
        return code == 0

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def go_on(self) -> None:
        """After a disturbance."""
        self._from = len(self._events())
        if self._process.poll() is not None:
            self._start()

    def state(self) -> object:
        return self._process.poll(), self._events()[-3:], self._said.with_suffix(".log").read_text()[-3000:]


def send(bootstrap: str, messages: int) -> None:
    """messages: of each partition."""
    create_topics(bootstrap, [INPUT, OUTPUT], PARTITIONS)
    produce(bootstrap, INPUT, [(f"{n}", f"{n}".encode()) for n in range(PARTITIONS * messages)])


def check(bootstrap: str) -> None:
    sent = by_partition(bootstrap, INPUT)
    copied = [value for _, _, value in records(bootstrap, OUTPUT)]
    assert sorted(copied, key=int_of) == sorted((each for rows in sent.values() for each in rows), key=int_of)
    for rows in by_partition(bootstrap, OUTPUT).values():  # messages of one input partition stay in their order
        for theirs in sent.values():
            there = set(rows)
            own = set(theirs)
            assert [each for each in rows if each in own] == [each for each in theirs if each in there]
    assert len(records(bootstrap, OUTPUT, "read_uncommitted")) > len(copied), "nothing was aborted"


def command(bootstrap: str, name: str, partition: int, *options: str) -> list[str]:
    return java_command(
        COPIER, "--input-topic", INPUT, "--input-partition", str(partition), "--output-topic", OUTPUT,
        "--broker-list", bootstrap, "--transactional-id", name, "--consumer-group", GROUP,
        "--transaction-size", str(SIZE), "--transaction-timeout", str(TIMEOUT_MS), "--enable-random-aborts", *options,
        jvm=JVM,
    )  # fmt: skip


def name(partition: int) -> str:
    return f"copier-{partition}"


def run_copier(bootstrap: str, partition: int, folder: Path, told_at: int, then: Callable[[], object] | None) -> None:
    """Until it has told so many times how far it is; then it is killed with a transaction open, or something is done
    while it goes on to its end."""
    with open(folder / f"{name(partition)}.log", "ab") as errors:
        process = subprocess.Popen(
            command(bootstrap, name(partition), partition), stdout=subprocess.PIPE, stderr=errors, text=True,
            preexec_fn=die_with_parent,
        )  # fmt: skip
    told = []
    try:
        assert process.stdout is not None
        for line in process.stdout:
            told.append(json.loads(line))
            if told[-1].get("stage") == "ShutdownComplete":
                break
            if len(told) == told_at:
                if then is None:
                    return
                assert told[-1]["remaining"] >= MESSAGES // 3, "there was too little to copy"
                then()
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
