"""Requests to the transaction coordinator of one broker, over a real log, on simulated time and disk."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from isthmus.core_broker.coordinators.transactions.coordinator import TransactionCoordinator
from isthmus.core_broker.coordinators.transactions.transaction import Transaction
from isthmus.protocol.errors import ErrorCode as E
from isthmus.protocol.messages import add_offsets_to_txn as aot
from isthmus.protocol.messages import add_partitions_to_txn as apt
from isthmus.protocol.messages import describe_transactions as dst
from isthmus.protocol.messages import end_txn as et
from isthmus.protocol.messages import find_coordinator as fc
from isthmus.protocol.messages import init_producer_id as ipi
from isthmus.protocol.messages import list_transactions as lst
from tests.core_broker.coordinators.desk import Desk
from tests.simulation.product import BrokerHost
from tests.simulation.runner import Simulation, run_checked

from .peers import ScriptedPeers

Codes = dict[tuple[str, int], int]
OPTIONS = {"transaction.state.log.num.partitions": "1"}


class Counter(Desk):
    """Of its broker, the leaders of `t` and `u` are scripted: they write markers at once, unless told otherwise."""

    def __init__(self, sim: Simulation, host: BrokerHost, level: int = 2) -> None:
        super().__init__(sim, host)
        self.level = level
        self.peers = ScriptedPeers()

    @property
    def transactions(self) -> TransactionCoordinator:
        assert self.host.broker is not None and self.host.broker._transactions is not None
        return self.host.broker._transactions

    @property
    def state(self) -> Any:
        return self.transactions.host.shards.shards[0].state

    def current(self, key: str = "x") -> Transaction:
        found: Transaction = self.state.entries[key].current
        return found

    async def start_asking(self, request: Any, version: int) -> Any:
        transactions = self.transactions
        handle = {
            ipi.Request: transactions.requests.init_producer_id,
            apt.Request: transactions.requests.add_partitions,
            aot.Request: transactions.requests.add_offsets,
            et.Request: transactions.requests.end,
            dst.Request: transactions.describe_transactions,
            lst.Request: transactions.list_transactions,
            fc.Request: self.groups.finder.find_coordinator,
        }[type(request)]
        return await self.inside(lambda: handle(request, version))

    async def opened(self, *, at_once: bool = True) -> None:
        """The broker has been started: its transactions are loaded. at_once: whether markers are written."""
        host = self.transactions.host
        self.peers = host.markers._peers = ScriptedPeers()  # type: ignore[assignment]
        self.peers.at_once = at_once
        host._image.features["transaction.version"] = self.level
        host.has_session = lambda: self.has_session
        await self.ask(fc.Request(key="x", key_type=1), 3)
        shards = host.shards.shards
        await self.sim.until(lambda: shards and all(s.failure is None for s in shards.values()), "transactions loaded")

    async def restart(self, *, power: bool = False, at_once: bool = True) -> None:
        self.host.kill(power=power)
        await self.host.start()
        await self.opened(at_once=at_once)

    # --- Requests -----------------------------------------------------------------------------------------------------

    async def init(
        self, key: str = "x", given: tuple[int, int] = (-1, -1), *, timeout_ms: int = 60_000, version: int = 5
    ) -> tuple[int, int, int]:
        """Code, producer id and epoch."""
        request = ipi.Request(
            transactional_id=key, transaction_timeout_ms=timeout_ms, producer_id=given[0], producer_epoch=given[1]
        )
        answer = await self.ask(request, version)
        return answer.error_code, answer.producer_id, answer.producer_epoch

    async def begun(self, key: str = "x", *places: tuple[str, int], timeout_ms: int = 60_000) -> tuple[int, int]:
        """The id and epoch of a producer with an ongoing transaction."""
        code, *given = await self.init(key, timeout_ms=timeout_ms)
        assert code == E.NONE
        producer = given[0], given[1]
        added = await self.add(key, producer, *(places or [("t", 0)]))
        assert set(added.values()) == {E.NONE}
        return producer

    async def add(self, key: str, given: tuple[int, int], *places: tuple[str, int], version: int = 3) -> Codes:
        answer = await self.ask(add_request(key, given, *places), version)
        return codes_of(answer.results_by_topic_v3_and_below)

    async def add_many(self, *asked: apt.AddPartitionsToTxnTransaction, version: int = 5) -> dict[str, Codes]:
        """As brokers do; the codes by transactional id."""
        answer = await self.ask(apt.Request(transactions=list(asked)), version)
        assert answer.error_code == E.NONE
        return {each.transactional_id: codes_of(each.topic_results) for each in answer.results_by_transaction}

    async def add_offsets(self, key: str, given: tuple[int, int], group: str, version: int = 4) -> int:
        request = aot.Request(transactional_id=key, producer_id=given[0], producer_epoch=given[1], group_id=group)
        code: int = (await self.ask(request, version)).error_code
        return code

    async def end(
        self, key: str, given: tuple[int, int], commit: bool = True, version: int = 5
    ) -> tuple[int, int, int]:
        answer = await self.ask(end_request(key, given, commit), version)
        return answer.error_code, answer.producer_id, answer.producer_epoch

    async def described(self, key: str = "x") -> dst.TransactionState:
        (found,) = (await self.ask(dst.Request(transactional_ids=[key]), 0)).transaction_states
        return found


def end_request(key: str, given: tuple[int, int], commit: bool = True) -> et.Request:
    return et.Request(transactional_id=key, producer_id=given[0], producer_epoch=given[1], committed=commit)


def add_request(key: str, given: tuple[int, int], *places: tuple[str, int]) -> apt.Request:
    return apt.Request(
        v3_and_below_transactional_id=key,
        v3_and_below_producer_id=given[0],
        v3_and_below_producer_epoch=given[1],
        v3_and_below_topics=topics_of(*places),
    )


def of_broker(key: str, given: tuple[int, int], *places: tuple[str, int], verify: bool = False) -> Any:
    return apt.AddPartitionsToTxnTransaction(
        transactional_id=key,
        producer_id=given[0],
        producer_epoch=given[1],
        verify_only=verify,
        topics=topics_of(*places),
    )


def topics_of(*places: tuple[str, int]) -> list[apt.AddPartitionsToTxnTopic]:
    return [apt.AddPartitionsToTxnTopic(name=name, partitions=[index]) for name, index in places]


def codes_of(rows: Any) -> Codes:
    results = ((row.name, each) for row in rows for each in row.results_by_partition)
    return {(name, each.partition_index): each.partition_error_code for name, each in results}


def counted(
    scenario: Callable[[Counter], Awaitable[None]], options: dict[str, str] | None = None, level: int = 2
) -> None:
    async def main(sim: Simulation) -> None:
        host = BrokerHost(sim, "broker", {**OPTIONS, **(options or {})})
        await host.start()
        counter = Counter(sim, host, level)
        await counter.opened()
        await counter.create("t", 3)
        await counter.create("u", 1)
        await scenario(counter)

    run_checked(main)
