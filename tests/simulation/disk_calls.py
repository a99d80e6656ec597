"""A broker at all its work on several partitions, on a disk that refuses the n-th call, once or from then on.

What must hold: the broker answers; partitions that the refused call had nothing to do with are written and read as
ever; the one that it had to do with serves on, or answers KAFKA_STORAGE_ERROR and is told offline with the reason; the
log says what was refused; and what was acknowledged is there after a start on a disk that is well again.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from isthmus.core_broker.pauses import RETRY_FIRST_S, RETRY_MOST_S
from isthmus.core_broker.start_errors import StartError
from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import (
    create_topics,
    delete_records,
    delete_topics,
    fetch,
    find_coordinator,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    produce,
)
from isthmus.protocol.records import build_batch, iter_records

from .product import DATA, BrokerHost
from .runner import Simulation
from .wire import ANSWER_TIMEOUT_S, Wire, connect

OPTIONS = {
    "log.cleaner.backoff.ms": "40",
    "log.flush.offset.checkpoint.interval.ms": "150",
    "log.flush.start.offset.checkpoint.interval.ms": "170",
    "log.retention.check.interval.ms": "110",
    "replica.high.watermark.checkpoint.interval.ms": "130",
    "log.roll.ms": "60",
    "log.segment.delete.delay.ms": "30",
    "min.insync.replicas": "1",
}
TOPICS: dict[str, dict[str, str]] = {  # with what each partition is to do
    "aged": {"retention.bytes": "600"},
    "calm": {"segment.ms": "604800000"},
    "compacted": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "min.compaction.lag.ms": "0"},
    "cut": {},  # by DeleteRecords
    "safe": {"durability": "fsync"},
}
LATE = "late"  # made and deleted while the disk is watched
GROUP, OFFSETS = "readers", "__consumer_offsets"
STORAGE = ErrorCode.KAFKA_STORAGE_ERROR
GROUP_ERRORS = (  # what a group's member hears of a partition that is offline: it looks for its coordinator again
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
TAKES_ROOM = ("append", "create", "mkdir", "rename", "sync", "syncdir", "tear", "write")
PAUSE_S = 0.08
SAYING_S = 0.05  # a call that the pool made is told when it is back
PACKAGE = f"{os.sep}core_broker{os.sep}"


def place_of(path: str) -> str:
    """The partition's directory that a path is in or is; '' for the data directory itself."""
    name = path.removeprefix(DATA).lstrip("/").split("/")[0].split(".")[0]  # a deleted one: t-0.ID-delete
    return name if name.rpartition("-")[2].isdigit() else ""


@dataclass(slots=True)
class Call:
    """One call of the rehearsal: what it was, in which partition's directory, and from where in the broker."""

    kind: str
    place: str
    site: str


@dataclass(slots=True)
class Disk:
    """What the simulated disk asks about every call. number: the call that is refused; -1 for none.

    lasts: '' for that call alone; 'place': each later one in the same directory too; 'full': each that takes room.
    """

    number: int = -1
    error: int = 0
    lasts: str = ""
    watched: bool = False
    rehearses: bool = False
    seen: int = 0
    calls: list[Call] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)  # kind, path
    refused_s: float = 0.0  # when, at last
    now: Callable[[], float] = lambda: 0.0

    def __call__(self, kind: str, path: str) -> None:
        if not self.watched:
            return
        number, self.seen = self.seen, self.seen + 1
        if self.rehearses:
            self.calls.append(Call(kind, place_of(path), _site()))
        if number == self.number or (number > self.number >= 0 and self._again(kind, path)):
            self.refused.append((kind, path))
            self.refused_s = self.now()
            raise OSError(self.error, os.strerror(self.error), path)

    def _again(self, kind: str, path: str) -> bool:
        if self.lasts == "full":
            return kind in TAKES_ROOM
        return self.lasts == "place" and place_of(path) == place_of(self.refused[0][1])

    def harms(self, place: str) -> bool:
        """Whether something of a partition's directory was refused."""
        return self.lasts == "full" or any(place_of(path) == place for _, path in self.refused)


def _site() -> str:
    """The functions of the broker that led to a call, innermost first."""
    names = []
    frame: Any = sys._getframe(2)
    while frame is not None and len(names) < 4:
        if PACKAGE in frame.f_code.co_filename:
            names.append(f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_code.co_name}")
        frame = frame.f_back
    return " < ".join(names)


class Said(logging.Handler):
    """What the broker's log says at WARNING and above; a traceback is a fault of ours, whatever the disk does."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []
        self.tracebacks: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info:
            self.tracebacks.append(f"{text}: {record.exc_info[1]!r}")
        if record.levelno >= logging.WARNING:
            self.lines.append(text)


class Trial:
    """The whole story, once. `counts` tells what came of it."""

    def __init__(self, sim: Simulation, disk: Disk, said: Said) -> None:
        self.sim = sim
        self.disk = disk
        disk.now = sim.loop.time
        self.said = said
        self.host = BrokerHost(sim, "broker", OPTIONS)
        self.client = sim.machine("client").start()
        self.acked: dict[str, list[tuple[int, bytes, bytes]]] = {
            f"{name}-0": [] for name in TOPICS
        }  # offset, key, value
        self.tried: dict[bytes, list[bytes]] = {}  # of the compacted topic: all values that were sent, by key
        self.committed = -1  # last offset that was acknowledged, and those tried since
        self.commits_tried: list[int] = []
        self.deleted_before = 0  # in `cut`
        self.counts: Counter[str] = sim.counters
        self.number = 0
        self.untold = False  # the broker was killed before it could say what was refused
        self.wire: Wire | None = None

    # --- lives of the broker ------------------------------------------------------------------------------------------

    async def run(self) -> None:
        await self.start()
        await self.make_topics(list(TOPICS))
        await self.find_coordinator()
        await self.produce_all()
        await self.commit()
        await self.stop()

        self.host.machine.disk.inspect = self.disk
        self.disk.watched = True
        await self.start()
        await self.work()
        await self.stop()
        await self.start()
        await self.produce_all()
        self.kill()
        await self.start()
        await self.work()
        self.disk.watched = False  # the disk is well again; nobody has started the broker since
        await self.come_back()
        await self.produce_all()
        await self.look_at_all()
        self.check_offline()

        for end in (self.kill, self.stop):
            done = end()
            if done is not None:
                await done
            await self.start()
            await self.check_all()
        assert not self.said.tracebacks, self.said.tracebacks
        if self.disk.refused and not self.untold:
            reason = os.strerror(self.disk.error)
            told = [line for line in self.said.lines if reason in line]
            assert told, f"nothing was said of {self.disk.refused[0]}, only {self.said.lines}"

    async def start(self) -> None:
        try:
            await self.host.start()
        except StartError as error:
            self.said.lines.append(str(error))
            refused = [path for _, path in self.disk.refused]
            assert refused and "\n" not in str(error) and os.strerror(self.disk.error) in str(error), error
            assert self.disk.lasts == "full" or place_of(refused[-1]) in ("", "__cluster_metadata-0"), (refused, error)
            self.counts["starts_refused"] += 1
            self.host.machine.kill()
            self.disk.watched = False
            await self.host.start()
        self.wire = None

    def kill(self) -> None:
        self.untold |= bool(self.disk.refused) and self.sim.loop.time() - self.disk.refused_s < SAYING_S
        self.host.kill()

    async def stop(self) -> None:
        process, broker = self.host.machine.process, self.host.broker
        assert process is not None and broker is not None
        await process.outcome(broker.stop())
        self.host.kill()

    # --- what clients do ----------------------------------------------------------------------------------------------

    async def ask(self, api: Any, message: Any) -> Any:
        """The answer; where the disk refused to read, the connection may have been ended once or twice before."""
        for _ in range(4):
            if self.wire is None or self.wire.lost:
                self.wire = await self.client.outcome(connect(self.host.address))
            try:
                return await asyncio.wait_for(self.wire.request(api, message), 2 * ANSWER_TIMEOUT_S)
            except ConnectionError:
                assert any(kind in ("read", "open", "size") for kind, _ in self.disk.refused), "a connection was ended"
                self.counts["connections_ended"] += 1
        raise AssertionError(f"{type(message).__module__} is never answered")

    def accept(self, code: int, place: str, also: tuple[int, ...] = ()) -> bool:
        """Whether it went through; a refusal must be the disk's, of a partition that it refused something of."""
        if code == ErrorCode.NONE:
            return True
        name = ErrorCode(code).name
        assert self.disk.harms(place), f"{place} answers {name}, but the disk refused {self.disk.refused}"
        assert code == STORAGE or code in also, f"{place} answers {name} to {self.disk.refused}"
        self.counts[f"answer_{name}"] += 1
        return False

    async def make_topics(self, names: list[str]) -> None:
        topics = [
            create_topics.CreatableTopic(
                name=name,
                num_partitions=1,
                replication_factor=1,
                configs=[
                    create_topics.CreatableTopicConfig(name=key, value=value)
                    for key, value in TOPICS.get(name, {}).items()
                ],
            )
            for name in names
        ]
        answer = await self.ask(create_topics.API, create_topics.Request(topics=topics, timeout_ms=5000))
        for each in answer.topics:
            if each.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
                self.accept(each.error_code, "__cluster_metadata-0")

    async def find_coordinator(self) -> None:
        while (await self.ask(find_coordinator.API, find_coordinator.Request(key=GROUP))).error_code:
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.2)

    async def produce(self, topic: str) -> None:
        self.number += 1
        key = b"k%d" % (self.number % 3 if topic == "compacted" else self.number)
        value = b"%s %d " % (topic.encode(), self.number) + b"." * 150
        if topic == "compacted":
            self.tried.setdefault(key, []).append(value)
        rows = [(self.client.runtime.wall_ms(), key, value, ())]
        data = produce.PartitionProduceData(index=0, records=build_batch(rows))
        wanted = produce.TopicProduceData(name=topic, partition_data=[data])
        answer = await self.ask(produce.API, produce.Request(acks=-1, timeout_ms=5000, topic_data=[wanted]))
        row = answer.responses[0].partition_responses[0]
        if self.accept(row.error_code, f"{topic}-0"):
            self.acked[f"{topic}-0"].append((row.base_offset, key, value))
            self.counts["acked"] += 1

    async def produce_all(self) -> None:
        for topic in TOPICS:
            await self.produce(topic)

    async def read(self, topics: dict[str, int]) -> dict[str, tuple[int, list[Any]]]:
        """(error, records) of each topic from an offset on, all in one fetch."""
        wanted = [
            fetch.FetchTopic(
                topic=name,
                partitions=[fetch.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)],
            )
            for name, offset in topics.items()
        ]
        answer = await self.ask(fetch.API, fetch.Request(max_wait_ms=0, min_bytes=0, topics=wanted))
        found = {}
        for each in answer.responses:
            row = each.partitions[0]
            data = b"".join(bytes(part) for part in row.records) if isinstance(row.records, list) else row.records
            found[each.topic] = row.error_code, list(iter_records(bytes(data or b"")))
        return found

    async def look_at_all(self) -> None:
        """The last record that was acknowledged in each partition is there to be read."""
        last = {name: self.acked[f"{name}-0"][-1] for name in TOPICS}
        found = await self.read({name: offset for name, (offset, _, _) in last.items()})
        for name, (offset, _, value) in last.items():
            code, records = found[name]
            if self.accept(code, f"{name}-0"):
                values = {record.offset: bytes(record.value) for record in records}
                assert values.get(offset) == value, f"{name}: offset {offset} holds {values.get(offset)!r}"

    async def commit(self) -> None:
        self.number += 1
        row = offset_commit.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=self.number, committed_metadata=""
        )
        topic = offset_commit.OffsetCommitRequestTopic(name="calm", partitions=[row])
        self.commits_tried.append(self.number)
        for _ in range(20):
            answer = await self.ask(offset_commit.API, offset_commit.Request(group_id=GROUP, topics=[topic]))
            code = answer.topics[0].partitions[0].error_code
            if code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                break
            await asyncio.sleep(PAUSE_S)  # as after every start
        if self.accept(code, f"{OFFSETS}-0", GROUP_ERRORS):
            self.committed = self.number
            self.commits_tried.clear()

    async def delete_records(self) -> None:
        offset = self.acked["cut-0"][-1][0]
        row = delete_records.DeleteRecordsPartition(partition_index=0, offset=offset)
        topic = delete_records.DeleteRecordsTopic(name="cut", partitions=[row])
        answer = await self.ask(delete_records.API, delete_records.Request(topics=[topic], timeout_ms=5000))
        code = answer.topics[0].partitions[0].error_code
        if code and self.disk.harms(""):
            assert code == STORAGE, ErrorCode(code).name  # where logs start cannot be saved
        elif self.accept(code, "cut-0"):
            self.deleted_before = offset

    async def delete_late(self) -> None:
        request = delete_topics.Request(topic_names=[LATE], timeout_ms=5000)
        answer = await self.ask(delete_topics.API, request)
        code = answer.responses[0].error_code
        if code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # it could not be made
            self.accept(code, "__cluster_metadata-0")

    async def work(self) -> None:
        """All that a broker does to its files, some of it by itself."""
        await self.make_topics([LATE])
        for turn in range(4):
            await self.produce_all()
            if turn == 1:
                await self.delete_records()
            if turn == 2:
                await self.delete_late()
            await self.look_at_all()
            await self.commit()
            await asyncio.sleep(PAUSE_S)
        await asyncio.sleep(3 * PAUSE_S)
        answer = await self.ask(metadata.API, metadata.Request(topics=None))
        assert {topic.name for topic in answer.topics} >= set(TOPICS)

    # --- what must be true --------------------------------------------------------------------------------------------

    def wanting_room(self) -> dict[tuple[str, int], str]:
        """Partitions that are told as offline, and the metadata's log, though nothing but room was missing."""
        broker = self.host.broker
        assert broker is not None and broker._replicas is not None and broker._controller is not None
        if self.disk.error != errno.ENOSPC:
            return {}
        found = broker._replicas.offline()
        failure = broker._controller.failure or broker._controller.log.log.failure
        return found if failure is None else {**found, ("__cluster_metadata", 0): failure.message}

    async def come_back(self) -> None:
        """What only wanted room is served again by itself, within two of the longest pauses."""
        self.counts["wanted_room"] += len(self.wanting_room())
        ends_s = self.sim.loop.time() + 2 * RETRY_MOST_S
        while found := self.wanting_room():
            assert self.sim.loop.time() < ends_s, f"there is room again, but not for {found}"
            await asyncio.sleep(RETRY_FIRST_S / 2)

    def check_offline(self) -> None:
        """A partition that refuses although the disk is well again is told as offline, with the reason."""
        assert self.host.broker is not None and self.host.broker._replicas is not None
        offline = self.host.broker._replicas.offline()
        reason = os.strerror(self.disk.error) if self.disk.refused else "?"
        for (topic, index), text in offline.items():
            assert reason in text, f"{topic}-{index} is offline: {text}"
        self.counts["offline"] += len(offline)

    async def check_all(self) -> None:
        """After a start on a disk that is well: all serve, and all that was acknowledged is there."""
        self.disk.refused, refused = [], self.disk.refused
        self.disk.lasts, lasts = "", self.disk.lasts
        await self.produce_all()
        await self.find_coordinator()
        await self.check_commits()
        for name in TOPICS:
            await self.check_partition(name)
        self.disk.refused, self.disk.lasts = refused, lasts

    async def check_partition(self, name: str) -> None:
        start = await self.log_start(name)
        offset, records = start, []
        while True:
            code, found = (await self.read({name: offset}))[name]
            if code == ErrorCode.OFFSET_OUT_OF_RANGE and name == "aged":  # retention came in between
                offset = start = await self.log_start(name)
                continue
            assert not code, f"{name}: {ErrorCode(code).name} after a start"
            found = [record for record in found if record.offset >= offset]
            if not found:
                break
            records += found
            offset = found[-1].offset + 1
        values = {record.offset: bytes(record.value) for record in records}
        if name == "cut":
            assert start >= self.deleted_before, (
                f"{name} starts at {start}, all before {self.deleted_before} was deleted"
            )
        if name == "compacted":
            last = {bytes(record.key): bytes(record.value) for record in records}
            acked = {key: value for _, key, value in self.acked["compacted-0"]}
            for key, value in acked.items():
                sent = self.tried[key]
                assert last.get(key) in sent[sent.index(value) :], f"{key!r} is {last.get(key)!r}, not {value!r}"
            return
        if name not in ("aged", "cut"):
            assert start == 0, f"{name} starts at {start}"
        for at, _, value in self.acked[f"{name}-0"]:
            if at >= start:
                assert values.get(at) == value, f"{name}: offset {at} holds {values.get(at)!r}, not {value!r}"
        self.counts["checked"] += 1

    async def log_start(self, name: str) -> int:
        row = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-2)
        topic = list_offsets.ListOffsetsTopic(name=name, partitions=[row])
        answer = await self.ask(list_offsets.API, list_offsets.Request(replica_id=-1, topics=[topic]))
        found = answer.topics[0].partitions[0]
        assert not found.error_code, f"{name}: {ErrorCode(found.error_code).name} after a start"
        start: int = found.offset
        return start

    async def check_commits(self) -> None:
        topic = offset_fetch.OffsetFetchRequestTopic(name="calm", partition_indexes=[0])
        answer = None
        for _ in range(50):
            answer = await self.ask(offset_fetch.API, offset_fetch.Request(group_id=GROUP, topics=[topic]))
            if answer.error_code not in GROUP_ERRORS:
                break
            await asyncio.sleep(0.1)
        assert answer is not None and not answer.error_code, answer
        found = answer.topics[0].partitions[0].committed_offset
        assert found in (self.committed, *self.commits_tried), f"offset {found} is committed, not {self.committed}"


def chosen(calls: list[Call]) -> Iterator[int]:
    """The first call of each kind from each site of the code, in the metadata's directory and outside of it."""
    seen: dict[tuple[str, str, bool], None] = {}
    for number, call in enumerate(calls):
        key = call.kind, call.site, call.place.startswith("__cluster")
        if key not in seen:
            seen[key] = None
            yield number
