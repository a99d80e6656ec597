"""`Agent.test_context`: gives values to one agent of an app without a broker, and shows what it made of each.

async with orders.test_context() as agent:
    event = await agent.put(Order("a", 5))
    assert agent.results[event.message.offset] == 5
    assert totals["a"] == 5

The app's other agents run, too: what this one sends them, or asks them, is processed before `put` returns.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from ..runtime import system
from .api.agents import Agent, topic_name
from .api.app import App
from .api.ids import uuid
from .api.rpc import request_headers
from .driver import TestDriver, TestRecord
from .engine.event import Event, Headers, Message
from .errors import AppError, RecordError

CHANNEL = "<channel>"


class AgentTestContext:
    """`results`: what the agent has yielded, or what was put, where it does not yield, by number from 0 on.

    on_error: called with the agent and an error that it raises, before `put` raises it. Attributes of the agent, such
    as `ask` and `cast`, are here, too."""

    __test__ = False  # pytest: not a test of its own

    def __init__(self, app: App, agent: Agent, on_error: Any = None) -> None:
        self.app = app
        self.agent = agent
        self.results: dict[int, Any] = {}
        self.original_channel = agent.channel
        self._on_error = on_error
        self._driver: TestDriver | None = None
        self._before: tuple[Any, Any] = (None, None)  # the app's worker and outbox
        self._offset = 0  # of what is put next

    async def __aenter__(self) -> AgentTestContext:
        self._before = self.app.worker, self.app.outbox
        self._driver = TestDriver(self.app)
        if self.agent.yields:
            self.agent.sinks.append(self._yielded)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.agent.yields:
            self.agent.sinks.remove(self._yielded)
        self.driver.close()
        self.app.worker, self.app.outbox = self._before
        self._driver = None

    @property
    def driver(self) -> TestDriver:
        """What runs the app: `sent` has what it has sent."""
        if self._driver is None:
            raise AppError(f"agent {self.agent.name}: use test_context() by `async with agent.test_context() as it:`")
        return self._driver

    def _yielded(self, value: Any) -> None:
        self.results[len(self.results)] = value

    async def put(
        self,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp: float | None = None,
        headers: Headers | Mapping[str, bytes | None] = (),
        *,
        reply_to: Any = None,
        correlation_id: str | None = None,
        wait: bool = True,
    ) -> Event:
        """Give the agent a value, as it would come through its topic, and wait until it is processed. Raises what the
        agent raises; it is not to be gone on with then. timestamp: seconds since the epoch; now. partition, wait: as
        if they were not given. reply_to, correlation_id: of a request. Raises AppError for what its topic cannot
        have."""
        sent = tuple(headers.items()) if isinstance(headers, Mapping) else tuple(headers)
        if reply_to is not None:
            sent += request_headers(topic_name(reply_to), correlation_id or uuid())
        timestamp_ms = system().wall_ms() if timestamp is None else round(timestamp * 1000)
        offset, self._offset = self._offset, self._offset + 1
        try:
            event = self._put(key, value, timestamp_ms, offset, sent)
        except RecordError as error:
            cause = error.__cause__ or error
            if self._on_error is not None:
                told = self._on_error(self.agent, cause)
                if inspect.isawaitable(told):
                    await told
            raise cause from error
        if not self.agent.yields:
            self._yielded(value)
        return event

    def _put(self, key: Any, value: Any, timestamp_ms: int, offset: int, headers: Headers) -> Event:
        topic = self.agent.topic
        name = CHANNEL if topic is None else topic.names[0]
        raw = (key, value) if topic is None else (topic.encode_key(key), topic.encode_value(value))
        put = _Put(self.app, Message(name, 0, offset, timestamp_ms / 1000, headers, *raw))
        event = Event(key, value, timestamp_ms, name, 0, offset, headers, carrier=put)
        if self.agent.memory is not None:
            self.driver.run(self.agent.memory.put(event))
        else:
            self.driver.send(name, TestRecord(put.message.value, put.message.key, timestamp_ms, headers))
        return event

    def __getattr__(self, name: str) -> Any:
        return getattr(self.agent, name)


class _Put:
    """The carrier of an event that was put."""

    def __init__(self, app: App, message: Message) -> None:
        self.app = app
        self.message = message

    def message_of(self, offset: int) -> Message:
        return self.message
