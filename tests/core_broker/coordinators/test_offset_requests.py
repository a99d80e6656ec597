"""Committed offsets over a real log: what is refused, answers when safe, restarts, expiry."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.core_broker.cluster.controller import DeleteTopics
from isthmus.core_broker.coordinators import group_shard
from isthmus.core_broker.coordinators.group_shard import GroupShard
from isthmus.core_broker.coordinators.runtime import NO_PRODUCER
from isthmus.core_broker.purgatory import Pending
from isthmus.core_broker.storage.log.log import Log
from isthmus.protocol.errors import ErrorCode as E
from isthmus.protocol.messages import heartbeat as hb
from isthmus.protocol.messages import list_groups as lsg
from isthmus.protocol.messages import offset_delete as od
from isthmus.protocol.messages import offset_fetch as of
from isthmus.protocol.messages.group_records import OffsetCommitKey, OffsetCommitValue
from tests.running import run_by

from .desk import FSYNC, Desk, commit_request, delete_request, join_request, simulated


@run_by(simulated)
async def test_offsets_come_back_as_they_were_committed(desk: Desk, /) -> None:
    assert await desk.fetched() == (-1, -1, "")
    assert await desk.commit(5, metadata="hello", epoch=3) == E.NONE
    assert await desk.fetched() == (5, 3, "hello")
    assert await desk.commit(4, metadata=None) == E.NONE
    assert await desk.fetched() == (4, -1, "")
    assert await desk.fetched(partition=1) == (-1, -1, "")
    assert await desk.fetched(group="other") == (-1, -1, "")
    assert await desk.fetched(topic="unknown") == (-1, -1, "")


@run_by(simulated)
async def test_no_offsets_are_told_where_another_node_may_be_the_coordinator(desk: Desk, /) -> None:
    assert await desk.commit(5) == E.NONE
    desk.has_session = False
    for version in (7, 9):
        asked = of.Request(group_id="g", groups=[of.OffsetFetchRequestGroup(group_id="g")])
        answer = await desk.ask(asked, version)
        assert (answer.groups[0] if version > 7 else answer).error_code == E.NOT_COORDINATOR
    desk.has_session = True
    assert await desk.fetched() == (5, -1, "")


@run_by(simulated)
async def test_commits_that_are_refused(desk: Desk, /) -> None:
    assert await desk.commit(1, topic="unknown") == E.UNKNOWN_TOPIC_OR_PARTITION
    assert await desk.commit(1, partition=2) == E.UNKNOWN_TOPIC_OR_PARTITION
    assert await desk.commit(1, metadata="x" * 4097) == E.OFFSET_METADATA_TOO_LARGE
    assert await desk.commit(1, metadata="x" * 4096) == E.NONE
    assert await desk.commit(1, group="new", generation=3, member="m") == E.ILLEGAL_GENERATION
    late = await desk.ask(commit_request(1, group="new", generation=3, member="m"), 9)
    assert late.topics[0].partitions[0].error_code == E.GROUP_ID_NOT_FOUND
    member, generation = await desk.member("m")
    assert await desk.commit(1, group="m") == E.UNKNOWN_MEMBER_ID
    assert await desk.commit(1, group="m", member=member, generation=generation + 1) == E.ILLEGAL_GENERATION
    assert await desk.commit(1, group="m", member="x", generation=generation) == E.UNKNOWN_MEMBER_ID
    assert await desk.commit(1, group="m", member=member, generation=generation) == E.NONE


@run_by(simulated)
async def test_one_commit_of_good_and_bad_partitions(desk: Desk, /) -> None:
    request = commit_request(1)
    request.topics += commit_request(2, topic="unknown").topics
    request.topics[0].partitions += commit_request(3, partition=9).topics[0].partitions
    answer = await desk.ask(request, 8)
    codes = {(t.name, p.partition_index): p.error_code for t in answer.topics for p in t.partitions}
    assert codes == {
        ("t", 0): E.NONE,
        ("t", 9): E.UNKNOWN_TOPIC_OR_PARTITION,
        ("unknown", 0): E.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert await desk.fetched() == (1, -1, "")


@run_by(simulated)
async def test_all_topics_and_many_groups_and_topic_ids(desk: Desk, /) -> None:
    await desk.create("u")
    ids = {name: topic.id for name, topic in desk.host.broker._controller.image.topics.items()}  # type: ignore[union-attr]
    await desk.commit(1)
    await desk.commit(2, topic="u")
    await desk.commit(3, group="h")
    everything = await desk.ask(of.Request(group_id="g", topics=None), 7)
    assert [(t.name, t.partitions[0].committed_offset) for t in everything.topics] == [("t", 1), ("u", 2)]
    groups = [
        of.OffsetFetchRequestGroup(group_id="g", topics=None),
        of.OffsetFetchRequestGroup(
            group_id="h", topics=[of.OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1])]
        ),
        of.OffsetFetchRequestGroup(group_id="none", topics=None),
    ]
    answer = await desk.ask(of.Request(groups=groups), 8)
    assert [(g.group_id, g.error_code, len(g.topics)) for g in answer.groups] == [
        ("g", 0, 2), ("h", 0, 1), ("none", 0, 0)
    ]  # fmt: skip
    assert [p.committed_offset for p in answer.groups[1].topics[0].partitions] == [3, -1]

    by_id = [
        of.OffsetFetchRequestTopics(topic_id=ids["t"], partition_indexes=[0]),
        of.OffsetFetchRequestTopics(topic_id=b"\x01" * 16, partition_indexes=[0]),
    ]
    asked = [of.OffsetFetchRequestGroup(group_id="g", topics=by_id), groups[0]]
    first, second = (await desk.ask(of.Request(groups=asked), 10)).groups
    found = [(t.topic_id, t.partitions[0].committed_offset, t.partitions[0].error_code) for t in first.topics]
    assert found == [(ids["t"], 1, 0), (b"\x01" * 16, -1, E.UNKNOWN_TOPIC_ID)]
    assert [t.topic_id for t in second.topics] == [ids["t"], ids["u"]]

    request = commit_request(9)
    request.topics[0].name, request.topics[0].topic_id = "", ids["t"]
    request.topics += commit_request(9, topic="").topics
    request.topics[1].topic_id = b"\x01" * 16
    committed = await desk.ask(request, 10)
    assert {t.topic_id: t.partitions[0].error_code for t in committed.topics} == {
        ids["t"]: E.NONE, b"\x01" * 16: E.UNKNOWN_TOPIC_ID
    }  # fmt: skip
    assert await desk.fetched() == (9, -1, "")


@run_by(simulated, options=FSYNC)
async def test_a_commit_is_answered_when_it_is_on_disk_and_never_lost(desk: Desk, /) -> None:
    for offset in range(1, 20):
        assert await desk.commit(offset) == E.NONE
        if offset % 5 == 0:
            await desk.restart(power=True)
            assert await desk.fetched() == (offset, -1, "")


@run_by(simulated, options=FSYNC)
async def test_an_offset_that_is_not_on_disk_yet_is_not_told(desk: Desk, /) -> None:
    commit = await desk.start_asking(commit_request(7), 8)
    assert isinstance(commit, Pending) and not commit.done
    request = of.Request(group_id="g", topics=None)
    fetch = await desk.start_asking(request, 7)
    assert isinstance(fetch, Pending) and not fetch.done
    await desk.sim.until(lambda: commit.done and fetch.done, "both answers")
    assert commit.answer.topics[0].partitions[0].error_code == E.NONE
    assert fetch.answer.topics[0].partitions[0].committed_offset == 7


@run_by(simulated, options=FSYNC)
async def test_a_disk_that_fails_is_told_and_nothing_is_kept(desk: Desk, /, monkeypatch) -> None:
    async def refuse(log: Log) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Log, "sync", refuse)
    assert await desk.commit(7) == E.NOT_COORDINATOR
    assert await desk.commit(8) == E.NOT_COORDINATOR


@run_by(simulated, options={"offsets.retention.minutes": "5", "offsets.retention.check.interval.ms": "20000"})
async def test_offsets_of_unused_groups_grow_old(desk: Desk, /) -> None:
    await desk.create("u")
    await desk.commit(1, group="simple")
    request = commit_request(2, group="brief", retention_ms=1000)
    await desk.ask(request, 4)
    member, generation = await desk.member("active")
    beat = hb.Request(group_id="active", member_id=member, generation_id=generation)
    await desk.commit(3, group="active", member=member, generation=generation)
    await desk.commit(4, group="active", member=member, generation=generation, topic="u")
    for _ in range(8):
        await desk.sim.sleep(9)
        await desk.ask(beat, 3)
    assert (await desk.fetched("brief"))[0] == -1, "it said how long"
    assert (await desk.fetched("simple"))[0] == 1
    for _ in range(60):
        await desk.sim.sleep(9)
        await desk.ask(beat, 3)
    assert (await desk.fetched("simple"))[0] == -1
    assert (await desk.fetched("active"))[0] == -1, "no member reads that topic"
    assert (await desk.fetched("active", "u"))[0] == 4
    listed = await desk.ask(lsg.Request(), 4)
    assert [group.group_id for group in listed.groups] == ["active"]
    await desk.restart()
    assert (await desk.fetched("active", "u"))[0] == 4 and (await desk.fetched("simple"))[0] == -1


@run_by(simulated, options={"offsets.retention.check.interval.ms": "20000"})
async def test_how_long_an_offset_lives_is_kept_over_a_restart(desk: Desk, /) -> None:
    await desk.ask(commit_request(2, group="brief", retention_ms=30_000), 2)
    await desk.ask(commit_request(3, group="ever", retention_ms=2**63 - 1), 2)
    await desk.restart()
    assert (await desk.fetched("brief"))[0] == 2 and (await desk.fetched("ever"))[0] == 3
    await desk.sim.sleep(61)
    assert (await desk.fetched("brief"))[0] == -1
    assert (await desk.fetched("ever"))[0] == 3


@run_by(simulated, options={"offsets.retention.check.interval.ms": "20000"})
async def test_many_groups_grow_old_in_turns(desk: Desk, /, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_shard, "EXPIRED_A_TURN", 2)
    real, turns = GroupShard.expire, []

    def expire(self: GroupShard, now_ms: int, retention_ms: int) -> list[Any]:
        records = real(self, now_ms, retention_ms)
        turns.append({key.group for key, _ in records})
        return records

    monkeypatch.setattr(GroupShard, "expire", expire)
    for number in range(5):
        await desk.ask(commit_request(1, group=f"brief-{number}", retention_ms=1_000), 2)
    await desk.commit(1, group="ever")
    await desk.sim.sleep(30)  # one round
    gone = [each for each in turns if each]
    assert sorted(map(len, gone)) == [1, 2, 2] and len(set.union(*gone)) == 5
    listed = await desk.ask(lsg.Request(), 4)
    assert [group.group_id for group in listed.groups] == ["ever"]


def codes(answer: od.Response) -> tuple[int, list[int]]:
    """The error of the whole, and of each partition."""
    return answer.error_code, [partition.error_code for topic in answer.topics for partition in topic.partitions]


@run_by(simulated)
async def test_offsets_are_deleted_for_good(desk: Desk, /) -> None:
    await desk.commit(1)
    await desk.commit(2, partition=1)
    answer = await desk.ask(delete_request("g", ("t", 0), ("unknown", 0), ("t", 7)), 0)
    assert codes(answer) == (0, [E.UNKNOWN_TOPIC_OR_PARTITION, E.UNKNOWN_TOPIC_OR_PARTITION, E.NONE])
    for _ in range(2):
        assert (await desk.fetched())[0] == -1 and (await desk.fetched(partition=1))[0] == 2
        await desk.restart()
    assert codes(await desk.ask(delete_request("g", ("t", 0)), 0)) == (0, [E.NONE]), "gone is gone"


@run_by(simulated)
async def test_offsets_that_members_use_are_not_deleted(desk: Desk, /) -> None:
    await desk.create("u")
    member, generation = await desk.member()  # reads u
    for topic in ("t", "u"):
        assert await desk.commit(3, topic=topic, member=member, generation=generation) == E.NONE
    answer = await desk.ask(delete_request("g", ("u", 0), ("t", 0)), 0)
    assert codes(answer) == (0, [E.GROUP_SUBSCRIBED_TO_TOPIC, E.NONE])
    assert (await desk.fetched(topic="u"))[0] == 3 and (await desk.fetched())[0] == -1
    assert codes(await desk.ask(delete_request("none", ("t", 0)), 0)) == (E.GROUP_ID_NOT_FOUND, [])
    assert codes(await desk.ask(delete_request("", ("t", 0)), 0)) == (E.INVALID_GROUP_ID, [])
    assert codes(await desk.ask(delete_request("g"), 0)) == (0, [])
    assert codes(await desk.ask(delete_request("none", ("unknown", 0)), 0)) == (E.GROUP_ID_NOT_FOUND, [])
    await desk.ask(join_request("g", member), 5)  # the leader asks for a new generation: between two of them
    assert codes(await desk.ask(delete_request("g", ("u", 0)), 0)) == (0, [E.GROUP_SUBSCRIBED_TO_TOPIC])


@run_by(simulated)
async def test_offsets_of_a_group_that_is_not_of_consumers(desk: Desk, /) -> None:
    await desk.commit(1)
    request = join_request("g")
    request.protocol_type = "connect"
    await desk.ask(request, 3)
    assert codes(await desk.ask(delete_request("g", ("t", 0)), 0)) == (E.NON_EMPTY_GROUP, [])


@run_by(simulated)
async def test_offsets_go_with_their_topic(desk: Desk, /) -> None:
    await desk.create("u")
    for topic in ("t", "u"):
        await desk.commit(7, topic=topic)
    await desk.submit(DeleteTopics(names=["t"]))
    await desk.create("t")
    for _ in range(2):
        assert (await desk.fetched())[0] == -1 and (await desk.fetched(topic="u"))[0] == 7
        await desk.restart()


@run_by(simulated)
async def test_offsets_go_with_a_topic_that_is_deleted_while_they_are_read(desk: Desk, /) -> None:
    await desk.create("u")
    for topic in ("t", "u"):
        await desk.commit(7, topic=topic)
    desk.host.kill()
    await desk.host.start()
    assert desk.groups.host.shards.shards[0].failure is not None, "they are being read"
    await desk.submit(DeleteTopics(names=["t"]))
    await desk.ready()
    await desk.create("t")
    assert (await desk.fetched())[0] == -1 and (await desk.fetched(topic="u"))[0] == 7


@run_by(simulated)
async def test_metadata_is_measured_as_java_does(desk: Desk, /) -> None:
    assert await desk.commit(1, metadata="\U0001f642" * 2048) == E.NONE
    assert await desk.commit(1, metadata="\U0001f642" * 2049) == E.OFFSET_METADATA_TOO_LARGE
    assert await desk.commit(1, metadata="é" * 4096) == E.NONE
    assert (await desk.fetched())[2] == "é" * 4096


@run_by(simulated)
async def test_who_asks_by_id_is_not_told_of_an_earlier_topic_of_that_name(desk: Desk, /) -> None:
    await desk.commit(7)
    topic = desk.host.broker._controller.image.topics["t"]  # type: ignore[union-attr]
    wanted = of.OffsetFetchRequestTopics(topic_id=topic.id, partition_indexes=[0])
    request = of.Request(groups=[of.OffsetFetchRequestGroup(group_id="g", topics=[wanted])])

    async def by_id() -> int:
        return (await desk.ask(request, 10)).groups[0].topics[0].partitions[0].committed_offset

    assert await by_id() == 7
    offsets = desk.groups.host.shards.shards[0].state.offsets
    key, value = OffsetCommitKey(group="g", topic="t", partition=0), OffsetCommitValue(offset=7, metadata="")
    value.topic_id = bytes(15) + b"1"  # as a tombstone that was never written would leave it
    offsets.replay(key, value, 1, NO_PRODUCER)
    assert await by_id() == -1 and (await desk.fetched())[0] == 7
    value.topic_id = bytes(16)  # as old clients and old records have it
    offsets.replay(key, value, 1, NO_PRODUCER)
    assert await by_id() == 7
