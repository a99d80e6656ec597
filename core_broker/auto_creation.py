"""Topics that a broker has made without a client's CreateTopics: what Metadata names, and what coordinators need.

The active controller decides, wherever it is. Its decision is then waited for here, so that what was created can be
used at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages import create_topics
from ..protocol.messages.create_topics import CreatableTopic
from .cluster.controller import Controller, CreateTopics, Result
from .config import BrokerConfig
from .controller_channel import ControllerChannel

Done = Callable[[dict[str, KafkaError]], object]

log = logging.getLogger(__name__)


class AutoCreation:
    """channel: the way to the active controller; None where there is no other node."""

    def __init__(self, controller: Controller, config: BrokerConfig, channel: ControllerChannel | None) -> None:
        self._controller = controller
        self._config = config
        self._channel = channel
        self._tasks: dict[asyncio.Task[None], None] = {}  # as many as the channel takes

    def create(self, topics: Sequence[CreatableTopic], done: Done) -> None:
        """Have topics created; `done(errors by name)` when those without an error can be written to.

        It is no error if one is there already.
        """
        if self._channel is None:
            self._decide(topics, done)
            return
        task = asyncio.get_running_loop().create_task(self._ask(self._channel, topics, done), name="topics to create")
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    def _decide(self, topics: Sequence[CreatableTopic], done: Done) -> None:
        def decided(result: Result) -> None:
            done(_errors(result.items))

        self._controller.submit(CreateTopics(topics), decided)

    async def _ask(self, channel: ControllerChannel, topics: Sequence[CreatableTopic], done: Done) -> None:
        timeout_ms = self._config["request.timeout.ms"]
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        try:
            answer = await channel.request(create_topics.Request(topics=topics, timeout_ms=timeout_ms), timeout_ms)
            errors = _errors(answer.topics)
            async with asyncio.timeout_at(deadline):
                await self._until_known([topic.name for topic in topics if topic.name not in errors], channel)
        except KafkaError as error:
            log.warning("topics that are needed were not created: %s", error.message)
            errors = {topic.name: error for topic in topics}
        except TimeoutError:
            pass  # they are there, and not known here yet
        done(errors)

    async def _until_known(self, names: Sequence[str], channel: ControllerChannel) -> None:
        while not channel.is_closed and any(name not in self._controller.image.topics for name in names):
            await self._controller.metadata.changed()


def _errors(items: Sequence[Any]) -> dict[str, KafkaError]:
    """Of the items of a decision, or of an answer."""
    return {
        item.name: KafkaError(item.error_code, item.error_message or "")
        for item in items
        if item.error_code and item.error_code != ErrorCode.TOPIC_ALREADY_EXISTS
    }
