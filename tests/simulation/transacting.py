"""Applications that write in transactions, in a few lines over the wire, and the ledger of what they were told.

Each has one transactional id. A transaction writes values to partitions of several topics and mostly commits its number
as the offset of the application's own group, so that what of it counts can be read from both. Applications are killed,
hang, and are replaced while they still run, some have a slow network or little patience; they keep to KIP-98, 360 and
447, or to KIP-890, drawn by chance.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    find_coordinator,
    init_producer_id,
    offset_fetch,
    produce,
    txn_offset_commit,
)
from isthmus.protocol.records import build_batch

from .brokers import Cluster
from .hosts import Process, ProcessKilled
from .network import Link
from .runner import Simulation
from .wire import Wire, connect

GROUP_KEY, TRANSACTION_KEY = 0, 1
ANSWER_TIMEOUT_S = 12.0
PATIENCE_S = (0.3, 12.0, 60.0)  # until a batch is given up, and its transaction aborted; the batch may still arrive
SLOW = Link(spike_s=(0.3, 4.0), spike_chance=0.1)  # from an application to a broker
READS_BACK = 0.3  # of the commits: what they have committed as an offset is there for whoever asks next
NO_OFFSET = -1
NEITHER = (-1, -1)  # producer id and epoch of an application that has none yet
OLD = {22: 4, 24: 3, 25: 3, 26: 3, 28: 3, 0: 9}  # versions of requests before KIP-890
NEW = {22: 5, 26: 5, 28: 5, 0: 12}  # and of its second part
AGAIN = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.OPERATION_NOT_ATTEMPTED,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
FENCED = (
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.PRODUCER_FENCED,
)
ABORT = (  # the transaction is lost, the producer goes on
    ErrorCode.INVALID_TIMESTAMP,  # a clock has jumped
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
)
UNREADY = (*AGAIN, ErrorCode.UNSTABLE_OFFSET_COMMIT)  # of offsets
PENDING, COMMITTING, COMMITTED, ABORTED = "pending", "committing", "committed", "aborted"
Place = tuple[str, int]  # topic and partition


@dataclass(slots=True)
class Transaction:
    """number: of its application's transactions. outcome: as far as the application knows; one that is PENDING for good
    was never asked to be committed."""

    application: str
    number: int
    values: dict[bytes, Place] = field(default_factory=dict)
    has_offset: bool = False  # its number may be committed as an offset
    outcome: str = PENDING


class Ledger:
    """All transactions of all applications, and who was given which producer id."""

    def __init__(self) -> None:
        self.transactions: dict[tuple[str, int], Transaction] = {}
        self._owners: dict[int, str] = {}
        self._lives: dict[tuple[int, int], object] = {}  # by producer id and epoch
        self._offsets: dict[str, int] = {}  # by application: the latest committed offset that anybody was told

    def begin(self, application: str, number: int) -> Transaction:
        made = self.transactions[application, number] = Transaction(application, number)
        return made

    def given(self, application: str, life: object, producer_id: int, epoch: int) -> None:
        owner = self._owners.setdefault(producer_id, application)
        assert owner == application, f"producer id {producer_id} is {owner}'s, and is given to {application}"
        known = self._lives.setdefault((producer_id, epoch), life)
        assert known is life, f"two lives of {application} are given epoch {epoch} of producer {producer_id}"

    def told_offset(self, application: str, offset: int, earliest: int) -> None:
        """A stable offset of an application was read. earliest: `least_offset` when it was asked for."""
        assert offset >= earliest, f"{application} is told committed offset {offset}, after {earliest}"
        self._offsets[application] = max(offset, self._offsets.get(application, NO_OFFSET))
        if offset != NO_OFFSET:
            made = self.transactions[application, offset]
            assert made.has_offset and made.outcome in (COMMITTING, COMMITTED), (
                f"{application} is told the offset of transaction {offset}, which is {made.outcome}"
            )

    def least_offset(self, application: str) -> int:
        """The latest offset that an application was told to be committed, by a commit or a read."""
        told = self._offsets.get(application, NO_OFFSET)
        found = [
            made.number
            for made in self.transactions.values()
            if made.application == application and made.has_offset and made.outcome == COMMITTED
        ]
        return max(found, default=told)


class FencedError(Exception):
    """Another life of the application has taken its place."""


class AbortError(Exception):
    """The transaction must be aborted."""


class Application:
    """lives: of it so far, each on a machine of its own. Two may run at once, of which the older one is a zombie."""

    def __init__(self, cluster: Cluster, name: str, topics: Mapping[str, int], ledger: Ledger) -> None:
        self.cluster = cluster
        self.sim: Simulation = cluster.sim
        self.name = name
        self.ledger = ledger
        self.is_enough = False
        self.places = [(topic, index) for topic, count in topics.items() for index in range(count)]
        self.numbers = 0
        self.lives: list[Life] = []
        chance = cluster.sim.random
        self.is_new = chance.random() < 0.6  # by KIP-890
        self.timeout_ms = chance.choice((1_500, 6_000, 60_000))
        self.keeper = cluster.sim.loop.create_task(self._keep())

    async def _keep(self) -> None:
        chance = self.sim.random
        while not self.is_enough:
            life = Life(self, len(self.lives))
            self.lives.append(life)
            await self._until_over(life, chance.choice((1.0, 4.0, 30.0)))
            if life.task.done():
                life.task.result()  # what it found wrong
            match chance.random():
                case luck if luck < 0.4:
                    life.machine.kill()
                case luck if luck < 0.7 and not life.task.done():
                    life.machine.hang(chance.uniform(0.5, 12.0))  # and goes on as a zombie
                    self.sim.counters["zombies"] += 1
                case _:
                    pass  # it just goes on, too
        await asyncio.gather(*(life.task for life in self.lives))

    async def _until_over(self, life: Life, seconds: float) -> None:
        until_s = self.sim.loop.time() + self.sim.random.uniform(0.1, seconds)
        while self.sim.loop.time() < until_s and not life.task.done() and not self.is_enough:
            await asyncio.sleep(0.1)


class Life:
    """One process of an application, from InitProducerId to its end, or until it is fenced."""

    def __init__(self, application: Application, number: int) -> None:
        self.app = application
        self.sim = application.sim
        self.machine = application.sim.machine(f"{application.name}-{number}")
        self.producer = NEITHER
        self._sequences: dict[Place, int] = {}
        self._added: set[Place] = set()
        self._wires: dict[str, Wire] = {}
        process = self.machine.start()
        self.random = process.runtime.random
        self.patience_s = self.random.choice(PATIENCE_S)
        if self.random.random() < (0.7 if self.patience_s == PATIENCE_S[0] else 0.2):
            for host in application.cluster.hosts.values():
                self.sim.network.links[self.machine.name, host.name] = SLOW
        self.task = self.sim.loop.create_task(self._ending(process))

    async def _ending(self, process: Process) -> None:
        try:
            await process.outcome(self._run())
        except ProcessKilled:
            self.sim.counters["applications_killed"] += 1

    async def _run(self) -> None:
        try:
            await self._init()
            await self._read_back()  # no transaction is open: all before it has ended
            while not self.app.is_enough:
                await self._one()
                await asyncio.sleep(self.random.choice((0.0, 0.02, 0.5)) * self.random.random())
        except FencedError:
            self.sim.counters["fenced"] += 1
        finally:
            for wire in self._wires.values():
                wire.transport.abort()

    # --- One transaction ----------------------------------------------------------------------------------------------

    async def _one(self) -> None:
        self.app.numbers += 1
        made = self.app.ledger.begin(self.app.name, self.app.numbers)
        self._added.clear()
        try:
            for _ in range(self.random.randint(1, 4)):
                await self._send(made, self.random.choice(self.app.places))
            if self.random.random() < 0.6:
                await self._send_offset(made)
            if self.random.random() < 0.05:
                await asyncio.sleep(self.random.uniform(0.0, 2 * self.app.timeout_ms / 1000))
            if self.random.random() < 0.8:
                made.outcome = COMMITTING
                await self._end(commits=True)
                made.outcome = COMMITTED
                self.sim.counters["committed"] += 1
                if made.has_offset and self.random.random() < READS_BACK:
                    await self._read_back()
                return
        except AbortError:
            self.sim.counters["abort_asked"] += 1
        may_be_committed = made.outcome == COMMITTING
        try:
            await self._end(commits=False)
        except AbortError:  # it was over already, such as by its timeout, or its commit
            pass
        if not self.app.is_new or may_be_committed:  # its sequences may be unknown, or whether it was committed
            await self._init()
        if not may_be_committed:
            made.outcome = ABORTED
        self.sim.counters["aborted"] += 1

    async def _init(self) -> None:
        request = init_producer_id.Request(
            transactional_id=self.app.name,
            transaction_timeout_ms=self.app.timeout_ms,
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
        )
        while True:
            answer = await self._coordinated(init_producer_id.API, request, TRANSACTION_KEY, self.app.name)
            if not self._told(answer.error_code):
                continue
            self._take(answer.producer_id, answer.producer_epoch)
            return

    def _take(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != self.producer:
            self.producer = producer_id, epoch
            self._sequences.clear()
            self.app.ledger.given(self.app.name, self, producer_id, epoch)

    async def _send(self, made: Transaction, place: Place) -> None:
        topic, index = place
        if not self.app.is_new and place not in self._added:
            await self._add(place)
        rows = []
        for _ in range(self.random.randint(1, 3)):
            value = f"{self.app.name}/{made.number}/{len(made.values)}".encode()
            made.values[value] = place
            rows.append((self.sim.wall_start_ms, value, value, ()))
        sequence = self._sequences.get(place, 0)
        producer_id, epoch = self.producer
        batch = build_batch(
            rows, "none", producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=True
        )
        data = produce.TopicProduceData(
            name=topic, partition_data=[produce.PartitionProduceData(index=index, records=batch)]
        )
        request = produce.Request(transactional_id=self.app.name, acks=-1, timeout_ms=5000, topic_data=[data])
        until_s = self.sim.loop.time() + self.patience_s
        while True:
            address, _ = await self.app.cluster.leader(topic, index)
            answer = await self._ask(address, produce.API, request, min(self.patience_s, ANSWER_TIMEOUT_S))
            if answer is not None and self._told(answer.responses[0].partition_responses[0].error_code):
                self._sequences[place] = sequence + len(rows)
                return
            if self.sim.loop.time() > until_s:
                self.sim.counters["given_up"] += 1
                raise AbortError

    async def _add(self, place: Place) -> None:
        topic = add_partitions_to_txn.AddPartitionsToTxnTopic(name=place[0], partitions=[place[1]])
        producer_id, epoch = self.producer
        request = add_partitions_to_txn.Request(
            v3_and_below_transactional_id=self.app.name,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[topic],
        )
        while True:
            answer = await self._coordinated(add_partitions_to_txn.API, request, TRANSACTION_KEY, self.app.name)
            if self._told(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code):
                self._added.add(place)
                return

    async def _send_offset(self, made: Transaction) -> None:
        producer_id, epoch = self.producer
        group = self.app.name
        if not self.app.is_new:
            adding = add_offsets_to_txn.Request(
                transactional_id=self.app.name, producer_id=producer_id, producer_epoch=epoch, group_id=group
            )
            while True:
                answer = await self._coordinated(add_offsets_to_txn.API, adding, TRANSACTION_KEY, self.app.name)
                if self._told(answer.error_code):
                    break
        topic, index = self.app.places[0]
        row = txn_offset_commit.TxnOffsetCommitRequestPartition(
            partition_index=index, committed_offset=made.number, committed_metadata=""
        )
        request = txn_offset_commit.Request(
            transactional_id=self.app.name,
            group_id=group,
            producer_id=producer_id,
            producer_epoch=epoch,
            generation_id_or_member_epoch=-1,
            topics=[txn_offset_commit.TxnOffsetCommitRequestTopic(name=topic, partitions=[row])],
        )
        made.has_offset = True
        while True:
            answer = await self._coordinated(txn_offset_commit.API, request, GROUP_KEY, group)
            if self._told(answer.topics[0].partitions[0].error_code):
                return

    async def _end(self, *, commits: bool) -> None:
        producer_id, epoch = self.producer
        request = end_txn.Request(
            transactional_id=self.app.name, producer_id=producer_id, producer_epoch=epoch, committed=commits
        )
        while True:
            answer = await self._coordinated(end_txn.API, request, TRANSACTION_KEY, self.app.name)
            if not self._told(answer.error_code):
                continue
            if self.app.is_new:
                self._take(answer.producer_id, answer.producer_epoch)
            return

    async def _read_back(self) -> None:
        """What was committed is the stable offset of the group, and nothing that was aborted ever is."""
        earliest = self.app.ledger.least_offset(self.app.name)
        topic, index = self.app.places[0]
        asked = offset_fetch.OffsetFetchRequestTopic(name=topic, partition_indexes=[index])
        request = offset_fetch.Request(group_id=self.app.name, topics=[asked], require_stable=True)
        while True:
            answer = await self._coordinated(offset_fetch.API, request, GROUP_KEY, self.app.name)
            row = None if answer.error_code else answer.topics[0].partitions[0]
            code = answer.error_code if row is None else row.error_code
            if row is not None and not code:
                self.app.ledger.told_offset(self.app.name, int(row.committed_offset), earliest)
                return
            assert code in UNREADY, f"{self.app.name} was told {ErrorCode(code).name} of its offset"
            self.sim.counters[f"told_{ErrorCode(code).name}"] += 1

    # --- The wire -----------------------------------------------------------------------------------------------------

    def _told(self, code: int) -> bool:
        """Whether an answer has no error; False to ask again. Raises FencedError, AbortError."""
        if code in FENCED:
            raise FencedError
        if code in ABORT:
            raise AbortError
        assert not code or code in AGAIN, f"{self.app.name} was told {ErrorCode(code).name}"
        if code:
            self.sim.counters[f"told_{ErrorCode(code).name}"] += 1
        return not code

    async def _coordinated(self, api: Any, request: Any, kind: int, key: str) -> Any:
        """The answer of a coordinator, looked for each time."""
        while True:
            asked = find_coordinator.Request(key=key, key_type=kind)
            found = await self._ask(self.app.cluster.any_address(), find_coordinator.API, asked)
            if found is not None and not found.error_code:
                answer = await self._ask(f"{found.host}:{found.port}", api, request)
                if answer is not None:
                    return answer

    async def _ask(self, address: str, api: Any, request: Any, timeout_s: float = ANSWER_TIMEOUT_S) -> Any:
        """None where there is no answer; then after a pause."""
        versions = NEW if self.app.is_new else OLD
        try:
            wire = self._wires.get(address)
            if wire is None or wire.lost:
                wire = self._wires[address] = await connect(address)
            answer = await asyncio.wait_for(wire.request(api, request, versions.get(api.key, -1)), timeout_s)
        except (OSError, TimeoutError):
            broken = self._wires.pop(address, None)
            if broken is not None:
                broken.transport.close()  # what is under way arrives
            answer = None
        if answer is None or self.random.random() < 0.05:
            await asyncio.sleep(self.random.uniform(0.02, 0.3))
        return answer
