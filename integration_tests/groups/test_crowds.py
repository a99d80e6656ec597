"""A thousand groups, and one group of five hundred members: everyone is served, a restart forgets nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from integration_tests.brokers import BrokerProcess
from integration_tests.conftest import BrokerMaker
from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import (
    create_topics,
    delete_groups,
    describe_groups,
    list_groups,
    metadata,
    offset_commit,
    offset_fetch,
)

from .members import Line, Member, coordinated, together

GROUPS = 1_000
LINES = 20  # connections for them
MEMBERS = 500
OPTIONS = {"group.initial.rebalance.delay.ms": 0}


async def make_topic(line: Line) -> None:
    wanted = create_topics.CreatableTopic(name="topic", num_partitions=1, replication_factor=1)
    await line.ask(create_topics.Request(topics=[wanted], timeout_ms=10_000))
    about = metadata.Request(topics=[metadata.MetadataRequestTopic(name="topic")])
    while (await line.ask(about)).topics[0].error_code:
        pass


def commit_request(member: Member, offset: int) -> offset_commit.Request:
    row = offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    return offset_commit.Request(
        group_id=member.group,
        member_id=member.member_id,
        generation_id_or_member_epoch=member.generation,
        topics=[offset_commit.OffsetCommitRequestTopic(name="topic", partitions=[row])],
    )


async def committed(line: Line, names: list[str]) -> dict[str, int]:
    wanted = [offset_fetch.OffsetFetchRequestGroup(group_id=name, topics=None) for name in names]
    answer = await line.ask(offset_fetch.Request(groups=wanted), 9)
    return {each.group_id: each.topics[0].partitions[0].committed_offset for each in answer.groups if each.topics}


async def states(line: Line) -> dict[str, str]:
    answer = await line.ask(list_groups.Request())
    assert answer.error_code == 0
    return {each.group_id: each.group_state for each in answer.groups}


def run(broker: BrokerProcess, scenario: Callable[[list[Line]], Awaitable[Any]], lines: int) -> Any:
    """The scenario on so many connections of its own."""

    async def main() -> Any:
        made = await together(Line.to(broker.address) for _ in range(lines))
        try:
            return await scenario(made)
        finally:
            for line in made:
                line.close()

    return asyncio.run(main())


def test_a_thousand_groups(make_broker: BrokerMaker) -> None:
    broker = make_broker(OPTIONS)
    names = [f"group-{number:04}" for number in range(GROUPS)]

    async def come(lines: list[Line]) -> list[tuple[str, str, int]]:
        await make_topic(lines[0])
        await coordinated(lines[0], names)
        members = [Member(lines[number % LINES], name) for number, name in enumerate(names)]

        async def live(some: list[Member]) -> None:
            for number, member in enumerate(some):  # a connection has one request under way
                await member.settle()
                assert await member.beat() == ErrorCode.NONE
                answer = await member.line.ask(commit_request(member, 100 + number), 9)
                assert answer.topics[0].partitions[0].error_code == 0

        await together(live(members[line::LINES]) for line in range(LINES))
        assert await states(lines[0]) == dict.fromkeys(names, "Stable")
        assert len(await committed(lines[0], names)) == GROUPS
        return [(member.group, member.member_id, member.generation) for member in members]

    known = run(broker, come, LINES)
    broker.kill()
    broker.start()

    async def go_on(lines: list[Line]) -> None:
        await coordinated(lines[0], names)
        members = []
        for number, (name, member_id, generation) in enumerate(known):
            member = Member(lines[number % LINES], name)
            member.member_id, member.generation = member_id, generation
            members.append(member)
        assert await states(lines[0]) == dict.fromkeys(names, "Stable")
        assert await committed(lines[0], names) == {name: 100 + number // LINES for number, name in enumerate(names)}

        async def end(some: list[Member]) -> None:
            for member in some:
                assert await member.beat() == ErrorCode.NONE
                await member.leave()

        await together(end(members[line::LINES]) for line in range(LINES))
        assert await states(lines[0]) == dict.fromkeys(names, "Empty")
        answer = await lines[0].ask(delete_groups.Request(groups_names=names))
        assert [each.error_code for each in answer.results] == [0] * GROUPS
        assert await states(lines[0]) == {} == await committed(lines[0], names)

    run(broker, go_on, LINES)
    assert "ERROR" not in broker.log


def test_one_group_of_five_hundred(make_broker: BrokerMaker) -> None:
    broker = make_broker(OPTIONS)

    async def live(lines: list[Line]) -> None:
        looker, *others = lines
        await coordinated(looker, ["crowd"])
        members = [
            Member(line, "crowd", None if number % 5 else f"static-{number}") for number, line in enumerate(others)
        ]
        await come_together(members)

        leader = next(member for member in members if member.leads)
        generation = leader.generation
        followers = [member for member in members if member is not leader]
        again = leader.settle()  # how a leader asks for another generation
        await together([again, *(member.take_part(followers, generation) for member in followers)])
        await come_together(members, generation)

        gone = next(member for member in members if not member.leads and member.instance is None)
        members.remove(gone)
        generation = gone.generation
        await gone.leave()
        await come_together(members, generation)
        assert await gone.beat() == ErrorCode.UNKNOWN_MEMBER_ID

        before = {member.generation for member in members}
        static = next(member for member in members if not member.leads and member.instance is not None)
        old_id, static.member_id = static.member_id, ""
        await static.settle()  # its process started again
        assert static.member_id != old_id and {static.generation} == before
        assert set(await together(member.beat() for member in members)) == {ErrorCode.NONE}
        [described] = (await looker.ask(describe_groups.Request(groups=["crowd"]))).groups
        assert (described.group_state, len(described.members)) == ("Stable", MEMBERS - 1)

    run(broker, live, MEMBERS + 1)
    assert "ERROR" not in broker.log


async def come_together(members: list[Member], after: int = -1) -> None:
    """All are of one generation past `after` in the end: each with an assignment of its own, and one leads."""
    await together(member.take_part(members, after) for member in members)
    generation = members[0].generation
    shares = [member.assignment for member in members]
    assert len(set(shares)) == len(members) and all(share.startswith(b"%d/" % generation) for share in shares)
    assert sum(member.leads for member in members) == 1
