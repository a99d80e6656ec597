"""Partitions that lack disk space or descriptors, and how they come back when there is some.

There are two kinds: partitions whose logs could not be opened or created, which are offline, and read-only partitions,
which refuse appends. One task tries all of them, at growing intervals, as long as any lacks space. It tries one of each
kind, and the others only if that one succeeds: thousands of them on a full disk cost as much as one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from ...protocol.errors import KafkaError
from ..pauses import Pauses, RetryDelay
from ..storage.disk.errors import is_shortage
from .states import State

if TYPE_CHECKING:
    from .partition import Partition

OPENED_AT_ONCE = 32  # after the first was opened

Key = tuple[str, int]  # topic, partition


class Shortage:
    """See the module. `open_again(keys)` opens logs, and passes those that still lack space to `waits`."""

    def __init__(self, open_again: Callable[[Sequence[Key]], Awaitable[None]]) -> None:
        self._open_again = open_again
        self._unopened: dict[Key, None] = {}  # in the order of the next tries
        self._refusing: dict[Partition, int] = {}  # with the size of the refused append; in the same order
        self._being_opened: Sequence[Key] = ()
        self._opened = asyncio.Event()  # set while nothing is being opened
        self._opened.set()
        self._pauses = Pauses()
        self._task: asyncio.Task[None] | None = None

    def waits(self, key: Key) -> None:
        """The partition's log could not be opened."""
        self._unopened[key] = None
        self._begin()

    def refuses(self, partition: Partition, error: KafkaError, size_bytes: int) -> None:
        """The partition refused an append of this size."""
        if is_shortage(error):
            self._refusing[partition] = size_bytes
            self._begin()

    async def leave(self, keys: Iterable[Key]) -> None:
        """Stop trying these partitions: the caller opens or deletes them."""
        wanted = list(keys) if self._unopened or self._being_opened else []
        while True:
            for key in wanted:
                self._unopened.pop(key, None)
            if not any(key in self._being_opened for key in wanted):
                return
            await self._opened.wait()

    async def stop(self) -> None:
        """End after the current try."""
        self._pauses.stop()
        if self._task is not None:
            await asyncio.wait([self._task])

    def _begin(self) -> None:
        if self._task is None and not self._pauses.is_stopping:
            self._task = asyncio.get_running_loop().create_task(
                self._try_again(), name="partitions that lack disk space"
            )

    async def _try_again(self) -> None:
        delay = RetryDelay()
        try:
            while self._unopened or self._refusing:
                await self._pauses.pause(delay.next_s())
                if self._pauses.is_stopping:
                    return
                has_some = await self._try_opening()
                has_some |= await self._try_writing()
                if has_some:
                    delay.reset()
        finally:
            self._task = None

    async def _try_opening(self) -> bool:
        """Try to open logs. True if any was opened."""
        count, has_some = 1, False
        while self._unopened and not self._pauses.is_stopping:
            keys = list(islice(self._unopened, count))
            for key in keys:
                del self._unopened[key]
            self._being_opened = keys
            self._opened.clear()
            try:
                await self._open_again(keys)
            finally:
                self._being_opened = ()
                self._opened.set()
            if any(key in self._unopened for key in keys):
                break
            count, has_some = OPENED_AT_ONCE, True
        return has_some

    async def _try_writing(self) -> bool:
        """Try to write. True if any partition takes appends again."""
        has_some = False
        for partition in list(self._refusing):
            size_bytes = self._refusing.pop(partition)
            if partition.state is not State.READ_ONLY or self._pauses.is_stopping:
                continue
            try:
                await partition.log.syncing.try_space(size_bytes)
            except KafkaError as error:
                if is_shortage(error):
                    self._refusing[partition] = size_bytes
                    break
            else:
                has_some = True
                if partition.state is State.READ_ONLY:  # it may have failed or been closed meanwhile
                    partition.takes_appends()
        return has_some
