"""The short way of a Produce request answers, and leaves everything, as the long way does: all is compared."""

from __future__ import annotations

import dataclasses
import errno
import struct
import tempfile
from contextlib import suppress
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from isthmus.core_broker.config import BrokerConfig, topic_config
from isthmus.core_broker.replication import traffic
from isthmus.core_broker.replication.partition import Partition
from isthmus.core_broker.server._produce import COMPILED
from isthmus.core_broker.server.connection import ANSWER_FLEXIBLE
from isthmus.core_broker.server.context import CloseConnection, Context
from isthmus.core_broker.server.dispatch import Routes
from isthmus.core_broker.storage.config import LogConfig
from isthmus.core_broker.storage.log import Log
from isthmus.core_broker.storage.segment import HEADER, HEADER_SIZE
from isthmus.protocol.crc import crc32c
from isthmus.protocol.errors import ErrorCode, KafkaError, ProtocolError
from isthmus.protocol.messages import APIS
from isthmus.protocol.messages.produce import PartitionProduceData, Request, TopicProduceData

from ..storage.support import NOW_MS, BrokenFiles, batch, contents, drive

HOUR_MS = 60 * 60 * 1000
MAX_INT64 = 2**63 - 1
IDS = {"t": b"t" * 16, "u": b"u" * 16, "__consumer_offsets": b"o" * 16}
TOPICS = {"t": 3, "u": 1, "__consumer_offsets": 1}
FIELDS = "base length magic crc attributes delta first_time last_time epoch sequence count nothing".split()
EXTREMES = st.sampled_from(
    [-(2**63), -2, -1, 0, 1, NOW_MS - 2 * HOUR_MS, NOW_MS + HOUR_MS, NOW_MS + HOUR_MS + 1, MAX_INT64]
)
SEGMENT_FIELDS = (
    "base_offset created_ms last_offset max_timestamp max_timestamp_offset first_timestamp bytes_since_index".split()
)
pytestmark = pytest.mark.skipif(not COMPILED, reason="plain Python has the long way only")


class World:
    """Three partitions of t, one of u and one that is the broker's own, on files of their own."""

    def __init__(self, folder: str, config: LogConfig, options: dict[str, str]) -> None:
        self.files = BrokenFiles()
        self.partitions: dict[str, dict[int, Partition]] = {}
        self.routes = Routes()
        parsed = topic_config(options, BrokerConfig())
        for topic, count in TOPICS.items():
            for index in range(count):
                log = drive(Log.open(self.files, f"{folder}/{topic}-{index}", config, wall_ms=NOW_MS))
                partition = Partition(topic, IDS[topic], index, log)
                partition.configure(parsed)
                partition.place([1], [1])
                partition.become_leader(4)
                self.partitions.setdefault(topic, {})[index] = partition
        names = {topic_id: SimpleNamespace(name=name) for name, topic_id in IDS.items()}
        services = SimpleNamespace(
            replicas=SimpleNamespace(partitions=self.partitions, why_missing=_missing),
            runtime=SimpleNamespace(wall_ms=lambda: NOW_MS),
            image=SimpleNamespace(topic_by_id=names.get),
            preparing=SimpleNamespace(begin=lambda partition, records: None),
        )
        self.context = Context(services, "PLAINTEXT", "10.0.0.9")  # type: ignore[arg-type]
        self.short = 0  # requests that went the short way

    def ask(self, version: int, body: bytes, *, may_be_short: bool) -> object:
        """The answer's bytes, or by what the connection ends."""
        route = self.routes[version]
        self.context.version = version
        frame = memoryview(bytearray(b"head" + body))
        answer = None
        if may_be_short:
            answer = route.answer_at_once(frame, 4, 77, self.context)
            self.short += answer is not None
            if type(answer) is bytes:
                return answer
        try:
            if answer is None:
                answer = route.handle(route.decode(frame, 4)[0], self.context)
        except (ProtocolError, CloseConnection, struct.error) as error:
            return str(error)
        if answer is None:
            return None
        parts = route.encode(answer)
        return ANSWER_FLEXIBLE.pack(sum(map(len, parts)) + 5, 77, 0) + b"".join(parts)

    def state(self) -> object:
        return [_state_of(partition) for rows in self.partitions.values() for partition in rows.values()]


def _missing(name: str, index: int) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name}-{index}")


def _state_of(partition: Partition) -> object:
    log = partition.log
    segment = log._active
    with suppress(KafkaError):
        kept = contents(log)
    return (
        kept, log.log_end_offset, log.log_start_offset, log.epochs.entries(), log._positions, log._wall_ms,
        log.is_noted,
        [(number, entry.epoch, entry.timestamp, entry.batches) for number, entry in log.producers.items()],
        [getattr(segment, name) for name in SEGMENT_FIELDS], segment.offsets.encode(), segment.times.last,
        log.size_bytes, partition.high_watermark, partition.refusal, log.failure is None,
        [getattr(partition.traffic, name) for name in traffic.NAMES],
    )  # fmt: skip


@st.composite
def batches(draw, wrong: str | None) -> bytes:
    """A batch that can be, but for the one field that may have any value."""

    def field(name, value, others):
        return draw(others) if name == wrong else value

    count = draw(st.integers(1, 4))
    body = draw(st.binary(max_size=60)) + bytes(draw(st.sampled_from([0, 0, 300])))
    size = HEADER_SIZE + len(body)
    producer_id, sequence = draw(st.sampled_from([(-1, -1), (-1, -1), (7, 0), (7, 3), (7, 6), (8, 0), (8, 5)]))
    fields = [
        field("base", 0, st.sampled_from([1, -1, MAX_INT64])),
        field("length", size - 12, st.sampled_from([-1, 0, 48, 49, size - 13, size - 11, 2**31 - 1])),
        draw(st.integers(-1, 3)),
        field("magic", 2, st.sampled_from([-1, 0, 1, 3])),
        0,
        field("attributes", draw(st.integers(0, 4)), st.one_of(st.integers(5, 63), st.integers(-(2**15), 2**15 - 1))),
        -1 if wrong == "nothing" else field("delta", count - 1, st.integers(-2, 5)),
        field("first_time", NOW_MS, EXTREMES),
        field("last_time", NOW_MS, EXTREMES),
        producer_id,
        field("epoch", 0, st.integers(-2, 2)),
        field("sequence", sequence, st.integers(-2, 8)),
        0 if wrong == "nothing" else field("count", count, st.integers(-1, 5)),
    ]
    checked = HEADER.pack(*fields)[21:] + body
    fields[4] = field("crc", crc32c(checked), st.just(0))
    return HEADER.pack(*fields)[:21] + checked


@st.composite
def requests(draw, version: int, wrong: str | None) -> bytes:
    """The body of a request, in which at most one thing is wrong."""
    topics = []
    known = [name for name in TOPICS if name != "__consumer_offsets"]
    unusual = draw(st.integers(0, 7)) == 0
    names = draw(
        st.lists(st.sampled_from([*TOPICS, "none"] if unusual else known), min_size=1, max_size=3, unique=not unusual)
    )
    for name in names:
        indexes = st.integers(0, 3 if unusual else TOPICS[name] - 1)
        rows = [
            PartitionProduceData(index=index, records=draw(batches(wrong if not draw(st.integers(0, 1)) else None)))
            for index in draw(st.lists(indexes, min_size=1, max_size=3, unique=not unusual))
        ]
        topics.append(TopicProduceData(name=name, topic_id=IDS.get(name, bytes(16)), partition_data=rows))
    request = Request(
        transactional_id=draw(st.sampled_from([None, "x"])) if unusual else None,
        acks=draw(st.sampled_from([-1, 1, 0, 2] if unusual else [-1, 1])),
        timeout_ms=1000,
        topic_data=topics,
    )
    return b"".join(bytes(part) for part in APIS[0].request.encoder(version)(request))


LIMITS = st.sampled_from(
    [
        {},
        {},
        {"max_message_bytes": 100},
        {"segment_bytes": 500},
        {"segment_ms": HOUR_MS},
        {"segment_jitter_ms": 5},
        {"segment_index_bytes": 24, "index_interval_bytes": 100},
    ]
)
OPTIONS = st.sampled_from([{}, {}, {}, {"min.insync.replicas": "2"}, {"mirror.link": "a"}])
OTHER_WAYS = [{"cleanup_policy": "compact"}, {"message_timestamp_type": "LogAppendTime"}, {"compression_type": "lz4"}]


@pytest.mark.parametrize("wrong", [None, *FIELDS])
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_both_ways_end_alike(wrong, data):
    config = LogConfig(**data.draw(LIMITS))
    options = data.draw(OPTIONS)
    full_at = data.draw(st.sampled_from([0, 0, 0, 1, 2, 4]))  # the disk is full at this append
    with tempfile.TemporaryDirectory() as folder:
        short, long = (World(f"{folder}/{way}", config, options) for way in ("short", "other"))
        for world in (short, long):
            _fill_up(world.files, full_at)
        for _ in range(data.draw(st.integers(1, 5))):
            version = data.draw(st.integers(9, 13))
            body = data.draw(requests(version, wrong))
            if not data.draw(st.integers(0, 5)):
                at = data.draw(st.integers(0, len(body) - 1))
                head = body[:at]
                torn = [head, body + b"\0", head + b"\xff" + body[at + 1 :], head + b"\1" + body[at:]]
                body = data.draw(st.sampled_from(torn))
            found = short.ask(version, body, may_be_short=True), short.state()
            expected = long.ask(version, body, may_be_short=False), long.state()
            assert repr(found).replace("/short/", "/other/") == repr(expected)


def _fill_up(files: BrokenFiles, number: int) -> None:
    appends = 0

    def trap(kind: str, path: str) -> None:
        nonlocal appends
        appends += kind == "append"
        if kind == "append" and appends == number:
            raise OSError(errno.ENOSPC, "No space left on device", path)

    files.trap = trap


def body_of(version: int, *rows: tuple[str, int, bytes]) -> bytes:
    topics: dict[str, list[PartitionProduceData]] = {}
    for name, index, records in rows:
        topics.setdefault(name, []).append(PartitionProduceData(index=index, records=records))
    request = Request(
        transactional_id=None,
        acks=-1,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(name=name, topic_id=IDS[name], partition_data=data) for name, data in topics.items()
        ],
    )
    return b"".join(bytes(part) for part in APIS[0].request.encoder(version)(request))


@pytest.mark.parametrize("version", range(9, 14))
def test_control_what_is_plain_goes_the_short_way(version, tmp_path):
    world = World(str(tmp_path), LogConfig(), {})
    first = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    world.ask(version, body_of(version, ("t", 0, batch(3, **first)), ("u", 0, batch(2))), may_be_short=True)
    assert world.short == 0  # the first batch of a producer
    then = first | {"base_sequence": 3}
    world.ask(
        version, body_of(version, ("t", 0, batch(3, **then)), ("u", 0, batch(2)), ("t", 2, batch(1))), may_be_short=True
    )
    assert world.short == 1
    assert world.partitions["t"][0].high_watermark == 6


@pytest.mark.parametrize("change", OTHER_WAYS)
def test_what_must_be_changed_or_looked_into_never_goes_the_short_way(change, tmp_path):
    world = World(str(tmp_path), LogConfig(**change), {})
    world.ask(12, body_of(12, ("t", 0, batch(1))), may_be_short=True)
    assert world.short == 0
    assert not dataclasses.replace(LogConfig(), **change).keeps_batches


@pytest.mark.parametrize("version", range(3, 9))
def test_versions_before_the_flexible_ones_have_the_long_way_only(version):
    assert Routes()[version].answer_at_once is None


def test_a_disk_that_is_full_is_told_in_its_partitions_row_alone(tmp_path):
    world = World(str(tmp_path), LogConfig(), {})
    _fill_up(world.files, 2)
    world.ask(11, body_of(11, ("t", 0, batch(1)), ("t", 1, batch(1)), ("t", 2, batch(1))), may_be_short=True)
    assert world.short == 1
    assert [each.high_watermark for each in world.partitions["t"].values()] == [1, 0, 1]
    assert "No space left" in world.partitions["t"][1].refusal
