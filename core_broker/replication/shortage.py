"""Partitions that lack disk space or descriptors, and how they come back when there is some.

There are two kinds: partitions whose logs could not be opened or created, which are offline, and those that serve reads
but refuse appends. One task tries all of them, at growing intervals, as long as any lacks space. It tries one of each
kind, and the others only if that one succeeds: thousands of them on a full disk cost as much as one.

A replica that refuses appends is given up if others can serve (`assignments.py`): a follower after one try in vain,
since acks=all waits for it; a leader after one more, so that followers on the same full disk have left by then. It is
used again once there has been space for SPACE_LASTS_S, so that a disk that is full off and on does not move leaders to
and fro.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING

from ...protocol.errors import KafkaError
from ..pauses import RETRY_MOST_S, Pauses, RetryDelay
from ..storage.disk.errors import fresh_copy, is_shortage
from .states import MEANING, REFUSING, Event

if TYPE_CHECKING:
    from .partition import Partition

OPENED_AT_ONCE = 32  # after the first was opened
FIRST_TRY_S = 0.2  # after a refusal; then doubled each time, up to RETRY_MOST_S
FOLLOWER_TRIES, LEADER_TRIES = 1, 2  # in vain, until a replica is given up
SPACE_LASTS_S = 10.0  # until one that was given up is used again

Key = tuple[str, int]  # topic, partition


class Space(Enum):
    """What a partition has for its next append."""

    ENOUGH = "no append was refused"
    NONE = "an append was refused, and so were the tries that followed"
    UNSURE = "one was refused just now, or there is space again, but not for long"


class Refusal:
    """tries: after it, in vain."""

    __slots__ = ("error", "size_bytes", "tries")

    def __init__(self, error: KafkaError, size_bytes: int, tries: int) -> None:
        self.error = error
        self.size_bytes = size_bytes
        self.tries = tries


class Shortage:
    """See the module. `open_again(keys)` opens logs, and passes those that still lack space to `waits`.

    find: the partition that has a log, None if it is not open. changed: called when `space` may say something else.
    """

    def __init__(
        self,
        open_again: Callable[[Sequence[Key]], Awaitable[None]],
        find: Callable[[str, int], Partition | None],
        changed: Callable[[str, int], None],
    ) -> None:
        self._open_again = open_again
        self._find = find
        self._changed = changed
        self._unopened: dict[Key, None] = {}  # in the order of the next tries
        self._refusing: dict[Key, Refusal] = {}  # in the same order
        self._recovering: dict[Key, float] = {}  # given up, with space again; the loop time when they are used again
        self._being_opened: Sequence[Key] = ()
        self._opened = asyncio.Event()  # set while nothing is being opened
        self._opened.set()
        self._delay = RetryDelay(FIRST_TRY_S, RETRY_MOST_S)
        self._pauses = Pauses()
        self._task: asyncio.Task[None] | None = None

    def space(self, topic: str, index: int) -> Space:
        """What an open partition has for its next append."""
        key = topic, index
        refusal = self._refusing.get(key)
        if refusal is None:
            return Space.UNSURE if key in self._recovering else Space.ENOUGH
        partition = self._find(topic, index)
        if partition is None or partition.state not in REFUSING:
            return Space.UNSURE
        tries = LEADER_TRIES if partition.leads else FOLLOWER_TRIES
        return Space.NONE if refusal.tries >= tries else Space.UNSURE

    def waits(self, key: Key) -> None:
        """The partition's log could not be opened."""
        self._unopened[key] = None
        self._begin()

    def refuses(self, partition: Partition, error: KafkaError, size_bytes: int) -> None:
        """The partition refused an append of this size."""
        if not is_shortage(error):
            return
        key = partition.topic, partition.index
        known = self._refusing.get(key)
        if known is not None:
            known.error, known.size_bytes = fresh_copy(error), size_bytes
            return
        was_given_up = self._recovering.pop(key, None) is not None
        self._refusing[key] = Refusal(fresh_copy(error), size_bytes, LEADER_TRIES if was_given_up else 0)
        self._delay.reset()
        self._pauses.wake()  # it may be the first on this disk that lacks space
        self._begin()

    def continues(self, partition: Partition) -> None:
        """Another Partition serves a log: it refuses appends if the one before did."""
        refusal = self._refusing.get((partition.topic, partition.index))
        if refusal is not None and MEANING[partition.state].serves_reads:
            partition.enter(Event.APPEND_REFUSED, fresh_copy(refusal.error))

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
        try:
            while self._unopened or self._refusing or self._recovering:
                await self._pauses.pause(self._pause_s())
                if self._pauses.is_stopping:
                    return
                has_some = await self._try_opening()
                has_some |= await self._try_writing()
                self._end_recoveries()
                if has_some:
                    self._delay.reset()
        finally:
            self._task = None
            self._delay.reset()

    def _pause_s(self) -> float:
        waits_s = [self._delay.next_s()] if self._unopened or self._refusing else []
        if self._recovering:
            waits_s.append(max(0.0, min(self._recovering.values()) - asyncio.get_running_loop().time()))
        return min(waits_s)

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
        for key, refusal in list(self._refusing.items()):
            partition = self._find(*key)
            if self._pauses.is_stopping:
                break
            if partition is None or not MEANING[partition.state].serves_reads:  # moved, deleted, or it has failed
                del self._refusing[key]
                continue
            if partition.state in REFUSING:
                try:
                    await partition.log.syncing.try_space(refusal.size_bytes)
                except KafkaError as error:
                    if is_shortage(error):
                        self._tried_in_vain(key)
                        break
                    del self._refusing[key]  # the log has failed
                    continue
                has_some = True
                partition = self._find(*key)  # another one, if the leader has changed; it may have failed, too
                if partition is not None and partition.state in REFUSING:
                    partition.takes_appends()
            self._has_space(key, refusal, partition is not None and len(partition.replicas) > 1)
        return has_some

    def _tried_in_vain(self, tried: Key) -> None:
        """The others lack space as this one does; it is the last to be tried next time."""
        self._refusing[tried] = self._refusing.pop(tried)
        for key, refusal in self._refusing.items():
            refusal.tries += 1
            self._changed(*key)

    def _has_space(self, key: Key, refusal: Refusal, has_others: bool) -> None:
        """A partition takes appends again. has_others: other brokers have a replica."""
        self._refusing.pop(key, None)
        if refusal.tries and has_others:
            self._recovering[key] = asyncio.get_running_loop().time() + SPACE_LASTS_S
        self._changed(*key)

    def _end_recoveries(self) -> None:
        now = asyncio.get_running_loop().time()
        for key in [key for key, end in self._recovering.items() if end <= now]:
            del self._recovering[key]
            self._changed(*key)
