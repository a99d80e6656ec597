"""What the answer to a request tells a member about itself."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from isthmus.core_broker.cluster.quorum.calls import Calls
from isthmus.core_broker.cluster.quorum.member import Member
from isthmus.core_broker.cluster.quorum.wire import QuorumWire
from isthmus.core_broker.cluster.raft import messages as m
from isthmus.core_broker.cluster.raft.voters import Endpoint, ReplicaKey
from isthmus.protocol.errors import ErrorCode

ME, OTHER = 2, 1


class Peers:
    """Says that `ME` leads, in an epoch."""

    def __init__(self, wire: QuorumWire, epoch: int) -> None:
        self._wire = wire
        self._epoch = epoch

    async def request(self, target: Endpoint, *request: Any) -> Any:
        return self._wire.reply(None, m.FetchAnswer(ErrorCode.FENCED_LEADER_EPOCH, self._epoch, ME))

    async def close(self) -> None: ...


@pytest.mark.parametrize(
    ("asked", "now", "answered", "is_misfit"),
    [
        (5, 5, 5, True),  # it is not this node that leads the epoch in which it asks for the leader
        (0, 0, 7, True),  # nor one of which it does not know
        (5, 5, 4, False),  # after a power cut: the other still takes it for the leader that it was
        (5, 6, 6, False),  # elected since it has asked
    ],
)
def test_node_id_is_taken_if_another_process_must_lead_by_it(
    asked: int, now: int, answered: int, is_misfit: bool
) -> None:
    member = Member(ReplicaKey(ME))
    wire = QuorumWire("c", member.listener, 1, 1)

    async def main() -> str:
        over: asyncio.Future[m.Event] = asyncio.get_running_loop().create_future()
        peers: Any = Peers(wire, answered)
        calls = Calls(member, wire, peers, lambda: now, over.set_result, lambda: None)
        endpoints = (Endpoint(member.listener, "other", 9093),)
        calls.begin(m.Send(0, OTHER, endpoints, m.Fetch(member.key, asked, 0, 0, 0)))
        await over
        return calls.misfit

    said = asyncio.run(main())
    assert said.startswith(f"node.id={ME} is that of the active controller") if is_misfit else said == ""
