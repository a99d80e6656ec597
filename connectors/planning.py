"""From options to ranges of offsets: which partitions, where each begins and ends, how tasks share them.

The functions that ask a cluster are async and take a client; the arithmetic is pure.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..client import Admin, Client, TopicPartition
from ..client.errors import ClientError, ConnectionLost
from ..client.raw import READ_COMMITTED
from ..protocol.errors import ErrorCode, KafkaError
from .errors import SourceError
from .options import EARLIEST, LATEST, Bound, SourceOptions

INTERNAL = "__"  # as Kafka's own topics begin; no pattern finds them
NO_MATCH = -1  # offset of a timestamp that no record has
GONE_ANSWERS = 3  # a topic is gone when brokers say so this many times in a row: one may not know it yet


@dataclass(frozen=True, order=True)
class OffsetRange:
    """Offsets start <= offset < end of one partition. topic_id: of the topic that they were planned for; None where
    the cluster has no ids."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: bytes | None = field(default=None, compare=False)

    @property
    def size(self) -> int:
        return self.end - self.start


def client_of(options: SourceOptions) -> Client:
    """Raises SourceError for addresses that cannot be."""
    try:
        return Client(options.bootstrap, client_id=options.client_id)
    except ClientError as error:
        raise SourceError(f"option kafka.bootstrap.servers: {error}") from None


class Patience:
    """Waits out errors that pass, for `kafkaConsumer.pollTimeoutMs` in all."""

    def __init__(self, client: Client, options: SourceOptions) -> None:
        self._client = client
        self._stall_ms = options.stall_ms
        self.deadline = asyncio.get_running_loop().time() + options.stall_ms / 1000
        self.attempts = 0
        self._gone = 0

    async def again(self, what: str, trouble: object) -> None:
        """Back off before the next attempt.

        Raises `trouble` where another attempt cannot help: it does not pass by itself, or the topic was gone
        GONE_ANSWERS times in a row. Raises SourceError, which begins with `what`, when the time is over.
        """
        is_gone = isinstance(trouble, KafkaError) and trouble.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        self._gone = self._gone + 1 if is_gone else 0
        passes = trouble.retriable if isinstance(trouble, KafkaError) else isinstance(trouble, ConnectionLost)
        if isinstance(trouble, (KafkaError, ClientError)) and (not passes or self._gone >= GONE_ANSWERS):
            raise trouble
        if asyncio.get_running_loop().time() >= self.deadline:
            raise self.over(what, trouble)
        await self._client.back_off(self.attempts)
        self.attempts += 1

    def over(self, what: str, trouble: object) -> SourceError:
        return SourceError(f"{what} for {self._stall_ms / 1000:g} s (kafkaConsumer.pollTimeoutMs): {trouble}")


async def partitions_of(
    client: Client, options: SourceOptions, left_out: list[str] | None = None
) -> list[TopicPartition]:
    """The partitions the options name, sorted. A topic or partition that is not there is added to `left_out`; without
    that list it raises SourceError."""
    if options.pattern is not None:
        every = await Admin(client).list_topics()
        topics = [t for t in every if re.fullmatch(options.pattern, t) and not t.startswith(INTERNAL)]
        if not topics:
            return []
    else:
        topics = sorted(options.topics or {topic for topic, _ in options.assigned})
    await client.refresh_metadata(topics)
    missing = [f"topic {topic}" for topic in topics if not client.partitions(topic)]
    if missing and left_out is None:
        raise SourceError(f"there is no {missing[0]} in the cluster at {options.bootstrap}")
    found = [TopicPartition(topic, p) for topic in topics for p in sorted(client.partitions(topic))]
    if options.assigned:
        wanted = [TopicPartition(topic, p) for topic, p in options.assigned]
        for tp in wanted:
            if tp not in found and client.partitions(tp.topic):
                if left_out is None:
                    raise SourceError(f"topic {tp.topic} has no partition {tp.partition}")
                missing.append(f"{tp.topic}-{tp.partition}")
        found = [tp for tp in wanted if tp in found]
    if left_out is not None:
        left_out += missing
    return found


def ids_of(client: Client, partitions: Iterable[TopicPartition]) -> dict[str, bytes]:
    """The topics' ids, as of the metadata that the client has: offsets mean nothing in a later topic of the name."""
    found = {tp.topic: client.topic_id(tp.topic) for tp in partitions}
    return {topic: topic_id for topic, topic_id in found.items() if topic_id is not None}


async def bounds(
    client: Client, options: SourceOptions, partitions: Sequence[TopicPartition], bound: Bound, which: str
) -> dict[TopicPartition, int]:
    """The offset at which each partition begins or ends. which: startingOffsets or endingOffsets, for errors."""
    if not partitions:
        return {}
    if bound.everywhere is not None:
        asked = dict.fromkeys(partitions, bound.everywhere)
    else:
        asked = {TopicPartition(topic, p): value for topic, p, value in bound.each}
        if missing := [tp for tp in partitions if tp not in asked]:
            raise SourceError(f"{which} says nothing of {_names(missing)}: name every partition, or none")
        if extra := [tp for tp in asked if tp not in partitions]:
            raise SourceError(f"{which} names {_names(extra)}, which this query does not read")
    admin = Admin(client)
    if bound.kind == "timestamp":
        found = {tp: offset for tp, (offset, *_) in (await admin.list_offsets(asked, options.isolation)).items()}
        unmatched = [tp for tp, offset in found.items() if offset == NO_MATCH]
        if unmatched:
            if which == "startingOffsets" and not options.no_match_is_latest:
                raise SourceError(
                    f"{_names(unmatched)} has no record of timestamp {asked[unmatched[0]]} or later; "
                    "startingOffsetsByTimestampStrategy=latest would begin at the end"
                )
            ends = await admin.list_offsets(dict.fromkeys(unmatched, "latest"), options.isolation)
            found |= {tp: offset for tp, (offset, *_) in ends.items()}
        return found
    special = {EARLIEST: "earliest", LATEST: "latest"}
    look_up = {tp: special[value] for tp, value in asked.items() if value in special}
    told = await admin.list_offsets(look_up, options.isolation) if look_up else {}
    found = {tp: offset for tp, (offset, *_) in told.items()}
    return {tp: found.get(tp, value) for tp, value in asked.items()}


async def batch_ranges(client: Client, options: SourceOptions) -> list[OffsetRange]:
    """What a batch query reads."""
    partitions = await partitions_of(client, options)
    ids = ids_of(client, partitions)
    starts = await bounds(client, options, partitions, options.starting, "startingOffsets")
    ends = await bounds(client, options, partitions, options.ending, "endingOffsets")
    if options.ending.each and options.ending.kind == "offset":
        latest = await bounds(client, options, partitions, Bound(everywhere=LATEST), "endingOffsets")
        if late := [tp for tp in partitions if ends[tp] > latest[tp]]:
            there = f"{late[0].topic}-{late[0].partition} has offsets up to {latest[late[0]]}"
            if options.isolation == READ_COMMITTED:
                there += " of transactions that have ended, and reads no others (kafka.isolation.level)"
            raise SourceError(f"endingOffsets says {ends[late[0]]}, but {there}")
    for tp in partitions:
        if ends[tp] < starts[tp]:
            raise SourceError(
                f"{tp.topic}-{tp.partition} would end at offset {ends[tp]}, before it begins at {starts[tp]}"
            )
    return ranges_between(starts, ends, ids)


def ranges_between(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], ids: Mapping[str, bytes]
) -> list[OffsetRange]:
    """The ranges that are not empty. ids: of the topics."""
    return [
        OffsetRange(tp.topic, tp.partition, start, ends[tp], ids.get(tp.topic))
        for tp, start in sorted(starts.items())
        if ends.get(tp, start) > start
    ]


def tasks(ranges: Iterable[OffsetRange], options: SourceOptions) -> list[tuple[OffsetRange, ...]]:
    """What each Spark task reads: large ranges are cut, small ones share a task."""
    ranges = list(ranges)
    most = options.max_task_records
    if most:
        ranges = [piece for each in ranges for piece in cut(each, -(-each.size // most))]
    pieces = split(ranges, options.min_partitions)
    total = sum(each.size for each in pieces)
    count = min(len(pieces), max(1, options.min_partitions or 1, total // options.min_task_records))
    shares: list[list[OffsetRange]] = [[] for _ in range(count)]
    sizes = [0] * count
    for piece in sorted(pieces, key=lambda each: -each.size):
        least = sizes.index(min(sizes))
        if most and sizes[least] and sizes[least] + piece.size > most:
            least = len(shares)
            shares.append([])
            sizes.append(0)
        shares[least].append(piece)
        sizes[least] += piece.size
    return [tuple(sorted(share)) for share in shares]


def split(ranges: Sequence[OffsetRange], at_least: int | None) -> list[OffsetRange]:
    """Cut ranges in even pieces, larger ones into more, so that there are `at_least` so many if there is enough."""
    if not at_least or len(ranges) >= at_least:
        return list(ranges)
    total = sum(each.size for each in ranges)
    return [piece for each in ranges for piece in cut(each, -(-each.size * at_least // total))]


def cut(whole: OffsetRange, count: int) -> list[OffsetRange]:
    """`whole` in `count` even pieces, or as many as it has offsets."""
    count = min(whole.size, max(1, count))
    at = [whole.start + whole.size * i // count for i in range(count + 1)]
    return [replace(whole, start=start, end=end) for start, end in itertools.pairwise(at)]


def limited(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], most: int | None
) -> dict[TopicPartition, int]:
    """Ends of a micro-batch of about `most` offsets, shared out by backlog; every backlog moves on by one at least."""
    backlog = {tp: max(0, end - starts.get(tp, 0)) for tp, end in ends.items()}
    total = sum(backlog.values())
    if most is None or total <= most:
        return dict(ends)
    limit = {}
    for tp, end in ends.items():
        share = most * backlog[tp] // total or 1
        limit[tp] = starts.get(tp, 0) + share if backlog[tp] else end
    return limit


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{tp.topic}-{tp.partition}" for tp in partitions)
