"""Worlds to produce to: partitions on files of their own, and requests of which at most one thing is wrong."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

from hypothesis import strategies as st

from isthmus.core_broker.config import BrokerConfig, topic_config
from isthmus.core_broker.purgatory import Pending
from isthmus.core_broker.replication.leadership import Leadership
from isthmus.core_broker.replication.partition import Partition
from isthmus.core_broker.server._context import CloseConnection, Context
from isthmus.core_broker.server.connection import ANSWER_FLEXIBLE
from isthmus.core_broker.server.dispatch import Routes
from isthmus.core_broker.server.verification import Held
from isthmus.core_broker.storage.log.log import Log
from isthmus.core_broker.storage.log.log_config import LogConfig
from isthmus.core_broker.storage.log.status import LogHooks
from isthmus.core_broker.storage.startup.opening import open_log
from isthmus.protocol.batch_layout import HEADER, HEADER_SIZE, TRANSACTIONAL
from isthmus.protocol.crc import crc32c
from isthmus.protocol.errors import ErrorCode, KafkaError, ProtocolError
from isthmus.protocol.messages import APIS
from isthmus.protocol.messages.produce import PartitionProduceData, Request, TopicProduceData

from ..storage.support import NOW_MS, BrokenFiles, FilesAtOnce, contents, drive

HOUR_MS = 60 * 60 * 1000
MAX_INT64 = 2**63 - 1
INTERNAL = "__consumer_offsets"
TOPICS = {"t": 3, "u": 1, INTERNAL: 1}
FIRST = {"producer_id": 7, "producer_epoch": 0}
FIELDS = "base length magic crc attributes delta first_time last_time epoch sequence count nothing".split()
HEAD, CORRELATION = b"head", -77
BEYOND = bytes(64)  # what lies behind a frame: read as if it were of it, it would be taken for empty fields
TRAFFIC = "appends bytes_in bytes_out bytes_refused failed_appends failed_fetches fetches messages_in".split()
SEGMENT_FIELDS = (
    "base_offset created_ms last_offset max_timestamp max_timestamp_offset first_timestamp bytes_since_index".split()
)


def id_of(name: str) -> bytes:
    return name.encode()[:16].rjust(16, b".")


LAST_OFFSET = 2**63 - 1


class World:
    """Partitions whose `wakes` say which waiter was called when, and by which high watermark."""

    def __init__(
        self,
        folder: str,
        config: LogConfig,
        options: dict[str, str],
        topics: dict[str, int] = TOPICS,
        log_start_offset: int = 0,
        files: FilesAtOnce | None = None,
    ) -> None:
        """files: those of a broker; if none are given, some that can be made to refuse."""
        self.folder = folder
        self.files = files or BrokenFiles()
        self.partitions: dict[str, dict[int, Partition]] = {}
        self.routes = Routes()
        self.now_ms = NOW_MS
        self.wakes: list[tuple[str, int]] = []
        self.notes: list[str] = []
        parsed = topic_config(options, BrokerConfig())
        for topic, count in topics.items():
            for index in range(count):
                place = f"{folder}/{topic}-{index}"
                log = drive(open_log(self.files, place, config, wall_ms=NOW_MS, log_start_offset=log_start_offset))
                log.status.hooks = LogHooks(on_change=lambda status: self.notes.append(status.name))
                leadership = Leadership(1, 0, 30_000, lambda broker, epoch: True, lambda: 1.0)
                partition = Partition(topic, id_of(topic), index, log, leadership=leadership)
                partition.configure(parsed)
                partition.place(1, [1, 2] if options else [1], [1])
                partition.begin_epoch(4)
                self.partitions.setdefault(topic, {})[index] = partition
                self.wait_for(partition)
        names = {id_of(name): name for name in topics}
        services = SimpleNamespace(
            replicas=SimpleNamespace(partitions=self.partitions, why_missing=_missing),
            runtime=SimpleNamespace(wall_ms=lambda: self.now_ms),
            image=SimpleNamespace(
                names_by_id=names,
                topic_by_id=lambda topic_id: SimpleNamespace(name=names[topic_id]) if topic_id in names else None,
            ),
            preparing=SimpleNamespace(begin=lambda partition, records, guard: None),
            config=BrokerConfig(),
            verification=SimpleNamespace(ask=_verified, held=Held(MAX_INT64)),
        )
        self.context = Context(services, "PLAINTEXT", "10.0.0.9")  # type: ignore[arg-type]
        self.short = 0  # requests that went the short way

    def wait_for(self, partition: Partition) -> None:
        """Have one wait for data, and one for the next two records."""

        def data() -> None:
            self.wakes.append((f"data {partition}", partition.high_watermark))
            partition.wait_for_data(data)

        def end() -> None:
            self.wakes.append((f"end {partition}", partition.high_watermark))
            if partition.failure is None:
                wait_for_end()

        def wait_for_end() -> None:
            if partition.high_watermark < LAST_OFFSET - 1:
                partition.wait_for_high_watermark(partition.high_watermark + 2, end)

        partition.wait_for_data(data)
        wait_for_end()

    def ask(self, version: int, body: bytes, *, may_be_short: bool) -> object:
        """The answer's bytes, or by what the connection ends."""
        route = self.routes[version]
        self.context.version = version
        stop = len(HEAD) + len(body)
        answer = None
        if may_be_short:
            memory = bytearray(HEAD + body + BEYOND)
            with memoryview(memory)[:stop] as frame:
                answer = route.answer_at_once(frame, len(HEAD), CORRELATION, self.context)
            if all(each.log.failure is None for each in self.all()):
                memory.append(0)  # refused where somebody refers to it still
            self.short += answer is not None
            if type(answer) is bytes:
                return answer
        frame = memoryview(bytearray(HEAD + body))
        try:
            if answer is None:
                answer = route.handle(route.decode(frame, len(HEAD))[0], self.context)
        except (ProtocolError, CloseConnection, struct.error) as error:
            return str(error)
        if isinstance(answer, Pending):
            assert answer.done
            answer = answer.answer
        if answer is None or isinstance(answer, CloseConnection):
            return answer and str(answer)
        parts = route.encode(answer)
        return ANSWER_FLEXIBLE.pack(sum(map(len, parts)) + 5, CORRELATION, 0) + b"".join(parts)

    def all(self) -> list[Partition]:
        return [partition for rows in self.partitions.values() for partition in rows.values()]

    def state(self) -> object:
        """All that a request may have changed, in memory and on disk."""
        return [_state_of(each) for each in self.all()], self.wakes, self.notes, self._kept()

    def _kept(self) -> list[tuple[str, bytes]]:
        found = []
        for directory, _, names in sorted(os.walk(self.folder)):
            for name in sorted(names):
                with open(f"{directory}/{name}", "rb") as file:
                    found.append((f"{directory.removeprefix(self.folder)}/{name}", file.read()))
        return found


def _verified(*asked: Any, done: Callable[[Any], None], **more: Any) -> Pending:
    """Every partition is in its transaction."""
    done({})
    return Pending(lambda: None)


def _missing(name: str, index: int) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name}-{index}")


def _state_of(partition: Partition) -> object:
    log = partition.log
    segment = log.tail.active
    kept = b""
    with suppress(KafkaError):
        kept = contents(log)
    return (
        kept, log.log_end_offset, log.log_start_offset, log.epochs.entries(), log.epochs.dirty,
        log.tail.recent and log.tail.recent.rows(),
        log.tail.wall_ms, log.tail.is_noted, log.progress.unsynced_since_ms,
        [each.base_offset for each in log.ranges.segments],
        [
            (number, entry.epoch, entry.timestamp, entry.coordinator_epoch, entry.transaction_start, entry.batches)
            for number, entry in log.producers.items()
        ],
        [getattr(segment, name) for name in SEGMENT_FIELDS], segment.offsets.encode(), segment.times.encode(),
        log.size_bytes, partition.high_watermark, partition.state, str(partition.reason), log.failure is None,
        [getattr(partition.traffic, name) for name in TRAFFIC],
    )  # fmt: skip


def fill_up(world: World, number: int, code: int = errno.ENOSPC) -> None:
    """The disk refuses the n-th append from now."""
    appends = 0

    def trap(kind: str, path: str) -> None:
        nonlocal appends
        appends += kind == "append"
        if kind == "append" and appends == number:
            raise OSError(code, os.strerror(code), path)

    world.files.trap = trap


# --- Requests ---------------------------------------------------------------------------------------------------------


@st.composite
def batches(draw, wrong: str | None, log: Log | None, now_ms: int, in_transaction: bool) -> bytes:
    """A batch that can be, but for the one field that may have any value; mostly the next of a known producer.

    in_transaction: it may be transactional.
    """

    def field(name, value, others):
        return draw(others) if name == wrong else value

    extremes = st.sampled_from(
        [-(2**63), -2, -1, 0, 1, now_ms - 2 * HOUR_MS, now_ms + HOUR_MS, now_ms + HOUR_MS + 1, MAX_INT64 - 1, MAX_INT64]
    )
    count = draw(st.integers(1, 4))
    body = draw(st.binary(max_size=60)) + bytes(draw(st.sampled_from([0, 0, 300])))
    size = HEADER_SIZE + len(body)
    kind = draw(st.sampled_from(["none"] * 5 + ["next"] * 4 + ["any"]))
    known = {} if log is None else {number: each for number, each in log.producers.items() if each.last_sequence >= 0}
    producer_id = epoch = sequence = -1
    if kind == "next" and known:
        producer_id = draw(st.sampled_from(sorted(known)))
        epoch, sequence = known[producer_id].epoch, (known[producer_id].last_sequence + 1) % 2**31
        in_transaction &= known[producer_id].transaction_start >= 0 or draw(st.booleans())
    elif kind != "none":
        producer_id, epoch, sequence = draw(
            st.sampled_from([(7, 0, 0), (7, 1, 0), (7, 0, 3), (8, 0, 5), (9, 2, 2**31 - 2), (9, 2, 1)])
        )
    last_time = draw(st.sampled_from([now_ms, now_ms, -1, now_ms - 1, now_ms - 3 * HOUR_MS, now_ms + HOUR_MS]))
    fields = [
        field("base", 0, st.sampled_from([1, -1, 2**32, MAX_INT64])),
        field("length", size - 12, st.sampled_from([-1, 0, 48, 49, size - 13, size - 11, 2**31 - 1])),
        draw(st.integers(-1, 3)),
        field("magic", 2, st.sampled_from([-1, 0, 1, 3])),
        0,
        field(
            "attributes",
            draw(st.integers(0, 4)) | in_transaction * TRANSACTIONAL,
            st.one_of(st.integers(5, 63), st.integers(-(2**15), 2**15 - 1)),
        ),
        -1 if wrong == "nothing" else field("delta", count - 1, st.integers(-2, 5)),
        field("first_time", last_time, extremes),
        field("last_time", last_time, extremes),
        producer_id,
        field("epoch", epoch, st.integers(-2, 3)),
        field("sequence", sequence, st.one_of(st.integers(-2, 8), st.sampled_from([2**31 - 1, -(2**31)]))),
        0 if wrong == "nothing" else field("count", count, st.integers(-1, 5)),
    ]
    checked = HEADER.pack(*fields)[21:] + body
    fields[4] = field("crc", crc32c(checked), st.sampled_from([0, crc32c(checked) ^ 1]))
    return HEADER.pack(*fields)[:21] + checked


def encoded(version: int, topics: list[TopicProduceData], acks: int = -1, transactional_id: str | None = None) -> bytes:
    request = Request(transactional_id=transactional_id, acks=acks, timeout_ms=1000, topic_data=topics)
    return b"".join(bytes(part) for part in APIS[0].request.encoder(version)(request))


def body_of(version: int, *rows: tuple[str, int, bytes], acks: int = -1, transactional_id: str | None = None) -> bytes:
    """A request, of (topic, partition, batch)."""
    topics: dict[str, list[PartitionProduceData]] = {}
    for name, index, records in rows:
        topics.setdefault(name, []).append(PartitionProduceData(index=index, records=records))
    given = [TopicProduceData(name=name, topic_id=id_of(name), partition_data=data) for name, data in topics.items()]
    return encoded(version, given, acks, transactional_id)


@st.composite
def requests(draw, version: int, wrong: str | None, world: World) -> bytes:
    """The body of a request, in which at most one thing is wrong."""
    topics = []
    in_transaction = not draw(st.integers(0, 2))
    known = [name for name in TOPICS if name != INTERNAL]
    unusual = draw(st.integers(0, 7)) == 0
    names = draw(
        st.lists(st.sampled_from([*TOPICS, "none"] if unusual else known), min_size=1, max_size=3, unique=not unusual)
    )
    for name in names:
        indexes = st.integers(0, 3 if unusual else TOPICS[name] - 1)
        rows = []
        for index in draw(st.lists(indexes, min_size=1, max_size=2, unique=not unusual)):
            partition = world.partitions.get(name, {}).get(index)
            log = None if partition is None else partition.log
            given = draw(batches(wrong if not draw(st.integers(0, 1)) else None, log, world.now_ms, in_transaction))
            rows.append(PartitionProduceData(index=index, records=given))
        topic_id = id_of(name) if name in TOPICS else bytes(16)
        topics.append(TopicProduceData(name=name, topic_id=topic_id, partition_data=rows))
    return encoded(
        version,
        topics,
        draw(st.sampled_from([-1, 1, 0, 2] if unusual else [-1, 1])),
        draw(st.sampled_from([None, "", "x"])) if unusual else ("x" if in_transaction else None),
    )
