"""Disks that are full, of one broker and of all: a partition is served by a replica that has room, if any has.

Each broker has a file system of its own in memory, which is filled while an idempotent producer sends with acks=all.
How long it was held up is printed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from integration_tests.brokers import BrokerCluster
from integration_tests.console.commands import isthmus
from integration_tests.disks import MB, Mounts
from integration_tests.waiting import until

from .sending import TOPIC, Sending, leader_of

BEFORE, AFTER = 300, 300  # records acknowledged before the disk is full, and then
SETTLE_S = 60.0
DISK_BYTES = 24 * MB


class Disks:
    """Three brokers, each on a file system that can be filled."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self.mounts = Mounts()
        stack.callback(self.mounts.close)
        self.cluster = BrokerCluster(folder, 3, {"min.insync.replicas": 2}, inside=self.mounts.inside)
        for each in self.cluster.brokers.values():
            self.mounts.memory(each.folder / "data", DISK_BYTES)
        stack.callback(self.cluster.kill)
        self.cluster.start()
        self.admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap, "socket.timeout.ms": 3000})
        self.admin.create_topics([NewTopic(TOPIC, 1, 3)])[TOPIC].result(20)
        self.fillers: dict[int, Path] = {}

    def fill(self, node: int) -> None:
        self.fillers[node] = self.mounts.fill(self.cluster.brokers[node].folder / "data")

    def make_room(self) -> None:
        for node in list(self.fillers):
            self.mounts.run("rm", self.fillers.pop(node))

    @property
    def in_sync(self) -> list[int]:
        return sorted(self.admin.list_topics(TOPIC, timeout=20).topics[TOPIC].partitions[0].isrs)

    def copies(self) -> list[bytes]:
        folders = [self.mounts.seen(each.folder / f"data/{TOPIC}-0") for each in self.cluster.brokers.values()]
        return [b"".join(path.read_bytes() for path in sorted(folder.glob("*.log"))) for folder in folders]

    def end(self, sending: Sending) -> None:
        sending.end()
        sending.all_are_there(self.cluster.bootstrap)
        until(lambda: len(set(self.copies())) == 1, "all replicas have the same bytes", SETTLE_S)


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[Disks]:
    with ExitStack() as stack:
        yield Disks(stack, tmp_path)


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_one_full_disk_is_done_without(disks: Disks, tmp_path: Path, role: str) -> None:
    sending = Sending(disks.cluster.bootstrap)
    sending.goes_on(BEFORE)
    leader = leader_of(disks.admin)
    full = leader if role == "leader" else next(each for each in disks.cluster.brokers if each != leader)
    begun_s = time.monotonic()
    disks.fill(full)
    until(lambda: full not in disks.in_sync, "it leaves the in-sync replicas", SETTLE_S)
    print(f"\nthe {role} is out of sync after {time.monotonic() - begun_s:.1f} s")
    sending.goes_on(AFTER)
    print(f"the producer was held up for {sending.stall_s:.1f} s")
    said = isthmus("cluster", "status", "--json", "-b", disks.cluster.bootstrap, folder=tmp_path).stdout
    [row] = json.loads(said)["under_replicated"]
    assert f"its log cannot be used on broker {full}, whose disk has 0.0 of 24.0 MiB free" in row["reason"]
    assert (leader_of(disks.admin) == leader) == (role == "follower")
    disks.make_room()
    until(lambda: disks.in_sync == [1, 2, 3], "it is in sync again", SETTLE_S)
    disks.end(sending)


def test_when_all_are_full_nothing_is_lost_and_all_is_well_once_there_is_room(disks: Disks) -> None:
    sending = Sending(disks.cluster.bootstrap)
    sending.goes_on(BEFORE)
    for node in disks.cluster.brokers:
        disks.fill(node)
    until(lambda: len(disks.in_sync) == 1, "one is left", SETTLE_S)
    assert leader_of(disks.admin) > 0
    disks.make_room()
    sending.goes_on(AFTER)
    until(lambda: disks.in_sync == [1, 2, 3], "all are in sync again", SETTLE_S)
    disks.end(sending)
