"""A consumer's side of its membership: does in polls what the group asks, and calls the user's callbacks."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from .cluster import Client
from .holdings import Give, Take
from .membership import Membership, Subscription
from .types import TopicPartition

TOPICS_TIMEOUT_MS = 1_000  # for metadata of topics whose partitions were just assigned

Callback = Callable[[list[TopicPartition]], Any]


class Subscriber:
    """One member and the callbacks of its user. is_active: it has subscribed.

    hold: called to read partitions, too; drop: to read them no more, and forget what was fetched of them; check_open:
    raises ClientError if the consumer was closed meanwhile."""

    def __init__(
        self,
        client: Client,
        membership: Membership,
        hold: Callable[[list[TopicPartition]], None],
        drop: Callable[[list[TopicPartition]], None],
        check_open: Callable[[], None],
    ) -> None:
        self.membership = membership
        self.is_active = False
        self._client = client
        self._hold = hold
        self._drop = drop
        self._check_open = check_open
        self._on_assigned: Callback | None = None
        self._on_revoked: Callback | None = None
        self._on_lost: Callback | None = None

    def subscribe(
        self,
        subscription: Subscription,
        on_assigned: Callback | None,
        on_revoked: Callback | None,
        on_lost: Callback | None,
    ) -> None:
        self.membership.subscribe(subscription)
        self.is_active = True
        self._on_assigned, self._on_revoked, self._on_lost = on_assigned, on_revoked, on_lost

    async def polled(self, deadline: float) -> None:
        """Do what the group asks of a poll. The next poll continues where this one stopped, even if it was cancelled
        by its caller."""
        membership = self.membership
        membership.changed.clear()
        if membership.error is not None:
            error, membership.error = membership.error, None
            raise error
        while (step := membership.step()) is not None:
            if isinstance(step, Give):
                await self._give(step)
            else:
                await self._wait_for_leaders(step, deadline)
                if membership.step() == step:
                    await self._take(step)

    async def end(self, timeout_ms: float) -> None:
        """Give everything up within the time, callback included."""
        step = self.membership.holdings.all()
        what = "on_lost" if self._is_lost(step) else "on_revoked"
        async with self._client.operation(f"{what} in close() of group {self.membership.group_id}", timeout_ms):
            await self._give(step)

    async def _wait_for_leaders(self, step: Take, deadline: float) -> None:
        unknown = dict.fromkeys(tp.topic for tp in step.tps if self._client.leader(tp) is None)
        if unknown:
            remaining_ms = (deadline - asyncio.get_running_loop().time()) * 1000
            await self._client.wait_for_topics(list(unknown), min(TOPICS_TIMEOUT_MS, remaining_ms))
            self._check_open()

    async def _take(self, step: Take) -> None:
        """Read more, and call the callback, which is called again if it was cancelled or has failed."""
        self._hold(step.tps)
        self.membership.holdings.begun(step)
        await _call(self._on_assigned, step.tps)
        self._check_open()
        self.membership.holdings.done(step)

    async def _give(self, step: Give) -> None:
        """Call the callback, then give partitions up, even if it raises. A callback that is cancelled is called
        again."""
        if not step.tps:
            return
        try:
            await _call(self._on_lost if self._is_lost(step) else self._on_revoked, step.tps)
        except Exception:
            self._given(step)
            raise
        self._given(step)

    def _is_lost(self, step: Give) -> bool:
        """Whether on_lost is to be called."""
        return self._on_lost is not None and step.is_lost

    def _given(self, step: Give) -> None:
        self._drop(step.tps)
        self.membership.holdings.done(step)


async def _call(callback: Callback | None, tps: list[TopicPartition]) -> None:
    if callback is not None:
        result = callback(tps)
        if inspect.isawaitable(result):
            await result
