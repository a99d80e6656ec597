"""Signals: functions of the app's code that are called when something happens, as in Faust.

    @app.on_configured.connect
    def configure(app, conf, **kwargs):
        conf.web_port = 6067

A function gets the app, then what the signal tells, as far as it takes them. Where the signal is sent by a worker, it
may be async.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ..errors import AppError

_POSITIONAL = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)


class Signal:
    """is_sync: only plain functions receive it, since it is sent before there is a loop."""

    def __init__(self, name: str, sender: Any, doc: str, is_sync: bool = False) -> None:
        self.name = name
        self.sender = sender
        self.__doc__ = doc
        self.is_sync = is_sync
        self.receivers: list[Callable[..., Any]] = []

    def connect(self, function: Callable[..., Any] | None = None, **_: Any) -> Any:
        """Decorates a receiver, with or without parentheses."""
        if function is None:
            return self.connect
        if self.is_sync and inspect.iscoroutinefunction(function):
            raise AppError(f"app.{self.name} calls plain functions, and {function.__name__} is async")
        self.receivers.append(function)
        return function

    __call__ = connect

    def disconnect(self, function: Callable[..., Any]) -> None:
        self.receivers.remove(function)

    def send_now(self, *told: Any) -> None:
        """Call all receivers, in the order in which they were connected. Raises what they raise."""
        for receiver in list(self.receivers):
            self._result(receiver, told)

    async def call(self, receiver: Callable[..., Any], *told: Any) -> None:
        """Call one of the receivers, and wait for it."""
        result = self._result(receiver, told)
        if inspect.isawaitable(result):
            await result

    async def send(self, *told: Any) -> None:
        """Call all receivers, each after the one before it has ended. Raises what they raise."""
        for receiver in list(self.receivers):
            await self.call(receiver, *told)

    def _result(self, receiver: Callable[..., Any], told: tuple[Any, ...]) -> Any:
        kinds = [each.kind for each in inspect.signature(receiver).parameters.values()]
        given = (self.sender, *told)
        if inspect.Parameter.VAR_POSITIONAL not in kinds:
            given = given[: sum(kind in _POSITIONAL for kind in kinds)]
        return receiver(*given, signal=self) if inspect.Parameter.VAR_KEYWORD in kinds else receiver(*given)

    def __repr__(self) -> str:
        return f"<Signal {self.name}>"


class Signals:
    """Those of one app, which has them as attributes."""

    def __init__(self, app: Any) -> None:
        self.on_before_configured = Signal(
            "on_before_configured", app, "Before the settings are read first: `(app)`.", is_sync=True
        )
        self.on_configured = Signal(
            "on_configured", app, "When they are read first, and may be changed: `(app, conf)`.", is_sync=True
        )
        self.on_after_configured = Signal(
            "on_after_configured", app, "When a worker or a command begins: `(app)`.", is_sync=True
        )
        self.on_worker_init = Signal(
            "on_worker_init", app, "Before a worker or command imports what it discovers: `(app)`.", is_sync=True
        )
        self.on_started = Signal("on_started", app, "The worker works: its first tasks are restored: `(app)`.")
        self.on_partitions_assigned = Signal(
            "on_partitions_assigned", app, "The group has given partitions: `(app, set of TopicPartition)`."
        )
        self.on_partitions_revoked = Signal(
            "on_partitions_revoked", app, "Partitions have gone to others: `(app, set of TopicPartition)`."
        )
        self.on_rebalance_complete = Signal(
            "on_rebalance_complete", app, "After a rebalance, all tasks of the worker are restored: `(app)`."
        )
        self.on_before_shutdown = Signal(
            "on_before_shutdown", app, "The worker ends; its last checkpoint is not written yet: `(app)`."
        )
