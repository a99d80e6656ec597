"""What is asked of a partition while the pool is at work in its directory: deletes, compacts, syncs.

`SlowPool` holds one kind of job before it begins, and again when it is done and the loop has not been told. In both
moments every request that looks at a log is answered as ever, and the partition stays online.
"""

import asyncio

import pytest

from isthmus.core_broker.storage.disk.real_files import RealFiles
from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import delete_records as dr
from isthmus.protocol.messages import describe_log_dirs as ld
from isthmus.protocol.messages import describe_producers as dp
from isthmus.protocol.messages import fetch as f
from isthmus.protocol.messages import list_offsets as lo
from isthmus.protocol.messages import offset_for_leader_epoch as oe
from isthmus.protocol.messages import produce as p
from isthmus.protocol.records import build_batch, iter_records

from .serving import serve

E = ErrorCode
BATCHES = 12  # of two records, three a segment


class SlowPool(RealFiles):
    """Jobs that are called `name` are held: `begun`, then `may_work`; `worked`, then `may_end`."""

    def __init__(self, name):
        super().__init__(2)
        self.name = ""  # of no job yet
        self._name = name
        self.begun, self.may_work, self.worked, self.may_end = (asyncio.Event() for _ in range(4))

    def begin(self):
        self.name = self._name

    async def run(self, fn, *args):
        if not self.name or self.name not in (fn.__name__, *(getattr(each, "__name__", "") for each in args)):
            return await super().run(fn, *args)
        self.begun.set()
        await self.may_work.wait()
        result = await super().run(fn, *args)
        self.worked.set()
        await self.may_end.wait()
        return result


def row_of(answer):
    (topic,) = next(getattr(answer, name) for name in ("topics", "responses") if hasattr(answer, name))
    partitions = getattr(topic, "partitions", None) or topic.partition_responses
    return partitions[0]


async def read(serving, topic_id, offset):
    """Offsets of the records that a fetch is given; None where it is told that the log starts later."""
    partitions = [f.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)]
    asked = f.Request(max_wait_ms=0, min_bytes=0, topics=[f.FetchTopic(topic_id=topic_id, partitions=partitions)])
    row = row_of(await serving.ask(asked))
    if row.error_code == E.OFFSET_OUT_OF_RANGE:
        assert offset < row.log_start_offset or offset < serving.replicas.get("t", 0).log.log_start_offset
        return None
    assert row.error_code == E.NONE, row
    return [each.offset for part in row.records for each in iter_records(part.read()) if each.offset >= offset]


async def ask_all(serving, topic_id):
    """Every request that looks at a log, as its clients may send it at any time."""
    log = serving.replicas.get("t", 0).log
    start, end = log.log_start_offset, log.log_end_offset
    for offset in range(end):
        found = await read(serving, topic_id, offset)
        assert (found is None) == (offset < start)
        assert found is None or (found and found[-1] == end - 1)
    for timestamp in (0, -1, -2, -3, stamp(end - 1)):
        row = row_of(await serving.ask(lo.Request(replica_id=-1, topics=[lo.ListOffsetsTopic(
            name="t", partitions=[lo.ListOffsetsPartition(partition_index=0, timestamp=timestamp)])])))  # fmt: skip
        assert row.error_code == E.NONE and start <= row.offset <= end, row
    row = row_of(await serving.ask(oe.Request(topics=[oe.OffsetForLeaderTopic(
        topic="t", partitions=[oe.OffsetForLeaderPartition(partition=0, leader_epoch=0)])])))  # fmt: skip
    assert (row.error_code, row.end_offset) == (E.NONE, end)
    row = row_of(await serving.ask(dp.Request(topics=[dp.TopicRequest(name="t", partition_indexes=[0])])))
    assert row.error_code == E.NONE and len(row.active_producers) == 1
    (result,) = (await serving.ask(ld.Request(topics=None))).results
    assert result.error_code == E.NONE and result.topics[0].partitions[0].partition_size == log.size_bytes
    data = p.PartitionProduceData(index=0, records=memoryview(rows(end)))
    asked = p.Request(
        acks=1, timeout_ms=5000, topic_data=[p.TopicProduceData(topic_id=topic_id, partition_data=[data])]
    )
    row = row_of(await serving.ask(asked))
    assert (row.error_code, row.base_offset) == (E.NONE, end)


async def delete_records(serving):
    start = serving.replicas.get("t", 0).log.log_start_offset
    row = dr.DeleteRecordsPartition(partition_index=0, offset=start + 1)
    asked = dr.Request(topics=[dr.DeleteRecordsTopic(name="t", partitions=[row])], timeout_ms=5000)
    row = row_of(await serving.ask(asked))
    assert (row.error_code, row.low_watermark) == (E.NONE, start + 1)


def stamp(offset):
    return 1_700_000_000_000 + offset


def rows(first):
    values = [(stamp(n), b"k%d" % (n % 3), b"v%d" % n, ()) for n in (first, first + 1)]
    return build_batch(values, producer_id=7, producer_epoch=0, base_sequence=first)


async def expire(serving):
    """Retention of the first two segments, by size."""
    log = serving.replicas.get("t", 0).log
    return await log.enforce_retention(log.log_end_offset, stamp(0))


async def compact(serving):
    return await serving.logs.cleaner.clean_filthiest()


async def sync(serving):
    await serving.replicas.get("t", 0).log.sync()
    return True


WORK = {
    "retention deletes": ("remove_segments", expire, "delete"),
    "a cleaned segment is decided on": ("decide", compact, "compact,delete"),
    "a cleaned segment takes the place of others": ("finish", compact, "compact,delete"),
    "a round of compaction reads and writes": ("_next", compact, "compact,delete"),
    "a sync": ("sync_files", sync, "delete"),
}


@pytest.mark.parametrize("work", WORK)
def test_requests_are_answered_as_ever(tmp_path, work):
    name, begin, policy = WORK[work]
    files = SlowPool(name)

    async def story(serving):
        topic_id = await serving.topic(
            "t", cleanup_policy=policy, min_cleanable_dirty_ratio="0", retention_ms="-1",
            message_timestamp_before_max_ms=str(2**63 - 1),
        )  # fmt: skip
        partition = serving.replicas.get("t", 0)
        for number in range(BATCHES):
            if number % 3 == 0 and number:
                partition.log.rolling.roll(partition.log.log_end_offset, stamp(0))
            partition.append(rows(2 * number), 0, stamp(0))
        if begin is expire:
            partition.delete_records(13)
        files.begin()
        working = asyncio.ensure_future(begin(serving))
        for reached, go_on in ((files.begun, files.may_work), (files.worked, files.may_end)):
            waiting = asyncio.ensure_future(reached.wait())
            await asyncio.wait([waiting, working], return_when=asyncio.FIRST_COMPLETED)
            assert reached.is_set(), f"no job is called {name}"
            await ask_all(serving, topic_id)
            await delete_records(serving)
            assert not working.done()
            go_on.set()
        assert await working
        await ask_all(serving, topic_id)
        assert serving.replicas.offline() == {}

    serve(story, tmp_path, files=files)
