"""Members of classic groups as raw frames on asyncio: a connection each, or many on one; nothing waits by time.

A member follows the protocol as any consumer does (KIP-62, KIP-394), and the leader gives everyone a share of its own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.header import RequestHeader, decode_response_header, frame_request
from isthmus.protocol.messages import find_coordinator, heartbeat, join_group, leave_group, sync_group
from isthmus.protocol.messages.consumer_protocol import Subscription, encode_subscription
from isthmus.protocol.schema import Struct

TIMEOUT_S = 60.0
SESSION_MS = 60_000
AGAIN = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION)
RETRIABLE = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


class Line(asyncio.Protocol):
    """One connection; requests are answered in turn."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._waiting: deque[tuple[Any, int, asyncio.Future[Any]]] = deque()
        self._sent = 0

    @classmethod
    async def to(cls, address: str) -> Line:
        host, _, port = address.rpartition(":")
        return (await asyncio.get_running_loop().create_connection(cls, host, int(port)))[1]

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def ask(self, request: Struct, version: int | None = None) -> asyncio.Future[Any]:
        """The answer to come; ConnectionError when the connection ends before."""
        api = type(request).API
        version = api.max_version if version is None else version
        self._sent += 1
        header = RequestHeader(api.key, version, self._sent, "member")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((api, version, future))
        self.transport.write(b"".join(map(bytes, frame_request(header, api.encode_request(request, version)))))
        return future

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 4:
            size = int.from_bytes(self._buffer[:4], "big")
            if len(self._buffer) < 4 + size:
                return
            frame = bytes(self._buffer[4 : 4 + size])
            del self._buffer[: 4 + size]
            api, version, future = self._waiting.popleft()
            at = decode_response_header(frame, api.response_header_version(version))[1]
            if not future.done():
                future.set_result(api.decode_response(frame, at, version))

    def connection_lost(self, exc: BaseException | None) -> None:
        for _, _, future in self._waiting:
            if not future.done():
                future.set_exception(ConnectionResetError(f"the broker closed the connection: {exc!r}"))
        self._waiting.clear()

    def close(self) -> None:
        self.transport.close()


class Member:
    """`generation` and `assignment` are of the last sync that went through."""

    def __init__(self, line: Line, group: str, instance: str | None = None, topics: Sequence[str] = ("topic",)) -> None:
        self.line = line
        self.group = group
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.leads = False
        self.assignment = b""
        metadata = encode_subscription(Subscription(topics=list(topics)))
        self._protocols = [join_group.JoinGroupRequestProtocol(name="range", metadata=metadata)]

    async def settle(self) -> None:
        """Join, and take part until there is an assignment for the generation joined."""
        while True:
            joined = await self._join()
            answer = await self._sync(joined)
            if answer.error_code == ErrorCode.NONE:
                self.assignment = bytes(answer.assignment)
                return
            self._check(answer.error_code, AGAIN)

    async def _join(self) -> join_group.Response:
        while True:
            answer = await self.line.ask(
                join_group.Request(
                    group_id=self.group,
                    session_timeout_ms=SESSION_MS,
                    rebalance_timeout_ms=SESSION_MS,
                    member_id=self.member_id,
                    group_instance_id=self.instance,
                    protocol_type="consumer",
                    protocols=self._protocols,
                )
            )
            if answer.error_code == ErrorCode.NONE:
                self.member_id, self.generation = answer.member_id, answer.generation_id
                self.leads = answer.leader == answer.member_id
                return answer
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = answer.member_id
            else:
                self._check(answer.error_code, AGAIN)

    def _sync(self, joined: join_group.Response) -> asyncio.Future[Any]:
        shares = [
            sync_group.SyncGroupRequestAssignment(
                member_id=each.member_id, assignment=f"{joined.generation_id}/{number}".encode()
            )
            for number, each in enumerate(joined.members)
        ]
        return self.line.ask(
            sync_group.Request(
                group_id=self.group,
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                group_instance_id=self.instance,
                protocol_type="consumer",
                protocol_name="range",
                assignments=shares,
            )
        )

    async def beat(self) -> ErrorCode:
        answer = await self.line.ask(
            heartbeat.Request(
                group_id=self.group,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance,
            )
        )
        return ErrorCode(answer.error_code)

    async def take_part(self, everyone: Sequence[Member], after: int = -1) -> None:
        """Heartbeats, one after the other, joining again when told so, until all are of one generation past `after`."""
        while True:
            code = await self.beat() if self.member_id else ErrorCode.REBALANCE_IN_PROGRESS
            if code:
                self._check(code, AGAIN)
                await self.settle()
            elif {member.generation for member in everyone} == {self.generation} and self.generation > after:
                return

    async def rejoin_when_told(self) -> None:
        """Heartbeats, one after the other, until one says that the group rebalances; then take part in that."""
        while not (code := await self.beat()):
            pass
        self._check(code, AGAIN)
        await self.settle()

    async def leave(self) -> None:
        row = leave_group.MemberIdentity(member_id=self.member_id, group_instance_id=self.instance)
        answer = await self.line.ask(leave_group.Request(group_id=self.group, members=[row]))
        self._check(answer.error_code or answer.members[0].error_code, ())

    def _check(self, code: int, allowed: Sequence[ErrorCode]) -> None:
        if code and code not in allowed:
            raise AssertionError(f"{self.group}: {self.member_id or 'a new member'} was told {ErrorCode(code).name}")


async def coordinated(line: Line, groups: Iterable[str]) -> None:
    """Have the broker make the topic of groups; then ask each group's coordinator until it has read its partition."""
    names = list(groups)
    while True:
        answer = await line.ask(find_coordinator.Request(coordinator_keys=names))
        if not any(each.error_code for each in answer.coordinators):
            break
    for name in names:
        code = RETRIABLE[0]
        while code in RETRIABLE:
            row = leave_group.MemberIdentity(member_id="nobody")
            code = ErrorCode((await line.ask(leave_group.Request(group_id=name, members=[row]))).error_code)


async def together(work: Iterable[Any]) -> list[Any]:
    """All of it at once, to its end; TimeoutError names what hung instead of a test that never ends."""
    return await asyncio.wait_for(asyncio.gather(*work), TIMEOUT_S)
