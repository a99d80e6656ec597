"""Brokers that answer WriteTxnMarkers when a test says so, and the metadata that names them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from isthmus.core_broker.cluster.image import MetadataImage
from isthmus.core_broker.coordinators.runtime import Shard
from isthmus.core_broker.coordinators.transactions.markers import Markers, Marking
from isthmus.core_broker.coordinators.transactions.states import State
from isthmus.core_broker.coordinators.transactions.transaction import Transaction
from isthmus.protocol.errors import ErrorCode as E
from isthmus.protocol.errors import KafkaError
from isthmus.protocol.messages import metadata_records as r
from isthmus.protocol.messages import write_txn_markers as wtm

TIMEOUT_MS = 30_000
Place = tuple[str, int]
Told = dict[tuple[int, Place], tuple[int, bool]]  # by producer id and partition: epoch, and whether it is a commit


class Asked:
    """A request under way to a broker."""

    def __init__(self, broker_id: int, request: wtm.Request) -> None:
        self.broker_id = broker_id
        self.request = request
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    @property
    def markers(self) -> Told:
        return {
            (marker.producer_id, (topic.name, index)): (marker.producer_epoch, marker.transaction_result)
            for marker in self.request.markers
            for topic in marker.topics
            for index in topic.partition_indexes
        }

    @property
    def places(self) -> list[Place]:
        return [place for _, place in self.markers]

    def respond(self, codes: dict[Place, E] | None = None, *, without: tuple[Place, ...] = ()) -> None:
        """NONE for partitions that codes does not name; nothing for those `without`."""
        results = []
        for marker in self.request.markers:
            topics = [
                wtm.WritableTxnMarkerTopicResult(
                    name=topic.name,
                    partitions=[
                        wtm.WritableTxnMarkerPartitionResult(
                            partition_index=index, error_code=(codes or {}).get((topic.name, index), E.NONE)
                        )
                        for index in topic.partition_indexes
                        if (topic.name, index) not in without
                    ],
                )
                for topic in marker.topics
            ]
            results.append(wtm.WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics))
        self.answer.set_result(wtm.Response(markers=results))

    def fail(self, code: E = E.NETWORK_EXCEPTION) -> None:
        self.answer.set_exception(KafkaError(code, "scripted"))


class ScriptedPeers:
    """`asked`: requests without an answer."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.at_once = False  # answer everything with NONE

    async def request(self, broker_id: int, message: Any, timeout_ms: float, *, least_version: int = 0) -> Any:
        asked = Asked(broker_id, message)
        if self.at_once:
            asked.respond()
            return await asked.answer
        self.asked.append(asked)
        try:
            return await asked.answer
        finally:
            if asked in self.asked:
                self.asked.remove(asked)


class Field:
    """Brokers 1 to 3, and the markers of transactions in topic `t`, whose partitions they lead in turn."""

    def __init__(self, partitions: int = 3) -> None:
        self.image = MetadataImage("cluster")
        self.peers = ScriptedPeers()
        self.completed: list[str] = []
        self.refusals = 0  # how often the next completions are refused
        led: Any = SimpleNamespace(topic="__transaction_state", leader_epoch=5)
        self.shard: Shard[Any] = Shard(0, led, object())  # type: ignore[type-var]
        self.markers = Markers(self.image, self.peers, TIMEOUT_MS, self._completed)
        for broker_id in (1, 2, 3):
            self.feed(
                r.RegisterBrokerRecord(
                    broker_id=broker_id, incarnation_id=bytes(16), broker_epoch=broker_id, fenced=False
                )
            )
        self.create("t", partitions)

    def _completed(self, shard: Any, markings: list[Marking]) -> list[Marking]:
        if self.refusals:
            self.refusals -= 1
            return markings
        self.completed += [marking.transaction.transactional_id for marking in markings]
        return []

    def feed(self, *records: Any) -> None:
        delta = self.image.apply(records, self.image.offset + len(records), 0)
        self.markers.on_change(delta)

    def topic_id(self, name: str) -> bytes:
        return name.encode().ljust(16, b".")

    def create(self, name: str, partitions: int) -> None:
        self.feed(r.TopicRecord(name=name, topic_id=self.topic_id(name)))
        for index in range(partitions):
            self.lead(name, index, index % 3 + 1)

    def lead(self, name: str, index: int, leader: int) -> None:
        known = self.image.partition(name, index)
        epoch = 0 if known is None else known.leader_epoch + 1
        self.feed(
            r.PartitionRecord(
                partition_id=index,
                topic_id=self.topic_id(name),
                replicas=[1, 2, 3],
                isr=[1, 2, 3],
                leader=leader,
                leader_epoch=epoch,
                partition_epoch=epoch,
                directories=[bytes(16)] * 3,
            )
        )

    def delete(self, name: str) -> None:
        self.feed(r.RemoveTopicRecord(topic_id=self.topic_id(name)))

    def fence(self, broker_id: int) -> None:
        self.feed(r.BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker_id, fenced=1))

    def unfence(self, broker_id: int) -> None:
        self.feed(r.BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker_id, fenced=-1))

    def send(self, *places: Place, producer_id: int = 7, commit: bool = True, name: str = "x", **fields: Any) -> None:
        state = State.PREPARE_COMMIT if commit else State.PREPARE_ABORT
        transaction = Transaction(name, producer_id, epoch=4, state=state, partitions=frozenset(places), **fields)
        self.markers.send(self.shard, [transaction])

    async def asked(self, count: int = 1) -> list[Asked]:
        """The requests under way, once there are so many."""
        await self.settle()
        for _ in range(200):
            if len(self.peers.asked) >= count:
                break
            await asyncio.sleep(0.02)
        assert len(self.peers.asked) == count, [(each.broker_id, each.places) for each in self.peers.asked]
        return sorted(self.peers.asked, key=lambda each: each.broker_id)

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)
