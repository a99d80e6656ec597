"""The group coordinator over a real log, on simulated time and disk: offsets, answers when safe, restarts, expiry."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from isthmus.core_broker.cluster.controller import CreateTopics, DeleteTopics, new_topic
from isthmus.core_broker.coordinators.find import java_hash, partition_for
from isthmus.core_broker.coordinators.runtime import Shard
from isthmus.core_broker.purgatory import Pending
from isthmus.protocol.errors import ErrorCode as E
from isthmus.protocol.messages import delete_groups as dlg
from isthmus.protocol.messages import describe_groups as dsg
from isthmus.protocol.messages import find_coordinator as fc
from isthmus.protocol.messages import heartbeat as hb
from isthmus.protocol.messages import join_group as jg
from isthmus.protocol.messages import leave_group as lg
from isthmus.protocol.messages import list_groups as lsg
from isthmus.protocol.messages import offset_commit as oc
from isthmus.protocol.messages import offset_fetch as of
from isthmus.protocol.messages import sync_group as sg
from tests.simulation.product import BrokerHost
from tests.simulation.runner import Simulation, run

FSYNC = {"durability": "fsync"}


class Desk:
    """Requests to the coordinator of one broker, made on the broker's own process."""

    def __init__(self, sim: Simulation, host: BrokerHost) -> None:
        self.sim = sim
        self.host = host

    @property
    def groups(self) -> Any:
        assert self.host.broker is not None
        return self.host.broker._groups

    async def inside(self, work: Callable[[], Any]) -> Any:
        """What a call on the broker's process returns."""

        async def call() -> Any:
            return work()

        return await self.host.machine.process.outcome(call())  # type: ignore[union-attr]

    async def start_asking(self, request: Any, version: int) -> Any:
        """The response, or the Pending that will have it."""
        name = {
            fc.Request: "find_coordinator", jg.Request: "join_group", sg.Request: "sync_group", hb.Request: "heartbeat",
            lg.Request: "leave_group", oc.Request: "offset_commit", of.Request: "offset_fetch",
            dsg.Request: "describe_groups", lsg.Request: "list_groups", dlg.Request: "delete_groups",
        }[type(request)]  # fmt: skip
        return await self.inside(lambda: getattr(self.groups, name)(request, version, "c", "1.2.3.4"))

    async def ask(self, request: Any, version: int) -> Any:
        answer = await self.start_asking(request, version)
        if isinstance(answer, Pending):
            await self.sim.until(lambda: answer.done, f"an answer to {type(request)}")
            return answer.answer
        return answer

    async def create(self, name: str, partitions: int = 1) -> bytes:
        result = await self.submit(CreateTopics([new_topic(name, partitions)]))
        return result.items[0].topic_id

    async def submit(self, command: Any) -> Any:
        assert self.host.broker is not None and self.host.broker._controller is not None
        return await self.host.machine.process.outcome(self.host.broker._controller.submit_wait(command))  # type: ignore[union-attr]

    async def find(self, key: str = "g") -> Any:
        return await self.ask(fc.Request(key=key), 3)

    async def ready(self) -> None:
        """The groups of the first shard are loaded."""
        await self.find()
        shards = self.groups._shards.shards
        await self.sim.until(lambda: shards and all(s.failure is None for s in shards.values()), "groups loaded")

    async def restart(self, *, power: bool = False) -> None:
        self.host.kill(power=power)
        await self.host.start()
        await self.ready()

    async def commit(
        self, offset: int, *, group: str = "g", topic: str = "t", partition: int = 0, **fields: Any
    ) -> int:
        answer = await self.ask(commit_request(offset, group=group, topic=topic, partition=partition, **fields), 8)
        return answer.topics[0].partitions[0].error_code

    async def fetched(self, group: str = "g", topic: str = "t", partition: int = 0) -> tuple[int, int, str]:
        request = of.Request(
            group_id=group, topics=[of.OffsetFetchRequestTopic(name=topic, partition_indexes=[partition])]
        )
        found = (await self.ask(request, 7)).topics[0].partitions[0]
        assert found.error_code == 0
        return found.committed_offset, found.committed_leader_epoch, found.metadata

    async def member(self, group: str = "g") -> tuple[str, int]:
        """One stable member: its id and generation."""
        first = await self.ask(join_request(group), 5)
        assert first.error_code == E.MEMBER_ID_REQUIRED
        joined = await self.ask(join_request(group, first.member_id), 5)
        assert joined.error_code == E.NONE
        given = [sg.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"A")]
        request = sg.Request(
            group_id=group, member_id=joined.member_id, generation_id=joined.generation_id, assignments=given
        )
        assert (await self.ask(request, 3)).assignment == b"A"
        return joined.member_id, joined.generation_id


def commit_request(
    offset: int, *, group: str = "g", topic: str = "t", partition: int = 0, metadata: str | None = "", epoch: int = -1,
    member: str = "", generation: int = -1, retention_ms: int = -1,
) -> oc.Request:  # fmt: skip
    part = oc.OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_leader_epoch=epoch, committed_metadata=metadata
    )
    return oc.Request(
        group_id=group,
        member_id=member,
        generation_id_or_member_epoch=generation,
        retention_time_ms=retention_ms,
        topics=[oc.OffsetCommitRequestTopic(name=topic, partitions=[part])],
    )


def join_request(group: str, member_id: str = "", **fields: Any) -> jg.Request:
    return jg.Request(
        group_id=group,
        session_timeout_ms=fields.pop("session_timeout_ms", 10_000),
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[jg.JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\1\0\1u\0\0\0\0")],
        **fields,
    )


def simulated(
    scenario: Callable[[Desk], Awaitable[None]], options: dict[str, str] | None = None, *, ready: bool = True
) -> None:
    async def main(sim: Simulation) -> None:
        host = BrokerHost(sim, "broker", options)
        await host.start()
        desk = Desk(sim, host)
        if ready:
            await desk.ready()
            await desk.create("t", 2)
        await scenario(desk)

    result = run(1, main)
    assert result.error is None, result.error


def test_java_hash_codes():
    assert [java_hash(text) for text in ("", "a", "group", "Ünïcode", "🙂")] == [0, 97, 98629247, 1055301514, 1772965]
    assert java_hash("polygenelubricants") == -(2**31)
    assert partition_for("polygenelubricants", 50) == 0
    assert partition_for("group", 50) == 98629247 % 50


def test_the_first_to_look_for_a_coordinator_makes_the_offsets_topic():
    async def scenario(desk: Desk) -> None:
        assert (await desk.ask(hb.Request(group_id="g", member_id="m"), 3)).error_code == E.NOT_COORDINATOR
        answer = await desk.find()
        assert (answer.error_code, answer.node_id, answer.host, answer.port) == (0, 1, "broker", 9092)
        topic = desk.host.broker._controller.image.topics["__consumer_offsets"]  # type: ignore[union-attr]
        assert topic.configs["cleanup.policy"] == "compact" and len(topic.partitions) == 1
        many = await desk.ask(fc.Request(coordinator_keys=["a", "b"]), 4)
        assert [(c.key, c.node_id, c.error_code) for c in many.coordinators] == [("a", 1, 0), ("b", 1, 0)]
        transactional = await desk.ask(fc.Request(key="x", key_type=1), 3)
        assert transactional.error_code == E.UNSUPPORTED_VERSION and transactional.node_id == -1

    simulated(scenario, ready=False)


def test_offsets_come_back_as_they_were_committed():
    async def scenario(desk: Desk) -> None:
        assert await desk.fetched() == (-1, -1, "")
        assert await desk.commit(5, metadata="hello", epoch=3) == E.NONE
        assert await desk.fetched() == (5, 3, "hello")
        assert await desk.commit(4, metadata=None) == E.NONE
        assert await desk.fetched() == (4, -1, "")
        assert await desk.fetched(partition=1) == (-1, -1, "")
        assert await desk.fetched(group="other") == (-1, -1, "")
        assert await desk.fetched(topic="unknown") == (-1, -1, "")

    simulated(scenario)


def test_commits_that_are_refused():
    async def scenario(desk: Desk) -> None:
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

    simulated(scenario)


def test_one_commit_of_good_and_bad_partitions():
    async def scenario(desk: Desk) -> None:
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

    simulated(scenario)


def test_all_topics_and_many_groups_and_topic_ids():
    async def scenario(desk: Desk) -> None:
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

    simulated(scenario)


def test_a_commit_is_answered_when_it_is_on_disk_and_never_lost():
    async def scenario(desk: Desk) -> None:
        for offset in range(1, 20):
            assert await desk.commit(offset) == E.NONE
            if offset % 5 == 0:
                await desk.restart(power=True)
                assert await desk.fetched() == (offset, -1, "")

    simulated(scenario, FSYNC)


def test_an_offset_that_is_not_on_disk_yet_is_not_told():
    async def scenario(desk: Desk) -> None:
        commit = await desk.start_asking(commit_request(7), 8)
        assert isinstance(commit, Pending) and not commit.done
        request = of.Request(group_id="g", topics=None)
        fetch = await desk.start_asking(request, 7)
        assert isinstance(fetch, Pending) and not fetch.done
        await desk.sim.until(lambda: commit.done and fetch.done, "both answers")
        assert commit.answer.topics[0].partitions[0].error_code == E.NONE
        assert fetch.answer.topics[0].partitions[0].committed_offset == 7

    simulated(scenario, FSYNC)


def test_a_disk_that_fails_is_told_and_nothing_is_kept():
    async def scenario(desk: Desk) -> None:
        shard = desk.groups._shards.shards[0]

        async def refuse() -> None:
            raise OSError(5, "Input/output error")

        shard.partition.log.sync = refuse
        assert await desk.commit(7) == E.NOT_COORDINATOR
        assert await desk.commit(8) == E.NOT_COORDINATOR

    simulated(scenario, FSYNC)


def test_a_group_survives_restarts_in_each_state():
    async def scenario(desk: Desk) -> None:
        member, generation = await desk.member()
        assert await desk.commit(5, member=member, generation=generation) == E.NONE
        await desk.restart()
        beat = hb.Request(group_id="g", member_id=member, generation_id=generation)
        assert (await desk.ask(beat, 3)).error_code == E.NONE
        (described,) = (await desk.ask(dsg.Request(groups=["g"]), 5)).groups
        assert (described.group_state, described.protocol_data, described.members[0].member_assignment) == (
            "Stable", "range", b"A"
        )  # fmt: skip
        assert described.members[0].client_host == "/1.2.3.4" and described.members[0].client_id == "c"

        await desk.start_asking(join_request("g", member), 5)  # the leader asks for a new generation
        await desk.restart()
        assert (await desk.ask(hb.Request(group_id="g", member_id=member, generation_id=2), 3)).error_code in (0, 22)

        left = await desk.ask(lg.Request(group_id="g", members=[lg.MemberIdentity(member_id=member)]), 3)
        assert left.members[0].error_code == E.NONE
        await desk.restart()
        (described,) = (await desk.ask(dsg.Request(groups=["g"]), 5)).groups
        assert (described.group_state, described.members) == ("Empty", [])
        assert await desk.fetched() == (5, -1, "")

    simulated(scenario)


def test_a_silent_member_is_gone_after_its_session_even_over_a_restart():
    async def scenario(desk: Desk) -> None:
        member, generation = await desk.member()
        await desk.sim.sleep(9)
        await desk.restart()
        await desk.sim.sleep(9.5)
        beat = hb.Request(group_id="g", member_id=member, generation_id=generation)
        assert (await desk.ask(beat, 3)).error_code == E.NONE
        await desk.sim.sleep(10.1)
        assert (await desk.ask(beat, 3)).error_code == E.UNKNOWN_MEMBER_ID

    simulated(scenario)


def test_while_groups_are_read_clients_are_told_to_wait():
    async def scenario(desk: Desk) -> None:
        member, generation = await desk.member()
        desk.host.kill()
        await desk.host.start()
        shard = desk.groups._shards.shards[0]
        shard.failure = Shard(0, shard.partition, shard.state).failure  # as it is until all is read
        assert await desk.commit(1, member=member, generation=generation) == E.COORDINATOR_LOAD_IN_PROGRESS
        beat = hb.Request(group_id="g", member_id=member, generation_id=generation)
        assert (await desk.ask(beat, 3)).error_code == E.NONE, "a member is as well as it was"
        assert (await desk.ask(join_request("g", member), 5)).error_code == E.COORDINATOR_LOAD_IN_PROGRESS
        assert (await desk.ask(lsg.Request(), 4)).error_code == E.COORDINATOR_LOAD_IN_PROGRESS
        fetched = await desk.ask(of.Request(group_id="g", topics=None), 7)
        assert fetched.error_code == E.COORDINATOR_LOAD_IN_PROGRESS and fetched.topics == []
        old = of.Request(group_id="g", topics=[of.OffsetFetchRequestTopic(name="t", partition_indexes=[0])])
        partition = (await desk.ask(old, 1)).topics[0].partitions[0]
        assert (partition.error_code, partition.committed_offset) == (E.COORDINATOR_LOAD_IN_PROGRESS, -1)

    simulated(scenario)


def test_joins_that_cannot_be():
    async def scenario(desk: Desk) -> None:
        assert (await desk.ask(join_request(""), 5)).error_code == E.INVALID_GROUP_ID
        assert (await desk.ask(join_request("g", "who"), 5)).error_code == E.UNKNOWN_MEMBER_ID
        for session in (5_999, 1_800_001):
            refused = await desk.ask(join_request("g", session_timeout_ms=session), 5)
            assert refused.error_code == E.INVALID_SESSION_TIMEOUT
        assert (await desk.ask(sg.Request(group_id="no", member_id="m"), 3)).error_code == E.UNKNOWN_MEMBER_ID
        assert (await desk.ask(hb.Request(group_id="no", member_id="m"), 3)).error_code == E.UNKNOWN_MEMBER_ID

    simulated(scenario)


def test_leaving_by_version():
    async def scenario(desk: Desk) -> None:
        member, _ = await desk.member()
        assert (await desk.ask(lg.Request(group_id="no", member_id="m"), 2)).error_code == E.UNKNOWN_MEMBER_ID
        many = [lg.MemberIdentity(member_id="m"), lg.MemberIdentity(member_id=member)]
        unknown = await desk.ask(lg.Request(group_id="no", members=many), 3)
        assert (unknown.error_code, [m.error_code for m in unknown.members]) == (0, [E.UNKNOWN_MEMBER_ID] * 2)
        assert (await desk.ask(lg.Request(group_id="g", member_id="m"), 2)).error_code == E.UNKNOWN_MEMBER_ID
        assert (await desk.ask(lg.Request(group_id="g", member_id=member), 2)).error_code == E.NONE

    simulated(scenario)


def test_listing_and_describing():
    async def scenario(desk: Desk) -> None:
        await desk.member("active")
        await desk.commit(1, group="simple")

        async def listed(states: list[str] | None = None, types: list[str] | None = None) -> list[str]:
            answer = await desk.ask(lsg.Request(states_filter=states or [], types_filter=types or []), 5)
            return [f"{g.group_id} {g.group_state} {g.protocol_type} {g.group_type}" for g in answer.groups]

        assert await listed() == ["active Stable consumer classic", "simple Empty  classic"]
        assert await listed(states=["STABLE"]) == ["active Stable consumer classic"]
        assert await listed(types=["Consumer"]) == []
        assert len(await listed(types=["Classic"], states=["empty", "stable"])) == 2
        answer = await desk.ask(dsg.Request(groups=["none", "simple"], include_authorized_operations=True), 6)
        none, simple = answer.groups
        assert (none.group_state, none.error_code, none.error_message) == (
            "Dead", E.GROUP_ID_NOT_FOUND, "Group none not found."
        )  # fmt: skip
        assert (simple.group_state, simple.protocol_type, simple.error_code) == ("Empty", "", 0)
        (old,) = (await desk.ask(dsg.Request(groups=["none"]), 5)).groups
        assert (old.group_state, old.error_code) == ("Dead", 0)

    simulated(scenario)


def test_deleting_groups():
    async def scenario(desk: Desk) -> None:
        await desk.member("active")
        await desk.commit(1, group="simple")
        answer = await desk.ask(dlg.Request(groups_names=["active", "simple", "none"]), 2)
        assert [(r.group_id, r.error_code) for r in answer.results] == [
            ("active", E.NON_EMPTY_GROUP), ("simple", E.NONE), ("none", E.GROUP_ID_NOT_FOUND)
        ]  # fmt: skip
        for _ in range(2):
            assert await desk.fetched(group="simple") == (-1, -1, "")
            listed = await desk.ask(lsg.Request(), 4)
            assert [group.group_id for group in listed.groups] == ["active"]
            await desk.restart()

    simulated(scenario)


def test_offsets_of_unused_groups_grow_old():
    async def scenario(desk: Desk) -> None:
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

    simulated(scenario, {"offsets.retention.minutes": "5", "offsets.retention.check.interval.ms": "20000"})


def test_deleting_the_offsets_topic_lets_everyone_go():
    async def scenario(desk: Desk) -> None:
        member, _ = await desk.member()
        waits = await desk.start_asking(join_request("g"), 3)
        assert isinstance(waits, Pending) and not waits.done
        await desk.submit(DeleteTopics(names=["__consumer_offsets"]))
        assert waits.answer.error_code == E.NOT_COORDINATOR
        assert (await desk.ask(hb.Request(group_id="g", member_id=member), 3)).error_code == E.NOT_COORDINATOR
        await desk.ready()
        assert (await desk.ask(hb.Request(group_id="g", member_id=member), 3)).error_code == E.UNKNOWN_MEMBER_ID

    simulated(scenario)


@pytest.mark.parametrize("version", [4, 6, 7, 9])
def test_a_refused_join_names_no_protocol_in_a_way_its_version_can_say(version):
    async def scenario(desk: Desk) -> None:
        answer = await desk.ask(join_request("g"), version)
        assert answer.protocol_name == (None if version >= 7 else "")
        jg.API.encode_response(answer, version)

    simulated(scenario)


def test_how_long_an_offset_lives_is_kept_over_a_restart():
    async def scenario(desk: Desk) -> None:
        await desk.ask(commit_request(2, group="brief", retention_ms=30_000), 2)
        await desk.ask(commit_request(3, group="ever", retention_ms=2**63 - 1), 2)
        await desk.restart()
        assert (await desk.fetched("brief"))[0] == 2 and (await desk.fetched("ever"))[0] == 3
        await desk.sim.sleep(61)
        assert (await desk.fetched("brief"))[0] == -1
        assert (await desk.fetched("ever"))[0] == 3

    simulated(scenario, {"offsets.retention.check.interval.ms": "20000"})
