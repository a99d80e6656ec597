"""Consumer groups of our client with our broker, on the simulated loop: members that come, go, hang and die."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from isthmus.client import Admin, Client, Consumer, Producer, TopicPartition
from isthmus.client.admin import NewTopic
from isthmus.client.errors import ClientError, ConnectionLost, OperationTimeout
from isthmus.client.membership import LEAVE_TIMEOUT_MS, SAY_AFTER_S, Membership
from isthmus.client.operation import CLOSE_TIMEOUT_MS
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.messages import offset_commit
from tests.leftovers import no_leftovers
from tests.simulation.hosts import Process, ProcessKilled
from tests.simulation.product import BrokerHost
from tests.simulation.runner import Simulation, run

RECORDS = 200
PARTITIONS = 4


class Member:
    """One consumer process that reads, remembers and commits until it is stopped."""

    def __init__(self, sim: Simulation, host: BrokerHost, name: str, **options: Any) -> None:
        self.sim, self.host, self.name = sim, host, name
        self.options = {"session_timeout_ms": 6_000, **options}
        self.read: list[bytes] = []
        self.calls: list[tuple[str, list[int]]] = []
        self.owned: list[int] = []
        self.stopping = False
        self.stall_s = 0.0
        self.done: asyncio.Future[None]

    def start(self) -> Member:
        process = self.sim.machine(self.name).start()
        self.done = process.outcome(self._checked(process))
        return self

    async def _checked(self, process: Process) -> None:
        async with no_leftovers():
            await self._run(process)

    def kill(self) -> None:
        self.sim.machine(self.name).kill()
        self.owned = []

    async def stop(self) -> None:
        self.stopping = True
        await self.done

    async def _run(self, process: Process) -> None:
        client = Client(self.host.address, client_id=self.name, runtime=process.runtime)
        await client.start()
        consumer = Consumer(client, "g", **self.options)
        await consumer.subscribe(["t"], self._assigned, self._revoked)
        while not self.stopping:
            if self.stall_s:
                stall, self.stall_s = self.stall_s, 0.0
                await asyncio.sleep(stall)
            found = await consumer.poll(200, 10)
            for records in found.values():
                self.read += [record.value or b"" for record in records]
            if found:
                try:
                    await consumer.commit()
                except KafkaError as error:
                    assert error.code in (
                        ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID
                    )  # fmt: skip
        await consumer.close()
        await client.close()

    async def _assigned(self, tps: list[TopicPartition]) -> None:
        self.owned = [tp.partition for tp in tps]
        self.calls.append(("+", self.owned))

    def _revoked(self, tps: list[TopicPartition]) -> None:
        self.owned = []
        self.calls.append(("-", [tp.partition for tp in tps]))


class Stage:
    """A broker with a topic, and a producer's hand."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.host = BrokerHost(sim, "broker")
        self.sent = 0

    async def begin(self) -> None:
        await self.host.up()
        await self.work(self._topic)

    async def work(self, what: Callable[[Client], Coroutine[Any, Any, Any]]) -> Any:
        process = self.sim.machine("hand").process or self.sim.machine("hand").start()

        async def work() -> Any:
            async with no_leftovers():
                client = Client(self.host.address, client_id="hand", runtime=process.runtime)
                await client.start()
                try:
                    return await what(client)
                finally:
                    await client.close()

        return await process.outcome(work())

    async def _topic(self, client: Client) -> None:
        await Admin(client).create_topics([NewTopic("t", PARTITIONS)])

    async def send(self, count: int) -> None:
        async def send(client: Client) -> None:
            producer = Producer(client)
            await producer.start()
            for _ in range(count):
                producer.send("t", b"%d" % self.sent, partition=self.sent % PARTITIONS)
                self.sent += 1
            await producer.close()

        await self.work(send)

    async def all_read(self, members: list[Member], timeout_s: float = 60) -> None:
        wanted = {b"%d" % n for n in range(self.sent)}
        await self.sim.until(lambda: {v for m in members for v in m.read} >= wanted, "all records read", timeout_s)

    async def shared(self, members: list[Member], timeout_s: float = 60) -> None:
        """Until the members own all partitions between them, each one something."""
        await self.sim.until(
            lambda: (
                all(m.owned for m in members) and sorted(p for m in members for p in m.owned) == list(range(PARTITIONS))
            ),
            "partitions shared",
            timeout_s,
        )


def staged(test: Callable[[Stage], Coroutine[Any, Any, None]], seed: int = 1) -> None:
    async def scenario(sim: Simulation) -> None:
        stage = Stage(sim)
        await stage.begin()
        await test(stage)

    result = run(seed, scenario)
    assert result.error is None, result.error


def test_one_member_reads_everything_once_and_commits() -> None:
    async def test(stage: Stage) -> None:
        await stage.send(RECORDS)
        member = Member(stage.sim, stage.host, "a").start()
        await stage.all_read([member])
        await member.stop()
        assert len(member.read) == RECORDS
        assert member.calls == [("+", [0, 1, 2, 3]), ("-", [0, 1, 2, 3])]
        offsets = await stage.work(lambda client: Admin(client).group_offsets("g"))
        assert sum(offsets.values()) == RECORDS
        again = Member(stage.sim, stage.host, "b").start()
        await stage.send(10)
        await stage.sim.until(lambda: len(again.read) == 10, "the new ones")
        await again.stop()

    staged(test)


@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
def test_two_members_share_and_one_that_leaves_gives_back_at_once(assignor: str) -> None:
    async def test(stage: Stage) -> None:
        first = Member(stage.sim, stage.host, "a", assignors=[assignor]).start()
        second = Member(stage.sim, stage.host, "b", assignors=[assignor]).start()
        await stage.shared([first, second])
        await stage.send(RECORDS)
        await stage.all_read([first, second])
        assert not set(first.read) & set(second.read)
        loop = asyncio.get_running_loop()
        left = loop.time()
        await second.stop()
        await stage.shared([first])
        assert loop.time() - left < 5.0
        await first.stop()

    staged(test)


@pytest.mark.parametrize("seed", range(5))
def test_a_killed_member_is_replaced_when_its_session_ends(seed: int) -> None:
    async def test(stage: Stage) -> None:
        first = Member(stage.sim, stage.host, "a").start()
        second = Member(stage.sim, stage.host, "b").start()
        await stage.shared([first, second])
        await stage.send(RECORDS)
        second.kill()
        with pytest.raises(ProcessKilled):
            await second.done
        await stage.shared([first], timeout_s=15)
        await stage.send(RECORDS)
        await stage.all_read([first, second])
        await first.stop()

    staged(test, seed)


def test_a_member_that_is_busy_keeps_its_membership_through_a_rebalance() -> None:
    async def test(stage: Stage) -> None:
        first = Member(stage.sim, stage.host, "a").start()
        await stage.shared([first])
        first.stall_s = 20.0  # three sessions long, less than the rebalance timeout
        await asyncio.sleep(1)
        second = Member(stage.sim, stage.host, "b").start()
        await asyncio.sleep(10)
        assert first.owned == [0, 1, 2, 3] and not second.owned
        await stage.shared([first, second])
        assert first.calls[1:] == [("-", [0, 1, 2, 3]), ("+", first.owned)]
        for each in (first, second):
            await each.stop()

    staged(test)


@pytest.mark.parametrize("power", [False, True])
def test_a_coordinator_that_comes_back_finds_its_members(power: bool) -> None:
    async def test(stage: Stage) -> None:
        first = Member(stage.sim, stage.host, "a").start()
        second = Member(stage.sim, stage.host, "b").start()
        await stage.shared([first, second])
        await stage.send(RECORDS)
        await stage.all_read([first, second])
        stage.host.kill(power=power)
        await asyncio.sleep(2)
        await stage.host.up()
        await stage.shared([first, second])
        if not power:
            await stage.send(RECORDS)
            await stage.all_read([first, second])
        for each in (first, second):
            await each.stop()

    staged(test)


@pytest.mark.parametrize("away_s", [1, 10, 300])
def test_a_member_says_once_that_its_coordinator_is_away_and_once_that_it_is_back(
    away_s: int, caplog: pytest.LogCaptureFixture
) -> None:
    """And goes on, however long it was."""

    async def test(stage: Stage) -> None:
        member = Member(stage.sim, stage.host, "a").start()
        await stage.shared([member])
        await stage.send(RECORDS)
        await stage.all_read([member])
        stage.host.kill()
        await asyncio.sleep(away_s)
        await stage.host.up()
        await stage.shared([member])
        await stage.send(RECORDS)
        await stage.all_read([member])
        await member.stop()

    staged(test)
    said = [each.message for each in caplog.records if "coordinator" in each.message]
    if away_s < SAY_AFTER_S:
        assert said == []
    else:
        missed, back = said
        assert missed.startswith("group g has no coordinator (broker:9092")
        assert back.startswith("group g has a coordinator again, after ")


def test_a_static_member_that_restarts_in_time_moves_nobodys_partitions() -> None:
    async def test(stage: Stage) -> None:
        first = Member(stage.sim, stage.host, "a", group_instance_id="one", session_timeout_ms=20_000).start()
        second = Member(stage.sim, stage.host, "b", group_instance_id="two", session_timeout_ms=20_000).start()
        await stage.shared([first, second])
        owned, calls = second.owned, list(first.calls)
        second.kill()
        again = Member(stage.sim, stage.host, "b", group_instance_id="two", session_timeout_ms=20_000).start()
        await stage.sim.until(lambda: again.owned == owned, "the same partitions")
        assert first.calls == calls
        for each in (first, again):
            await each.stop()

    staged(test)


def test_a_topic_that_grows_is_shared_anew() -> None:
    async def test(stage: Stage) -> None:
        member = Member(stage.sim, stage.host, "a").start()
        await stage.shared([member])
        await stage.work(lambda client: Admin(client).create_partitions("t", 6))
        await stage.sim.until(lambda: member.owned == [0, 1, 2, 3, 4, 5], "the new partitions", 60)
        await member.stop()

    staged(test)


def test_a_topic_that_is_not_there_yet_is_taken_when_it_comes() -> None:
    async def test(stage: Stage) -> None:
        await stage.work(lambda client: Admin(client).delete_topics(["t"]))
        member = Member(stage.sim, stage.host, "a").start()
        await stage.sim.until(lambda: bool(member.calls), "joined")
        assert member.calls == [("+", [])]
        await stage.work(stage._topic)
        await stage.shared([member], timeout_s=20)
        await member.stop()

    staged(test)


def test_two_members_on_one_client_do_not_block_each_other() -> None:
    async def test(stage: Stage) -> None:
        async def both(client: Client) -> None:
            consumers = [Consumer(client, "g", session_timeout_ms=6_000) for _ in range(2)]
            for consumer in consumers:
                await consumer.subscribe(["t"])
            loop = asyncio.get_running_loop()
            began = loop.time()
            while not all(len(consumer.assignment()) == 2 for consumer in consumers):
                await asyncio.gather(*(consumer.poll(100) for consumer in consumers))
            assert loop.time() - began < 5.0
            for consumer in consumers:
                await consumer.close()

        await stage.work(both)

    staged(test)


def test_a_poll_that_is_cancelled_in_a_rebalance_is_gone_on_with() -> None:
    async def test(stage: Stage) -> None:
        async def impatient(client: Client) -> None:
            calls: list[int] = []

            async def assigned(tps: list[TopicPartition]) -> None:
                calls.append(len(tps))
                if len(calls) < 3:
                    await asyncio.sleep(10)

            consumer = Consumer(client, "g", session_timeout_ms=6_000)
            await consumer.subscribe(["t"], assigned)
            for seconds in (0.0001, 0.001, 0.01, 0.1, 0.5, 1.0):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(consumer.poll(10_000), seconds)
            while len(calls) < 3:
                assert await consumer.poll(500) == {}
            assert calls == [4, 4, 4] and len(consumer.assignment()) == 4
            await consumer.close()

        await stage.work(impatient)

    staged(test)


TP = TopicPartition("t", 0)


@pytest.mark.parametrize("waits_for", ["a_leader", "its_callback"])
def test_a_consumer_that_is_closed_while_it_joins_is_assigned_nothing(
    waits_for: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(stage: Stage) -> None:
        async def closed(client: Client) -> None:
            is_waiting, goes_on = asyncio.Event(), asyncio.Event()
            calls: list[int] = []

            async def wait(*_: Any) -> None:
                is_waiting.set()
                await goes_on.wait()

            async def assigned(tps: list[TopicPartition]) -> None:
                calls.append(len(tps))
                await wait()

            consumer = Consumer(client, "g", session_timeout_ms=6_000)
            await consumer.subscribe(["t"], assigned)
            if waits_for == "a_leader":
                monkeypatch.setattr(client, "leader", lambda tp: None)
                monkeypatch.setattr(client, "wait_for_topics", wait)
            poll = asyncio.create_task(consumer.poll(10_000))
            await is_waiting.wait()
            await consumer.close()
            assert consumer.assignment() == []
            goes_on.set()
            on_at = asyncio.get_running_loop().time()
            with pytest.raises(ClientError, match="closed"):
                await poll
            assert asyncio.get_running_loop().time() - on_at < 0.001  # turns of the loop, no wait for data
            assert consumer.assignment() == []
            assert calls == ([] if waits_for == "a_leader" else [4])

        await stage.work(closed)

    staged(test)


class Calls:
    """What a consumer's callbacks were called with."""

    def __init__(self) -> None:
        self.made: list[tuple[str, int]] = []  # which one, how many partitions

    def assigned(self, tps: list[TopicPartition]) -> None:
        self.made.append(("assigned", len(tps)))

    def revoked(self, tps: list[TopicPartition]) -> None:
        self.made.append(("revoked", len(tps)))

    def lost(self, tps: list[TopicPartition]) -> None:
        self.made.append(("lost", len(tps)))


async def joined(client: Client, calls: Calls, on_lost: bool = True, **options: Any) -> Consumer:
    consumer = Consumer(client, "g", session_timeout_ms=6_000, **options)
    await consumer.subscribe(["t"], calls.assigned, calls.revoked, calls.lost if on_lost else None)
    while not consumer.assignment():
        await consumer.poll(100, 1)
    return consumer


async def session_ended(consumer: Consumer) -> None:
    """As if the process had been stopped past its session, until all others have left the group, too."""
    assert consumer._membership is not None
    await consumer._membership._stop_heart()
    await asyncio.sleep(30)


def membership_of(consumer: Consumer) -> Membership:
    assert consumer._membership is not None
    return consumer._membership


async def committed(client: Client) -> dict[TopicPartition, int]:
    return await Admin(client).group_offsets("g")


@pytest.mark.parametrize("on_lost", [True, False])
@pytest.mark.parametrize("told_by", ["heartbeat", "commit"])
def test_a_member_that_was_put_out_commits_nothing_and_is_told_of_its_loss(told_by: str, on_lost: bool) -> None:
    """Its group is empty, which takes commits of consumers that are no members: offsets would go back."""

    async def test(stage: Stage) -> None:
        await stage.send(40)

        async def late(client: Client) -> None:
            calls = Calls()
            consumer = await joined(client, calls, on_lost)
            await session_ended(consumer)
            await Consumer(client, "g").commit({TP: 9})
            membership = membership_of(consumer)
            if told_by == "heartbeat":
                membership._heart = asyncio.ensure_future(membership._beat())
                await membership.changed.wait()
                assert not membership.is_member
            else:
                with pytest.raises(KafkaError, match="group g: this consumer is not a member now") as told:
                    await consumer.commit({TP: 1})
                assert told.value.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
            for offsets in ({TP: 1}, None):
                with pytest.raises(KafkaError, match="group g: this consumer is not a member now") as told:
                    await consumer.commit(offsets)
                assert told.value.code == ErrorCode.UNKNOWN_MEMBER_ID
            assert await committed(client) == {TP: 9}
            assert calls.made == [("assigned", 4)]
            found: list[int] = []
            while not found:
                found = [record.offset for record in (await consumer.poll(5_000)).get(TP, ())]
            assert found == [9]
            assert calls.made == [("assigned", 4), ("lost" if on_lost else "revoked", 4), ("assigned", 4)]
            await consumer.commit()
            assert (await committed(client))[TP] == 10
            await consumer.close()
            assert calls.made[3:] == [("revoked", 4)]

        await stage.work(late)

    staged(test)


def test_a_member_whose_place_another_took_is_told_of_its_loss_and_does_not_take_it_back() -> None:
    async def test(stage: Stage) -> None:
        async def twice(client: Client) -> None:
            calls, others = Calls(), Calls()
            first = await joined(client, calls, group_instance_id="one")
            second = await joined(client, others, group_instance_id="one")
            await membership_of(first).changed.wait()
            for _ in range(3):
                with pytest.raises(KafkaError) as told:
                    await first.poll(5_000)
                assert told.value.code == ErrorCode.FENCED_INSTANCE_ID
            assert calls.made == [("assigned", 4), ("lost", 4)]
            await second.poll(3_000)
            await second.commit({TP: 1})
            assert others.made == [("assigned", 4)]
            await first.close()
            await second.close()

        await stage.work(twice)

    staged(test)


def test_a_member_that_closes_after_it_was_put_out_is_told_of_its_loss() -> None:
    async def test(stage: Stage) -> None:
        async def late(client: Client) -> None:
            calls = Calls()
            consumer = await joined(client, calls)
            await session_ended(consumer)
            with pytest.raises(KafkaError):
                await consumer.commit({TP: 1})
            await consumer.close()
            assert calls.made == [("assigned", 4), ("lost", 4)]

        await stage.work(late)

    staged(test)


def test_a_closed_consumer_commits_nothing() -> None:
    """It has left its group, which takes commits of consumers that are no members once it is empty."""

    async def test(stage: Stage) -> None:
        async def closed(client: Client) -> None:
            consumer = await joined(client, Calls())
            await consumer.commit({TP: 5})
            await consumer.close()
            for offsets in ({TP: 1}, None):
                with pytest.raises(ClientError, match="closed"):
                    await consumer.commit(offsets)
            with pytest.raises(ClientError, match="closed"):
                await consumer.poll(100)
            assert await committed(client) == {TP: 5}

        await stage.work(closed)

    staged(test)


def test_a_commit_that_is_tried_again_is_of_the_generation_it_began_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """The partition may be another member's since."""

    async def test(stage: Stage) -> None:
        async def slow(client: Client) -> None:
            consumer = await joined(client, Calls())
            membership = membership_of(consumer)
            ask = membership.ask

            async def lost(message: Any, *rest: Any, **named: Any) -> Any:
                if not isinstance(message, offset_commit.Request):
                    return await ask(message, *rest, **named)
                monkeypatch.setattr(membership, "ask", ask)
                membership._must_join()
                await consumer.poll(5_000)
                await consumer.commit({TP: 7})
                raise ConnectionLost("the connection broke with the commit under way")

            monkeypatch.setattr(membership, "ask", lost)
            with pytest.raises(KafkaError) as told:
                await consumer.commit({TP: 3})
            assert told.value.code == ErrorCode.ILLEGAL_GENERATION
            assert await committed(client) == {TP: 7}
            await consumer.commit({TP: 8})  # the member itself is in its group as before
            await consumer.close()

        await stage.work(slow)

    staged(test)


@pytest.mark.parametrize("most", [1, 3])
def test_a_commit_in_on_revoked_is_of_what_was_handed_over(most: int) -> None:
    """What was fetched beyond it is neither handed over nor committed, and read again by who has the partition then."""

    async def test(stage: Stage) -> None:
        await stage.send(40)

        async def partly(client: Client) -> None:
            found: dict[TopicPartition, list[int]] = {}
            revocations = 0

            async def revoked(tps: list[TopicPartition]) -> None:
                nonlocal revocations
                revocations += 1
                await consumer.commit()
                assert await committed(client) == {tp: len(found.get(tp, ())) for tp in tps}

            consumer = Consumer(client, "g", session_timeout_ms=6_000)
            await consumer.subscribe(["t"], on_revoked=revoked)
            while (count := sum(map(len, found.values()))) < 40:
                if count // 10 > revocations:
                    membership_of(consumer)._must_join()
                for tp, records in (await consumer.poll(5_000, most)).items():
                    found.setdefault(tp, []).extend(record.offset for record in records)
            assert found == {TopicPartition("t", index): list(range(10)) for index in range(PARTITIONS)}
            assert revocations == 3
            await consumer.close()

        await stage.work(partly)

    staged(test)


def test_a_rebalance_gives_out_nothing_of_what_was_fetched_before_it() -> None:
    """Another member may have read on and committed since."""

    async def test(stage: Stage) -> None:
        await stage.send(40)

        async def one(client: Client) -> None:
            consumer = await joined(client, Calls())
            while not await consumer.poll(5_000, 1):
                pass
            while len(consumer._fetcher.ready) + len(consumer._chunks) < PARTITIONS:
                await consumer._fetcher.arrived.wait()
                await asyncio.sleep(0.001)
            await consumer.commit({TopicPartition("t", index): 7 for index in range(PARTITIONS)})
            membership_of(consumer)._must_join()
            found: list[int] = []
            while len(found) < 3 * PARTITIONS:
                found += [record.offset for each in (await consumer.poll(5_000)).values() for record in each]
            assert sorted(found) == sorted([7, 8, 9] * PARTITIONS)
            await consumer.close()

        await stage.work(one)

    staged(test)


@pytest.mark.parametrize("during", ["a_join", "the_reading", "a_poll"])
@pytest.mark.parametrize("topics", [["u"], []])
def test_another_subscription_counts_whenever_it_comes(topics: list[str], during: str) -> None:
    """Also while the first one's join, or a poll, is under way; of no topics, it ends the reading."""

    async def test(stage: Stage) -> None:
        await stage.send(40)

        async def other(client: Client) -> None:
            await Admin(client).create_topics([NewTopic("u", 1)])
            producer = Producer(client)
            await producer.start()
            producer.send("u", b"of u")
            await producer.close()
            consumer = Consumer(client, "g", session_timeout_ms=6_000)
            await consumer.subscribe(["t"])
            found: list[bytes] = []
            if during == "a_join":
                await consumer.poll(0)
                assert consumer.must_poll and not consumer.assignment()
            else:
                assert len(await consumer.poll(5_000, 1)) == 1
            if during == "a_poll":
                for tp in consumer.assignment():
                    consumer.seek(tp, 10)  # the end
                poll = asyncio.create_task(consumer.poll(10_000))
                await asyncio.sleep(0.5)
                await consumer.subscribe(topics)
                assert list(await poll) == [TopicPartition(name, 0) for name in topics]
                for tp in consumer.assignment():
                    consumer.seek(tp, 0)
            else:
                await consumer.subscribe(topics)
            for _ in range(10):
                for records in (await consumer.poll(500)).values():
                    found += [record.value or b"" for record in records]
            assert found == [b"of u"] * len(topics)
            assert consumer.assignment() == [TopicPartition(name, 0) for name in topics]
            await consumer.close()

        await stage.work(other)

    staged(test)


def test_an_error_of_on_revoked_is_raised_once_and_the_partitions_are_given_up() -> None:
    async def test(stage: Stage) -> None:
        await stage.send(40)

        async def failing(client: Client) -> None:
            calls: list[int] = []

            def revoked(tps: list[TopicPartition]) -> None:
                calls.append(len(tps))
                raise ZeroDivisionError

            consumer = Consumer(client, "g", session_timeout_ms=6_000)
            await consumer.subscribe(["t"], on_revoked=revoked)
            found = 0
            while found < 3:
                found += sum(map(len, (await consumer.poll(100, 3)).values()))
            membership_of(consumer)._must_join()
            with pytest.raises(ZeroDivisionError):
                await consumer.poll(5_000)
            assert consumer.assignment() == [] and calls == [4]
            found = 0
            while found < 40:
                found += sum(map(len, (await consumer.poll(1_000)).values()))
            assert calls == [4]
            with pytest.raises(ZeroDivisionError):
                await consumer.close()

        await stage.work(failing)

    staged(test)


def test_the_offset_of_a_topic_made_anew_is_not_committed() -> None:
    async def test(stage: Stage) -> None:
        await stage.send(40)

        async def anew(client: Client) -> None:
            consumer = Consumer(client, "g")
            await client.refresh_metadata(["t"])
            consumer.assign({TP: 0})
            assert len((await consumer.poll(5_000))[TP]) == 10
            await Admin(client).delete_topics(["t"])
            await Admin(client).create_topics([NewTopic("t", PARTITIONS)])
            await client.refresh_metadata(["t"])
            while not consumer._fetcher.unsettled:
                await asyncio.sleep(0.1)
            await consumer.commit()
            assert await committed(client) == {}
            assert await consumer.poll(1_000) == {}
            await consumer.commit()
            assert await committed(client) == {TP: 0}
            await consumer.close()

        await stage.work(anew)

    staged(test)


def test_offsets_of_a_hand_assigned_consumer_are_kept_by_the_group() -> None:
    async def test(stage: Stage) -> None:
        await stage.send(40)

        async def by_hand(client: Client) -> None:
            tp = TopicPartition("t", 1)
            await client.refresh_metadata(["t"])
            consumer = Consumer(client, "hand", auto_offset_reset="none")
            assert await consumer.committed([tp]) == {}
            await consumer.commit({tp: 4})
            assert await consumer.committed([tp]) == {tp: 4}
            consumer.assign({tp: None})
            found = await consumer.poll(1_000)
            assert found[tp][0].offset == 4
            await consumer.close()

        await stage.work(by_hand)

    staged(test)


@pytest.mark.parametrize("polls", [20, 600])
def test_a_poll_ends_in_its_time_while_there_is_no_coordinator(polls: int) -> None:
    async def test(stage: Stage) -> None:
        await stage.send(40)

        async def patient(client: Client) -> None:
            loop = asyncio.get_running_loop()
            consumer = Consumer(client, "g", session_timeout_ms=6_000)
            await consumer.subscribe(["t"])
            stage.host.kill()
            for _ in range(polls):
                began = loop.time()
                assert await consumer.poll(300) == {}
                assert loop.time() - began < 0.4
            await loop.create_task(stage.host.up(), context=stage.sim.world)
            found = 0
            while found < 40:
                found += sum(map(len, (await consumer.poll(300)).values()))
            stage.host.kill()
            began = loop.time()
            await consumer.close()
            assert loop.time() - began < 15
            await loop.create_task(stage.host.up(), context=stage.sim.world)

        await stage.work(patient)

    staged(test)


@pytest.mark.parametrize("seed", range(15))
def test_whatever_happens_to_members_and_coordinator_every_record_is_read_and_partitions_are_shared(seed: int) -> None:
    async def test(stage: Stage) -> None:
        chance = stage.sim.random
        members = [Member(stage.sim, stage.host, f"m{i}").start() for i in range(2)]
        past: list[Member] = []
        for _ in range(12):
            await stage.send(20)
            match chance.choice(("kill", "stop", "start", "stall", "broker", "cut", "nothing")):
                case "kill" if members:
                    gone = members.pop(chance.randrange(len(members)))
                    gone.kill()
                    past.append(gone)
                case "stop" if members:
                    gone = members.pop(chance.randrange(len(members)))
                    await gone.stop()
                    past.append(gone)
                case "start" if len(members) < 4:
                    members.append(Member(stage.sim, stage.host, f"m{len(members) + len(past)}").start())
                case "stall" if members:
                    chance.choice(members).stall_s = chance.uniform(1, 20)
                case "broker":
                    stage.host.kill()
                    await asyncio.sleep(chance.uniform(0.1, 3))
                    await stage.host.up()
                case "cut":
                    stage.sim.network.cut()
            await asyncio.sleep(chance.uniform(0, 8))
        if not members:
            members.append(Member(stage.sim, stage.host, "last").start())
        await stage.shared(members, timeout_s=120)
        await stage.all_read(members + past, timeout_s=120)
        offsets = {}

        async def committed(client: Client) -> None:
            offsets.update(await Admin(client).group_offsets("g"))

        await stage.sim.sleep(2)
        await stage.work(committed)
        assert sum(offsets.values()) == stage.sent
        for member in members:
            await member.stop()

    staged(test, seed)


def test_what_a_poll_fetches_right_after_its_rebalance_is_given_out() -> None:
    async def test(stage: Stage) -> None:
        await stage.send(40)

        async def one(client: Client) -> None:
            consumer = Consumer(client, "g", session_timeout_ms=6_000)
            await consumer.subscribe(["t"])
            found: list[bytes] = []
            for count in (40, 80, 120):
                while len(found) < count:
                    for records in (await consumer.poll(20_000, 7)).values():
                        found += [record.value or b"" for record in records]
                await consumer.commit()
                assert consumer._membership is not None
                consumer._membership._must_join()
                producer = Producer(client)
                await producer.start()
                for n in range(count, count + 40):
                    producer.send("t", b"%d" % n, partition=n % PARTITIONS)
                await producer.close()
            assert sorted(map(int, found)) == list(range(120))
            await consumer.close()

        await stage.work(one)

    staged(test)


@pytest.mark.parametrize("timeout_ms", [CLOSE_TIMEOUT_MS, 2_000])
@pytest.mark.parametrize("commits", [True, False], ids=["on_revoked_commits", "plain"])
def test_close_ends_by_its_deadline_though_the_coordinator_hangs(commits: bool, timeout_ms: int) -> None:
    async def test(stage: Stage) -> None:
        await stage.send(4)

        async def close(client: Client) -> None:
            loop = asyncio.get_running_loop()

            async def revoked(_: list[TopicPartition]) -> None:
                await consumer.commit()

            consumer = Consumer(client, "g")
            await consumer.subscribe(["t"], on_revoked=revoked if commits else None)
            while not await consumer.poll(200):
                pass
            stage.sim.network.partition(["hand"], ["broker"])  # nothing comes, and nothing is refused
            began = loop.time()
            if commits:
                with pytest.raises(OperationTimeout, match=r"on_revoked in close\(\) of group g: not done within"):
                    await consumer.close(timeout_ms)
                assert loop.time() - began == pytest.approx(timeout_ms / 1000, abs=0.1)
            else:
                await consumer.close(timeout_ms)
                assert loop.time() - began == pytest.approx(min(timeout_ms, LEAVE_TIMEOUT_MS) / 1000, abs=0.1)

        await stage.work(close)

    staged(test)


def test_a_member_whose_on_revoked_takes_all_the_time_leaves_its_group_all_the_same() -> None:
    async def test(stage: Stage) -> None:
        async def close(client: Client) -> None:
            async def revoked(_: list[TopicPartition]) -> None:
                await asyncio.sleep(60)

            consumer = Consumer(client, "g", session_timeout_ms=60_000)
            await consumer.subscribe(["t"], on_revoked=revoked)
            while not consumer.assignment():
                await consumer.poll(100)
            with pytest.raises(OperationTimeout, match="on_revoked"):
                await consumer.close(timeout_ms=1_000)
            [group] = await Admin(client).describe_groups(["g"])
            assert group.group_state == "Empty"

        await stage.work(close)

    staged(test)


@pytest.mark.parametrize("after_s", [0.5, 3.0])
def test_a_close_that_is_cancelled_leaves_nothing_behind_but_the_clients_own(after_s: float) -> None:
    """In on_revoked, and while the group is left."""

    async def test(stage: Stage) -> None:
        async def close(client: Client) -> None:
            async def revoked(_: list[TopicPartition]) -> None:
                await asyncio.sleep(2)

            await client.connection(1)  # on which the group is left
            async with no_leftovers():
                consumer = Consumer(client, "g")
                await consumer.subscribe(["t"], on_revoked=revoked)
                while not consumer.assignment():
                    await consumer.poll(100)
                stage.sim.network.partition(["hand"], ["broker"])
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(consumer.close(), after_s)
                stage.sim.network.heal()
                await client.refresh_metadata()  # the answer that nobody waits for has come

        await stage.work(close)

    staged(test)


def test_a_poll_ends_in_its_time_while_positions_are_looked_up() -> None:
    """And the look-up goes on over many polls, however short they are."""

    async def test(stage: Stage) -> None:
        await stage.send(40)

        async def patient(client: Client) -> None:
            loop = asyncio.get_running_loop()
            consumer = Consumer(client, "g")
            await consumer.subscribe(["t"], lambda _: stage.sim.network.partition(["hand"], ["broker"]))
            while not consumer.assignment():
                assert await consumer.poll(1) == {}
            for _ in range(100):
                began = loop.time()
                assert await consumer.poll(1) == {}
                assert loop.time() - began < 0.01
            stage.sim.network.heal()
            found = 0
            while found < 40:
                found += sum(map(len, (await consumer.poll(1)).values()))
            await consumer.close()

        await stage.work(patient)

    staged(test)
