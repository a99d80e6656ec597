"""Requests of other members of the quorum that wait for an answer. The step function gives it; bytes are added here."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ....protocol.errors import ErrorCode, KafkaError
from ...purgatory import Pending
from ..metadata_log import MetadataLog
from ..raft import messages as m
from .member import Member
from .wire import Invalid, QuorumWire

MAX_HELD_REQUESTS = 10_000  # that wait for an answer

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Asked:
    request: Any
    pending: Pending


class Served:
    """received: called with a token and a request for the step function, whose answer `answer` takes."""

    def __init__(
        self, member: Member, wire: QuorumWire, log: MetadataLog, received: Callable[[int, m.Request], None]
    ) -> None:
        self._member = member
        self._wire = wire
        self._log = log
        self._received = received
        self._asked: dict[int, _Asked] = {}  # by token
        self._last_token = 0
        self._reading: dict[asyncio.Task[None], _Asked] = {}  # of a snapshot, for the answer

    def handle(self, request: Any, takes_part: bool) -> Any:
        """Answer one of the requests that `wire.py` names: a response, or a Pending if that takes a while."""
        try:
            wanted = self._wire.received(request)
        except Invalid as invalid:
            return self._wire.refused(request, invalid.error, invalid.message)
        if not takes_part or len(self._asked) >= MAX_HELD_REQUESTS:
            return self._wire.refused(request, ErrorCode.BROKER_NOT_AVAILABLE)
        pending = Pending(lambda: self._wire.refused(request, ErrorCode.REQUEST_TIMED_OUT))
        self._last_token += 1
        self._asked[self._last_token] = _Asked(request, pending)
        self._received(self._last_token, wanted)
        return pending.answer if pending.done else pending

    def answer(self, token: int, response: m.Response) -> None:
        asked = self._asked.pop(token, None)
        if asked is None:
            return
        if isinstance(response, m.FetchSnapshotAnswer) and response.snapshot is not None:
            task = asyncio.get_running_loop().create_task(
                self._answer_snapshot(asked, response, response.snapshot), name="reading a metadata snapshot"
            )
            self._reading[task] = asked
            task.add_done_callback(self._reading.pop)
            return
        if isinstance(response, m.FetchAnswer) and response.read_from is not None:
            response = self._with_records(response, response.read_from, asked.request.max_bytes)
        asked.pending.complete(self._wire.reply(asked.request, response))

    def refuse_all(self) -> None:
        """This node takes no part any more."""
        for task in self._reading:
            task.cancel()
        waiting, self._asked = [*self._asked.values(), *self._reading.values()], {}
        for each in waiting:
            each.pending.complete(self._wire.refused(each.request, ErrorCode.BROKER_NOT_AVAILABLE))

    def _with_records(self, response: m.FetchAnswer, offset: int, max_bytes: int) -> m.FetchAnswer:
        try:
            records = self._log.read(offset, min(max_bytes, self._member.fetch_max_bytes))
        except KafkaError as error:
            logger.error("cannot read the metadata for another node: %s", error.message)
            return replace(response, error=ErrorCode.UNKNOWN_SERVER_ERROR, read_from=None)
        return replace(response, records=records)

    async def _answer_snapshot(
        self, asked: _Asked, response: m.FetchSnapshotAnswer, snapshot: m.OffsetAndEpoch
    ) -> None:
        max_bytes = min(asked.request.max_bytes, self._member.snapshot_max_bytes)
        try:
            size, data = await self._log.log.files.run(self._log.read_snapshot, snapshot, response.position, max_bytes)
        except FileNotFoundError:  # another one has taken its place
            response = replace(response, error=ErrorCode.SNAPSHOT_NOT_FOUND)
        except OSError as error:
            logger.error("cannot read a metadata snapshot for another node: %s", error)
            response = replace(response, error=ErrorCode.UNKNOWN_SERVER_ERROR)
        else:
            if 0 <= response.position < size:
                response = replace(response, size=size, data=data)
            else:
                response = replace(response, error=ErrorCode.POSITION_OUT_OF_RANGE)
        asked.pending.complete(self._wire.reply(asked.request, response))
