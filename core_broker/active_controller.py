"""Which node is the active controller, as this one knows it, and who is to be told when it is another one.

The active controller is the leader of the metadata quorum, once it has applied all that its predecessors decided.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..client.connection import host_and_port
from .cluster.quorum.quorum import MetadataQuorum


class ActiveController:
    """`start` it once the quorum has started; `close` it before that ends."""

    def __init__(self, metadata: MetadataQuorum) -> None:
        self._metadata = metadata
        self._hearers: list[Callable[[], None]] = []
        self._task: asyncio.Task[None] | None = None

    def when_changed(self, hearer: Callable[[], None]) -> None:
        """Call `hearer()` for each change, in order, and at the start."""
        self._hearers.append(hearer)

    def address(self) -> tuple[int, str] | None:
        """Its id and HOST:PORT, "" for this node; None if it is not known, or this node and not ready yet."""
        metadata = self._metadata
        leader = metadata.leader_id
        if leader == metadata.member.key.id:
            return (leader, "") if metadata.is_leader else None
        endpoints = metadata.leader_endpoints or metadata.voters.endpoints(leader)
        if leader < 0 or not endpoints:
            return None
        named = [each for each in endpoints if each.listener == metadata.member.listener]
        endpoint = (named or endpoints)[0]
        return leader, host_and_port(endpoint.host, endpoint.port)

    def who_answers(self) -> tuple[int, str] | None:
        """The same, but a node whose metadata log has failed knows of none, and can say why: it answers itself."""
        metadata = self._metadata
        return self.address() if metadata.failure is None else (metadata.member.key.id, "")

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._follow(), name="who is the active controller")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _follow(self) -> None:
        metadata = self._metadata
        known: tuple[int, int, bool] | None = None
        while True:
            now = metadata.leader_id, metadata.epoch, metadata.is_leader
            if now != known:
                known = now
                for hearer in self._hearers:
                    hearer()
            await metadata.changed()
