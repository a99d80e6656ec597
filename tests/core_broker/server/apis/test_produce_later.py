"""Batches that are compressed anew or looked into: off the loop, in order, and without holding up anybody else."""

import asyncio
import os
import threading

import pytest

from isthmus.core_broker.server._context import CloseConnection
from isthmus.core_broker.storage.disk.real_files import RealFiles
from isthmus.core_broker.storage.log import append, inspection
from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.records import build_batch, iter_records, walk
from tests.running import run_by

from ..asking import produce_of
from .serving import serve

E = ErrorCode
GZIP, ZSTD = 1, 4
LARGE = 40_000


class GatedFiles(RealFiles):
    """Work for a processor that is done when the test says so."""

    def __init__(self):
        super().__init__(2)
        self.gate = asyncio.Event()
        self.begun = 0

    async def compute(self, fn, *args):
        self.begun += 1
        await self.gate.wait()
        return await super().compute(fn, *args)


@pytest.fixture
def where(monkeypatch):
    """The threads in which batches were looked into or compressed."""
    seen = []

    def told(fn):
        def wrapped(*args, **more):
            seen.append(threading.get_ident())
            return fn(*args, **more)

        return wrapped

    for module in (append, inspection):
        for name in ("with_codec", "validate_batch"):
            monkeypatch.setattr(module, name, told(getattr(module, name)))
    return seen


@pytest.fixture
def files():
    return GatedFiles()


def batch(serving, size=LARGE, codec="none", count=1, key=b"k", **header):
    now = serving.runtime.wall_ms()
    return build_batch([(now, key, os.urandom(size // count), ())] * count, codec, **header)


def request(topic_id, *rows, acks=1):
    return produce_of(*rows, topic_id=topic_id, acks=acks)


def told(answer):
    return [(row.index, row.error_code, row.base_offset) for row in answer.responses[0].partition_responses]


def stored(serving, index=0):
    part = serving.replicas.get("t", index).read(0, 1 << 30)
    return b"".join(piece.read() for piece in part.ranges)


async def settled():
    for _ in range(5):
        await asyncio.sleep(0)


@run_by(serve)
async def test_others_are_answered_while_a_large_batch_is_compressed(serving, /, where, files):
    topic_id = await serving.topic("t", partitions=2, compression_type="zstd")
    slow = asyncio.ensure_future(serving.ask(request(topic_id, (0, batch(serving)))))
    await settled()
    assert files.begun == 1 and not slow.done()
    assert told(await serving.ask(request(topic_id, (1, batch(serving, 100))))) == [(1, E.NONE, 0)]
    on_loop = where.copy()
    files.gate.set()
    assert told(await slow) == [(0, E.NONE, 0)]
    (header,) = [header for _, header in walk(stored(serving))]
    assert header.attributes & 7 == ZSTD
    assert on_loop == [threading.get_ident()]  # the small batch: this is how the other would be seen, too
    assert len(where) == 2 and where[1] != threading.get_ident()


@run_by(serve)
async def test_appends_to_one_partition_keep_their_order(serving, /, files):
    topic_id = await serving.topic("t", compression_type="gzip")
    asked = []
    for size in (LARGE, 100, 2 * LARGE, 200):
        asked.append(asyncio.ensure_future(serving.ask(request(topic_id, (0, batch(serving, size))))))
        await settled()
    assert not any(each.done() for each in asked) and files.begun == 2
    files.gate.set()
    assert [told(await each) for each in asked] == [[(0, E.NONE, offset)] for offset in range(4)]
    assert [len(record.value) for record in iter_records(stored(serving))] == [LARGE, 100, 2 * LARGE, 200]
    assert serving.replicas.get("t", 0).line is None
    assert told(await serving.ask(request(topic_id, (0, batch(serving, 100))))) == [(0, E.NONE, 4)]


@run_by(serve)
async def test_a_request_with_several_partitions_is_answered_when_all_are_appended(serving, /, files):
    topic_id = await serving.topic("t", partitions=3, compression_type="gzip")
    broken = batch(serving)[:-1] + b"?"
    rows = [(0, batch(serving)), (1, batch(serving, 50)), (2, broken), (7, batch(serving))]
    asked = asyncio.ensure_future(serving.ask(request(topic_id, *rows)))
    await settled()
    assert not asked.done() and serving.replicas.get("t", 1).high_watermark == 1
    files.gate.set()
    errors = [(0, E.NONE), (1, E.NONE), (2, E.CORRUPT_MESSAGE), (7, E.UNKNOWN_TOPIC_OR_PARTITION)]
    assert [row[:2] for row in told(await asked)] == errors


@run_by(serve)
async def test_keys_of_a_compacted_topic_are_looked_for_off_the_loop(serving, /, where, files):
    files.gate.set()
    topic_id = await serving.topic("t", cleanup_policy="compact")
    good, bad = (batch(serving, codec="lz4", count=3, key=key) for key in (b"k", None))
    assert told(await serving.ask(request(topic_id, (0, good)))) == [(0, E.NONE, 0)]
    answer = await serving.ask(request(topic_id, (0, bad)))
    assert told(answer) == [(0, E.INVALID_RECORD, -1)]
    assert [each.batch_index for each in answer.responses[0].partition_responses[0].record_errors] == [0, 1, 2]
    assert len(where) == 2 and threading.get_ident() not in where
    assert files.begun == 2


@run_by(serve)
async def test_a_batch_that_cannot_be_read_is_refused(serving, /, where, files):
    files.gate.set()
    topic_id = await serving.topic("t", compression_type="zstd")
    broken = bytearray(batch(serving, codec="lz4"))
    broken[-1] ^= 1
    assert told(await serving.ask(request(topic_id, (0, bytes(broken))))) == [(0, E.CORRUPT_MESSAGE, -1)]
    assert serving.replicas.get("t", 0).line is None and threading.get_ident() not in where


@run_by(serve)
async def test_options_that_change_meanwhile_hold(serving, /, files):
    topic_id = await serving.topic("t", compression_type="zstd")
    partition = serving.replicas.get("t", 0)
    asked = asyncio.ensure_future(serving.ask(request(topic_id, (0, batch(serving)))))
    await settled()
    other = await serving.topic("other", compression_type="gzip")
    assert other
    partition.log.tail.config = serving.replicas.get("other", 0).log.config
    files.gate.set()
    assert told(await asked) == [(0, E.NONE, 0)]
    (header,) = [header for _, header in walk(stored(serving))]
    assert header.attributes & 7 == GZIP


@run_by(serve)
async def test_a_batch_that_comes_twice_is_appended_once(serving, /, files):
    topic_id = await serving.topic("t", compression_type="zstd")
    same = batch(serving, producer_id=5, producer_epoch=0, base_sequence=0)
    asked = [asyncio.ensure_future(serving.ask(request(topic_id, (0, same)))) for _ in range(2)]
    await settled()
    files.gate.set()
    assert [told(await each) for each in asked] == [[(0, E.NONE, 0)]] * 2
    assert serving.replicas.get("t", 0).high_watermark == 1


@run_by(serve, compression_queued_bytes="1048576")
async def test_what_waits_is_bounded(serving, /, files):
    topic_id = await serving.topic("t", compression_type="zstd", max_message_bytes="2000000")
    first = asyncio.ensure_future(serving.ask(request(topic_id, (0, batch(serving, 700_000)))))
    await settled()
    assert told(await serving.ask(request(topic_id, (0, batch(serving, 700_000))))) == [(0, E.REQUEST_TIMED_OUT, -1)]
    files.gate.set()
    assert told(await first) == [(0, E.NONE, 0)]
    assert told(await serving.ask(request(topic_id, (0, batch(serving, 700_000))))) == [(0, E.NONE, 1)]


@run_by(serve)
async def test_without_acks_a_refusal_ends_the_connection(serving, /, files):
    files.gate.set()
    topic_id = await serving.topic("t", cleanup_policy="compact")
    assert await serving.ask(request(topic_id, (0, batch(serving, codec="lz4")), acks=0)) is None
    answer = await serving.ask(request(topic_id, (0, batch(serving, codec="lz4", key=None)), acks=0))
    assert isinstance(answer, CloseConnection)
