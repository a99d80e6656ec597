"""Streams that an agent derives from its own, by `group_by` and `through`: their records go through another topic.

Topics must be known before the app runs. So an agent whose code names one of these is called once with a stream that
only notes what is asked of it, up to the point where the agent would have its first event. What it noted becomes agents
of their own, which read the agent's topic and write the derived one; the agent itself reads the last of these.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from ..engine import topic_names
from ..errors import AppError
from .rpc import reply_address
from .topics import Topic
from .usage import names

if TYPE_CHECKING:
    from .streams import Processor, Stream

DERIVING = frozenset(("group_by", "through"))


class Step:
    """Records of `source` are written to `target`. processors: what is done with each value before. key: gives the new
    key of a value; None: the key stays."""

    def __init__(self, source: Topic, target: Topic, processors: list[Processor], key: Any) -> None:
        self.source = source
        self.target = target
        self.processors = processors
        self.key = key

    async def forward(self, stream: Stream) -> None:
        """The agent that does it."""
        asked = self.target.at_once()
        for each in self.processors:
            stream.add_processor(each)
        async for event in stream.events():
            key = event.key if self.key is None else await _key_of(self.key, event.value)
            headers = event.raw_headers
            to = self.target if reply_address(headers) is None else asked  # who asks may hold up a commit
            await to.send(key=key, value=event.value, headers=headers)


async def _key_of(key: Any, value: Any) -> Any:
    found = key(value)
    return await found if inspect.isawaitable(found) else found


def steps(agent: str, function: Callable[[Any], Any], topic: Topic) -> list[Step]:
    """What an agent derives from its topic, in order. Raises AppError where that cannot be found out."""
    if not names(function) & DERIVING:
        return []
    noted = _Noted(agent, topic)
    returned = function(noted)
    first: Any = returned if inspect.iscoroutine(returned) else anext(returned)
    try:
        first.send(None)
    except _Iterates:
        return noted.steps
    except (StopIteration, StopAsyncIteration):
        return noted.steps
    finally:
        first.close()
    raise AppError(
        f"agent {agent} waits for something before it iterates over a stream that group_by() or through() has "
        "derived, so that the topic cannot be known in time: derive the stream first"
    )


class _Iterates(BaseException):
    """The agent would have its first event now."""


class _Noted:
    """Stands for the stream while the agent is looked at."""

    def __init__(self, agent: str, topic: Topic) -> None:
        self.steps: list[Step] = []
        self._agent = agent
        self._topic = topic
        self._processors: list[Processor] = []

    def group_by(
        self,
        key: Any,
        *,
        name: str | None = None,
        topic: Topic | None = None,
        partitions: int | None = None,
        partitioner: Any = None,
    ) -> _Noted:
        label = name or getattr(key, "ident", None)
        if not label:
            raise AppError(f"agent {self._agent}: group_by() with a function needs a name=, for its topic's name")
        app = self._topic.app
        derived = topic or self._topic.derive(
            topic_names.repartition(app.id, self._agent, self._topic.get_topic_name(), label), partitions
        )
        return self._add(derived.partitioned_by(partitioner), key)

    def through(self, channel: Topic | str, *, partitioner: Any = None) -> _Noted:
        if isinstance(channel, str):
            channel = self._topic.derive(channel)
        return self._add(channel.derive(channel.get_topic_name()).partitioned_by(partitioner), None)

    def _add(self, target: Topic, key: Any) -> _Noted:
        self.steps.append(Step(self._topic, target, self._processors, key))
        self._topic, self._processors = target, []
        return self

    def add_processor(self, processor: Processor) -> None:
        self._processors.append(processor)

    def filter(self, keep: Callable[[Any], Any]) -> _Noted:
        from .streams import filtering

        self.add_processor(filtering(keep))
        return self

    def echo(self, *channels: Any) -> _Noted:
        from .streams import echoing

        self.add_processor(echoing(channels))
        return self

    def noack(self) -> _Noted:
        return self

    get_active_stream = noack

    def _iterate(self, *_: Any, **__: Any) -> NoReturn:
        raise _Iterates

    events = items = enumerate = batches = record_batches = take = take_events = take_with_timestamp = noack_take = (
        _iterate
    )
    __aiter__ = _iterate
