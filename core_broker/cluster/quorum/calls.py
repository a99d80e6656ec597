"""Requests to other members of the quorum that are under way. Each ends with an event for the step function."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from ....client.connection import host_and_port
from ....client.errors import ClientError, ConnectionLost, RequestTimeout, UnsupportedVersion
from ....protocol.errors import ErrorCode
from ..raft import messages as m
from ..raft.voters import Endpoint
from .member import Member
from .peers import Peers
from .wire import QuorumWire, least_version

logger = logging.getLogger(__name__)


def now_ms() -> int:
    """The time of the step function's events."""
    return int(asyncio.get_running_loop().time() * 1000)


class Calls:
    """epoch: this node's. ended: called with the event. reach_changed: called when a node can be reached, or cannot,
    unlike before, or `misfit` is found.

    misfit: why this node, as it is configured, can be no member; empty if nothing is known against it.
    """

    def __init__(
        self,
        member: Member,
        wire: QuorumWire,
        peers: Peers | None,
        epoch: Callable[[], int],
        ended: Callable[[m.Event], None],
        reach_changed: Callable[[], None],
    ) -> None:
        self._member = member
        self._wire = wire
        self._peers = peers
        self._epoch = epoch
        self._ended = ended
        self._reach_changed = reach_changed
        self.misfit = ""
        self._tasks: dict[asyncio.Task[None], None] = {}
        # Nodes to which the connection broke, or was refused, at the last request, and that have not fetched since.
        self._lost: dict[int, None] = {}

    def lost(self, node_ids: Sequence[int]) -> list[int]:
        """Those to which the connections broke, by the last requests."""
        return [each for each in node_ids if each in self._lost]

    def are_most_lost(self, node_ids: Sequence[int]) -> bool:
        """Whether, by the last requests, the connections to half of these nodes or more broke. Not if there are none:
        an observer that has the controllers' addresses alone knows no voters while kraft.version is 0."""
        lost = self.lost(node_ids)
        return bool(lost) and 2 * len(lost) >= len(node_ids)

    def heard_of(self, node_id: int) -> None:
        """A node fetches from this one: it is there. A leader may ask nothing of it for long."""
        self._note_reached(node_id, True)

    def begin(self, send: m.Send) -> None:
        task = asyncio.get_running_loop().create_task(self._exchange(send), name="request to the quorum")
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    def cancel(self) -> None:
        """End all of them, without events."""
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        self.cancel()
        if self._peers is not None:
            await self._peers.close()

    async def _exchange(self, send: m.Send) -> None:
        """Send a request and take its answer."""
        member, request = self._member, send.request
        event: m.Event
        is_lost = False
        try:
            assert self._peers is not None
            node = next((each for each in send.endpoints if each.listener == member.listener), send.endpoints[0])
            api, message = self._wire.sent(request)
            timeout_ms = member.options.request_timeout_ms
            answer = await self._peers.request(node, api, message, timeout_ms, least_version(request))
            response = self._wire.answer(request, answer)
            event = m.Answered(now_ms(), send.id, response)
            self._note_misfit(node, request, response)
        except UnsupportedVersion as error:
            logger.warning("%s", error)
            if isinstance(request, m.Vote):
                event = m.Answered(now_ms(), send.id, m.VoteAnswer(ErrorCode.UNSUPPORTED_VERSION, m.UNKNOWN))
            else:
                event = m.Failed(now_ms(), send.id)
        except ClientError as error:
            is_lost = isinstance(error, ConnectionLost) and not isinstance(error, RequestTimeout)
            logger.debug("request to node %d of the quorum: %s", send.node_id, error)
            event = m.Failed(now_ms(), send.id, is_lost)
        except Exception:
            logger.exception("a request to node %d of the quorum failed", send.node_id)
            event = m.Failed(now_ms(), send.id)
        self._note_reached(send.node_id, not is_lost)
        self._ended(event)

    def _note_reached(self, node_id: int, is_reached: bool) -> None:
        if is_reached == (node_id not in self._lost):
            return
        if is_reached:
            del self._lost[node_id]
        else:
            self._lost[node_id] = None
        self._reach_changed()

    def _note_misfit(self, node: Endpoint, request: m.Request, response: m.Response) -> None:
        """See `misfit`. A node fetches in no epoch that it leads, or has led: there, it is another process that leads.

        In an earlier epoch, and in one that has begun since it asked, it may have led itself.
        """
        where = host_and_port(node.host, node.port)
        if response.error == ErrorCode.INCONSISTENT_CLUSTER_ID:
            why = (
                f"the controller at {where} belongs to another cluster than {self._member.cluster_id}: check "
                "controller.quorum.bootstrap.servers, controller.quorum.voters and cluster.id, or use another log.dirs"
            )
        elif (
            isinstance(request, m.Fetch)
            and response.leader_id == self._member.key.id
            and (response.epoch == request.epoch or response.epoch > self._epoch())
        ):
            why = (
                f"node.id={response.leader_id} is that of the active controller, which is another process, as {where} "
                "says: give each node an id of its own"
            )
        else:
            return
        if not self.misfit:
            logger.error("%s", why)
            self.misfit = why
            self._reach_changed()
