"""Requests to the group coordinator of one broker, over a real log, on simulated time and disk."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from isthmus.core_broker.cluster.controller import CreateTopics, new_topic
from isthmus.core_broker.purgatory import Pending
from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.errors import ErrorCode as E
from isthmus.protocol.messages import consumer_group_describe as cgd
from isthmus.protocol.messages import consumer_group_heartbeat as chb
from isthmus.protocol.messages import delete_groups as dlg
from isthmus.protocol.messages import describe_groups as dsg
from isthmus.protocol.messages import find_coordinator as fc
from isthmus.protocol.messages import heartbeat as hb
from isthmus.protocol.messages import join_group as jg
from isthmus.protocol.messages import leave_group as lg
from isthmus.protocol.messages import list_groups as lsg
from isthmus.protocol.messages import offset_commit as oc
from isthmus.protocol.messages import offset_delete as od
from isthmus.protocol.messages import offset_fetch as of
from isthmus.protocol.messages import sync_group as sg
from isthmus.protocol.messages import txn_offset_commit as tc
from tests.simulation.product import BrokerHost
from tests.simulation.runner import Simulation, run_checked

FSYNC = {"durability": "fsync"}


@dataclass
class Coordinators:
    """What coordinators of transactions say of the partitions that they are asked for, at once or by `tell`."""

    error: ErrorCode = ErrorCode.NONE
    waits: bool = False
    asked: list[dict[str, Any]] = field(default_factory=list)

    def ask(self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Any, **rest: Any) -> None:
        self.asked.append(
            {"producer": (transactional_id, producer_id, producer_epoch), "partitions": partitions, **rest}
        )
        if not self.waits:
            self.tell()

    def tell(self) -> None:
        for asked in self.asked:
            if done := asked.pop("done", None):
                wrong = {(topic, index): self.error for topic, each in asked["partitions"].items() for index in each}
                done(wrong if self.error else {})


class Desk:
    """Requests to the coordinator of one broker, made on the broker's own process."""

    def __init__(self, sim: Simulation, host: BrokerHost) -> None:
        self.sim = sim
        self.host = host
        self.has_session = True
        self.coordinators = Coordinators()

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
        groups = self.groups
        members, offsets, consumers = groups.member_requests, groups.offset_requests, groups.consumer_group_requests
        groups.host.has_session = lambda: self.has_session
        handle = {
            sg.Request: members.sync_group, hb.Request: members.heartbeat,
            lg.Request: members.leave_group, oc.Request: offsets.offset_commit,
            of.Request: offsets.offset_fetch,
            od.Request: offsets.offset_delete, fc.Request: groups.finder.find_coordinator,
            dsg.Request: groups.describe_groups, lsg.Request: groups.list_groups, dlg.Request: groups.delete_groups,
            tc.Request: lambda request, version: groups.txn_offsets.txn_offset_commit(
                request, version, self.coordinators
            ),
            cgd.Request: consumers.describe,
            chb.Request: lambda request, version: consumers.heartbeat(request, version, "c", "1.2.3.4"),
            jg.Request: lambda request, version: members.join_group(request, version, "c", "1.2.3.4"),
        }[type(request)]  # fmt: skip
        return await self.inside(lambda: handle(request, version))

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
        shards = self.groups.host.shards.shards
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

    async def txn_commit(self, offset: int, *, version: int = 5, **fields: Any) -> int:
        """Commit an offset in a transaction."""
        answer = await self.ask(txn_request(offset, **fields), version)
        return answer.topics[0].partitions[0].error_code

    async def end(self, producer_id: int, committed: bool = True, *, epoch: int = 0) -> None:
        """End a producer's transaction in the first shard."""
        host = self.groups.host
        partition, offset = await self.inside(lambda: host.complete_transaction(0, producer_id, epoch, 0, committed, 2))
        await self.sim.until(lambda: partition.high_watermark >= offset, "the marker is committed")

    async def stable(self, group: str = "g", topic: str = "t", partition: int = 0) -> int:
        """The offset that is told to who asks for a stable one, or the error code, as a negative number."""
        wanted = of.OffsetFetchRequestTopic(name=topic, partition_indexes=[partition])
        request = of.Request(group_id=group, topics=[wanted], require_stable=True)
        found = (await self.ask(request, 7)).topics[0].partitions[0]
        assert not found.error_code or found.committed_offset == -1
        return -found.error_code or found.committed_offset

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


def txn_request(
    offset: int, *, producer: int = 7, epoch: int = 0, group: str = "g", topic: str = "t", partition: int = 0,
    metadata: str | None = "", member: str = "", instance: str | None = None, generation: int = -1,
) -> tc.Request:  # fmt: skip
    part = tc.TxnOffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=metadata
    )
    return tc.Request(
        transactional_id="tx",
        group_id=group,
        producer_id=producer,
        producer_epoch=epoch,
        member_id=member,
        group_instance_id=instance,
        generation_id_or_member_epoch=generation,
        topics=[tc.TxnOffsetCommitRequestTopic(name=topic, partitions=[part])],
    )


def delete_request(group: str, *wanted: tuple[str, int]) -> od.Request:
    topics = [
        od.OffsetDeleteRequestTopic(name=name, partitions=[od.OffsetDeleteRequestPartition(partition_index=index)])
        for name, index in wanted
    ]
    return od.Request(group_id=group, topics=topics)


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

    run_checked(main)
