"""Requests to the handler of Fetch by its two ways, each with sessions of its own, and random histories of a broker."""

import asyncio
import dataclasses
import random
import struct
from collections import Counter

from isthmus.core_broker.cluster.controller import DeleteTopics
from isthmus.core_broker.cluster.controller.raise_leader_epoch import RaiseLeaderEpoch
from isthmus.core_broker.purgatory import Pending
from isthmus.core_broker.replication.states import Event
from isthmus.core_broker.server._context import Context
from isthmus.core_broker.server.connection import ANSWER_FLEXIBLE
from isthmus.core_broker.server.dispatch import Routes
from isthmus.core_broker.server.fetch_sessions import FetchSessions
from isthmus.core_broker.storage.log import cold_reads
from isthmus.core_broker.storage.log._producers import ALL_STABLE
from isthmus.core_broker.storage.log._ranges import NotCached
from isthmus.core_broker.storage.log.index_files import AbortedTransaction
from isthmus.core_broker.storage.log.transactions import TransactionIndex
from isthmus.protocol.errors import ErrorCode, KafkaError, ProtocolError
from isthmus.protocol.messages import APIS
from isthmus.protocol.messages import fetch as m

from ..asking import fetch_of
from .serving import LISTENER

HEAD, CORRELATION = b"head", -77
BEYOND = bytes(64)  # what lies behind a frame: read as if it were of it, it would be taken for empty fields
VERSIONS = range(12, 19)
TRAFFIC = "appends bytes_in bytes_out bytes_refused failed_appends failed_fetches fetches messages_in".split()
NAMES = ("a", "b", "ü" * 40)  # the last is none
PARTITIONS = 3
EVENTS = ["append"] * 8 + ["bring"] * 4 + "delete epoch remake lag abort open fail refuse".split()
WANTED = (
    "topic topic_id index fetch_offset current_leader_epoch last_fetched_epoch max_bytes high_watermark "
    "log_start_offset size idle_epoch is_idle"
).split()


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
        log.tail.config = dataclasses.replace(log.config, segment_bytes=segment_bytes)
    return topic_id


async def bring(log):
    """What reads of closed segments need is in memory, as after a first one."""
    for segment in log.ranges.segments[:-1]:
        await cold_reads.bring(NotCached(log.ranges, segment, segment.base_offset))


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
                segment = chance.choice(partition.log.ranges.segments)
                last = max(segment.last_offset, 1)
                first, stable = chance.randint(0, last), chance.randint(0, last + 1)
                entry = AbortedTransaction(chance.randint(7, 8), first, last, stable)
                TransactionIndex.append(self.serving.files, segment, entry)
                partition.log.ranges.aborted_indexes.added(segment, entry)
            case "open" if chance.random() < 0.2 and partition.high_watermark > 2:
                unstable = partition.log.producers.unstable
                if unstable.first_open == ALL_STABLE:
                    unstable.begin(chance.randint(0, partition.high_watermark))
                else:
                    unstable.end(unstable.first_open, partition.high_watermark - chance.randint(0, 1))
                    unstable.commit(partition.high_watermark)
            case "fail" if chance.random() < 0.05:
                partition.enter(Event.LOG_FAILED, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "broken"))
            case "refuse" if chance.random() < 0.05:
                partition.log.status.unreadable(OSError(5, "broken"))
            case "lag":  # as with replicas, or an fsync that is awaited
                if partition._sync_task is None:
                    partition.fsync = partition.core.lags = True
                    partition._sync_task = asyncio.get_running_loop().create_future()  # a sync that takes its time
                    partition._sync_task.set_result(None)
                low, high = partition.high_watermark, partition.log.log_end_offset
                partition.core.advance_high_watermark(chance.randint(low, max(low, high)))

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
            for name in TRAFFIC
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


def goes_the_short_way(way, version, body):
    frame = memoryview(bytearray(HEAD + body + BEYOND))[: len(HEAD) + len(body)]
    way.context.version = version
    return way.routes[1 << 16 | version].answer_at_once(frame, len(HEAD), CORRELATION, way.context) is not None


def asked(topic_id, *rows, **more):
    given = {"max_wait_ms": 500, "isolation_level": 1, "rack_id": "r", **more}
    return fetch_of(*rows, topic="a", topic_id=topic_id, **given)
