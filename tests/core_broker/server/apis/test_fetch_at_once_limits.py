"""The short way of a Fetch request refuses what the decoder refuses, and reads nothing beyond the request."""

import ctypes
import mmap
import os
import random
from itertools import product

import pytest

from isthmus.core_broker.server._fetch import COMPILED
from isthmus.core_broker.server.connection import ANSWER_FLEXIBLE
from isthmus.protocol.codegen_decode import REQUEST_ELEMENTS_MAX, STRING_BYTES_MAX
from isthmus.protocol.messages import APIS
from isthmus.protocol.messages import fetch as m
from isthmus.protocol.primitives import write_uvarint
from isthmus.protocol.records import walk
from tests.running import run_by

from .fetch_worlds import CORRELATION, NAMES, History, Way, asked, encoded, goes_the_short_way
from .serving import serve

OTHERS = [b"", b"\0", b"\1", b"\2", b"\x7f", b"\x80", b"\xff", b"\0\0", b"\x80\0", b"\xff\xff"]  # in place of a byte

pytestmark = pytest.mark.skipif(not COMPILED, reason="plain Python has the long way only")


@pytest.mark.parametrize("version", [12, 13, 15])
@run_by(serve)
async def test_any_byte_of_a_request_may_be_another_or_missing(serving, /, version):
    history = History(serving, random.Random(version))
    await history.begin()
    rows = []
    for name in NAMES[:2]:
        for index in range(2):
            serving.fill(name, 3, index=index)
        partitions = [
            m.FetchPartition(partition=index, fetch_offset=index, partition_max_bytes=300) for index in range(2)
        ]
        rows.append(m.FetchTopic(topic=name, topic_id=history.ids[name], partitions=partitions))
    request = m.Request(min_bytes=1, isolation_level=1, topics=rows, rack_id="r")
    size = len(encoded(version, request))
    sessions = history.ways[1].sessions._sessions
    for is_of_session, at, other in product((False, True), range(size), OTHERS):
        request.session_id, request.session_epoch = 0, -1
        if is_of_session:
            if not sessions:  # none yet, or one is closed by what stands for its epoch
                request.session_epoch = 0
                history.compare(version, encoded(version, request))
            [session] = sessions.values()
            request.session_id, request.session_epoch = session.id, session.epoch
        body = encoded(version, request)
        history.compare(version, body[:at] + other + body[at + 1 :])
    assert history.ways[0].short[version] > size
    for topics in ([], [m.FetchTopic(topic="a", topic_id=history.ids["a"])]):
        nothing = encoded(version, m.Request(topics=topics))
        for at, other in product(range(len(nothing)), OTHERS):
            history.compare(version, nothing[:at] + other + nothing[at + 1 :])


@pytest.mark.parametrize("version", [12, 13, 15])
@run_by(serve)
async def test_no_byte_behind_a_frame_is_read(serving, /, version):
    """Behind it lies memory that nobody may read."""
    topic_id = await serving.topic("a")
    way = Way(serving, True)
    way.context.version = version
    answer = way.routes[1 << 16 | version].answer_at_once
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 2 * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(start + page), page, 0) == 0
    good = encoded(version, asked(topic_id, (0, 0), (1, 0)))
    child = os.fork()
    if not child:
        status = 1
        try:
            for length in range(len(good) + 1):
                for at, other in product(range(length), OTHERS):
                    body = good[:at] + other + good[at + 1 : length]
                    frame = memoryview(memory)[page - len(body) : page]
                    frame[:] = body
                    answer(frame, 0, CORRELATION, way.context)
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


def with_topics(body, count, topics):
    """A request of version 12 without a session or topics, and these in it."""
    return body[:25] + write_uvarint(count + 1) + topics + body[26:]


@run_by(serve)
async def test_what_the_decoder_finds_too_large_goes_the_long_way_which_refuses_it(serving, /):
    way = Way(serving, True)
    body = encoded(12, asked(None, rack_id=""))
    for size, is_short in ((STRING_BYTES_MAX, True), (STRING_BYTES_MAX + 1, False)):
        name = write_uvarint(size + 1) + b"r" * size
        assert goes_the_short_way(way, 12, body[:-2] + name + b"\0") is is_short
        assert goes_the_short_way(way, 12, with_topics(body, 1, name + b"\1\0")) is is_short
        assert isinstance(way.ask(12, with_topics(body, 1, name + b"\1\0")), str) is not is_short
    for count, is_short in ((REQUEST_ELEMENTS_MAX, True), (REQUEST_ELEMENTS_MAX + 1, False)):
        assert goes_the_short_way(way, 12, with_topics(body, count, b"\2a\1\0" * count)) is is_short
    row = bytes(4) + b"\xff" * 4 + bytes(8) + b"\xff" * 4 + bytes(13)
    await serving.topic("a")
    serving.fill("a", 3)
    way.ask(12, encoded(12, asked(None, (0, 0), session_epoch=0)))
    [session] = way.sessions._sessions.values()
    for epoch, count, is_short in ((1, REQUEST_ELEMENTS_MAX - 1, True), (2, REQUEST_ELEMENTS_MAX, False)):
        body = encoded(12, asked(None, session_id=session.id, session_epoch=epoch, max_wait_ms=0))
        topics = b"\2a" + write_uvarint(count + 1) + row * count + b"\0"
        assert goes_the_short_way(way, 12, with_topics(body, 1, topics)) is is_short


@run_by(serve)
async def test_a_session_is_as_it_was_after_a_request_with_a_name_that_is_none(serving, /):
    await serving.topic("a")
    way = Way(serving, True)
    serving.fill("a", 3)
    way.ask(12, encoded(12, asked(None, (0, 0), session_epoch=0)))
    [session] = way.sessions._sessions.values()
    before = way.state()
    body = encoded(12, asked(None, (0, 2), session_id=session.id, session_epoch=1))
    topic = body[26:-4]
    body = with_topics(encoded(12, asked(None, session_id=session.id, session_epoch=1)), 2, topic + b"\2\xff\1\0")
    assert isinstance(way.ask(12, body), str)
    assert way.state() == before


@run_by(serve, fetch_max_bytes=str(2**31 - 1))
async def test_an_answer_whose_size_may_not_fit_in_its_frame_goes_the_long_way(serving, /):
    topic_id = await serving.topic("a")
    way = Way(serving, True)
    serving.fill("a", 3)
    log = serving.replicas.get("a", 0).log
    for size, is_short in ((2**30, True), (2**30 + 1, False), (2**31 - 1, False), (2**33, False)):
        request = asked(topic_id, (0, 0), max_bytes=2**31 - 1, isolation_level=0)
        request.topics[0].partitions[0].partition_max_bytes = 2**31 - 1
        file = log.tail.active.file
        held, file.size = file.size, size
        os.truncate(file.path, size)  # a hole
        assert goes_the_short_way(way, 18, encoded(18, request)) is is_short, size
        os.truncate(file.path, held)
        file.size = held


BATCH_BYTES = 88
ENOUGH = {
    "no room for one batch": {"max_bytes": 0},
    "room for a part of one": {"max_bytes": 1},
    "room for one and a part": {"max_bytes": BATCH_BYTES + 1},
    "as much as is asked for": {"min_bytes": 2 * BATCH_BYTES},
    "more is asked for than there is room for": {"min_bytes": 1 << 20, "max_bytes": BATCH_BYTES},
    "nothing is waited for": {"min_bytes": 1 << 20, "max_wait_ms": 0},
}


@pytest.mark.parametrize("name", ENOUGH)
@run_by(serve)
async def test_what_a_limit_makes_enough_goes_the_short_way(serving, /, name):
    topic_id = await serving.topic("a", partitions=2)
    ways = Way(serving, True), Way(serving, False)
    for index in range(2):
        serving.fill("a", 3, index=index)
        assert serving.replicas.get("a", index).log.tail.active.file.size == BATCH_BYTES
    body = encoded(13, asked(topic_id, (0, 0), (1, 0), isolation_level=0, **ENOUGH[name]))
    assert ways[0].ask(13, body) == ways[1].ask(13, body)
    assert ways[0].short[13] == 1


@pytest.mark.parametrize("whole", ["max_bytes", "partition_max_bytes", ""])
@run_by(serve)
async def test_an_answer_that_ends_with_a_batch_is_as_much_as_there_was_room_for(serving, /, whole):
    """What is left out of it to that end counts for what the client waits for."""
    room = 100_000
    topic_id = await serving.topic("a", partitions=1)
    ways = Way(serving, True), Way(serving, False)
    for _ in range(50):
        serving.fill("a", 400)
    partition = serving.replicas.get("a", 0)
    assert partition.log.size_bytes > room
    request = asked(topic_id, (0, 0), isolation_level=0, min_bytes=room, max_wait_ms=60_000, max_bytes=1 << 20)
    if whole == "max_bytes":
        request.max_bytes = room
    else:
        request.topics[0].partitions[0].partition_max_bytes = room - (not whole)
    answers = [way.ask(13, encoded(13, request)) for way in ways]
    if not whole:  # the control: a byte less, and it is not as much as is asked for
        assert answers == ["it waits", "it waits"]
        return
    assert answers[0] == answers[1] and ways[0].short[13] == 1
    response, _ = APIS[1].response.decoder(13)(answers[0], ANSWER_FLEXIBLE.size)
    records = response.responses[0].partitions[0].records
    assert 0 < room - len(records) < partition.log.config.index_interval_bytes + 4_000
    assert sum(header.size_bytes for _, header in walk(records)) == len(records)
    assert partition.traffic.bytes_out == 2 * len(records)


@pytest.mark.parametrize("version", [12, 13])
@run_by(serve)
async def test_an_answer_of_many_topics_with_long_names_has_room(serving, /, version):
    ways = Way(serving, True), Way(serving, False)
    rows = []
    for number in range(50):
        name = f"{number:03}".ljust(249, "x")
        topic_id = await serving.topic(name)
        serving.fill(name, 3)
        partition = m.FetchPartition(partition=0, partition_max_bytes=1 << 20)
        rows.append(m.FetchTopic(topic=name, topic_id=topic_id, partitions=[partition]))
    for count in range(1, len(rows) + 1):
        body = encoded(version, m.Request(min_bytes=1, topics=rows[:count]))
        assert ways[0].ask(version, body) == ways[1].ask(version, body)
    assert ways[0].short[version] == len(rows)
