"""Fetches of what is not in the page cache: they wait for the disk, and nobody else does."""

import asyncio
import errno

import pytest

from isthmus.core_broker.server.apis import fetch
from isthmus.core_broker.storage.log._ranges import NotCached
from isthmus.core_broker.storage.log.append import Origin
from isthmus.core_broker.storage.log.cold_reads import bring
from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import fetch as m
from isthmus.protocol.records import build_batch
from tests.running import run_by

from ...cold import ColdFiles
from ..asking import fetch_of
from .serving import serve

BATCHES, VALUE_BYTES, SEGMENT_BYTES = 40, 100_000, 1 << 20


@pytest.fixture
def files():
    return ColdFiles()


async def fill(serving, batches=BATCHES, value_bytes=VALUE_BYTES):
    topic_id = await serving.topic("t", segment_bytes=str(SEGMENT_BYTES))
    partition = serving.replicas.get("t", 0)
    for number in range(batches):
        now = serving.runtime.wall_ms()
        partition.append(build_batch([(now, b"k", bytes([number]) * value_bytes, ())]), Origin.CLIENT, now)
    assert batches != BATCHES or partition.log.segments_count == 4
    return topic_id, partition


def row(answer):
    return answer.responses[0].partitions[0]


@run_by(serve)
async def test_a_position_in_a_cold_segment_is_looked_for_off_the_loop(serving, /, files):
    topic_id, _ = await fill(serving)
    for offset in (0, 5, 15, 33, BATCHES - 1):
        files.chill()
        answer = row(await serving.ask(fetch_of((0, offset), max_wait_ms=100, topic_id=topic_id)))
        (records,) = answer.records[:1]
        assert answer.error_code == 0
        files.is_cold = False
        assert int.from_bytes(records.read()[:8], "big") == offset
    assert files.waits == []


@run_by(serve)
async def test_the_files_tell_of_reads_on_the_loop(serving, /, files):
    """The control of the test above: the same lookup that may wait."""
    _, partition = await fill(serving)
    files.chill()
    partition.read(5, 1 << 20)
    assert files.waits


@run_by(serve)
async def test_a_reader_that_goes_on_asks_the_index_file_once_a_window(serving, /, monkeypatch, files):
    topic_id, partition = await fill(serving)
    brought = []

    def seen(missing):
        brought.append(missing.segment.base_offset)
        return bring(missing)

    monkeypatch.setattr(fetch, "bring", seen)
    files.chill()
    files.cached.update(
        (f"{partition.log.directory}/{segment.base_offset:020d}.log", page)
        for segment in partition.log.closed_segments()
        for page in range(SEGMENT_BYTES // 4096 + 1)
    )
    offset = 0
    while offset < partition.log.active_segment.base_offset:
        answer = row(await serving.ask(fetch_of((0, offset), topic_id=topic_id)))
        assert answer.records and answer.error_code == 0
        offset += 1
    assert brought == [segment.base_offset for segment in partition.log.closed_segments()]
    assert files.waits == []


@run_by(serve)
async def test_what_goes_from_the_page_cache_again_and_again_is_waited_for_in_the_end(serving, /, monkeypatch, files):
    topic_id, partition = await fill(serving)
    files.chill()
    tries = []

    async def seen(missing):
        tries.append(missing)

    monkeypatch.setattr(fetch, "bring", seen)
    answer = row(await serving.ask(fetch_of((0, 5), topic_id=topic_id)))
    assert answer.records and len(tries) == 3


@run_by(serve)
async def test_a_disk_that_refuses_is_told_in_the_answer(serving, /, files):
    topic_id, _ = await fill(serving)
    files.chill()
    files.broken = OSError(errno.EIO, "it is broken")
    answer = row(await serving.ask(fetch_of((0, 5), topic_id=topic_id)))
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    files.broken, files.is_cold = None, False


@run_by(serve)
async def test_a_client_that_has_gone_is_not_answered(serving, /, files):
    topic_id, _ = await fill(serving)
    files.chill()
    serving.context.version = m.API.max_version
    pending = fetch.handle(fetch_of((0, 5), topic_id=topic_id), serving.context)
    told = []
    pending.when_done(told.append)
    pending.abandon()
    (task,) = serving.context.services.tasks
    await task
    assert told == [] and pending.answer is None


@run_by(serve)
async def test_a_fetch_that_must_wait_for_more_still_does(serving, /, files):
    """min.bytes is not there yet: what is cold was brought, then the append completes the answer."""
    topic_id, partition = await fill(serving, 3, 1000)
    partition.log.tail.recent = None
    files.chill()
    asked = fetch_of((0, 1), max_wait_ms=60_000, min_bytes=5000, topic_id=topic_id)
    waiting = asyncio.ensure_future(serving.ask(asked))
    await asyncio.sleep(0)
    (task,) = serving.context.services.tasks
    await task
    assert not waiting.done()
    now = serving.runtime.wall_ms()
    partition.append(build_batch([(now, b"k", bytes(4000), ())]), Origin.CLIENT, now)
    assert sum(map(len, row(await waiting).records)) > 5000


@run_by(serve)
async def test_a_truncated_segment_is_looked_up_anew(serving, /):
    """A window holds positions of a closed segment: it must go when the segment is cut and written again."""
    _, partition = await fill(serving)
    log = partition.log
    first = log.closed_segments()[0]
    try:
        partition.read(3, 1000, may_wait=False)
    except NotCached as missing:
        await bring(missing)
    assert log.ranges.windows.start_of(first, 3) >= 0
    await log.truncate_to(2)
    assert log.ranges.windows.start_of(first, 3) == -1
