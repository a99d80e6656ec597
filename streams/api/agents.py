"""An agent: a function of the app that reads a topic, in each task by itself."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ...client import RecordMetadata
from ..engine.columns import is_columns
from ..engine.event import Event
from ..engine.failures import FAIL, STOP, OnError, check
from ..errors import AppError
from ..models.namespaces import main_name
from . import absent
from .channels import Channel
from .derive import Step, steps
from .rows import TableLike
from .rpc import (
    IN_FLIGHT_MAX,
    REPLY_TIMEOUT_S,
    NoReply,
    ReadsReplies,
    Replies,
    ReplyPromise,
    enveloped,
    reply,
    reply_address,
    request_headers,
)
from .topics import Topic
from .usage import used
from .work import current_work

if TYPE_CHECKING:
    from ..agent_context import AgentTestContext  # allowed: the type of what a test asks for
    from .streams import Stream

AgentFunction = Callable[["Stream"], Awaitable[None]] | Callable[["Stream"], AsyncIterator[Any]]
Items = Iterable[Any] | AsyncIterable[Any]
Sink = Any  # a topic, an agent, or a function of the value, which may be async


class Asking(Protocol):
    """The app, as its agents need it."""

    replies: Replies

    @property
    def reply_to(self) -> str:
        """The topic where its replies come."""

    def topic(self, *topics: str) -> Topic: ...

    def reader_at_hand(self) -> ReadsReplies:
        """Reads the replies."""
        ...


class Agent:
    """Made by `App.agent`. topic: what it reads; None: a step of a pipeline, `node` in the graph. tables: those that it
    uses, where its code does not show them."""

    def __init__(
        self,
        function: AgentFunction,
        topic: Topic | None,
        *,
        name: str,
        concurrency: int = 1,
        sink: Sequence[Sink] = (),
        on_error: OnError = FAIL,
        tables: Sequence[TableLike] = (),
        node: str | None = None,
        app: Asking | None = None,
        use_reply_headers: bool = False,
        help: str = "",
        is_asked: bool | None = None,
        memory: Channel | None = None,
    ) -> None:
        self.app = app
        self.function = function
        self.use_reply_headers = use_reply_headers
        self.help = help
        self.yields = not inspect.iscoroutinefunction(function) and not inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004  # an object that is called
        )
        self.node = node
        self.memory = memory  # the channel that it reads, in place of a topic
        self.topic = topic
        self.name = name
        if concurrency < 1:
            raise AppError(f"agent {self.name}: concurrency is {concurrency}, but must be 1 or more")
        self.concurrency = concurrency
        self.is_asked = self.yields if is_asked is None else is_asked  # its topic may have requests
        self.sinks: list[Sink] = []
        for each in sink:
            self.add_sink(each)
        self.on_error = check(on_error, f"agent {name}")
        if topic is not None and topic.columns is not None and self.on_error not in (FAIL, STOP):
            raise AppError(
                f"agent {name} reads columns, of which none can be left out alone: its on_error= must be 'fail' or "
                "'stop'; that of the topic is for records that cannot be decoded"
            )
        self._tables = list(tables)
        self._steps: list[Step] | None = None  # once they were looked for

    @property
    def steps(self) -> list[Step]:
        """How its records come to it, where it has called group_by() or through()."""
        if self._steps is None:
            self._steps = steps(self.name, self.function, self.topic) if self.topic is not None else []
        return self._steps

    @property
    def reads(self) -> Topic:
        """The topic that it reads in the end."""
        topic = self.steps[-1].target if self.steps else self.topic
        assert topic is not None, "it reads a step of a pipeline"
        return topic

    def forwarders(self) -> list[Agent]:
        """The agents that bring its records to it."""
        return [
            Agent(
                each.forward,
                each.source.as_events(),
                name=f"{self.name}>{each.target.get_topic_name()}",
                on_error=self.on_error,
                is_asked=self.is_asked,
            )
            for each in self.steps
        ]

    if not TYPE_CHECKING:  # type checkers know what there is

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(absent.said("Agent", name, dir(type(self))))

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables that it uses, whose rows must be in its tasks."""
        return tuple(dict.fromkeys(table.spec.name for table in self._used() if not table.spec.is_global))

    @property
    def global_tables(self) -> tuple[str, ...]:
        """Names of the global tables that it uses."""
        return tuple(dict.fromkeys(table.spec.name for table in self._used() if table.spec.is_global))

    def _used(self) -> list[TableLike]:
        return [*self._tables, *used(self.function, (TableLike,))]

    # --- What it yields -----------------------------------------------------------------------------

    def add_sink(self, sink: Sink) -> None:
        """Send what it yields there, too: to a topic, a channel, an agent, or a function, which may be async. Raises
        AppError for an agent that does not yield."""
        if not self.yields:
            raise AppError(f"agent {self.name} has a sink, but does not yield: write `yield` in it")
        if not (callable(sink) or hasattr(sink, "send") or hasattr(sink, "send_rows")):
            hint = f": a topic is app.topic({sink!r})" if isinstance(sink, str) else ""
            raise AppError(f"agent {self.name}: its sink {sink!r} is no topic, channel, agent or function{hint}")
        if sink not in self.sinks:
            self.sinks.append(sink)

    async def yielded(self, value: Any, event: Event | None = None) -> None:
        """Pass on a value: to who has asked, by the event, and to all sinks."""
        if event is not None and (address := reply_address(event.raw_headers)) is not None:
            await self._reply(event.key, value, *address)
        for sink in self.sinks:
            if hasattr(sink, "send_rows") and is_columns(value):
                await sink.send_rows(value)
            elif hasattr(sink, "send"):
                if isinstance(value, Event):
                    await sink.send(key=value.key, value=value.value)
                else:
                    await sink.send(value=value)
            else:
                result = sink(value)
                if inspect.isawaitable(result):
                    await result

    async def _reply(self, key: Any, value: Any, reply_to: str, correlation_id: str) -> None:
        said = value.value if isinstance(value, Event) else value
        # Who asks may hold up the commit that it would come with otherwise.
        to = self._in_app.topic(reply_to).at_once()
        await to.send_encoded(None, reply(key, said, correlation_id))

    # --- Asking it ------------------------------------------------------------------------------------

    @property
    def channel(self) -> Topic | Channel:
        """What it reads, as it was declared. Raises AppError where it reads a step of a pipeline."""
        return self.memory or self._sent_to

    @property
    def _in_app(self) -> Asking:
        assert self.app is not None, "made by App.agent"
        return self.app

    @property
    def _sent_to(self) -> Topic:
        if self.topic is None:
            raise AppError(f"agent {self.name} reads a step of a pipeline, to which nothing can be sent")
        return self.topic

    async def send(
        self,
        *,
        key: Any = None,
        value: Any = None,
        reply_to: Any = None,
        correlation_id: str | None = None,
        **options: Any,
    ) -> Any:
        """Send to the topic that it reads. reply_to: the topic for what it yields then, and correlation_id: by which
        that is told from others."""
        if reply_to is None:
            return await self.channel.send(key=key, value=value, **options)
        if not correlation_id:
            raise AppError(f"agent {self.name}: send(reply_to=…) needs a correlation_id=, by which a reply is known")
        return await self._request(key, value, topic_name(reply_to), correlation_id, options, is_output=True)

    async def cast(self, value: Any = None, *, key: Any = None, **options: Any) -> None:
        """Send to the topic that it reads, for no reply."""
        await self.send(key=key, value=value, **options)

    async def ask(
        self,
        value: Any = None,
        *,
        key: Any = None,
        reply_to: Any = None,
        correlation_id: str | None = None,
        timeout: float = REPLY_TIMEOUT_S,
        **options: Any,
    ) -> Any:
        """Send, and wait for what it yields first. timeout: seconds. Raises NoReply when they are over.

        The request is sent at once, also from an agent: it is part of no checkpoint, and so may be sent again."""
        promise = await self.ask_nowait(value, key=key, reply_to=reply_to, correlation_id=correlation_id, **options)
        return await self._awaited(promise, timeout)

    async def _awaited(self, promise: ReplyPromise, timeout: float = REPLY_TIMEOUT_S) -> Any:
        try:
            async with asyncio.timeout(timeout):
                return await promise
        except TimeoutError:
            raise NoReply(
                f"agent {self.name} has not answered within {timeout} s: does a worker run it, and does it yield?"
            ) from None

    async def ask_nowait(
        self,
        value: Any = None,
        *,
        key: Any = None,
        reply_to: Any = None,
        correlation_id: str | None = None,
        force: bool = False,
        **options: Any,
    ) -> ReplyPromise:
        """Send, and return what gives the reply when it is awaited. reply_to: a topic, or its name; the app's own.
        force: as if it were true."""
        app = self._in_app
        to = app.reply_to if reply_to is None else topic_name(reply_to)
        promise = await app.replies.expect(app.reader_at_hand(), to, correlation_id)
        self._waited_for(promise)
        try:
            await self._request(key, value, to, promise.correlation_id, options, is_output=False)
        except BaseException:
            promise.cancel()
            raise
        return promise

    def _waited_for(self, promise: ReplyPromise) -> None:
        """Note that the agent whose code this is, if any, waits for a reply."""
        work = current_work.get(None)
        if work is not None and self.topic is not None:
            asked = work.asked
            asked[promise] = (*self.topic.names, *(name for step in self.steps for name in step.target.names))
            promise.add_done_callback(lambda done: asked.pop(done, None))

    async def _request(
        self, key: Any, value: Any, reply_to: str, correlation_id: str, options: dict[str, Any], is_output: bool
    ) -> None:
        headers = options.pop("headers", None) or ()
        own = tuple(headers.items()) if isinstance(headers, Mapping) else tuple(headers)
        if self.memory is not None:
            own += request_headers(reply_to, correlation_id)
            await self.memory.send(key=key, value=value, headers=own, **options)
            return
        topic = self._sent_to
        if self.use_reply_headers:
            own += request_headers(reply_to, correlation_id)
            data = topic.encode_value(value)
        else:
            data = enveloped(topic, value, reply_to, correlation_id)
        await topic.send_encoded(topic.encode_key(key), data, headers=own, is_output=is_output, **options)

    async def map(self, values: Items, key: Any = None, reply_to: Any = None) -> AsyncIterator[Any]:
        """Ask for each value, and give replies as they come."""
        async for each in self.kvmap(_with_key(key, values), reply_to):
            yield each

    async def kvmap(self, items: Items, reply_to: Any = None) -> AsyncIterator[Any]:
        """Ask for each (key, value), and give replies as they come. At most IN_FLIGHT_MAX are waited for at a time."""
        waiting: dict[ReplyPromise, None] = {}  # in the order of the requests
        try:
            async for key, value in _each(items):
                waiting[await self.ask_nowait(value, key=key, reply_to=reply_to)] = None
                if len(waiting) >= IN_FLIGHT_MAX:
                    await self._any_of(waiting)
                for each in [each for each in waiting if each.done()]:
                    del waiting[each]
                    yield each.result()
            while waiting:
                await self._any_of(waiting)
                for each in [each for each in waiting if each.done()]:
                    del waiting[each]
                    yield each.result()
        finally:
            for each in waiting:
                each.cancel()

    async def _any_of(self, waiting: Mapping[ReplyPromise, None]) -> None:
        """Wait until one of them has its reply."""
        done, _ = await asyncio.wait(waiting, timeout=REPLY_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            raise NoReply(f"agent {self.name} has not answered any of {len(waiting)} requests in {REPLY_TIMEOUT_S} s")

    async def join(self, values: Items, key: Any = None, reply_to: Any = None) -> list[Any]:
        """Ask for each value. Returns all replies, in the order of the values."""
        return await self.kvjoin(_with_key(key, values), reply_to)

    async def kvjoin(self, items: Items, reply_to: Any = None) -> list[Any]:
        """Ask for each (key, value). Returns all replies, in their order. At most IN_FLIGHT_MAX are waited for at a
        time."""
        promises: list[ReplyPromise] = []
        try:
            async for key, value in _each(items):
                if len(promises) >= IN_FLIGHT_MAX:
                    await self._awaited(promises[-IN_FLIGHT_MAX])
                promises.append(await self.ask_nowait(value, key=key, reply_to=reply_to))
            return [await self._awaited(each) for each in promises]
        finally:
            for each in promises:
                each.cancel()

    def test_context(
        self, channel: Any = None, supervisor_strategy: Any = None, on_error: Any = None, **options: Any
    ) -> AgentTestContext:
        """Gives it values without a broker, in tests: `async with agent.test_context() as it: await it.put(value)`.
        on_error: called with the agent and an error that it raises. channel, supervisor_strategy, options: as if they
        were not given."""
        from ..agent_context import AgentTestContext  # allowed: a test asks for it

        return AgentTestContext(self._in_app, self, on_error)  # type: ignore[arg-type]  # the app

    def send_soon(self, *, key: Any = None, value: Any = None, **options: Any) -> Awaitable[RecordMetadata]:
        """Send to the topic that it reads, from code that is not async."""
        return self._sent_to.send_soon(key=key, value=value, **options)

    def __repr__(self) -> str:
        return f"<Agent {self.name}>"


def sinks_of(given: Any) -> tuple[Sink, ...]:
    """What `sink=` of an agent says. Raises AppError for one that is given alone."""
    if given and (isinstance(given, str) or not isinstance(given, Iterable)):
        raise AppError(f"sink= of an agent is a list, and not {given!r}: write sink=[…]")
    return tuple(given or ())


def topic_name(of: Any) -> str:
    """The name of a topic, or of what an agent reads."""
    if isinstance(of, str):
        return of
    return str((of.channel if isinstance(of, Agent) else of).get_topic_name())


def default_name(function: Any) -> str:
    """Module and name, as in faust-streaming; the program that was started has the name of its file."""
    named = function if hasattr(function, "__name__") else type(function)
    module, name = named.__module__, named.__name__
    if module == "__main__":
        module = main_name()
    return f"{module}.{name}"


async def _each(items: Items) -> AsyncIterator[Any]:
    if isinstance(items, AsyncIterable):
        async for each in items:
            yield each
    else:
        for each in items:
            yield each


async def _with_key(key: Any, values: Items) -> AsyncIterator[tuple[Any, Any]]:
    async for value in _each(values):
        yield key, value
