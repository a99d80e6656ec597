"""Administration, against our broker on the simulated loop; and what metadata a client keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from isthmus.client import Admin, Client, Consumer, Producer, TopicPartition
from isthmus.client.admin import BROKER, NewTopic
from isthmus.client.errors import ClientError, ConnectionLost
from isthmus.client.raw import append_raw, fetch_raw
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.messages import (
    alter_partition_reassignments,
    create_partitions,
    create_topics,
    delete_groups,
    delete_topics,
    describe_configs,
    elect_leaders,
    incremental_alter_configs,
    list_partition_reassignments,
)
from isthmus.protocol.records import build_batch, iter_records
from tests.client.scripted import HANG_UP, ScriptedBroker, World, simulate, started_client
from tests.leftovers import no_leftovers
from tests.running import run_by
from tests.simulation.product import BrokerHost
from tests.simulation.runner import Simulation, run_checked

LOSABLE = (create_topics.Request, create_partitions.Request, delete_groups.Request, delete_topics.Request)


def with_broker(test: Callable[[Client, Admin, BrokerHost], Coroutine[Any, Any, None]]) -> None:
    async def scenario(sim: Simulation) -> None:
        host = BrokerHost(sim, "broker")
        await host.up()
        process = sim.machine("app").start()

        async def work() -> None:
            async with no_leftovers():
                client = Client(host.address, client_id="app", runtime=process.runtime)
                await client.start()
                await test(client, Admin(client), host)
                await client.close()

        await process.outcome(work())

    run_checked(scenario)


@run_by(with_broker)
async def test_topics_are_made_known_grown_and_deleted(client: Client, admin: Admin, _: BrokerHost, /) -> None:
    await admin.create_topics([NewTopic("a", 2), NewTopic("b", configs={"retention.ms": "1000"})])
    assert client.partitions("a") == [0, 1]
    assert client.leader(TopicPartition("a", 1)) == 1
    assert await admin.list_topics() == ["a", "b"]
    with pytest.raises(KafkaError, match="topic a") as told:
        await admin.create_topics([NewTopic("a"), NewTopic("c")])
    assert told.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert client.partitions("c") != []
    await admin.create_topics([NewTopic("d")], validate_only=True)
    await admin.create_partitions("a", 3, validate_only=True)
    await admin.alter_configs("a", {"retention.ms": "5"}, validate_only=True)
    with pytest.raises(KafkaError, match=r"retention\.ms"):
        await admin.alter_configs("a", {"retention.ms": "soon"}, validate_only=True)
    options = {each.name: each.value for each in (await admin.describe_configs(["a"]))["a"]}
    assert (client.partitions("a"), options["retention.ms"]) == ([0, 1], "604800000")
    await admin.create_partitions("a", 5)
    assert client.partitions("a") == [0, 1, 2, 3, 4]
    [a, b] = await admin.describe_topics(["a", "b"])
    assert (a.name, len(a.partitions), b.name) == ("a", 5, "b")
    await admin.delete_topics(["a", "c"])
    assert await admin.list_topics() == ["b"]
    assert client.partitions("a") == []
    for ask in (admin.describe_topics, admin.delete_topics):
        with pytest.raises(KafkaError, match="there is no topic a"):
            await ask(["a"])
        for name, reason in (
            ("a b", "'a b' contains"),
            ("", "the empty string"),
            ("x" * 250, "allowed length 249"),
        ):
            with pytest.raises(KafkaError, match=f"Topic name is invalid: .*{reason}") as told:
                await ask([name])
            assert told.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION
    with pytest.raises(KafkaError, match=r"Topic name is invalid: '\.\.' is not allowed"):
        await Consumer(client, "g").subscribe([".."])


class Losing:
    """Breaks the first attempt of each request of LOSABLE."""

    def __init__(self, client: Client) -> None:
        self.request, self.ask_any = client.request, client.ask_any
        client.request = self.lose  # type: ignore[method-assign]
        client.ask_any = self.not_heard_of  # type: ignore[method-assign]
        self.was_sent = True
        self.lost = set[type]()

    async def lose(self, message: Any, *given: Any, **options: Any) -> Any:
        is_first = isinstance(message, LOSABLE) and type(message) not in self.lost
        if not is_first or self.was_sent:
            answer = await self.request(message, *given, **options)
        if not is_first:
            return answer
        self.lost.add(type(message))
        error = ConnectionLost("the connection was lost")
        error.was_sent = self.was_sent
        raise error

    async def not_heard_of(self, message: Any, *given: Any) -> Any:
        answer = await self.ask_any(message, *given)
        if isinstance(message, describe_configs.Request) and type(message) not in self.lost:
            self.lost.add(type(message))
            answer.results[0].error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return answer


@run_by(with_broker)
async def test_what_an_attempt_whose_answer_was_lost_has_done_is_done(
    client: Client, admin: Admin, _: BrokerHost, /
) -> None:
    losing = Losing(client)
    await admin.create_topics([NewTopic("a", 2, 1, {"retention.ms": "1000"}), NewTopic("b")])
    await admin.create_partitions("a", 3)
    await admin.delete_topics(["b"])
    await admin.alter_group_offsets("g", {TopicPartition("a", 0): 0})
    await admin.delete_groups(["g"])
    assert losing.lost == {*LOSABLE, describe_configs.Request}
    # Another one's topic of this name is no success, whatever was lost.
    for other in (NewTopic("a", 2), NewTopic("a", 3), NewTopic("a", 3, configs={"retention.ms": "1"})):
        losing.lost.clear()
        with pytest.raises(KafkaError, match="topic a") as told:
            await admin.create_topics([other])
        assert told.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
    losing.lost.clear()
    with pytest.raises(KafkaError, match="topic a"):
        await admin.create_partitions("a", 2)
    assert client.partitions("a") == [0, 1, 2]


@run_by(with_broker)
async def test_what_was_not_sent_was_not_done(client: Client, admin: Admin, _: BrokerHost, /) -> None:
    await admin.create_topics([NewTopic("a")])
    losing = Losing(client)
    losing.was_sent = False
    for work, name in (
        (admin.create_topics([NewTopic("a")]), "a"),
        (admin.create_partitions("a", 1), "a"),
        (admin.delete_topics(["b"]), "b"),
        (admin.delete_groups(["g"]), "g"),
    ):
        with pytest.raises(KafkaError, match=name):
            await work
    assert losing.lost == set(LOSABLE)


@run_by(with_broker)
async def test_no_connection_is_nothing_sent(client: Client, _: Admin, host: BrokerHost, /) -> None:
    host.kill()
    for is_open in (True, False):  # the client hears of the end with its first request
        with pytest.raises(ConnectionLost) as told:
            await client.request(create_topics.Request(topics=[], timeout_ms=1), None, 1_000)
        assert told.value.was_sent is is_open


@run_by(with_broker)
async def test_options_are_read_and_changed(_: Client, admin: Admin, __: BrokerHost, /) -> None:
    async def option(name: str) -> tuple[str | None, int]:
        [found] = [each for each in (await admin.describe_configs(["t"]))["t"] if each.name == name]
        return found.value, found.config_source

    await admin.create_topics([NewTopic("t", configs={"retention.ms": "1000"})])
    assert await option("retention.ms") == ("1000", 1)
    await admin.alter_configs("t", {"retention.ms": None, "segment.ms": "5000"})
    assert (await option("retention.ms"))[1] != 1
    assert await option("segment.ms") == ("5000", 1)
    await admin.alter_configs("t", {"cleanup.policy": ("append", "compact")})
    assert "compact" in str((await option("cleanup.policy"))[0])
    with pytest.raises(KafkaError, match="t") as told:
        await admin.alter_configs("t", {"segment.ms": "soon"})
    assert told.value.code == ErrorCode.INVALID_CONFIG
    assert any(each.name == "num.partitions" for each in (await admin.describe_configs(["1"], BROKER))["1"])


@run_by(with_broker)
async def test_offsets_by_place_and_by_time(client: Client, admin: Admin, _: BrokerHost, /) -> None:
    await admin.create_topics([NewTopic("t", 2)])
    tp, empty = TopicPartition("t", 0), TopicPartition("t", 1)
    for stamp in (1000, 3000, 2000):
        await append_raw(client, tp, build_batch([(stamp, None, b"x", ())] * 2))

    async def at(what: str | int) -> int:
        return (await admin.list_offsets({tp: what}))[tp][0]

    assert (await at("earliest"), await at("latest"), await at("max_timestamp")) == (0, 6, 2)
    assert [await at(stamp) for stamp in (0, 1001, 3000, 3001)] == [0, 2, 2, -1]
    found = await admin.list_offsets({tp: "latest", empty: "latest"})
    assert (found[tp][0], found[empty][0]) == (6, 0)
    with pytest.raises(KafkaError, match="there is no partition t-7"):
        await admin.list_offsets({TopicPartition("t", 7): "latest"})


@run_by(with_broker)
async def test_offsets_are_asked_for_until_the_broker_is_back(
    client: Client, admin: Admin, host: BrokerHost, /
) -> None:
    async def host_up(host: BrokerHost) -> None:
        await asyncio.sleep(0.5)
        await host.sim.loop.create_task(host.up(), context=host.sim.world)

    await admin.create_topics([NewTopic("t")])
    tp = TopicPartition("t", 0)
    await append_raw(client, tp, build_batch([(1, None, b"x", ())]))
    host.kill()
    back = asyncio.get_running_loop().create_task(host_up(host))
    assert (await admin.list_offsets({tp: "latest"}))[tp][0] == 1
    await back


@run_by(with_broker)
async def test_groups_are_listed_described_and_deleted(client: Client, admin: Admin, _: BrokerHost, /) -> None:
    await admin.create_topics([NewTopic("t", 2)])
    consumer = Consumer(client, "g")
    await consumer.subscribe(["t"])
    while not consumer.assignment():
        await consumer.poll(100)
    await consumer.commit({TopicPartition("t", 1): 0})
    [listed] = await admin.list_groups()
    assert (listed.group_id, listed.group_state) == ("g", "Stable")
    [group] = await admin.describe_groups(["g"])
    assert (group.group_state, group.protocol_data) == ("Stable", "range")
    assert [member.client_id for member in group.members] == ["app"]
    [told] = await admin.describe_consumer_groups(["g"])
    assert (told.type, told.state, told.assignor) == ("classic", "Stable", "range")
    with pytest.raises(KafkaError, match="there is no group h"):
        await admin.describe_consumer_groups(["g", "h"])
    with pytest.raises(KafkaError, match="group g"):
        await admin.delete_groups(["g"])
    with pytest.raises(KafkaError, match="group g, offset of t-0") as told_by:
        await admin.alter_group_offsets("g", {TopicPartition("t", 0): 3})
    assert told_by.value.code == ErrorCode.UNKNOWN_MEMBER_ID
    with pytest.raises(KafkaError, match="group g") as told_by:
        await admin.delete_group_offsets("g", [TopicPartition("t", 1)])
    assert told_by.value.code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    await consumer.close()
    assert await admin.group_offsets("g") == {TopicPartition("t", 1): 0}
    await admin.alter_group_offsets("g", {TopicPartition("t", 0): 3})
    assert await admin.group_offsets("g") == {TopicPartition("t", 0): 3, TopicPartition("t", 1): 0}
    await admin.delete_group_offsets("g", [TopicPartition("t", 1)])
    assert await admin.group_offsets("g") == {TopicPartition("t", 0): 3}
    assert (await admin.describe_groups(["g"]))[0].group_state == "Empty"
    await admin.delete_groups(["g"])
    assert await admin.list_groups() == []
    assert (await admin.describe_groups(["g"]))[0].group_state == "Dead"


@run_by(with_broker)
async def test_raw_batches_come_back_as_they_were_appended(client: Client, admin: Admin, _: BrokerHost, /) -> None:
    await admin.create_topics([NewTopic("t")])
    tp = TopicPartition("t", 0)
    data = build_batch([(5, b"k", b"v", [("h", None)])] * 3, "zstd")
    assert await append_raw(client, tp, data) == 0
    assert await append_raw(client, tp, memoryview(data)) == 3
    [got] = await fetch_raw(client, {tp: (0, -1)}, node_id=1)
    assert bytes(got.records[16 : len(data)]) == data[16:]  # but for offset and leader epoch
    assert [record.offset for record in iter_records(got.records)] == list(range(6))
    with pytest.raises(KafkaError, match="t-0"):
        await append_raw(client, tp, data[:-1] + b"!")
    with pytest.raises(KafkaError, match="there is no topic nowhere"):
        await append_raw(client, TopicPartition("nowhere", 0), data)


@run_by(with_broker)
async def test_the_cluster_is_described(client: Client, admin: Admin, _: BrokerHost, /) -> None:
    described = await admin.cluster()
    assert described.cluster_id == client.cluster_id
    assert [broker.broker_id for broker in described.brokers] == [1]
    assert client.supports(30000) and not client.supports(31000)


@run_by(simulate)
async def test_start_tries_every_address_and_names_them_all(world: World, /, caplog: pytest.LogCaptureFixture) -> None:
    process = world.sim.machine("app").process
    assert process is not None
    client = Client("broker1:1,nowhere:2,broker1:9092", client_id="app", runtime=process.runtime)
    await client.start()
    assert client.cluster_id == "scripted" and not caplog.messages
    await client.close()
    lost = Client("broker1:1,nowhere:2", client_id="app", runtime=process.runtime)
    with pytest.raises(ConnectionLost, match="no broker of broker1:1, nowhere:2 answers"):
        await lost.start()
    [told] = caplog.messages
    assert told == "no broker of broker1:1, nowhere:2 answers yet, it is tried for 30 s: does one run there?"
    with pytest.raises(ClientError, match="'nonsense' is not HOST:PORT"):
        Client("nonsense")
    await lost.close()


@run_by(simulate)
async def test_metadata_is_asked_for_again_when_a_connection_breaks_and_anew_after_its_age(world: World, /) -> None:
    world.add_topic("t")
    client = await started_client(world)
    broker = world.brokers[1]
    broker.script["metadata"].extend([lambda _: HANG_UP] * 2)
    await client.refresh_metadata(["t"])
    assert client.partitions("t") == [0]
    world.add_topic("t", 3)
    await asyncio.sleep(301)
    assert client.partitions("t") == [0, 1, 2]


@run_by(simulate)
async def test_closing_a_client_in_the_midst_of_all_leaves_nothing_behind(world: World, /) -> None:
    def _beat() -> Any:
        from isthmus.protocol.messages import find_coordinator

        return find_coordinator.Request(coordinator_keys=["g"])

    await ScriptedBroker(world, 2).start()
    world.add_topic("t")
    client = await started_client(world)
    await client.refresh_metadata(["t"])
    world.sim.machine("broker2").kill(power=True)
    asking = [asyncio.ensure_future(client.request(_beat(), node)) for node in (1, 2, 2)]
    await asyncio.sleep(0.01)
    await client.close()
    told = await asyncio.gather(*asking, return_exceptions=True)
    assert all(isinstance(each, (ClientError, KafkaError)) for each in told), told
    with pytest.raises(ConnectionLost, match="closed"):
        await client.refresh_metadata(["t"])
    producer = Producer(client)
    with pytest.raises(ClientError, match="not started"):
        producer.send("t", b"x")


# --- The controller -------------------------------------------------------------------------------------

PARTITION = TopicPartition("t", 0)


def elected(code: int) -> Any:
    result = elect_leaders.PartitionResult(partition_id=0, error_code=code)
    return elect_leaders.Response(
        replica_election_results=[elect_leaders.ReplicaElectionResult(topic="t", partition_result=[result])]
    )


# What only the controller decides: the request's name, the call, and an answer with this code.
CONTROLLED: dict[str, tuple[Callable[[Admin], Coroutine[Any, Any, Any]], Callable[[int], Any]]] = {
    "create_topics": (
        lambda admin: admin.create_topics([NewTopic("t")]),
        lambda code: create_topics.Response(topics=[create_topics.CreatableTopicResult(name="t", error_code=code)]),
    ),
    "delete_topics": (
        lambda admin: admin.delete_topics(["t"]),
        lambda code: delete_topics.Response(responses=[delete_topics.DeletableTopicResult(name="t", error_code=code)]),
    ),
    "create_partitions": (
        lambda admin: admin.create_partitions("t", 1),
        lambda code: create_partitions.Response(
            results=[create_partitions.CreatePartitionsTopicResult(name="t", error_code=code)]
        ),
    ),
    "incremental_alter_configs": (
        lambda admin: admin.alter_configs("t", {"retention.ms": "1"}),
        lambda code: incremental_alter_configs.Response(
            responses=[
                incremental_alter_configs.AlterConfigsResourceResponse(
                    error_code=code, resource_type=2, resource_name="t", error_message=None
                )
            ]
        ),
    ),
    "elect_leaders": (lambda admin: admin.elect_leaders([PARTITION]), elected),
    "alter_partition_reassignments": (
        lambda admin: admin.alter_partition_reassignments({PARTITION: [2, 1]}),
        lambda code: alter_partition_reassignments.Response(error_code=code),
    ),
    "list_partition_reassignments": (
        lambda admin: admin.list_partition_reassignments(),
        lambda code: list_partition_reassignments.Response(error_code=code),
    ),
}


@pytest.mark.parametrize("name", CONTROLLED)
@run_by(simulate)
async def test_a_broker_that_knows_no_controller_sends_to_the_one_of_fresh_metadata(world: World, /, name: str) -> None:
    call, answer = CONTROLLED[name]
    second = await ScriptedBroker(world, 2).start()
    world.add_topic("t")
    admin = Admin(await started_client(world))
    world.controller = 2
    world.brokers[1].script[name].append(lambda _: answer(ErrorCode.NOT_CONTROLLER))
    second.script[name].extend([lambda _: answer(ErrorCode.NOT_CONTROLLER), lambda _: answer(0)])
    await call(admin)
    assert (len(world.brokers[1].requests(name)), len(second.requests(name))) == (1, 2)


@run_by(simulate)
async def test_a_controller_that_dies_is_looked_for_again(world: World, /) -> None:
    second = await ScriptedBroker(world, 2).start()
    world.add_topic("t")
    admin = Admin(await started_client(world), 20_000)
    world.controller = 2
    name = "elect_leaders"
    world.brokers[1].script[name].extend([lambda _: elected(ErrorCode.NOT_CONTROLLER), lambda _: elected(0)])
    second.script[name].append(lambda _: HANG_UP)
    assert await admin.elect_leaders([PARTITION]) == [PARTITION]
    assert len(world.brokers[1].requests(name)) == 2


@run_by(simulate)
async def test_an_election_that_is_not_needed_is_no_error_and_another_is(world: World, /) -> None:
    world.add_topic("t")
    admin = Admin(await started_client(world))
    codes = [ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE]
    world.brokers[1].script["elect_leaders"].extend([lambda _, code=code: elected(code) for code in codes])
    assert await admin.elect_leaders() == []
    with pytest.raises(KafkaError, match="election of the leader of t-0"):
        await admin.elect_leaders([PARTITION])
    asked = [message.topic_partitions for message in world.brokers[1].requests("elect_leaders")]
    assert asked[0] is None and [(each.topic, each.partitions) for each in asked[1]] == [("t", [0])]
