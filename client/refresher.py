"""Refreshes metadata in the background while partitions have no leader: one request at a time, after pauses that double
up to BACKOFF_MAX_MS. A partition that stays without a leader is logged once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from ..protocol.errors import KafkaError
from .cluster import Client
from .errors import ClientClosed, ClientError
from .types import TopicPartition

log = logging.getLogger("isthmus.client")

SAY_AFTER_S = 3.0  # without a leader: shorter times, such as an election or a restart, are not logged


class Refresher:
    """For one consumer or producer. is_wanted: whether it still uses a partition. refreshed: called after each answer;
    it may call `need` again."""

    def __init__(
        self,
        client: Client,
        what: str,
        is_wanted: Callable[[TopicPartition], bool],
        refreshed: Callable[[], None],
    ) -> None:
        self.client = client
        self.what = what
        self._is_wanted = is_wanted
        self._refreshed = refreshed
        self._since: dict[TopicPartition, float] = {}  # loop time at which `need` was first called
        self._logged: dict[str, None] = {}  # messages that were logged; one for a topic that does not exist
        self._attempts = 0
        self._task: asyncio.Task[None] | None = None

    def need(self, tps: Iterable[TopicPartition]) -> None:
        """The leaders of these partitions are unknown or have changed: refresh their metadata soon."""
        loop = asyncio.get_running_loop()
        for tp in tps:
            if tp not in self._since:
                self._since[tp] = loop.time()
                self._attempts = 0
        if self._since and (self._task is None or self._task.done()):
            self._task = loop.create_task(self._run(), name=f"{self.client.client_id} {self.what}: leaders")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while self._since:
            self._attempts += 1
            await self.client.back_off(self._attempts)
            try:
                await self.client.refresh_metadata(sorted({tp.topic for tp in self._since}))
            except ClientClosed:
                return
            except (ClientError, KafkaError):
                continue
            self._look()
            self._refreshed()

    def _look(self) -> None:
        now = asyncio.get_running_loop().time()
        for tp, since in list(self._since.items()):
            error = self.client.why_no_leader(tp) if self._is_wanted(tp) else None
            if error is None:
                del self._since[tp]
            elif now - since >= SAY_AFTER_S and error.message not in self._logged:
                self._logged[error.message] = None
                log.warning("%s waits: %s", self.what, error.message)
        if self._logged and not self._since:
            self._logged.clear()
            log.warning("%s no longer waits: all its partitions have leaders", self.what)
