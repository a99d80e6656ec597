"""What must hold of a cluster at any time, looked at again and again while it runs.

It compares what brokers serve as committed with what was seen before: bytes are read from the simulated disks, offsets
and epochs are the product's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, TypeVar

from isthmus.core_broker.cluster.features import METADATA_VERSION
from isthmus.core_broker.cluster.image import MetadataImage
from isthmus.core_broker.cluster.partition_image import PartitionImage

from .brokers import Cluster
from .history import Batch

T = TypeVar("T")

LOOK_S = 1.0  # between two looks
UNHEARD_S = 10.0  # in which a leader learns that an in-sync follower is dead, and commits what that one had until then


class Watch:
    """loose: topics of which an unclean election may lose what is committed. min_insync: min.insync.replicas of topics
    of which no disk is lost before all replicas are in sync."""

    def __init__(self, cluster: Cluster, loose: Sequence[str], min_insync: Mapping[str, int]) -> None:
        self.cluster = cluster
        self.ends: dict[tuple[str, int], int] = {}  # by partition: up to where it was seen committed
        self._loose = loose
        self._min_insync = min_insync
        self._committed: dict[tuple[str, int], dict[int, bytes]] = {}  # by partition: last offset -> batch
        self._seen: dict[tuple[int, str, int], tuple[Any, int]] = {}  # by replica: open log and high watermark
        self._epochs: dict[tuple[str, int], int] = {}  # by partition: the last partition epoch that anybody knew
        self._leaders: dict[tuple[bytes, int, int], int] = {}  # by topic id, partition and leader epoch
        self._images: dict[int, dict[tuple[str, int], PartitionImage]] = {}  # by offset of the metadata
        # Of DeleteRecords, by partition: the furthest offset before which somebody wanted everything gone, and what was
        # answered with success.
        self.to_delete: dict[tuple[str, int], int] = {}
        self._deleted: dict[tuple[str, int], list[tuple[int, int]]] = {}  # (leader epoch, offset)
        self._task = cluster.sim.loop.create_task(self._look())

    async def _look(self) -> None:
        while True:
            self.check()
            await asyncio.sleep(LOOK_S)

    async def unless_broken(self, work: Awaitable[T]) -> T:
        """Wait for something, but no longer than until a look finds that something is wrong, which is raised."""
        doing = asyncio.ensure_future(work)
        await asyncio.wait([doing, self._task], return_when=asyncio.FIRST_COMPLETED)
        if self._task.done():
            doing.cancel()
            self._task.result()
        return doing.result()

    def check(self) -> None:
        """One leader an epoch; what is committed stays, is the same everywhere, and leaders and in-sync replicas have
        it; no high watermark goes back; what was deleted stays deleted, and nothing else goes."""
        for number, topic, index, held in self.cluster.partitions():
            if held.failure is not None or topic in self._loose:
                continue
            if held.leads:
                leader = self._leaders.setdefault((held.topic_id, index, held.leader_epoch), number)
                assert leader == number, (
                    f"{topic}-{index} has two leaders in epoch {held.leader_epoch}: {leader} and {number}"
                )
                self._check_start(number, topic, index, held)
            host = self.cluster.hosts[number]
            mark = held.high_watermark
            known = self._seen.get((number, topic, index))
            if known is not None and known[0] is held.log:
                assert mark >= known[1], (
                    f"the high watermark of {topic}-{index} on broker {number} went back from {known[1]} to {mark}"
                )
                if mark == known[1]:
                    continue
            assert mark <= held.log.log_end_offset, (
                f"the high watermark of {topic}-{index} on broker {number} is {mark}, its log ends at "
                f"{held.log.log_end_offset}"
            )
            self._seen[number, topic, index] = held.log, mark
            is_new = mark > self.ends.get((topic, index), 0)
            self.ends[topic, index] = max(self.ends.get((topic, index), 0), mark)
            for batch in host.partition(topic, index):
                if batch.last_offset >= mark:
                    break
                self.committed(f"broker {number}", topic, index, batch)
            if is_new and topic in self._min_insync:
                self._check_copies(topic, index, mark)
        self._check_ends()
        for number, host in self.cluster.hosts.items():
            if host.broker is not None and host.broker._replicas is not None:
                self._check_image(number, host.broker._replicas._image)
        self.cluster.sim.counters["looks"] += 1

    def _check_image(self, number: int, image: MetadataImage) -> None:
        """The metadata that a broker has: the same at one offset, wherever it is from. Nobody leads or is in sync whose
        broker is fenced. No broker has to work at a metadata.version that its software does not know."""
        level, known = (
            image.features.get(METADATA_VERSION, 0),
            self.cluster.releases.of(self.cluster.hosts[number].name),
        )
        assert level <= known, f"broker {number} knows metadata.version {known} at most, {level} is finalized"
        fenced = [each.id for each in image.brokers.values() if each.fenced]
        partitions = {(name, index): each for name, topic in image.topics.items()
                      for index, each in topic.partitions.items()}  # fmt: skip
        for key, each in partitions.items():
            assert each.leader not in fenced and not any(other in fenced for other in each.isr), (
                f"{key} is {each} for broker {number}, though brokers {fenced} are fenced"
            )
        if self._images.setdefault(image.offset, partitions) != partitions:
            raise AssertionError(f"at offset {image.offset} of the metadata broker {number} has {partitions}, "
                                 f"another has {self._images[image.offset]}")  # fmt: skip

    def _check_copies(self, topic: str, index: int, mark: int) -> None:
        """As many as min.insync.replicas asks for have what is committed, whether they run or not; or had it in memory,
        told the leader so, and lost their power before that one knew."""
        now = self.cluster.sim.loop.time()
        in_sync = {
            each
            for _, name, place, held in self.cluster.partitions()
            if (name, place) == (topic, index) and held.leads
            for each in held.isr
        }
        holders = []
        for number, host in self.cluster.hosts.items():
            had = number in in_sync and now - self.cluster.lost_power_s.get(number, -UNHEARD_S) < UNHEARD_S
            if had or host.end(topic, index) >= mark:
                holders.append(number)
        assert len(holders) >= self._min_insync[topic], (
            f"{topic}-{index} is committed up to {mark}, which only {holders} have"
        )

    def deletion_told(self, topic: str, index: int, offset: int, address: str) -> None:
        """A leader has answered that all before an offset is deleted. As in Kafka it has not waited for replicas whose
        brokers are dead (KIP-107): those that may lead nevertheless, being eligible, may bring it back."""
        for number, name, held_index, held in self.cluster.partitions():
            if (name, held_index) == (topic, index) and self.cluster.hosts[number].address == address:
                view = self.cluster.view(number, topic, index)
                if view is not None and not view.elr:
                    self._deleted.setdefault((topic, index), []).append((held.leader_epoch, offset))

    def _check_start(self, number: int, topic: str, index: int, held: Any) -> None:
        """Where a leader's log begins: never before what was answered by it or an earlier leader, never after what was
        asked for."""
        start, to_delete = held.log.log_start_offset, self.to_delete.get((topic, index), 0)
        told = self._deleted.get((topic, index), ())
        deleted = max((offset for epoch, offset in told if epoch <= held.leader_epoch), default=0)
        assert start >= deleted, (
            f"{topic}-{index} begins at {start} on its leader {number} of epoch {held.leader_epoch}, though all before "
            f"{deleted} was deleted"
        )
        assert start <= to_delete, f"{topic}-{index} begins at {start} on broker {number}, {to_delete} was asked for"

    def _check_ends(self) -> None:
        """Who leads and who is in sync, by the newest metadata, has all that was ever committed.

        While all that had it are down, nobody knows: one whose disk was full may have old metadata for long.
        """
        ends: dict[tuple[str, int], dict[int, int]] = {}
        newest: dict[tuple[str, int], PartitionImage] = {}
        for number, topic, index, held in self.cluster.partitions():
            if topic in self._loose:
                continue
            view = self.cluster.view(number, topic, index)
            known = newest.get((topic, index))
            if view is not None and (known is None or view.partition_epoch > known.partition_epoch):
                newest[topic, index] = view
            told = -1 if held.leadership is None else held.leadership.partition_epoch  # it may be told before others
            epoch = max(told, -1 if view is None else view.partition_epoch)
            self._epochs[topic, index] = max(epoch, self._epochs.get((topic, index), -1))
            if held.failure is None:
                ends.setdefault((topic, index), {})[number] = held.log.log_end_offset
        for key, view in newest.items():
            if view.partition_epoch < self._epochs[key]:
                continue
            committed = self.ends.get(key, 0)
            for number in view.isr:
                end = ends.get(key, {}).get(number, committed)
                assert end >= committed, (
                    f"{key[0]}-{key[1]}: broker {number} is in sync in {view}, ends at {end}, committed is {committed}"
                )

    def committed(self, who: str, topic: str, index: int, batch: Batch) -> None:
        """Somebody has seen a batch as committed."""
        known = self._committed.setdefault((topic, index), {})
        value = known.setdefault(batch.last_offset, batch.data)
        assert value == batch.data, (
            f"{who} has committed another batch at offset {batch.last_offset} of {topic}-{index} than was seen before"
        )
