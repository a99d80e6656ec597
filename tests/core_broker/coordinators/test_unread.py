"""Groups whose partition could not be read for now: clients are told to wait, and it goes on by itself."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import Any

import pytest

from isthmus.core_broker.cluster.controller import DeleteTopics
from isthmus.core_broker.coordinators import runtime
from isthmus.core_broker.coordinators.runtime import CoordinatorRuntime
from isthmus.core_broker.pauses import RETRY_FIRST_S, RETRY_MOST_S
from isthmus.protocol.errors import ErrorCode as E
from isthmus.protocol.messages import offset_fetch as of
from tests.core_broker.storage.support import place
from tests.running import run_by

from .desk import FSYNC, Desk, join_request, simulated

ASKED = of.Request(group_id="g", topics=[of.OffsetFetchRequestTopic(name="t", partition_indexes=[0])])


class Reads:
    """What the disk says to reads of the groups' records, from the moment on that they are to be replayed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.number = 0  # of the error; 0: there is none
        self.let_through = 0  # reads before the first that is refused
        self.refused_s: list[float] = []
        self.replayed = 0
        self._is_replaying = False
        elect, replay_one = CoordinatorRuntime.elect, CoordinatorRuntime._replay_one

        def elected(of: Any, index: int) -> None:
            self._is_replaying = True
            elect(of, index)

        def counted(of: Any, *what: Any) -> None:
            self.replayed += 1
            replay_one(of, *what)

        monkeypatch.setattr(CoordinatorRuntime, "elect", elected)
        monkeypatch.setattr(CoordinatorRuntime, "_replay_one", counted)

    async def start(self, desk: Desk, number: int) -> None:
        """The broker is killed, and starts on a disk that refuses to have the records read."""

        def inspect(kind: str, path: str) -> None:
            if self.number and self._is_replaying and kind == "read" and "/__consumer_offsets-0/" in place(path):
                if not self.let_through:
                    self.refused_s.append(desk.sim.loop.time())
                    raise OSError(self.number, os.strerror(self.number), path)
                self.let_through -= 1

        desk.host.kill()
        desk.host.machine.disk.inspect = inspect
        self.number, self._is_replaying, self.replayed = number, False, 0
        await desk.host.start()
        await desk.sim.until(lambda: bool(self.refused_s), "a read was refused")
        await desk.sim.sleep(0.01)

    def heal(self) -> None:
        self.number = 0


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[Reads]:
    return Reads(monkeypatch)


async def told(desk: Desk) -> int:
    return (await desk.ask(ASKED, 7)).error_code


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
@run_by(simulated)
async def test_groups_that_could_not_be_read_come_back_once_they_can(desk: Desk, /, number, reads, caplog) -> None:
    await desk.commit(5)
    await reads.start(desk, number)
    assert (await desk.find()).error_code == E.NONE
    assert await told(desk) == E.COORDINATOR_LOAD_IN_PROGRESS
    assert os.strerror(number) in desk.groups.unread()[0]
    await desk.sim.sleep(200)
    assert await told(desk) == E.COORDINATOR_LOAD_IN_PROGRESS
    reads.heal()
    await desk.sim.sleep(RETRY_MOST_S)
    assert await desk.fetched() == (5, -1, "")
    assert desk.groups.unread() == {}
    pauses = [after - before for before, after in zip(reads.refused_s, reads.refused_s[1:], strict=False)]
    assert pauses[:4] == pytest.approx([RETRY_FIRST_S * factor for factor in (1, 2, 4, 8)], abs=0.1)
    assert pauses[-2:] == pytest.approx([RETRY_MOST_S] * 2, abs=0.1)
    said = [record.getMessage() for record in caplog.records if "cannot be read" in record.getMessage()]
    assert len(said) == 1 and "its groups are unavailable" in said[0] and os.strerror(number) in said[0]


@run_by(simulated)
async def test_control_what_is_broken_is_not_read_again(desk: Desk, /, reads, caplog) -> None:
    await desk.commit(5)
    await reads.start(desk, errno.EIO)
    reads.heal()
    await desk.sim.sleep(200)
    assert len(reads.refused_s) == 1
    assert await told(desk) == E.COORDINATOR_NOT_AVAILABLE
    assert "Input/output error" in desk.groups.unread()[0]
    assert "its groups stay unavailable" in caplog.text


@run_by(simulated)
async def test_reading_goes_on_from_where_it_was(desk: Desk, /, reads, monkeypatch) -> None:
    monkeypatch.setattr(runtime, "READ_BYTES", 1)  # one batch at a time
    for offset in range(10):
        await desk.commit(offset)
    records = desk.groups.host.shards.shards[0].partition.log.log_end_offset
    reads.let_through = 4
    await reads.start(desk, errno.EMFILE)
    assert 0 < reads.replayed < records
    reads.heal()
    await desk.sim.sleep(2 * RETRY_FIRST_S)
    assert await desk.fetched() == (9, -1, "")
    assert reads.replayed == records


@run_by(simulated)
async def test_offsets_of_a_topic_that_was_deleted_meanwhile_are_not_there(desk: Desk, /, reads) -> None:
    await desk.create("u")
    await desk.commit(5)
    await desk.commit(7, topic="u")
    await reads.start(desk, errno.EMFILE)
    await desk.submit(DeleteTopics(names=["u"]))
    reads.heal()
    await desk.sim.sleep(2 * RETRY_FIRST_S)
    assert await desk.fetched() == (5, -1, "")
    assert await desk.fetched(topic="u") == (-1, -1, "")


@run_by(simulated)
async def test_broker_that_stops_meanwhile_tries_no_more(desk: Desk, /, reads) -> None:
    await desk.commit(5)
    await reads.start(desk, errno.EMFILE)
    process = desk.host.machine.process
    assert process is not None and desk.host.broker is not None
    await process.outcome(desk.host.broker.stop())
    count = len(reads.refused_s)
    await desk.sim.sleep(200)
    assert len(reads.refused_s) == count


@run_by(simulated)
async def test_partition_that_comes_back_while_the_broker_stops_is_not_read(desk: Desk, /, reads) -> None:
    await desk.commit(5)
    groups, process = desk.groups, desk.host.machine.process
    assert process is not None
    await process.outcome(groups.host.stop())
    await desk.inside(lambda: groups.host.elections.came_back("__consumer_offsets", 0))
    await desk.sim.sleep(RETRY_MOST_S)
    assert groups.host.shards.shards == {} and len(groups.host._timers) == 0


@run_by(simulated, options=FSYNC)
async def test_groups_whose_partition_went_offline_have_no_coordinator(desk: Desk, /, reads) -> None:
    await desk.commit(5)
    member_id, _ = await desk.member("crew")
    desk.host.machine.disk.fail("sync", errno.EIO, containing="__consumer_offsets-0/")
    assert await desk.commit(6) == E.NOT_COORDINATOR
    assert (await desk.find()).error_code == E.COORDINATOR_NOT_AVAILABLE
    assert await told(desk) == E.NOT_COORDINATOR
    joined = await desk.ask(join_request("crew", member_id), 5)
    assert (joined.error_code, joined.member_id) == (E.NOT_COORDINATOR, "")
    assert desk.groups.host.shards.shards == {}
    await desk.restart(power=True)
    assert (await desk.find()).error_code == E.NONE
    assert (await desk.fetched())[0] in (5, 6)


@run_by(simulated, options=FSYNC)
async def test_groups_whose_commit_could_not_be_synced_for_want_of_room_are_coordinated_again(
    desk: Desk, /, reads
) -> None:
    await desk.commit(5)
    shard = desk.groups.host.shards.shards[0]
    desk.host.machine.disk.fail("sync", errno.ENOSPC, containing="__consumer_offsets-0/")
    assert await desk.commit(6) == E.NOT_COORDINATOR
    assert await told(desk) in (E.NONE, E.NOT_COORDINATOR)
    await desk.sim.sleep(2 * RETRY_FIRST_S)
    again = desk.groups.host.shards.shards[0]
    assert again is not shard and again.failure is None  # what it knew is what its log holds
    assert (await desk.fetched())[0] in (5, 6)
    assert await desk.commit(7) == E.NONE
    await desk.restart(power=True)
    assert await desk.fetched() == (7, -1, "")
