"""What a follower asks its leader for next: rounds of fetches, with a leader that a test speaks for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from isthmus.core_broker.config import BrokerConfig, topic_config
from isthmus.core_broker.replication import fetching as module
from isthmus.core_broker.replication.fetching import LOOK_AT_SYNC_S, Fetching
from isthmus.core_broker.replication.partition import Partition
from isthmus.core_broker.replication.throttle import Quota
from isthmus.core_broker.storage.startup import opening
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.messages import fetch, list_offsets
from isthmus.runtime import system
from tests.core_broker.storage.support import NOW_MS, FilesAtOnce, at, batch
from tests.running import run_by
from tests.simulation.runner import Simulation, run_checked

from .worlds import Gate

TOPIC_ID, EPOCH, LEADER = b"\1" * 16, 3, 2
OUT_OF_RANGE = fetch.PartitionData(partition_index=0, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
RATE = "follower.replication.throttled.rate"


TellOffset = Callable[[int], list_offsets.ListOffsetsPartitionResponse]


class Line:
    """A connection to the leader. asked: its fetches; the last of them waits. tell_offset: by timestamp, what it tells
    of a partition."""

    alive = True

    def __init__(self, tell_offset: TellOffset) -> None:
        self.asked: list[fetch.Request] = []
        self.tell_offset = tell_offset
        self._answer: asyncio.Future[Any] | None = None

    async def request(self, api: Any, request: Any, timeout_ms: float) -> Any:
        if api is list_offsets.API:
            asked = request.topics[0].partitions[0]
            row = self.tell_offset(asked.timestamp)
            await asyncio.sleep(0.001)
            return list_offsets.Response(topics=[list_offsets.ListOffsetsTopicResponse(name="t", partitions=[row])])
        self.asked.append(request)
        self._answer = asyncio.get_running_loop().create_future()
        return await self._answer

    async def answer(self, *rows: fetch.PartitionData) -> None:
        """The fetch that waits is answered, and what comes of that is done."""
        assert self._answer is not None, "nobody asks"
        answer, self._answer = self._answer, None
        topics = [fetch.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=list(rows))]
        answer.set_result(fetch.Response(session_id=1, responses=topics))
        await asyncio.sleep(0.005)

    @property
    def is_asked(self) -> bool:
        return self._answer is not None

    def wanted(self, index: int) -> tuple[int, int] | None:
        """Offset and log start that the last fetch has of a partition; None if it does not name it."""
        rows = [row for topic in self.asked[-1].topics for row in topic.partitions if row.partition == index]
        return (rows[0].fetch_offset, rows[0].log_start_offset) if rows else None

    def close(self) -> None:
        self.alive = False
        if self._answer is not None and not self._answer.done():
            self._answer.cancel()


class Follower:
    """Broker 1, which follows. lines: to its leader, in the order in which they were made. saved: log starts that are
    on disk. lacks_space: they cannot be saved. on_save: called when they were. may_connect: else connections wait."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self.files = FilesAtOnce()
        self.config = BrokerConfig()
        self.lines: list[Line] = []
        self.tell_offset: TellOffset
        self.saved: dict[int, int] = {}
        self.lacks_space = False
        self.partitions: list[Partition] = []
        self.on_save: Callable[[], None] = lambda: None
        self.may_connect = asyncio.Event()
        self.may_connect.set()
        quota = Quota(RATE, self.config, lambda: asyncio.get_running_loop().time())
        self.fetching = Fetching(
            1, self.config, system(), lambda: 7, lambda broker_id: "leader:1", quota, self._saved, self._save
        )

        async def connect(*_: Any) -> Any:
            await self.may_connect.wait()
            self.lines.append(Line(lambda timestamp: self.tell_offset(timestamp)))
            return self.lines[-1]

        monkeypatch.setattr(module, "connect", connect)

    async def follow(self, index: int, **options: str) -> Partition:
        opened = await opening.open_log(self.files, str(self.path / f"t-{index}"), None, wall_ms=NOW_MS)
        return await self.follow_under(EPOCH, LEADER, index, opened, **options)

    async def follow_under(self, epoch: int, leader: int, index: int, opened: Any, **options: str) -> Partition:
        """Another leadership of a log."""
        partition = Partition("t", TOPIC_ID, index, opened)
        partition.configure(topic_config(options, BrokerConfig()))
        partition.begin_epoch(epoch)
        partition.place(leader, [1, LEADER, 3], [leader])
        partition.recover(0)
        self.partitions.append(partition)
        self.fetching.begun(partition)
        await asyncio.sleep(0.001)
        return partition

    def _saved(self, partition: Partition) -> int:
        return self.saved.get(partition.index, 0)

    async def _save(self) -> None:
        await asyncio.sleep(0)
        if self.lacks_space:
            raise KafkaError.of(ErrorCode.KAFKA_STORAGE_ERROR, "no space")
        self.saved |= {each.index: each.log.log_start_offset for each in self.partitions}
        self.on_save()


def as_follower(
    test: Callable[[Follower], Coroutine[Any, Any, None]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(sim: Simulation) -> None:
        follower = Follower(tmp_path, monkeypatch)
        await test(follower)
        await follower.fetching.close()
        follower.files.close()

    run_checked(scenario)


def row(index: int, offset: int = 0, count: int = 0, start: int = 0, high_watermark: int = 0) -> fetch.PartitionData:
    """So many records from an offset on, of a leader whose log begins at `start`."""
    records = at(batch(count), offset, EPOCH) if count else None
    return fetch.PartitionData(
        partition_index=index, high_watermark=high_watermark or offset + count, log_start_offset=start, records=records
    )


def telling(earliest: int, latest: int) -> TellOffset:
    offsets = {module.EARLIEST: earliest, module.LATEST: latest}
    return lambda timestamp: list_offsets.ListOffsetsPartitionResponse(partition_index=0, offset=offsets[timestamp])


@run_by(as_follower)
async def test_a_copy_that_is_handed_over_tells_its_log_start_once_it_is_saved(follower: Follower, /) -> None:
    await follower.follow(0)
    await follower.follow(1)
    settled, newcomers = follower.lines
    assert settled.wanted(0) == (0, 0) and newcomers.wanted(1) == (0, 0)
    follower.lacks_space = True
    await newcomers.answer(row(1, count=10, start=5))
    assert newcomers.wanted(1) == (10, 0) and follower.partitions[1].log.log_start_offset == 5
    await settled.answer()
    assert settled.wanted(1) == (10, 0)  # it is the settled one's now, and its start is not saved
    follower.lacks_space = False
    await settled.answer()
    assert settled.wanted(1) == (10, 5) and follower.saved[1] == 5


@run_by(as_follower)
async def test_a_copy_is_not_handed_over_while_an_answer_for_it_is_taken_in(follower: Follower, /) -> None:
    await follower.follow(0)
    await follower.follow(1, durability="fsync")
    settled, newcomers = follower.lines
    gate = Gate(follower.files)
    await newcomers.answer(row(1, count=10))
    await settled.answer()
    assert gate.is_reached.is_set() and settled.is_asked and settled.wanted(1) is None
    gate.is_open.set()
    await asyncio.sleep(0.001)
    assert newcomers.wanted(1) == (10, 0)
    await settled.answer()
    assert settled.wanted(1) == (10, 0)


@run_by(as_follower)
async def test_a_new_leader_is_told_of_no_log_start_that_is_not_saved(follower: Follower, /) -> None:
    partition = await follower.follow(0)
    follower.lacks_space = True
    await follower.lines[0].answer(row(0, count=10, start=5))
    await follower.follow_under(EPOCH + 1, 3, 0, partition.log)
    assert follower.lines[1].wanted(0) == (10, 0) and partition.log.log_start_offset == 5
    follower.lacks_space = False
    await follower.lines[1].answer()
    assert follower.lines[1].wanted(0) == (10, 5)


@run_by(as_follower)
async def test_a_throttled_copy_that_is_behind_rests_and_others_go_on(follower: Follower, /) -> None:
    throttled = await follower.follow(0)
    throttled.throttled_follower = True
    [line] = follower.lines
    follower.config.set_dynamic({RATE: "10"}, {})
    await line.answer(row(0, count=1, high_watermark=3))
    assert not line.is_asked  # nothing else is copied
    await follower.follow(1)
    assert line.is_asked and line.wanted(1) == (0, 0) and line.wanted(0) is None
    assert [topic.partitions for topic in line.asked[-1].forgotten_topics_data] == [[0]]
    assert line.asked[-1].max_wait_ms <= follower.config["replica.fetch.wait.max.ms"]
    asked_s = asyncio.get_running_loop().time()
    while line.wanted(0) is None:
        await line.answer(row(1))
        await asyncio.sleep(line.asked[-1].max_wait_ms / 1000)
        assert asyncio.get_running_loop().time() < asked_s + 60, "it rests for ever"
    assert line.wanted(0) == (1, 0)
    await line.answer(row(0, offset=1, count=2))
    assert follower.fetching.throttle.is_exceeded() and not line.asked[-1].forgotten_topics_data
    assert line.wanted(0) == (3, 0)  # it has caught up: it is not held back


@pytest.mark.parametrize(
    ("earliest", "latest", "left"),
    [(0, 7, (5, 7)), (0, 2, (2, 2)), (20, 30, (20, 20))],
    ids=["the leader ends before it", "the leader ends before it begins", "the leader begins after it"],
)
def test_a_follower_whose_offset_the_leader_lacks_has_only_what_the_leader_has(
    earliest: int, latest: int, left: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(follower: Follower) -> None:
        partition = await follower.follow(0)
        [line] = follower.lines
        for offset in range(10):
            await line.answer(row(0, offset=offset, count=1, start=min(offset, 5)))
        follower.tell_offset = telling(earliest, latest)
        await line.answer(OUT_OF_RANGE)
        start, end = left
        assert line.wanted(0) == (end, start) and follower.saved[0] == start
        assert (partition.log.log_start_offset, partition.log.log_end_offset) == left
        assert partition.high_watermark <= end
        await line.answer(row(0, offset=end, count=1))
        assert line.wanted(0) == (end + 1, start)

    as_follower(test, tmp_path, monkeypatch)


@run_by(as_follower)
async def test_a_leader_that_refuses_an_offset_that_it_has_is_asked_again_after_a_pause(
    follower: Follower, /, caplog: pytest.LogCaptureFixture
) -> None:
    partition = await follower.follow(0)
    [line] = follower.lines
    await line.answer(row(0, count=10))
    follower.tell_offset = telling(0, 30)
    await line.answer(OUT_OF_RANGE)
    assert not line.is_asked and "broker 2 refuses offset 10, but has 0 to 30" in caplog.text
    await asyncio.sleep(module.RETRY_FIRST_S)
    follower.tell_offset = lambda timestamp: list_offsets.ListOffsetsPartitionResponse(
        partition_index=0, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER
    )
    await line.answer(OUT_OF_RANGE)
    assert not line.is_asked  # now for twice as long
    await asyncio.sleep(module.RETRY_FIRST_S)
    assert not line.is_asked
    await asyncio.sleep(module.RETRY_FIRST_S)
    assert line.is_asked and partition.log.log_end_offset == 10


@run_by(as_follower)
async def test_a_copy_that_is_put_here_anew_while_its_leader_is_asked_is_the_one_that_counts(
    follower: Follower, /
) -> None:
    first = await follower.follow(0)
    await follower.follow(1)  # for which the loop goes on
    line = follower.lines[0]
    follower.lacks_space = True
    await line.answer(row(0, count=10, start=5))
    put_anew: list[asyncio.Future[Partition]] = []

    def tell_offset(timestamp: int) -> Any:
        first.close(KafkaError.of(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another leadership"))
        put_anew.append(asyncio.ensure_future(follower.follow_under(EPOCH + 1, LEADER, 0, first.log)))
        return list_offsets.ListOffsetsPartitionResponse(error_code=ErrorCode.FENCED_LEADER_EPOCH)

    follower.tell_offset = tell_offset
    await line.answer(OUT_OF_RANGE)
    follower.lacks_space = False
    await line.answer()
    told = [row for request in line.asked[2:] for topic in request.topics for row in topic.partitions]
    of_first = [(each.current_leader_epoch, each.log_start_offset) for each in told if each.partition == 0]
    assert of_first == [(EPOCH + 1, 0), (EPOCH + 1, 5)] and len(put_anew) == 1


@run_by(as_follower)
async def test_a_new_leader_is_told_of_no_record_that_is_to_be_on_disk_first_and_is_not(follower: Follower, /) -> None:
    first = await follower.follow(0, durability="fsync")
    gate = Gate(follower.files)
    await follower.lines[0].answer(row(0, count=10))
    assert gate.is_reached.is_set() and not follower.lines[0].is_asked
    first.close(KafkaError.of(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another leadership"))
    await follower.follow_under(EPOCH + 1, 3, 0, first.log, durability="fsync")
    assert follower.lines[1].wanted(0) is None
    gate.is_open.set()
    await follower.lines[1].answer()
    await asyncio.sleep(LOOK_AT_SYNC_S)
    assert follower.lines[1].wanted(0) == (10, 0)


@run_by(as_follower)
async def test_a_copy_that_is_to_be_on_disk_first_holds_back_no_other(follower: Follower, /) -> None:
    """It comes while a connection is made for another one."""
    late = await follower.follow(0, durability="fsync")
    gate = Gate(follower.files)
    await follower.lines[0].answer(row(0, count=10))
    late.close(KafkaError.of(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another leadership"))
    opened = await opening.open_log(follower.files, str(follower.path / "t-1"), None, wall_ms=NOW_MS)
    follower.may_connect.clear()
    await follower.follow_under(EPOCH + 1, 3, 1, opened)
    await follower.follow_under(EPOCH + 1, 3, 0, late.log, durability="fsync")
    follower.may_connect.set()
    await asyncio.sleep(0.001)
    line = follower.lines[1]
    assert (line.wanted(0), line.wanted(1)) == (None, (0, 0))
    await line.answer()
    await asyncio.sleep(LOOK_AT_SYNC_S)
    assert line.wanted(0) is None
    gate.is_open.set()
    await asyncio.sleep(LOOK_AT_SYNC_S)
    await line.answer()
    assert line.wanted(0) == (10, 0)


@run_by(as_follower)
async def test_a_start_that_moves_while_it_is_saved_is_told_later(follower: Follower, /) -> None:
    copied = await follower.follow(0)
    [line] = follower.lines
    await line.answer(row(0, count=10))
    follower.on_save = lambda: copied.log.advance_start(7)
    copied.log.advance_start(5)
    await line.answer(row(0))
    assert line.wanted(0) == (10, 5)
    follower.on_save = lambda: None
    await line.answer()
    assert line.wanted(0) == (10, 7)
