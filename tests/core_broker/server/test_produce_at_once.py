"""The short way of a Produce request answers, and leaves everything, as the long way does: all is compared."""

from __future__ import annotations

import dataclasses
import errno
import os
import tempfile
from contextlib import suppress
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from isthmus.core_broker.config import BrokerConfig, topic_config
from isthmus.core_broker.replication.states import Event, State
from isthmus.core_broker.server._produce import COMPILED
from isthmus.core_broker.server.dispatch import Routes
from isthmus.core_broker.storage.disk.errors import TornWrite
from isthmus.core_broker.storage.log._batch_check import reasons_of
from isthmus.core_broker.storage.log.batch_reasons import OF_CLIENTS, PLAIN
from isthmus.core_broker.storage.log.log import Log
from isthmus.core_broker.storage.log.log_config import LogConfig
from isthmus.core_broker.storage.startup.opening import open_log
from isthmus.protocol.batch_layout import TRANSACTIONAL
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.messages.produce import PartitionProduceData, TopicProduceData

from ..storage.log.odd_batches import batches, known_producers
from ..storage.support import NOW_MS, FilesAtOnce, batch, contents, drive, files_may_have, place
from .produce_worlds import (
    BEYOND,
    CORRELATION,
    FIELDS,
    FIRST,
    HEAD,
    HOUR_MS,
    INTERNAL,
    MAX_INT64,
    SEGMENT_FIELDS,
    World,
    body_of,
    encoded,
    fill_up,
    id_of,
    requests,
)

LIMITS = st.sampled_from(
    [
        {},
        {},
        {"max_message_bytes": 100},
        {"segment_bytes": 500},
        {"segment_ms": HOUR_MS},
        {"segment_index_bytes": 1024 + 24, "index_interval_bytes": 100},
        {"index_interval_bytes": 0},
        {"message_timestamp_after_max_ms": MAX_INT64},
        {"message_timestamp_after_max_ms": 0},
    ]
)
OPTIONS = st.sampled_from([*[{}] * 8, {"min.insync.replicas": "2"}, {"mirror.link": "a"}])
OTHER_WAYS = [
    {"cleanup_policy": "compact"},
    {"message_timestamp_type": "LogAppendTime"},
    {"message_timestamp_before_max_ms": HOUR_MS},
    {"compression_type": "lz4"},
]

pytestmark = pytest.mark.skipif(not COMPILED, reason="plain Python has the long way only")


def later(world: World, ms: int) -> None:
    world.now_ms += ms


def lead_anew(world: World) -> None:
    for each in world.all():
        each.begin_epoch(each.leader_epoch + 1)


def no_mirror_any_more(world: World) -> None:
    """A topic that a mirror has owned begins with an epoch that its log does not know."""
    for each in world.all():
        each.core.leader_epoch += 1


def forget_producers(world: World) -> None:
    for each in world.all():
        each.log.producers.expire(world.now_ms, 0)


def sync(world: World) -> None:
    for each in world.all():
        if each.log.failure is None:
            drive(each.log.sync())


def end_transactions(world: World) -> None:
    for each in world.all():
        for number, entry in list(each.log.producers.items()):
            if entry.transaction_start >= 0 and each.failure is None and not each.mirror_link:
                with suppress(KafkaError):
                    each.write_marker(number, entry.epoch, False, 0, 0, world.now_ms)


def refuse(world: World) -> None:
    partition = world.partitions["t"][1]
    if partition.failure is None:
        partition.enter(Event.APPEND_REFUSED, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "there was no space"))


def close(world: World) -> None:
    world.partitions["t"][2].close(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "it has gone"))


EVENTS = st.sampled_from(
    [
        *[lambda world: None] * 16,
        lambda world: later(world, 1),
        lambda world: later(world, 2 * HOUR_MS),
        lead_anew,
        no_mirror_any_more,
        forget_producers,
        end_transactions,
        sync,
        refuse,
        close,
    ]
)


@pytest.mark.parametrize("wrong", [None, *FIELDS])
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_both_ways_end_alike(wrong, data):
    config = LogConfig(**data.draw(LIMITS))
    options = data.draw(OPTIONS)
    few_open = data.draw(st.sampled_from([0, 0, 1, 100]))  # files, and none that can be made to refuse
    full_at = 0 if few_open else data.draw(st.sampled_from([0, 0, 0, 1, 2, 4]))  # the disk refuses this append
    code = data.draw(st.sampled_from([errno.ENOSPC, errno.EIO]))
    start = data.draw(st.sampled_from([*[0] * 10, MAX_INT64 - 2**32 - 3, MAX_INT64 - 5]))
    with tempfile.TemporaryDirectory() as folder:
        short, long = (
            World(
                f"{folder}/{way}", config, options, log_start_offset=start, files=few_open and FilesAtOnce(1, few_open)
            )
            for way in ("short", "other")
        )
        for world in (short, long):
            if full_at:
                fill_up(world, full_at, code)
        for _ in range(data.draw(st.integers(1, 7))):
            event = data.draw(EVENTS)
            event(short)
            event(long)
            version = data.draw(st.integers(9, 13))
            body = data.draw(requests(version, wrong, short))
            if not data.draw(st.integers(0, 9)):
                at = data.draw(st.integers(0, len(body) - 1))
                head = body[:at]
                torn = [head, body + b"\0", head + b"\xff" + body[at + 1 :], head + b"\1" + body[at:]]
                body = data.draw(st.sampled_from(torn))
            found = short.ask(version, body, may_be_short=True), short.state()
            expected = long.ask(version, body, may_be_short=False), long.state()
            assert repr(found).replace("/short/", "/other/") == repr(expected)
        for partition in short.all():
            _check_recovery(partition.log, config)


def _check_recovery(log: Log, config: LogConfig) -> None:
    """Who opens it after a kill knows what was known before, and of producers that had expired some more."""
    found = drive(open_log(log.files, log.directory, config, wall_ms=NOW_MS, log_start_offset=log.log_start_offset))
    assert found.log_end_offset == log.log_end_offset
    for number, entry in log.producers.items():
        after = found.producers.get(number)
        assert (after.epoch, after.batches[-len(entry.batches) :]) == (entry.epoch, entry.batches)
    for name in SEGMENT_FIELDS:
        if name != "created_ms":
            assert getattr(found.tail.active, name) == getattr(log.tail.active, name), name
    for kept, before in (
        (found.tail.active.offsets, log.tail.active.offsets),
        (found.tail.active.times, log.tail.active.times),
    ):
        assert not kept.is_whole or kept.encode() == before.encode()


# --- What goes the short way ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(9, 14))
def test_control_what_is_plain_goes_the_short_way(version, tmp_path):
    world = World(str(tmp_path), LogConfig(), {})
    first = FIRST | {"base_sequence": 0}
    world.ask(version, body_of(version, ("t", 0, batch(3, **first)), ("u", 0, batch(2))), may_be_short=True)
    assert world.short == 0  # the first batch of a producer
    then = FIRST | {"base_sequence": 3}
    world.ask(
        version, body_of(version, ("t", 0, batch(3, **then)), ("u", 0, batch(2)), ("t", 2, batch(1))), may_be_short=True
    )
    assert world.short == 1
    assert world.partitions["t"][0].high_watermark == 6


def test_a_transaction_that_is_open_in_its_partitions_logs_goes_the_short_way(tmp_path):
    world = World(str(tmp_path), LogConfig(), {})

    def send(sequence: int, *places: tuple[str, int], **other: int) -> int:
        fields = FIRST | {"base_sequence": sequence} | other
        rows = [(*place, batch(2, transactional=True, **fields)) for place in places]
        world.ask(12, body_of(12, *rows, transactional_id="x"), may_be_short=True)
        return world.short

    assert send(0, ("t", 0), ("u", 0)) == 0
    assert send(2, ("t", 0), ("u", 0)) == 1
    assert send(0, ("t", 1)) == 1  # the transaction begins there
    assert send(4, ("t", 0), producer_epoch=1) == 1  # a newer epoch's would be another one
    world.partitions["t"][0].write_marker(7, 0, True, 0, 0, world.now_ms)
    assert send(4, ("t", 0)) == 1
    assert send(6, ("t", 0)) == 2


def test_the_batches_of_a_transaction_are_of_one_producer_on_the_short_way_too(tmp_path):
    world = World(str(tmp_path), LogConfig(), {})
    for number, sequence in ((7, 0), (8, 0), (7, 2)):
        fields = FIRST | {"producer_id": number, "base_sequence": sequence}
        world.ask(
            12,
            body_of(12, ("t", number - 7, batch(2, transactional=True, **fields)), transactional_id="x"),
            may_be_short=True,
        )
    assert world.short == 1
    rows = [
        ("t", at, batch(2, transactional=True, **(FIRST | {"producer_id": 7 + at, "base_sequence": 4 - 2 * at})))
        for at in (0, 1)
    ]
    assert not goes_the_short_way(world, 12, body_of(12, *rows, transactional_id="x"))


# --- What does not ----------------------------------------------------------------------------------------------------


def goes_the_short_way(world: World, version: int, body: bytes) -> bool:
    frame = memoryview(bytearray(HEAD + body + BEYOND))[: len(HEAD) + len(body)]
    world.context.version = version
    return world.routes[version].answer_at_once(frame, len(HEAD), CORRELATION, world.context) is not None


@pytest.mark.parametrize("change", OTHER_WAYS)
def test_what_must_be_changed_or_looked_into_never_goes_the_short_way(change, tmp_path):
    world = World(str(tmp_path), LogConfig(**change), {})
    assert not goes_the_short_way(world, 12, body_of(12, ("t", 0, batch(1))))
    assert not dataclasses.replace(LogConfig(), **change).keeps_batches


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    batches(),
    st.sampled_from([{}, {}, {"max_message_bytes": 100}, {"segment_bytes": 100}]),
    st.booleans(),
    st.sampled_from([None, "x"]),
)
def test_a_batch_goes_the_short_way_if_the_one_check_finds_nothing(made, limits, is_followed, transactional_id):
    data, header = made[0] + bytes(is_followed), made[1]
    is_plain = not header.attributes & TRANSACTIONAL or (transactional_id is not None and header.producer_id >= 0)
    with tempfile.TemporaryDirectory() as folder:
        world = World(folder, LogConfig(**limits), {}, {"u": 1})
        tail = world.partitions["u"][0].log.tail
        tail.producers = known_producers()
        reasons = reasons_of(
            memoryview(data), 0, OF_CLIENTS, tail.config.limits, tail.producers, tail.log_end_offset, world.now_ms
        )
        body = body_of(12, ("u", 0, data), transactional_id=transactional_id)
        assert goes_the_short_way(world, 12, body) is (reasons == PLAIN and is_plain)


AGAINST_IT = {
    "it has failed": lambda each: each.enter(Event.LOG_FAILED, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "broken")),
    "it is closed": lambda each: each.close(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "deleted")),
    "it is full": lambda each: each.enter(Event.APPEND_REFUSED, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "full")),
    "a mirror owns it": lambda each: each.configure(topic_config({"mirror.link": "a"}, BrokerConfig())),
    "others wait in line": lambda each: setattr(each, "line", SimpleNamespace()),
    "nobody is in sync": lambda each: each.place(1, [1], []),
    "too few are in sync": lambda each: (
        each.configure(topic_config({"min.insync.replicas": "2"}, BrokerConfig())),
        each.place(1, [1, 2], [1]),
    ),
}


@pytest.mark.parametrize("name", AGAINST_IT)
def test_what_a_partition_has_against_it(name, tmp_path):
    world = World(str(tmp_path), LogConfig(), {})
    body = body_of(12, ("u", 0, batch(1)), ("t", 1, batch(1)))
    assert goes_the_short_way(world, 12, body)
    AGAINST_IT[name](world.partitions["t"][1])
    assert not goes_the_short_way(world, 12, body)
    assert world.partitions["u"][0].log.log_end_offset == 1  # all is looked at before anything is written


def test_too_few_in_sync_are_enough_for_acks_of_the_leader(tmp_path):
    world = World(str(tmp_path), LogConfig(), {"min.insync.replicas": "2"})
    assert not goes_the_short_way(world, 12, body_of(12, ("u", 0, batch(1)), acks=-1))
    assert goes_the_short_way(world, 12, body_of(12, ("u", 0, batch(1)), acks=1))


def test_what_a_request_has_against_it(tmp_path):
    world = World(str(tmp_path), LogConfig(), {})

    def topic(*records: bytes | None) -> TopicProduceData:
        data = [PartitionProduceData(index=0, records=each) for each in records]
        return TopicProduceData(name="u", topic_id=id_of("u"), partition_data=data)

    row, both, none = topic(batch(1)), topic(batch(1), batch(1)), topic(None)
    for version in (12, 13):
        good = encoded(version, [row])
        wrong = [
            encoded(version, [row, row]),
            encoded(version, [both]),
            encoded(version, [none]),
            encoded(version, []),
            encoded(version, [row], 0),
            encoded(version, [row], 2),
            b"\2\xff" + good[1:],  # a transactional id that is no text
            b"\x7f" + good[1:],  # one that does not end
            good + b"\0",
            body_of(version, (INTERNAL, 0, batch(1))),
            body_of(version, ("none", 0, batch(1))),
            body_of(version, ("u", 1, batch(1))),
            body_of(version, ("u", 0, batch(1) + batch(1))),
            *(
                good[:-place] + tagged + good[len(good) - place + 1 :]
                for place in (1, 2, 3)
                for tagged in (b"\1\0\0", b"\1")  # one, and the number of them alone
            ),
            good.replace(b"\2" + bytes(4), b"\x82\0" + bytes(4), 1),  # a count with a byte more than it needs
            *(good[:length] for length in range(len(good))),
        ]
        assert [goes_the_short_way(world, version, body) for body in wrong] == [False] * len(wrong)
        assert goes_the_short_way(world, version, good)


@pytest.mark.parametrize("version", range(3, 9))
def test_versions_before_the_flexible_ones_have_the_long_way_only(version):
    assert Routes()[version].answer_at_once is None


# --- What goes wrong in the middle ------------------------------------------------------------------------------------


def test_a_disk_that_is_full_is_told_in_its_partitions_row_alone(tmp_path):
    world = World(str(tmp_path), LogConfig(), {})
    fill_up(world, 2)
    world.ask(11, body_of(11, ("t", 0, batch(1)), ("t", 1, batch(1)), ("t", 2, batch(1))), may_be_short=True)
    assert world.short == 1
    assert [each.high_watermark for each in world.partitions["t"].values()] == [1, 0, 1]
    refusing = world.partitions["t"][1]
    assert refusing.state is State.READ_ONLY and "No space left" in refusing.reason.message


@pytest.mark.parametrize("room_bytes", [0, 5, 16, 40, 129])  # within the first batch, and none of it
def test_a_file_that_may_not_grow_is_cut_back(room_bytes, tmp_path):
    world = World(str(tmp_path), LogConfig(), {}, files=FilesAtOnce(1))
    log = world.partitions["t"][0].log
    world.ask(11, body_of(11, ("t", 0, batch(1))), may_be_short=True)
    before = contents(log)
    with files_may_have(len(before) + room_bytes):
        answer = world.ask(11, body_of(11, ("t", 0, batch(20))), may_be_short=True)
    assert world.short == 2
    assert b"File too large" in answer and log.failure is not None  # it is none of the faults that pass
    assert os.path.getsize(log.tail.active.file.path) == len(before)
    found = drive(open_log(world.files, log.directory, LogConfig(), wall_ms=NOW_MS))
    assert (contents(found), found.log_end_offset) == (before, 1)


def torn(world: World) -> None:
    def trap(kind: str, path: str) -> None:
        if kind == "append" and "/t-1/" in place(path):
            raise TornWrite(errno.EIO, "Input/output error, and again on cutting it back", path)

    world.files.trap = trap


def no_new_files(world: World) -> None:
    def trap(kind: str, path: str) -> None:
        if kind == "open" and "/t-1/" in place(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    world.files.trap = trap


def woken_by_the_first(world: World, then) -> None:
    world.partitions["t"][0].wait_for_data(lambda: then(world.partitions["t"][1]))


def reading_fails(world: World) -> None:
    woken_by_the_first(world, lambda partition: partition.log.status.unreadable(OSError(errno.EIO, "broken")))


def closing(world: World) -> None:
    woken_by_the_first(
        world, lambda partition: partition.close(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "it was closed"))
    )


def letting_go(world: World) -> None:
    def leave(partition) -> None:
        drive(partition.log.leave())

    woken_by_the_first(world, leave)


@pytest.mark.parametrize("version", [12, 13])  # topics by name, and by id
@pytest.mark.parametrize("trouble", [torn, no_new_files, reading_fails, closing, letting_go])
def test_what_happens_between_two_appends_of_a_request(trouble, version, tmp_path):
    row = ("t", 1, batch(2, size=100))
    worlds = []
    for way in ("short", "other"):
        world = World(f"{tmp_path}/{way}", LogConfig(segment_bytes=400), {})
        world.ask(version, body_of(version, row), may_be_short=False)
        trouble(world)
        body = body_of(version, ("t", 0, batch(1)), row, ("t", 2, batch(1)))
        answer = world.ask(version, body, may_be_short=way == "short")
        partitions = world.partitions["t"].values()
        counts = [(each.traffic.appends, each.traffic.failed_appends) for each in partitions]
        ends = [each.log.log_end_offset for each in partitions]
        worlds.append((str(answer).replace(f"/{way}/", ""), counts, ends, world.wakes, world.short))
    assert worlds[0][:-1] == worlds[1][:-1]
    assert (worlds[0][2], worlds[0][-1], worlds[1][-1]) == ([1, 2, 1], 1, 0)


def test_a_producer_that_is_forgotten_in_the_middle_leaves_the_log_as_it_was(tmp_path):
    world = World(str(tmp_path), LogConfig(), {})
    rows = ("t", 0, batch(1)), ("t", 1, batch(1, **FIRST, base_sequence=0))
    world.ask(12, body_of(12, *rows), may_be_short=True)
    woken_by_the_first(world, lambda partition: partition.log.producers.clear())
    rows = ("t", 0, batch(1)), ("t", 1, batch(1, **FIRST, base_sequence=1))
    with pytest.raises(KeyError):
        world.ask(12, body_of(12, *rows), may_be_short=True)
    log = world.partitions["t"][1].log
    assert (log.log_end_offset, log.size_bytes) == (1, len(batch(1, **FIRST, base_sequence=0)))
