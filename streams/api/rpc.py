"""Asking agents: requests, replies, and who waits for them, as faust-streaming writes them.

A request says by headers, or by an envelope around its value, to which topic its reply goes and by which id it is told
from others. A reply has that id, and what the agent has yielded. So an app of faust-streaming can ask an agent here,
and the other way round.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

import orjson

from ..engine.codecs import json_dumps
from ..engine.event import Headers
from ..engine.serialization import named
from ..errors import AppError, StreamsError
from .topics import Topic

REPLY_TO, CORRELATION_ID = "Faust-Ag-ReplyTo", "Faust-Ag-CorrelationId"
TYPE = "__faust"  # names an object's type, in the JSON of faust-streaming
REQUEST, RESPONSE = "@ReqRepRequest", "@ReqRepResponse"
_REQUEST = REQUEST.encode()

PENDING_MAX = 10_000  # requests without a reply, of one app in one process; then the oldest counts as without one
IN_FLIGHT_MAX = 1_000  # requests of one map or join that wait for replies
REPLY_TIMEOUT_S = 60.0  # for a reply to `ask`


class NoReply(StreamsError):
    """An agent was asked, and has not answered in time."""


def request_headers(reply_to: str, correlation_id: str) -> Headers:
    """What a request has that is in no envelope."""
    return (REPLY_TO, reply_to.encode()), (CORRELATION_ID, correlation_id.encode())


def take_out(topic: Topic, values: list[bytes | None], headers: list[Headers]) -> None:
    """Replace envelopes among the values of records by what is in them, as it would have been written without, and the
    headers by those of such requests."""
    for number, data in enumerate(values):
        if data is None or _REQUEST not in data:
            continue
        try:
            said = orjson.loads(data)
            if said[TYPE]["ns"] != REQUEST:
                continue
            value, own = said["value"], request_headers(said["reply_to"], said["correlation_id"])
        except (ValueError, TypeError, KeyError, AttributeError):
            continue  # no envelope: a value that looks like one
        is_text = isinstance(value, str) and not _is_json(topic)
        values[number] = None if value is None else value.encode() if is_text else orjson.dumps(value)
        headers[number] = (*headers[number], *own)


def _is_json(topic: Topic) -> bool:
    """Whether text is written as JSON, with its quotes."""
    try:
        return topic.encode_value("x") != b"x"
    except (TypeError, ValueError):
        return True  # of a class


def enveloped(topic: Topic, value: Any, reply_to: str, correlation_id: str) -> bytes:
    """A request whose value is in an envelope. Raises AppError for a value that JSON cannot have."""
    data = topic.encode_value(value)
    try:
        inner = None if data is None else orjson.loads(data) if _is_json(topic) else data.decode()
    except ValueError as error:
        raise AppError(
            f"topic {topic.get_topic_name()}: the value of a request is JSON or text, unless the agent has "
            f"use_reply_headers=True: {error}"
        ) from None
    said = {"value": inner, "reply_to": reply_to, "correlation_id": correlation_id, TYPE: {"ns": REQUEST}}
    return orjson.dumps(said)


def reply_address(headers: Headers) -> tuple[str, str] | None:
    """The topic for the reply to a request, and its id; None: no reply is wanted."""
    found = dict(headers)
    reply_to = found.get(REPLY_TO)
    return (reply_to.decode(), (found.get(CORRELATION_ID) or b"").decode()) if reply_to else None


def reply(key: Any, value: Any, correlation_id: str) -> bytes:
    """A reply, with the key of the request. Raises TypeError for a value that JSON cannot have."""
    said_key = key.decode("utf-8", "replace") if isinstance(key, bytes) else key
    said = {"key": said_key, "value": value, "correlation_id": correlation_id, TYPE: {"ns": RESPONSE}}
    return json_dumps(said)


class ReplyPromise(asyncio.Future[Any]):
    """Awaited, it gives the reply."""

    def __init__(self, reply_to: str, correlation_id: str) -> None:
        super().__init__()
        self.reply_to = reply_to
        self.correlation_id = correlation_id


class ReadsReplies(Protocol):
    """Reads topics of replies; part of the worker, of a client, or of a test driver."""

    async def read(self, topic: str) -> None:
        """Read it from here on, and give what it has to `Replies.take`. Returns once a reply to what is sent now would
        be seen."""
        ...

    def new_id(self) -> str:
        """A correlation id that nobody else uses."""
        ...


class Replies:
    """What an app in this process has asked, and has no reply to yet."""

    def __init__(self, app: str) -> None:
        self.app = app
        self.reader: ReadsReplies | None = None  # set by the worker or the driver
        self._pending: dict[str, ReplyPromise] = {}  # by correlation id, the oldest first

    async def expect(self, reader: ReadsReplies, reply_to: str, correlation_id: str | None = None) -> ReplyPromise:
        """Wait for a reply from now on."""
        await reader.read(reply_to)
        promise = ReplyPromise(reply_to, correlation_id or reader.new_id())
        if len(self._pending) >= PENDING_MAX:
            oldest = next(iter(self._pending))
            self._fail(oldest, f"it was asked before {PENDING_MAX} others that have no reply either")
        self._pending[promise.correlation_id] = promise
        promise.add_done_callback(self._forget)
        return promise

    def _forget(self, promise: ReplyPromise) -> None:
        if self._pending.get(promise.correlation_id) is promise:
            del self._pending[promise.correlation_id]

    def _fail(self, correlation_id: str, why: str) -> None:
        promise = self._pending.pop(correlation_id)
        if not promise.done():
            promise.set_exception(NoReply(f"app {self.app}: no reply to request {correlation_id}: {why}"))
            promise.exception()  # else asyncio logs it where nobody awaits it

    def take(self, data: bytes | None) -> None:
        """A record of a topic of replies. Others than those that are waited for, such as of other workers, are left
        alone."""
        try:
            said = orjson.loads(data or b"null")
            correlation_id, value = said["correlation_id"], said["value"]
        except (ValueError, TypeError, KeyError):
            return  # anybody may write to the topic
        promise = self._pending.pop(correlation_id, None) if isinstance(correlation_id, str) else None
        if promise is not None and not promise.done():
            try:
                promise.set_result(named(value))
            except ValueError as error:  # it names a class that cannot be made of it
                promise.set_exception(error)

    def end(self) -> None:
        """No reply comes any more."""
        self.reader = None
        for each in list(self._pending):
            self._fail(each, "the app has ended")
