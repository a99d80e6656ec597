"""The limits up to which a Produce request goes the short way, and that both ways have the same ones."""

from __future__ import annotations

import shutil

import pytest

from isthmus.core_broker.server._produce import COMPILED
from isthmus.core_broker.storage.log.log_config import LogConfig
from isthmus.protocol.crc import crc32c

from ..storage.support import NOW_MS, batch
from .produce_worlds import FIRST, MAX_INT64, World, body_of

pytestmark = pytest.mark.skipif(not COMPILED, reason="plain Python has the long way only")


def ask_both(tmp_path, version: int, bodies: list[bytes], change=lambda world: None, **given: object) -> World:
    """The world that went the short way where it could; the one that did not must be the same."""
    config = given.pop("config", LogConfig())
    short, long = (World(f"{tmp_path}/{way}", config, {}, **given) for way in ("short", "other"))
    for world in (short, long):
        change(world)
    for body in bodies:
        found = short.ask(version, body, may_be_short=True), short.state()
        expected = long.ask(version, body, may_be_short=False), long.state()
        assert repr(found).replace("/short/", "/other/") == repr(expected)
    return short


def with_fields(fields: dict[int, bytes]) -> bytes:
    """A batch with other bytes at some positions, under a CRC that is right."""
    data = bytearray(batch(1))
    for at, value in fields.items():
        data[at : at + len(value)] = value
    data[17:21] = crc32c(data[21:]).to_bytes(4, "big")
    return bytes(data)


def of_many(count: int) -> bytes:
    """A batch that claims so many records; nobody looks."""
    return with_fields({23: (count - 1).to_bytes(4, "big", signed=True), 57: count.to_bytes(4, "big")})


ONE = len(batch(1))
AT_LIMITS = {
    "size": ({"max_message_bytes": len(batch(2))}, {}),
    "segment": ({"segment_bytes": len(batch(2))}, {}),
    "time": ({"message_timestamp_after_max_ms": 1}, {}),  # the second record is a millisecond later
    "no time limit": ({"message_timestamp_after_max_ms": MAX_INT64}, {"timestamp": MAX_INT64 - 1}),
    "codec": ({}, {"codec": "zstd"}),
    "jitter": ({"segment_jitter_ms": 5}, {}),
    "epoch of no producer": ({}, {"producer_epoch": -1}),
}


@pytest.mark.parametrize("limits,header", AT_LIMITS.values(), ids=AT_LIMITS)
def test_what_is_just_allowed_goes_the_short_way(limits, header, tmp_path):
    body = body_of(13, ("t", 1, batch(2, **header)))
    assert ask_both(tmp_path, 13, [body, body], config=LogConfig(**limits)).short == 2


def test_a_log_may_be_filled_to_its_last_offset_on_the_short_way(tmp_path):
    body = body_of(13, ("t", 1, batch(2)))
    world = ask_both(tmp_path, 13, [body, body, body], log_start_offset=MAX_INT64 - 4)
    assert (world.short, world.partitions["t"][1].log.log_end_offset) == (2, MAX_INT64)


PAST_LIMITS = {
    "size": ({"max_message_bytes": ONE - 1}, batch(1), 0),
    "segment": ({"segment_bytes": ONE - 1}, batch(1), 0),
    "time": ({"message_timestamp_after_max_ms": 0}, batch(1, timestamp=NOW_MS + 1), 0),
    "no records": ({}, of_many(0), 0),
    "offsets": ({}, batch(2), MAX_INT64 - 1),
    **{f"attributes {value}": ({}, with_fields({22: bytes([value])}), 0) for value in (5, 6, 7, 8, 16, 32)},
}


@pytest.mark.parametrize("limits,given,start", PAST_LIMITS.values(), ids=PAST_LIMITS)
def test_what_is_just_not_allowed_goes_the_long_way(limits, given, start, tmp_path):
    body = body_of(13, ("t", 1, given))
    assert ask_both(tmp_path, 13, [body], config=LogConfig(**limits), log_start_offset=start).short == 0


def test_sequences_go_round_on_the_short_way(tmp_path):
    bodies = [
        body_of(12, ("t", 0, batch(2, **FIRST, base_sequence=sequence)))
        for sequence in (2**31 - 5, 2**31 - 3, 2**31 - 1, 1, 1, 5, 3)
    ]
    world = ask_both(tmp_path, 12, bodies)
    assert world.short == 4  # not the first, a repeated one, a gap
    assert world.partitions["t"][0].log.producers.get(7).last_sequence == 4


def test_the_last_five_batches_of_a_producer_are_remembered(tmp_path):
    world = World(str(tmp_path), LogConfig(), {})
    sequences = [(2**31 - 9 + 2 * number) % 2**31 for number in range(8)]
    for number, sequence in enumerate(sequences):
        world.now_ms = NOW_MS + number
        given = batch(2, timestamp=world.now_ms, **FIRST, base_sequence=sequence)
        world.ask(13, body_of(13, ("t", 1, given)), may_be_short=True)
    entry = world.partitions["t"][1].log.producers.get(7)
    assert world.short == 7
    assert entry.timestamp == NOW_MS + 7
    assert entry.batches == [
        (sequences[number], (sequences[number] + 1) % 2**31, 2 * number, 2 * number + 1, NOW_MS + number + 1)
        for number in range(3, 8)
    ]


def stamped(stamp: int, size: int = 10) -> bytes:
    return body_of(13, ("t", 1, batch(1, timestamp=stamp, size=size)))


AT_ROLLS = {  # segments' limits, requests of which the last begins a segment, and our clock at the last of them
    "bytes": ({"segment_bytes": 2 * ONE}, [stamped(NOW_MS)] * 3, []),
    "a byte less": ({"segment_bytes": 2 * ONE - 1}, [stamped(NOW_MS)] * 2, []),
    "records' time": ({"segment_ms": 10}, [stamped(NOW_MS + ms) for ms in (0, 10, 11)], []),
    "our time": ({"segment_ms": 10}, [stamped(-1)] * 3, [10, 11]),
    "our time where one has none": ({"segment_ms": 10}, [stamped(NOW_MS), stamped(-1), stamped(-1)], [10, 11]),
    "index": ({"segment_index_bytes": 144 * 8, "index_interval_bytes": 0}, [stamped(NOW_MS)] * 146, []),
    "offsets": ({}, [body_of(13, ("t", 1, of_many(2**31 - 1))), stamped(NOW_MS), stamped(NOW_MS)], []),
}


@pytest.mark.parametrize("limits,bodies,clock", AT_ROLLS.values(), ids=AT_ROLLS)
def test_a_segment_ends_where_it_does_on_the_long_way(limits, bodies, clock, tmp_path):
    short, long = (World(f"{tmp_path}/{way}", LogConfig(**limits), {}) for way in ("short", "other"))
    counts = []
    for body, ms in zip(bodies, [0] * (len(bodies) - len(clock)) + clock, strict=True):
        short.now_ms = long.now_ms = NOW_MS + ms
        found = short.ask(13, body, may_be_short=True), short.state()
        assert found == (long.ask(13, body, may_be_short=False), long.state())
        counts.append(short.partitions["t"][1].log.segments_count)
    assert counts == [1] * (len(bodies) - 1) + [2]
    assert short.short == len(bodies)


def end_mirror(world: World) -> None:
    for each in world.all():
        each.core.leader_epoch = 5


def test_an_epoch_that_the_log_does_not_know_begins_with_the_append(tmp_path):
    body = body_of(13, ("t", 1, batch(2)))
    world = ask_both(tmp_path, 13, [body, body], end_mirror)
    assert (world.short, world.partitions["t"][1].log.epochs.entries()) == (2, [(5, 0)])


def test_jitter_ends_segments_on_both_ways(tmp_path):
    found = []
    for is_short in (True, False):
        config = LogConfig(segment_ms=1000, segment_jitter_ms=1000)
        world = World(str(tmp_path / "same"), config, {})  # the jitter goes by the name of a segment
        for stamp in (NOW_MS, NOW_MS + 999):
            body = body_of(13, *(("t", index, batch(1, timestamp=stamp)) for index in range(3)))
            world.ask(13, body, may_be_short=is_short)
        found.append(world.state())
        assert max(each.log.segments_count for each in world.all()) == 2
        shutil.rmtree(tmp_path / "same")
    assert found[0] == found[1]


def test_a_producer_without_batches_goes_the_long_way(tmp_path):
    def end(world: World) -> None:
        world.partitions["t"][1].log.producers.end_transaction(7, 0, 0, 0, NOW_MS, NOW_MS)

    for sequence in (0, 1):
        body = body_of(13, ("t", 1, batch(1, **FIRST, base_sequence=sequence)))
        assert ask_both(tmp_path / str(sequence), 13, [body], end).short == 0


def test_a_producer_of_another_epoch_goes_the_long_way(tmp_path):
    bodies = [
        body_of(13, ("t", 1, batch(1, producer_id=7, producer_epoch=epoch, base_sequence=sequence)))
        for epoch, sequence in ((1, 0), (2, 1), (0, 1), (2, 0), (1, 1))
    ]
    assert ask_both(tmp_path, 13, bodies).short == 0


def test_waiters_are_woken_on_both_ways(tmp_path):
    world = ask_both(tmp_path, 13, [body_of(13, ("t", 1, batch(2)))])
    assert (world.short, world.wakes) == (1, [("end t-1", 2), ("data t-1", 2)])


def test_an_answer_has_room_for_long_names_and_many_partitions(tmp_path):
    name = "n" * 249
    rows = [(name, index, batch(index % 3 + 1)) for index in range(200)]
    for version in (9, 13):
        world = ask_both(tmp_path / str(version), version, [body_of(version, *rows)] * 2, topics={name: 200})
        assert world.short == 2


@pytest.mark.parametrize("count,is_short", [(126, 1), (127, 0)])
def test_as_many_topics_as_a_byte_tells(count, is_short, tmp_path):
    names = [f"t{number}" for number in range(count)]
    body = body_of(11, *((name, 0, batch(1)) for name in names))
    assert ask_both(tmp_path, 11, [body], topics=dict.fromkeys(names, 1)).short == is_short
