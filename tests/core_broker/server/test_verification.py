"""Questions to the coordinators of transactions: one request at a time to each, and what producers are told."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from isthmus.core_broker.cluster.topic_names import TRANSACTION_STATE
from isthmus.core_broker.coordinators.find import partition_for
from isthmus.core_broker.purgatory import Pending, Purgatory
from isthmus.core_broker.server.verification import Errors, Held, Here, Verification
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
    Request,
    Response,
)

PARTITIONS = 3
HERE = {("t", 0): ErrorCode.NONE}


class World:
    """Coordinators that answer when the test says so. Partition P of the transactions' topic is led by 10 + P."""

    def __init__(self) -> None:
        partitions = {each: SimpleNamespace(leader=10 + each) for each in range(PARTITIONS)}
        self.image: Any = SimpleNamespace(topics={TRANSACTION_STATE: SimpleNamespace(partitions=partitions)})
        self.purgatory = Purgatory(10)
        self.verification = Verification(self.image, self.request, self.purgatory, lambda: 700.0, Held(100))
        self.requests: list[tuple[int, Request, asyncio.Future[Any]]] = []
        self.told: list[Errors] = []
        self.arrived = asyncio.Event()

    async def request(self, broker_id: int, message: Request, timeout_ms: float, *, least_version: int) -> Response:
        assert (timeout_ms, least_version) == (700.0, 4)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.requests.append((broker_id, message, answer))
        self.arrived.set()
        response: Response = await answer
        return response

    def ask(self, transactional_id: str = "a", epoch: int = 0, **options: Any) -> Pending:
        given = {"adds": False, "timeout_ms": 500, "done": self.told.append, "partitions": {"t": [0]}} | options
        return self.verification.ask(transactional_id, 7, epoch, given.pop("partitions"), **given)

    async def asked(self, count: int) -> tuple[int, Request, asyncio.Future[Any]]:
        """The last of so many requests."""
        while len(self.requests) < count:
            self.arrived.clear()
            await self.arrived.wait()
        assert len(self.requests) == count
        return self.requests[-1]

    async def answer(self, count: int, errors: dict[tuple[str, int], int] | None = None) -> None:
        """Answer the last of so many requests, every transaction in the same way; wait until all have heard."""
        _, request, answer = await self.asked(count)
        rows = {}
        for (topic, index), code in (errors or HERE).items():
            row = AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
            rows.setdefault(topic, []).append(row)
        topics = [AddPartitionsToTxnTopicResult(name=name, results_by_partition=each) for name, each in rows.items()]
        answer.set_result(
            Response(
                results_by_transaction=[
                    AddPartitionsToTxnResult(transactional_id=each.transactional_id, topic_results=topics)
                    for each in request.transactions
                ]
            )
        )
        heard = len(self.told) + len(request.transactions)
        while len(self.told) < heard:
            await asyncio.sleep(0)


def run(test: Any) -> Any:
    def wrapped() -> None:
        async def scenario() -> None:
            world = World()
            work: Coroutine[Any, Any, None] = test(world)
            await work
            await world.verification.close()
            world.purgatory.close()

        asyncio.run(scenario())

    wrapped.__name__ = test.__name__
    return wrapped


@run
async def test_the_leader_of_the_ids_partition_is_asked(world: World) -> None:
    world.ask(epoch=3, adds=True, partitions={"t": [0, 2], "u": [1]})
    broker_id, request, _ = await world.asked(1)
    assert broker_id == 10 + partition_for("a", PARTITIONS)
    (transaction,) = request.transactions
    assert (transaction.producer_id, transaction.producer_epoch, transaction.verify_only) == (7, 3, False)
    assert [(topic.name, topic.partitions) for topic in transaction.topics] == [("t", [0, 2]), ("u", [1])]
    await world.answer(1, {("t", 0): 0, ("t", 2): ErrorCode.TRANSACTION_ABORTABLE, ("u", 1): 0})
    assert world.told == [{("t", 2): ErrorCode.TRANSACTION_ABORTABLE}]


def answer_to(request: Request, code: int) -> Response:
    row = AddPartitionsToTxnPartitionResult(partition_index=0, partition_error_code=code)
    topics = [AddPartitionsToTxnTopicResult(name="t", results_by_partition=[row])]
    [asked] = request.transactions
    return Response(
        results_by_transaction=[
            AddPartitionsToTxnResult(transactional_id=asked.transactional_id, topic_results=topics)
        ]
    )  # fmt: skip


@run
async def test_a_broker_that_is_the_coordinator_asks_itself_and_waits_for_no_request(world: World) -> None:
    here = 10 + partition_for("a", PARTITIONS)
    given: list[Any] = []
    world.verification._here = Here(here, lambda request: given[-1](request))
    given.append(lambda request: answer_to(request, ErrorCode.INVALID_TXN_STATE))
    assert world.ask().done and world.told == [{("t", 0): ErrorCode.INVALID_TXN_STATE}]
    given.append(lambda request: Response(error_code=ErrorCode.UNSUPPORTED_VERSION))
    assert world.ask().done and world.told[1] == {("t", 0): ErrorCode.UNSUPPORTED_VERSION}
    later = Pending(lambda: None)
    given.append(lambda request: later)
    assert not world.ask(adds=True).done and len(world.told) == 2
    later.complete(answer_to(Request(transactions=[AddPartitionsToTxnTransaction(transactional_id="a")]), 0))
    assert world.told[2] == {} and world.requests == []
    given.append(lambda request: Pending(lambda: None))
    world.ask(adds=True)
    world.purgatory.close()  # its deadline has passed
    assert world.told[3] == {("t", 0): ErrorCode.NETWORK_EXCEPTION}


@run
async def test_one_request_at_a_time_and_the_next_has_all_that_came_meanwhile(world: World) -> None:
    same = [each for each in map(str, range(99)) if partition_for(each, PARTITIONS) == 0][:4]
    for each in same:
        world.ask(each)
        await asyncio.sleep(0)
    assert [each.transactional_id for each in (await world.asked(1))[1].transactions] == same[:1]
    await world.answer(1)
    assert [each.transactional_id for each in (await world.asked(2))[1].transactions] == same[1:]
    await world.answer(2)
    assert world.told == [{}] * 4


@run
async def test_a_request_has_each_transactional_id_once(world: World) -> None:
    world.ask()
    await world.asked(1)
    world.ask(partitions={"t": [1]})
    world.ask(partitions={"t": [2]})
    await world.answer(1)
    for number, index in ((2, 1), (3, 2)):
        _, request, _ = await world.asked(number)
        assert [topic.partitions for each in request.transactions for topic in each.topics] == [[index]]
        await world.answer(number)
    assert world.told == [{}] * 3


@run
async def test_coordinators_do_not_wait_for_each_other(world: World) -> None:
    for each in range(PARTITIONS):
        world.ask(next(name for name in map(str, range(99)) if partition_for(name, PARTITIONS) == each))
    await world.asked(3)
    assert {broker_id for broker_id, _, _ in world.requests} == {10, 11, 12}


@run
async def test_who_asks_for_a_client_that_does_not_know_of_abortable_is_told_the_older_error(world: World) -> None:
    world.ask(knows_abortable=False)
    await world.answer(1, {("t", 0): ErrorCode.TRANSACTION_ABORTABLE})
    world.ask()
    await world.answer(2, {("t", 0): ErrorCode.PRODUCER_FENCED})
    assert world.told == [{("t", 0): ErrorCode.INVALID_TXN_STATE}, {("t", 0): ErrorCode.INVALID_PRODUCER_EPOCH}]


@run
async def test_without_a_coordinator_nobody_is_asked(world: World) -> None:
    world.image.topics[TRANSACTION_STATE].partitions[partition_for("a", PARTITIONS)].leader = -1
    world.ask()
    world.image.topics.clear()
    world.ask()
    assert world.told == [{("t", 0): ErrorCode.COORDINATOR_NOT_AVAILABLE}] * 2


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION),
        (ErrorCode.NETWORK_EXCEPTION, ErrorCode.NETWORK_EXCEPTION),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.UNSUPPORTED_VERSION, None),
    ],
)
def test_a_coordinator_that_does_not_answer(failure: ErrorCode, told: ErrorCode | None) -> None:
    @run
    async def scenario(world: World) -> None:
        world.ask()
        (await world.asked(1))[2].set_exception(KafkaError(failure))
        while not world.told:
            await asyncio.sleep(0)
        assert world.told == [{} if told is None else {("t", 0): told}]

    scenario()


@run
async def test_what_a_coordinator_cannot_be_asked_to_add_is_not_written(world: World) -> None:
    world.ask(adds=True)
    (await world.asked(1))[2].set_exception(KafkaError(ErrorCode.UNSUPPORTED_VERSION))
    while not world.told:
        await asyncio.sleep(0)
    assert world.told == [{("t", 0): ErrorCode.UNSUPPORTED_VERSION}]


@pytest.mark.parametrize(
    ("refusal", "told"),
    [
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.UNSUPPORTED_VERSION),  # the records of its level cannot say it
    ],
)
def test_a_coordinator_that_refuses_a_request_as_a_whole(refusal: ErrorCode, told: ErrorCode) -> None:
    @run
    async def scenario(world: World) -> None:
        world.ask()
        (await world.asked(1))[2].set_result(Response(error_code=refusal))
        while not world.told:
            await asyncio.sleep(0)
        assert world.told == [{("t", 0): told}]

    scenario()


@run
async def test_who_has_waited_too_long_is_not_asked_about_any_more(world: World) -> None:
    world.ask()
    await world.asked(1)
    world.ask(partitions={"t": [1]})
    world.purgatory.close()  # all deadlines have passed
    assert world.told == [{("t", 0): ErrorCode.NETWORK_EXCEPTION}, {("t", 1): ErrorCode.NETWORK_EXCEPTION}]
    world.ask(partitions={"t": [2]})
    world.requests[0][2].set_result(Response())
    _, request, _ = await world.asked(2)
    assert [topic.partitions for each in request.transactions for topic in each.topics] == [[2]]


@run
async def test_who_is_gone_hears_nothing(world: World) -> None:
    pending = world.ask()
    _, request, answer = await world.asked(1)
    pending.abandon()
    answer.set_result(Response())
    world.ask("a", partitions={"t": [1]})
    await world.answer(2)
    assert world.told == [{}]
