"""ListOffsets: a search by timestamp that takes long, and what happens to its partition meanwhile."""

import asyncio
import random

import pytest

from isthmus.core_broker.cluster.controller import DeleteTopics
from isthmus.core_broker.storage.disk.real_files import RealFiles
from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import list_offsets as m
from isthmus.runtime import Runtime

from .serving import serve

E = ErrorCode


class SlowSearches(RealFiles):
    """Searches of the pool that wait until `goes_on`."""

    def __init__(self):
        super().__init__(2)
        self.is_reached, self.goes_on = asyncio.Event(), asyncio.Event()

    async def run(self, fn, *args):
        if fn.__name__ == "_search_timestamp":
            self.is_reached.set()
            await self.goes_on.wait()
        return await super().run(fn, *args)


def request(*topics, timestamp):
    partitions = [m.ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
    return m.Request(
        replica_id=-1, topics=[m.ListOffsetsTopic(name=name, partitions=partitions) for name in topics]
    )  # fmt: skip


def told(answer):
    return {topic.name: (topic.partitions[0].error_code, topic.partitions[0].offset) for topic in answer.topics}


def meanwhile(tmp_path, change, timestamp=0):
    """What is answered for the topics t and u when `change(serving)` comes while t is searched."""
    files = SlowSearches()
    found = []

    async def work(serving):
        for name in ("t", "u"):
            await serving.topic(name)
            for number in range(4):
                if number == 2:
                    serving.replicas.get(name, 0).log.rolling.roll(4, serving.runtime.wall_ms())
                serving.fill(name, 2)
        asking = asyncio.ensure_future(serving.ask(request("t", "u", timestamp=timestamp)))
        await files.is_reached.wait()
        await change(serving)
        files.goes_on.set()
        found.append(told(await asking))
        assert serving.replicas.offline() == {}

    serve(work, tmp_path, Runtime(random.Random(7), lambda: 1_700_000_000_000, lambda: 0), files)
    return found[0]


@pytest.mark.parametrize("timestamp", [0, -3])
def test_nothing_happens(tmp_path, timestamp):
    async def nothing(serving):
        return None

    assert meanwhile(tmp_path, nothing, timestamp) == {"t": (0, 0), "u": (0, 0)}


def test_records_that_are_deleted_are_not_found(tmp_path):
    async def delete_records(serving):
        serving.replicas.get("t", 0).delete_records(5)

    assert meanwhile(tmp_path, delete_records) == {"t": (0, 5), "u": (0, 0)}


def test_segments_that_retention_takes_are_passed_over(tmp_path):
    async def expire(serving):
        log = serving.replicas.get("t", 0).log
        serving.replicas.get("t", 0).delete_records(4)
        assert await log.enforce_retention(log.log_end_offset, serving.runtime.wall_ms()) == 1

    assert meanwhile(tmp_path, expire) == {"t": (0, 4), "u": (0, 0)}


@pytest.mark.parametrize("timestamp", [0, -3])
def test_a_topic_that_is_deleted_is_not_known(tmp_path, timestamp):
    async def delete(serving):
        await serving.controller.submit_wait(DeleteTopics(["t"]))

    found = meanwhile(tmp_path, delete, timestamp)
    assert found == {"t": (E.UNKNOWN_TOPIC_OR_PARTITION, -1), "u": (0, 0)}
