"""The log of groups is compacted, and what is read of it afterwards is the same."""

from __future__ import annotations

from isthmus.protocol.errors import ErrorCode as E
from isthmus.protocol.messages import delete_groups as dlg
from isthmus.protocol.messages import describe_groups as dsg
from isthmus.protocol.messages import heartbeat as hb
from isthmus.protocol.messages import offset_commit as oc
from tests.running import run_by

from .desk import Desk, commit_request, simulated

PARTITIONS = 40
ROUNDS = 16
OPTIONS = {
    "log.cleaner.backoff.ms": "1000",
    "log.cleaner.delete.retention.ms": "1000",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "offsets.topic.segment.bytes": str(1 << 20),
}


@run_by(simulated, options=OPTIONS)
async def test_groups_read_from_a_compacted_log_are_what_they_were(desk: Desk, /) -> None:
    await desk.create("many", PARTITIONS)
    member, generation = await desk.member("active")
    await desk.commit(5, group="deleted")
    await desk.ask(dlg.Request(groups_names=["deleted"]), 2)
    for number in range(ROUNDS):  # 160 KB each, of which only the last counts
        await desk.commit(number, group="simple")
        await commit_all(desk, number)
        beat = hb.Request(group_id="active", member_id=member, generation_id=generation)
        assert (await desk.ask(beat, 3)).error_code == E.NONE
    written = len(desk.host.partition_bytes("__consumer_offsets"))

    def is_compacted() -> bool:
        return len(desk.host.partition_bytes("__consumer_offsets")) < written / 2

    for _ in range(2):
        await desk.sim.until(is_compacted, "a log of groups that is half as long", 100)
        assert (await desk.fetched("simple"))[0] == ROUNDS - 1
        assert [(await desk.fetched("large", "many", index))[0] for index in (0, 7, PARTITIONS - 1)] == [ROUNDS - 1] * 3
        assert (await desk.fetched("deleted"))[0] == -1
        groups = (await desk.ask(dsg.Request(groups=["active", "simple", "deleted"]), 5)).groups
        assert [group.group_state for group in groups] == ["Stable", "Empty", "Dead"]
        await desk.restart()


async def commit_all(desk: Desk, offset: int) -> None:
    request = commit_request(0, group="large", topic="many")
    request.topics[0].partitions = [
        oc.OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="x" * 4000)
        for index in range(PARTITIONS)
    ]
    answer = await desk.ask(request, 8)
    assert not any(row.error_code for row in answer.topics[0].partitions)
