"""The handlers of a kind of listener, for requests of this node to itself: no network, no bytes."""

from __future__ import annotations

import asyncio
from typing import Any

from ..purgatory import Pending
from ._context import Context
from .dispatch import Scope, handler
from .services import Services

NO_LISTENER = ""  # what nodes ask each other tells no addresses


class LocalNode:
    """What a `ControllerChannel` or `BrokerChannels` calls where the other node is this one. scope: of the listener."""

    services: Services  # to be set before the first call

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def ask(self, message: Any) -> Any:
        """The answer to a request message of the newest version, or the Pending that will have it."""
        api = type(message).API
        context = Context(self.services, NO_LISTENER, "")
        context.version = api.max_version
        return handler(api.key, self._scope)(message, context)

    async def __call__(self, message: Any) -> Any:
        """The answer to a request message of the newest version."""
        answer = self.ask(message)
        if not isinstance(answer, Pending):
            return answer
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer.when_done(lambda given: None if done.done() else done.set_result(given))
        try:
            return await done
        finally:
            answer.abandon()
