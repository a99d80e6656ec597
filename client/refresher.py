"""Refreshes metadata in the background while partitions have no leader, or one that fails: one request at a time, the
first at once, the others after pauses that double up to BACKOFF_MAX_MS. A partition that stays without a leader is
logged once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from ..protocol.errors import KafkaError
from .cluster import BACKOFF_MAX_MS, Client
from .errors import ClientClosed, ClientError
from .types import TopicPartition

log = logging.getLogger("isthmus.client")

SAY_AFTER_S = 3.0  # without a leader: shorter times, such as an election or a restart, are not logged
QUIET_S = 2 * BACKOFF_MAX_MS / 1000  # after so long without a refresh the next one is again made at once


class Need:
    """Of one partition. since: loop time of the first `need`; node: which led it at the last one."""

    __slots__ = ("node", "since")

    def __init__(self, since: float) -> None:
        self.since = since
        self.node: int | None = None


class Refresher:
    """For one consumer or producer. is_failing: whether the last request to a partition's leader failed; None if the
    partition is not used any more. refreshed: called after each answer; it may call `need` again."""

    def __init__(
        self,
        client: Client,
        what: str,
        is_failing: Callable[[TopicPartition], bool | None],
        refreshed: Callable[[], None],
    ) -> None:
        self.client = client
        self.what = what
        self._is_failing = is_failing
        self._refreshed = refreshed
        self._needs: dict[TopicPartition, Need] = {}
        self._logged: dict[str, None] = {}  # messages that were logged; one for a topic that does not exist
        self._attempts = 0  # since there was a change, or quiet
        self._ended_at = float("-inf")  # loop time of the last refresh
        self._task: asyncio.Task[None] | None = None

    def need(self, tps: Iterable[TopicPartition]) -> None:
        """The leaders of these partitions are unknown, or fail. Their metadata is refreshed until they have others, or
        do not fail any more."""
        loop = asyncio.get_running_loop()
        for tp in tps:
            each = self._needs.setdefault(tp, Need(loop.time()))
            each.node = self.client.leader(tp)
        if self._needs and (self._task is None or self._task.done()):
            self._task = loop.create_task(self._run(), name=f"{self.client.client_id} {self.what}: leaders")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._needs:
            if loop.time() - self._ended_at >= QUIET_S:
                self._attempts = 0
            if self._attempts:
                await self.client.back_off(self._attempts - 1)
            self._attempts += 1
            try:
                await self.client.refresh_metadata(sorted({tp.topic for tp in self._needs}))
            except ClientClosed:
                return
            except (ClientError, KafkaError):
                continue
            finally:
                self._ended_at = loop.time()
            self._look()
            self._refreshed()

    def _look(self) -> None:
        now = asyncio.get_running_loop().time()
        for tp, need in list(self._needs.items()):
            is_failing = self._is_failing(tp)
            leader = self.client.leader(tp)
            if is_failing is None or (leader is not None and (leader != need.node or not is_failing)):
                self._attempts = min(self._attempts, 1)
                del self._needs[tp]
            elif (error := self.client.why_no_leader(tp)) and now - need.since >= SAY_AFTER_S:
                if error.message not in self._logged:
                    self._logged[error.message] = None
                    log.warning("%s waits: %s", self.what, error.message)
        if self._logged and not self._needs:
            self._logged.clear()
            log.warning("%s no longer waits: all its partitions have leaders", self.what)
