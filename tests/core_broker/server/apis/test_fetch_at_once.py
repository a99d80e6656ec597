"""The short way of a Fetch request answers, and leaves everything, as the long way does: all is compared."""

import contextlib
import random
from collections import Counter

import pytest

from isthmus.core_broker.replication.states import Event
from isthmus.core_broker.server._fetch import COMPILED
from isthmus.core_broker.server.dispatch import Routes
from isthmus.core_broker.storage.log.append import Origin
from isthmus.protocol.errors import KafkaError
from isthmus.protocol.messages import APIS
from isthmus.protocol.messages import fetch as m
from isthmus.protocol.records import build_batch
from tests.running import run_by

from .fetch_worlds import (
    VERSIONS,
    History,
    Way,
    asked,
    bring,
    encoded,
    follower,
    goes_the_short_way,
    topic,
)
from .serving import serve

STEPS = 150

pytestmark = pytest.mark.skipif(not COMPILED, reason="plain Python has the long way only")


@pytest.mark.parametrize("seed", range(40))
def test_both_ways_end_alike(tmp_path, seed):
    chance = random.Random(seed)
    short = Counter()

    async def work(serving):
        history = History(serving, chance)
        await history.begin()
        version = chance.choice(VERSIONS)
        for _ in range(STEPS):
            for _ in range(chance.randint(0, 2)):
                with contextlib.suppress(KafkaError):  # of a partition that has failed
                    await history.happen()
            if chance.random() < 0.1:
                version = chance.choice(VERSIONS)
            history.compare(version, history.body(version))
        short.update(history.ways[0].short)

    serve(work, tmp_path, fetch_max_bytes=chance.choice(["1024", "57671680"]))
    assert short.total() > STEPS // 20


# --- What goes the short way ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@run_by(serve)
async def test_control_what_is_plain_goes_the_short_way(serving, /, version):
    topic_id = await serving.topic("a", partitions=2)
    way = Way(serving, True)
    serving.fill("a", 3, index=0)
    body = encoded(version, asked(topic_id, (0, 0), (1, 0)))
    assert not goes_the_short_way(way, version, body)  # nobody has looked for aborted transactions yet
    way.ask(version, body)
    assert goes_the_short_way(way, version, body)
    opened = way.ask(version, encoded(version, asked(topic_id, (0, 0), (1, 0), session_epoch=0)))
    [session] = way.sessions._sessions.values()
    assert opened[15:19] == session.id.to_bytes(4, "big")
    body = encoded(version, asked(topic_id, session_id=session.id, session_epoch=1))
    assert goes_the_short_way(way, version, body) and session.epoch == 2
    body = encoded(version, asked(topic_id, (0, 1), session_id=session.id, session_epoch=2))
    assert goes_the_short_way(way, version, body) and session.epoch == 3
    body = encoded(version, asked(topic_id, (0, 3), session_id=session.id, session_epoch=3))
    assert not goes_the_short_way(way, version, body) and session.epoch == 3  # there is nothing: it waits
    serving.fill("a", 1, index=0)
    assert goes_the_short_way(way, version, body)


@pytest.mark.parametrize("version", range(4, 12))
def test_versions_before_the_flexible_ones_have_the_long_way_only(version):
    assert Routes()[1 << 16 | version].answer_at_once is None


AGAINST_IT = {
    "failure": lambda partition: partition.enter(Event.LOG_FAILED, KafkaError(1, "broken")),
    "the log's failure": lambda partition: partition.log.status.unreadable(OSError(5, "broken")),
    "aborted transactions that nobody has read": lambda partition: setattr(
        partition.log.tail.active, "has_aborted", True
    ),
    "nobody has looked": lambda partition: setattr(partition.log.tail.active, "has_aborted", None),
    "another leader": lambda partition: partition.begin_epoch(9),
    "deleted": lambda partition: partition.delete_records(2),
    "another topic": lambda partition: setattr(partition, "topic_id", bytes(16)),
}


@pytest.mark.parametrize("name", AGAINST_IT)
@run_by(serve)
async def test_what_a_partition_has_against_it(serving, /, name):
    topic_id = await serving.topic("a")
    way = Way(serving, True)
    serving.fill("a", 3)
    request = asked(topic_id, (0, 1))
    request.topics[0].partitions[0].current_leader_epoch = 0
    body = encoded(13, request)
    way.ask(13, body)
    assert goes_the_short_way(way, 13, body)
    AGAINST_IT[name](serving.replicas.get("a", 0))
    assert not goes_the_short_way(way, 13, body)


def write(serving, pid, epoch=0, commits=None):
    """A record of a producer's transaction, or the marker that ends it."""
    partition, now = serving.replicas.get("a", 0), serving.runtime.wall_ms()
    if commits is not None:
        partition.write_marker(pid, epoch, commits, 0, 0, now)
        return
    guard = partition.begin_verification(pid, epoch, 0, True, now)
    header = {"producer_id": pid, "producer_epoch": epoch, "base_sequence": 0, "transactional": True}
    partition.append(build_batch([(now, b"k", b"v", ())], **header), Origin.CLIENT, now, guard=guard)


@pytest.mark.parametrize("version", VERSIONS)
@run_by(serve)
async def test_transactions_that_are_open_or_aborted_go_the_short_way(serving, /, version):
    topic_id = await serving.topic("a")
    ways = Way(serving, True), Way(serving, False)
    serving.fill("a", 1)
    write(serving, 7)
    write(serving, 8)
    write(serving, 7, commits=False)
    for isolation_level in (0, 1):
        body = encoded(version, asked(topic_id, (0, 0), isolation_level=isolation_level))
        short, long = (way.ask(version, body) for way in ways)
        assert short == long  # it ends before the first open one
        assert goes_the_short_way(ways[0], version, body)
    behind = encoded(version, asked(topic_id, (0, 1), max_wait_ms=0))
    assert ways[0].ask(version, behind) == ways[1].ask(version, behind) and ways[0].short
    write(serving, 8, commits=False)
    write(serving, 9)
    for offset in range(6):
        body = encoded(version, asked(topic_id, (0, offset), max_wait_ms=0))
        assert ways[0].ask(version, body) == ways[1].ask(version, body)
        assert goes_the_short_way(ways[0], version, body)


@run_by(serve)
async def test_an_aborted_transaction_of_an_earlier_segment_is_nothing_against_a_later_one(serving, /):
    topic_id = await topic(serving, "a", 1, 300)
    for _ in range(9):
        serving.fill("a", 3)
    log = serving.replicas.get("a", 0).log
    assert log.segments_count > 2
    await bring(log)
    way = Way(serving, True)
    way.ask(13, encoded(13, asked(topic_id, (0, 0))))  # looks for aborted ones
    log.ranges.segments[1].has_aborted = True
    for segment in log.ranges.segments:
        is_later = segment.base_offset > log.ranges.segments[1].base_offset
        for offset in (segment.base_offset, segment.last_offset):
            assert goes_the_short_way(way, 13, encoded(13, asked(topic_id, (0, offset)))) is is_later


@pytest.mark.parametrize("version", [12, 13, 18])
@run_by(serve)
async def test_what_a_request_has_against_it(serving, /, version):
    topic_id = await serving.topic("a", partitions=2)
    way = Way(serving, True)
    serving.fill("a", 3)
    good = encoded(version, asked(topic_id, (0, 0)))
    way.ask(version, good)
    way.ask(version, encoded(version, asked(topic_id, (0, 0), session_epoch=0)))
    [session] = way.sessions._sessions.values()
    of_session = {"session_id": session.id, "session_epoch": 1}
    wrong = [
        asked(topic_id, (0, 0), session_epoch=0),
        asked(topic_id, (0, 0), session_id=5),
        asked(topic_id, (0, 0), session_id=5, session_epoch=1),
        asked(topic_id, (0, 0), session_id=session.id, session_epoch=2),
        asked(topic_id, (1, 0), **of_session),
        asked(topic_id, (0, 0), (0, 0)),
        asked(topic_id, (2, 0)),
        asked(topic_id, (0, -1)),
        asked(topic_id, (0, 4)),
        asked(topic_id, (0, 3)),
        asked(topic_id, (0, 0), isolation_level=2),
        asked(topic_id, (0, 0), rack_id="ä"),
        asked(topic_id, (0, 0), min_bytes=1 << 20),
        asked(topic_id, (0, 0), forgotten_topics_data=[m.ForgottenTopic(topic="a", topic_id=topic_id)]),
        asked(topic_id, (0, 0), cluster_id="x"),
        asked(topic_id, (0, 0), **follower(version, 1)),
    ]
    assert goes_the_short_way(way, version, good)
    wrong.append(asked(topic_id, (0, 0)))
    wrong[-1].topics[0].partitions[0].last_fetched_epoch = 0
    for each in wrong:
        assert not goes_the_short_way(way, version, encoded(version, each)), each
    assert session.epoch == 1
    for length in range(len(good)):
        assert not goes_the_short_way(way, version, good[:length])
    assert not goes_the_short_way(way, version, good + b"\0")


@run_by(serve)
async def test_a_session_is_as_it_was_after_a_request_that_is_cut_off(serving, /):
    topic_id = await serving.topic("a")
    way = Way(serving, True)
    serving.fill("a", 3)
    way.ask(13, encoded(13, asked(topic_id, (0, 0), session_epoch=0)))
    [session] = way.sessions._sessions.values()
    before = way.state()
    body = encoded(13, asked(topic_id, (0, 2), session_id=session.id, session_epoch=1))
    for length in range(len(body)):
        assert isinstance(way.ask(13, body[:length]), str)
    assert way.state() == before


@run_by(serve)
async def test_records_of_several_segments_and_topics_lie_where_they_are_announced(serving, /):
    """By a decoder: the answer is whole, and each partition has its own batches."""
    ids = [await topic(serving, name, 2, 300) for name in ("a", "b")]
    for number in range(9):
        for name in ("a", "b"):
            for index in range(2):
                now = serving.runtime.wall_ms()
                data = build_batch([(now, b"k", f"{name}{index}{number}".encode() * 9, ())])
                serving.replicas.get(name, index).append(data, Origin.CLIENT, now)
    for name in ("a", "b"):
        for index in range(2):
            log = serving.replicas.get(name, index).log
            assert log.segments_count > 2
            await bring(log)
    partitions = [m.FetchPartition(partition=index, partition_max_bytes=1 << 20) for index in range(2)]
    topics = [m.FetchTopic(topic_id=each, partitions=partitions) for each in ids]
    way = Way(serving, True)
    body = encoded(18, m.Request(min_bytes=1, topics=topics))
    data = way.ask(18, body)
    assert way.short[18] == 1
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    answer, end = APIS[1].response.decoder(18)(memoryview(data), 9)
    assert end == len(data)
    for name, told in zip("ab", answer.responses, strict=True):
        for row in told.partitions:
            for number in range(9):
                assert bytes(row.records).count(f"{name}{row.partition_index}{number}".encode() * 9) == 1
