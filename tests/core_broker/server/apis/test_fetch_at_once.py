"""The short way of a Fetch request answers, and leaves everything, as the long way does: all is compared."""

import contextlib
import dataclasses
import os
import random
import struct
from collections import Counter

import pytest

from isthmus.core_broker.cluster.controller import DeleteTopics
from isthmus.core_broker.cluster.controller.raise_leader_epoch import RaiseLeaderEpoch
from isthmus.core_broker.purgatory import Pending
from isthmus.core_broker.replication._leading import Counts
from isthmus.core_broker.server._fetch import COMPILED
from isthmus.core_broker.server.connection import ANSWER_FLEXIBLE
from isthmus.core_broker.server.context import Context
from isthmus.core_broker.server.dispatch import Routes
from isthmus.core_broker.server.fetch_sessions import FetchSessions
from isthmus.core_broker.storage.errors import NotCached
from isthmus.core_broker.storage.log import Origin
from isthmus.core_broker.storage.transactions import AbortedTransaction, TransactionIndex
from isthmus.protocol.codegen_decode import REQUEST_ELEMENTS_MAX, STRING_BYTES_MAX
from isthmus.protocol.errors import KafkaError, ProtocolError
from isthmus.protocol.messages import APIS
from isthmus.protocol.messages import fetch as m
from isthmus.protocol.primitives import write_uvarint
from isthmus.protocol.records import build_batch

from .serving import LISTENER, serve

HEAD, CORRELATION = b"head", -77
BEYOND = bytes(64)  # what lies behind a frame: read as if it were of it, it would be taken for empty fields
STEPS = 150
VERSIONS = range(12, 19)
NAMES = ("a", "b", "ü" * 40)  # the last is none
PARTITIONS = 3
EVENTS = ["append"] * 8 + ["bring"] * 4 + "delete epoch remake lag abort open fail refuse".split()
WANTED = (
    "topic topic_id index fetch_offset current_leader_epoch last_fetched_epoch max_bytes high_watermark "
    "log_start_offset size idle_epoch is_idle"
).split()

pytestmark = pytest.mark.skipif(not COMPILED, reason="plain Python has the long way only")


class Way:
    """One that asks the broker's handler, with sessions of its own."""

    def __init__(self, serving, may_be_short):
        services = dataclasses.replace(serving.context.services, fetch_sessions=FetchSessions(2, 9, random.Random(5)))
        self.context = Context(services, LISTENER, "10.0.0.1")
        self.sessions = services.fetch_sessions
        self.may_be_short = may_be_short
        self.routes = Routes()
        self.short = Counter()

    def ask(self, version, body):
        """The answer's bytes, or how the request ends."""
        route = self.routes[1 << 16 | version]
        self.context.version = version
        frame = memoryview(bytearray(HEAD + body + BEYOND))[: len(HEAD) + len(body)]
        if self.may_be_short:
            answer = route.answer_at_once(frame, len(HEAD), CORRELATION, self.context)
            self.short[version] += answer is not None
            if answer is not None:
                assert type(answer) is bytes or all(map(len, answer))
                return joined([answer] if type(answer) is bytes else answer)
        try:
            answer = route.handle(route.decode(frame, len(HEAD))[0], self.context)
        except (ProtocolError, struct.error) as error:
            return str(error)
        if isinstance(answer, Pending):
            if not answer.done:
                answer.abandon()
                return "it waits"
            answer = answer.answer
        parts = route.encode(answer)
        return ANSWER_FLEXIBLE.pack(sum(map(len, parts)) + 5, CORRELATION, 0) + joined(parts)

    def state(self):
        """All that a request may have changed."""
        sessions = [
            (
                each.id, each.epoch, each.size, each.evictable,
                [(key, [getattr(wanted, name) for name in WANTED]) for key, wanted in each.partitions.items()],
            )
            for each in self.sessions._sessions.values()
        ]  # fmt: skip
        return sessions, self.sessions.partitions_count, self.sessions.evictions


def joined(parts):
    return b"".join(part.read() if hasattr(part, "read") else bytes(part) for part in parts)


def encoded(version, request):
    return b"".join(bytes(part) for part in APIS[1].request.encoder(version)(request))


def follower(version, replica_id):
    """How a broker names itself; a consumer does not."""
    if replica_id == -1:
        return {}
    return {"replica_id": replica_id} if version < 15 else {"replica_state": m.ReplicaState(replica_id=replica_id)}


async def topic(serving, name, partitions, segment_bytes):
    """One with smaller segments than a client may ask for; its id."""
    topic_id = await serving.topic(name, partitions=partitions)
    for index in range(partitions):
        log = serving.replicas.get(name, index).log
        log.config = dataclasses.replace(log.config, segment_bytes=segment_bytes)
    return topic_id


async def bring(log):
    """What reads of closed segments need is in memory, as after a first one."""
    for segment in log._segments[:-1]:
        await log.bring(NotCached(log, segment, segment.base_offset))


class History:
    """Random events of a broker, and requests about them."""

    def __init__(self, serving, chance):
        self.serving = serving
        self.chance = chance
        self.ids = {}
        self.ways = Way(serving, True), Way(serving, False)
        self.session, self.epoch = 0, 0

    async def begin(self):
        for name in NAMES[:2]:
            await self.make(name)

    async def make(self, name):
        self.ids[name] = await topic(self.serving, name, PARTITIONS, 1000)

    def partition(self):
        return self.serving.replicas.get(self.chance.choice(NAMES[:2]), self.chance.randrange(PARTITIONS))

    async def happen(self):
        partition, chance = self.partition(), self.chance
        match chance.choice(EVENTS):
            case "append":
                for _ in range(chance.choice([1, 1, 5])):
                    self.serving.fill(partition.topic, chance.choice([1, 3, 40]), index=partition.index)
            case "bring":
                await bring(partition.log)
            case "delete":
                if partition.failure is None:
                    partition.delete_records(chance.randint(0, partition.high_watermark))
            case "epoch":
                row = partition.topic, partition.index, chance.randint(0, 3)
                await self.serving.controller.submit_wait(RaiseLeaderEpoch([row]))
            case "remake":
                await self.serving.controller.submit_wait(DeleteTopics([partition.topic]))
                await self.make(partition.topic)
            case "abort" if chance.random() < 0.2 and partition.high_watermark > 2:
                entry = AbortedTransaction(7, 0, 1, 2)
                TransactionIndex.append(self.serving.files, chance.choice(partition.log._segments), entry)
            case "open" if chance.random() < 0.2 and partition.high_watermark > 2:
                offset = chance.randint(0, partition.high_watermark)
                partition.log.producers.open = chance.choice([{7: offset}, {}])
            case "fail" if chance.random() < 0.05:
                partition.fail(OSError(5, "broken"))
            case "refuse" if chance.random() < 0.05:
                partition.log._tell_unreadable(OSError(5, "broken"))
            case "lag":  # as with replicas, or an fsync that is awaited
                partition.high_watermark = chance.randint(partition.log.log_start_offset, partition.log.log_end_offset)

    def rows(self, usual):
        chance = self.chance
        topics = []
        for name in chance.sample(NAMES if not usual else NAMES[:2], chance.randint(0, 2)):
            rows = []
            indexes = [chance.randrange(PARTITIONS + (not usual)) for _ in range(chance.randint(0, 3))]
            for index in dict.fromkeys(indexes) if usual else indexes:
                partition = self.serving.replicas.partitions.get(name, {}).get(index)
                end = 5 if partition is None else partition.high_watermark
                start = 0 if partition is None else partition.log.log_start_offset
                leader_epoch = 0 if partition is None else partition.leader_epoch
                rows.append(
                    m.FetchPartition(
                        partition=index,
                        fetch_offset=chance.choice([end, start, chance.randint(start, max(start, end))])
                        if usual else chance.randint(-1, end + 2),
                        current_leader_epoch=chance.choice([-1, leader_epoch] if usual else [-1, leader_epoch, 1, 5]),
                        last_fetched_epoch=-1 if usual else chance.choice([-1, -1, 0, 1]),
                        partition_max_bytes=chance.choice([1 << 20, 1 << 20, 300, 1, 0] + [-1] * (not usual)),
                    )
                )  # fmt: skip
            topics.append(m.FetchTopic(topic=name, topic_id=self.ids.get(name, bytes(16)), partitions=rows))
        return topics

    def request(self, version):
        chance = self.chance
        usual = chance.random() < 0.8
        session, epoch = chance.choice([(0, -1), (0, 0), (self.session, self.epoch), (self.session, self.epoch)])
        forgotten = []
        if not usual:
            epoch += chance.choice([0, 0, 1])
            if chance.random() < 0.2:
                name = chance.choice(NAMES)
                topic_id = self.ids.get(name, bytes(16))
                forgotten = [m.ForgottenTopic(topic=name, topic_id=topic_id, partitions=[0, 1])]
        return m.Request(
            **follower(version, -1 if usual else chance.choice([-1, -1, 1, -3])),
            max_wait_ms=chance.choice([0, 0, 100]),
            min_bytes=chance.choice([0, 1, 1, 500, 1 << 20]),
            max_bytes=chance.choice([1 << 24, 1 << 24, 700, 1] + [-1] * (not usual)),
            isolation_level=chance.choice([0, 1] if usual else [0, 1, 2, -1]),
            session_id=session,
            session_epoch=epoch,
            topics=self.rows(usual),
            forgotten_topics_data=forgotten,
            rack_id=chance.choice(["", "", "rack", "ä"]),
        )

    def body(self, version):
        body = encoded(version, self.request(version))
        if self.chance.random() < 0.1:
            at = self.chance.randrange(len(body))
            head, end = body[:at], body[at:]
            torn = [head, body + b"\0", head + b"\xff" + end[1:], head + b"\1" + end, head + b"\1\0\0" + end[1:]]
            body = self.chance.choice(torn)
        return body

    def counts(self):
        return [
            (str(each), getattr(each.traffic, name))
            for rows in self.serving.replicas.partitions.values() for each in rows.values()
            for name in Counts.__slots__
        ]  # fmt: skip

    def compare(self, version, body):
        short, long = self.ways
        before = self.counts()
        found = short.ask(version, body)
        between = self.counts()
        expected = long.ask(version, body)
        assert found == expected
        assert short.state() == long.state()
        assert [b[1] - a[1] for a, b in zip(before, between, strict=True)] == [
            b[1] - a[1] for a, b in zip(between, self.counts(), strict=True)
        ]
        self.follow(version, expected)

    def follow(self, version, answer):
        if isinstance(answer, bytes) and self.chance.random() < 0.8:
            sessions = self.ways[1].sessions._sessions
            if sessions:
                found = self.chance.choice(list(sessions.values()))
                self.session, self.epoch = found.id, found.epoch


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

    serve(tmp_path, work)
    assert short.total() > STEPS // 20


# --- What goes the short way ------------------------------------------------------------------------------------------


def goes_the_short_way(way, version, body):
    frame = memoryview(bytearray(HEAD + body + BEYOND))[: len(HEAD) + len(body)]
    way.context.version = version
    return way.routes[1 << 16 | version].answer_at_once(frame, len(HEAD), CORRELATION, way.context) is not None


def asked(topic_id, *rows, **more):
    partitions = [
        m.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20) for index, offset in rows
    ]
    topics = [m.FetchTopic(topic="a", topic_id=topic_id, partitions=partitions)] if rows else []
    given = {"max_wait_ms": 500, "min_bytes": 1, "isolation_level": 1, "rack_id": "r", "topics": topics, **more}
    return m.Request(**given)


@pytest.mark.parametrize("version", VERSIONS)
def test_control_what_is_plain_goes_the_short_way(tmp_path, version):
    async def work(serving):
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

    serve(tmp_path, work)


@pytest.mark.parametrize("version", range(4, 12))
def test_versions_before_the_flexible_ones_have_the_long_way_only(version):
    assert Routes()[1 << 16 | version].answer_at_once is None


AGAINST_IT = {
    "failure": lambda partition: setattr(partition, "failure", KafkaError(1, "broken")),
    "the log's failure": lambda partition: setattr(partition.log, "failure", KafkaError(1, "broken")),
    "an open transaction": lambda partition: partition.log.producers.open.update({7: 1}),
    "an aborted one": lambda partition: setattr(partition.log._active, "has_aborted", True),
    "nobody has looked": lambda partition: setattr(partition.log._active, "has_aborted", None),
    "another leader": lambda partition: partition.become_leader(9),
    "deleted": lambda partition: partition.delete_records(2),
    "another topic": lambda partition: setattr(partition, "topic_id", bytes(16)),
}


@pytest.mark.parametrize("name", AGAINST_IT)
def test_what_a_partition_has_against_it(tmp_path, name):
    async def work(serving):
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

    serve(tmp_path, work)


@pytest.mark.parametrize("version", [12, 13, 18])
def test_what_a_request_has_against_it(tmp_path, version):
    async def work(serving):
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
        for each in wrong:
            assert not goes_the_short_way(way, version, encoded(version, each)), each
        assert session.epoch == 1
        for length in range(len(good)):
            assert not goes_the_short_way(way, version, good[:length])
        assert not goes_the_short_way(way, version, good + b"\0")

    serve(tmp_path, work)


def test_a_session_is_as_it_was_after_a_request_that_is_cut_off(tmp_path):
    async def work(serving):
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

    serve(tmp_path, work)


def with_topics(body, count, topics):
    """A request of version 12 without a session or topics, and these in it."""
    return body[:25] + write_uvarint(count + 1) + topics + body[26:]


def test_what_the_decoder_finds_too_large_goes_the_long_way_which_refuses_it(tmp_path):
    async def work(serving):
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

    serve(tmp_path, work)


def test_a_session_is_as_it_was_after_a_request_with_a_name_that_is_none(tmp_path):
    async def work(serving):
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

    serve(tmp_path, work)


def test_an_answer_whose_size_may_not_fit_in_its_frame_goes_the_long_way(tmp_path):
    async def work(serving):
        topic_id = await serving.topic("a")
        way = Way(serving, True)
        serving.fill("a", 3)
        log = serving.replicas.get("a", 0).log
        for size, is_short in ((2**30, True), (2**30 + 1, False), (2**31 - 1, False), (2**33, False)):
            request = asked(topic_id, (0, 0), max_bytes=2**31 - 1, isolation_level=0)
            request.topics[0].partitions[0].partition_max_bytes = 2**31 - 1
            file = log._active.file
            held, file.size = file.size, size
            os.truncate(file.path, size)  # a hole
            assert goes_the_short_way(way, 18, encoded(18, request)) is is_short, size
            os.truncate(file.path, held)
            file.size = held

    serve(tmp_path, work, fetch_max_bytes=str(2**31 - 1))


def test_records_of_several_segments_and_topics_lie_where_they_are_announced(tmp_path):
    """By a decoder: the answer is whole, and each partition has its own batches."""

    async def work(serving):
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

    serve(tmp_path, work)
