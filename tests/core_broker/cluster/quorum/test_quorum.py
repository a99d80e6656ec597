"""Three members of a quorum on real logs: what the controller answered is on every node, whoever dies."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from isthmus.core_broker.cluster.controller import BrokerHeartbeat, CreateTopics, FenceBroker, RegisterBroker, new_topic
from isthmus.core_broker.cluster.controller.loop import MAX_WAITING_COMMANDS
from isthmus.core_broker.cluster.metadata_log import MetadataLog
from isthmus.core_broker.cluster.raft.raft import Raft
from isthmus.core_broker.purgatory import Pending
from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import remove_raft_voter as rrv
from tests.running import run_by
from tests.simulation.runner import Simulation, run_checked

from .world import Node, World


def in_world(
    test: Callable[[World], Coroutine[Any, Any, None]], ids: tuple[int, ...] = (1, 2, 3), joins: bool = False
) -> None:
    async def scenario(sim: Simulation) -> None:
        world = World(sim, ids, joins)
        await world.start()
        await test(world)

    run_checked(scenario)


async def create(node: Node, name: str) -> int:
    if node.quorum is not None and all(broker.fenced for broker in node.quorum.image.brokers.values()):
        registered = await node.submit(RegisterBroker(7, bytes(16), {}, node.quorum.image.cluster_id))
        await node.submit(BrokerHeartbeat(7, registered.broker_epoch, registered.broker_epoch))
    [item] = (await node.submit(CreateTopics([new_topic(name)]))).items
    return item.error_code


@run_by(in_world)
async def test_every_node_applies_what_the_leader_has_decided(world: World, /) -> None:
    leader = await world.leader()
    assert await create(leader, "a") == ErrorCode.NONE
    assert leader.seen == ["a"]
    nodes = list(world.nodes.values())
    await world.sim.until(lambda: all(node.seen == ["a"] for node in nodes), "all have applied it", 1.0)
    assert len({str(node.quorum.image.topics) for node in nodes}) == 1
    follower = next(node for node in nodes if node is not leader)
    assert await create(follower, "b") == ErrorCode.NOT_CONTROLLER
    assert [follower.quorum.leader_id, follower.quorum.epoch] == [leader.id, leader.quorum.epoch]


@run_by(in_world)
async def test_killed_leader_is_replaced_within_a_second(world: World, /) -> None:
    first = await world.leader()
    assert await create(first, "a") == ErrorCode.NONE
    killed_s = world.sim.loop.time()
    first.kill()
    second = await world.leader([each for each in world.nodes if each != first.id])
    assert await create(second, "b") == ErrorCode.NONE
    assert world.sim.loop.time() - killed_s < 1.0
    await first.start()
    await world.sim.until(lambda: first.topics == ["a", "b"], "it has all")


@run_by(in_world)
async def test_stopped_leader_hands_over_at_once(world: World, /) -> None:
    first = await world.leader()
    stopped_s = world.sim.loop.time()
    await first.stop()
    second = await world.leader()
    assert second is not first and world.sim.loop.time() - stopped_s < 0.3


@run_by(in_world)
async def test_leader_whose_disk_is_full_hands_over_and_is_a_member_again_once_there_is_room(world: World, /) -> None:
    first = await world.leader()
    assert await create(first, "a") == ErrorCode.NONE
    disk = first.machine.disk
    capacity_bytes, disk.capacity_bytes = disk.capacity_bytes, disk.used_bytes
    assert await create(first, "b") == ErrorCode.NOT_CONTROLLER
    second = await world.leader([each for each in world.nodes if each != first.id])
    assert await create(second, "b") == ErrorCode.NONE
    disk.capacity_bytes = capacity_bytes
    await world.sim.until(lambda: first.topics == ["a", "b"], "it has all")


@run_by(in_world)
async def test_decision_of_a_leader_that_is_cut_off_is_never_applied(world: World, /) -> None:
    old = await world.leader()
    assert await create(old, "a") == ErrorCode.NONE
    world.cut(old.id)
    asked = asyncio.ensure_future(create(old, "lost"))
    new = await world.leader([each for each in world.nodes if each != old.id])
    assert await create(new, "b") == ErrorCode.NONE
    assert await asked == ErrorCode.NOT_CONTROLLER  # it resigned, as nobody fetched from it
    assert old.topics == ["a"]
    world.heal()
    await world.sim.until(lambda: old.topics == ["a", "b"], "it follows the new leader")
    assert old.seen == ["a", "b"]


@run_by(in_world)
async def test_member_that_was_behind_the_snapshot_gets_it(world: World, /) -> None:
    leader = await world.leader()
    late = next(node for node in world.nodes.values() if node is not leader)
    assert await create(leader, "a") == ErrorCode.NONE
    assert await create(leader, "gone") == ErrorCode.NONE
    await world.sim.until(lambda: late.seen == ["a", "gone"], "it has both")
    late.kill()
    for name in ("b", "c"):
        assert await create(leader, name) == ErrorCode.NONE
    await leader.run(leader.quorum.snapshot_if_due(1, 0))
    assert leader.quorum.log.start_offset > 0
    assert await create(leader, "d") == ErrorCode.NONE
    await late.start()
    await world.sim.until(lambda: late.topics == ["a", "gone", "b", "c", "d"], "it has all")
    assert late.quorum.log.start_offset == leader.quorum.log.start_offset
    late.kill(power=True)
    await late.start()
    await world.sim.until(lambda: late.topics == ["a", "gone", "b", "c", "d"], "it has all again")


@run_by(in_world)
async def test_member_is_told_of_a_snapshot_that_was_replaced_or_cannot_be_read_and_asks_again(
    world: World, /, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    leader = await world.leader()
    late = next(node for node in world.nodes.values() if node is not leader)
    late.kill()
    assert await create(leader, "a") == ErrorCode.NONE
    await leader.run(leader.quorum.snapshot_if_due(1, 0))
    refusals = [FileNotFoundError(errno.ENOENT, "another one has taken its place"), OSError(errno.EIO, "broken")]
    told = []
    read, take = MetadataLog.read_snapshot, Raft._take_snapshot_part

    def read_snapshot(log: MetadataLog, *asked: Any) -> tuple[int, bytes]:
        if refusals:
            raise refusals.pop(0)
        return read(log, *asked)

    def take_part(raft: Raft, answer: Any) -> None:
        told.append(answer.error)
        take(raft, answer)

    monkeypatch.setattr(MetadataLog, "read_snapshot", read_snapshot)
    monkeypatch.setattr(Raft, "_take_snapshot_part", take_part)
    await late.start()
    await world.sim.until(lambda: late.topics == ["a"], "it has all", 5.0)
    assert told == [ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE]
    assert "cannot read a metadata snapshot for another node: [Errno 5] broken" in caplog.text


@run_by(in_world, ids=(1,))
async def test_a_full_queue_refuses_what_comes_and_answers_what_waits(world: World, /) -> None:
    node = await world.leader()
    answers: list[int] = []

    async def submit() -> None:
        for _ in range(MAX_WAITING_COMMANDS + 1):
            node.controller.submit(FenceBroker(7, 0), lambda result: answers.append(result.error_code))

    await node.run(submit())
    await world.sim.until(lambda: len(answers) == MAX_WAITING_COMMANDS + 1, "all are answered")
    assert answers == [ErrorCode.REQUEST_TIMED_OUT, *[ErrorCode.NONE] * MAX_WAITING_COMMANDS]  # the last one first
    assert await create(node, "a") == ErrorCode.NONE


@run_by(in_world)
async def test_who_waits_is_told_of_a_snapshot_after_which_nothing_comes(world: World, /) -> None:
    leader = await world.leader()
    late = next(node for node in world.nodes.values() if node is not leader)
    late.kill()
    assert await create(leader, "a") == ErrorCode.NONE
    await leader.run(leader.quorum.snapshot_if_due(1, 0))
    end = leader.quorum.log.start_offset
    assert end == leader.quorum.log.end_offset
    await late.start()

    async def caught_up() -> None:
        while late.quorum.applied_offset < end:
            await late.quorum.changed()

    await asyncio.wait_for(late.run(caught_up()), 30.0)


async def voters_are(world: World, *ids: int) -> None:
    nodes = [node for node in world.nodes.values() if node.quorum is not None]
    await world.sim.until(lambda: all(node.quorum.voters.ids == list(ids) for node in nodes), f"voters {ids}", 60.0)


@run_by(in_world, joins=True)
async def test_quorum_of_one_grows_and_survives_its_first_voter(world: World, /) -> None:
    first = await world.leader()
    assert await create(first, "a") == ErrorCode.NONE
    await voters_are(world, 1, 2, 3)
    first.kill()
    second = await world.leader([2, 3])
    assert await create(second, "b") == ErrorCode.NONE
    await first.start()
    await world.sim.until(lambda: first.topics == ["a", "b"], "it has all")
    assert [each.endpoints[0].host for each in first.quorum.voters.voters] == ["node1", "node2", "node3"]


@run_by(in_world, joins=True)
async def test_voter_with_an_empty_disk_is_replaced_by_itself(world: World, /) -> None:
    leader = await world.leader()
    assert await create(leader, "a") == ErrorCode.NONE
    await voters_are(world, 1, 2, 3)
    lost = world.nodes[3]
    lost.give_empty_disk()
    await lost.start()
    key = lost.quorum.member.key
    await world.sim.until(lambda: leader.quorum.voters.has(key), "its new directory votes", 60.0)
    await world.sim.until(lambda: lost.topics == ["a"], "it has all")
    await voters_are(world, 1, 2, 3)


@run_by(in_world, joins=True)
async def test_voter_is_removed_by_a_request(world: World, /) -> None:
    leader = await world.leader()
    await voters_are(world, 1, 2, 3)
    await leader.run(leader.quorum.snapshot_if_due(1, 0))  # the voters are in its header then
    key = world.nodes[3].quorum.member.key
    world.nodes[3].kill()
    wrong = rrv.Request(cluster_id="c", voter_id=3, voter_directory_id=bytes(16))
    assert (await asked(leader, wrong)).error_code == ErrorCode.VOTER_NOT_FOUND
    assert (await asked(leader, replace_cluster(wrong))).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    answer = await asked(leader, rrv.Request(cluster_id="c", voter_id=3, voter_directory_id=key.directory_id))
    assert answer.error_code == ErrorCode.NONE
    await voters_are(world, 1, 2)
    follower = world.nodes[2]
    assert (await asked(follower, wrong)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    for node in (leader, follower):
        node.kill(power=True)
    for node in (leader, follower):
        await node.start()
    await voters_are(world, 1, 2)
    await world.leader()


async def asked(node: Node, request: Any) -> Any:
    return await node.run(answered(node, request))


async def answered(node: Node, request: Any) -> Any:
    answer = node.quorum.handle(request)
    if isinstance(answer, Pending):
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer.when_done(done.set_result)
        return await done
    return answer


def replace_cluster(request: rrv.Request) -> rrv.Request:
    return rrv.Request(cluster_id="another", voter_id=request.voter_id, voter_directory_id=request.voter_directory_id)


@pytest.mark.parametrize("count", range(1, 40, 3))
def test_power_cut_of_a_member_at_any_disk_operation_loses_nothing(count: int) -> None:
    async def scenario(sim: Simulation) -> None:
        world = World(sim, (1, 2, 3))
        await world.start()
        (await world.leader()).machine.kill_at_disk_operation(count, power=True)
        done: list[str] = []
        for number in range(30):
            for node in world.nodes.values():
                if node.machine.process is not None and not node.machine.process.alive:
                    node.kill()
                    await node.start()
            leader = await world.leader()
            try:
                if await create(leader, f"t{number}") == ErrorCode.NONE:
                    done.append(f"t{number}")
            except BaseException as error:
                if type(error).__name__ != "ProcessKilled":
                    raise
        await sim.until(lambda: all(set(done) <= set(node.topics) for node in world.nodes.values()), "all have all")
        assert len(done) >= 25
        assert len({str(node.quorum.image.topics) for node in world.nodes.values()}) == 1

    run_checked(scenario, seed=count)
