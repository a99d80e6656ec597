"""Fetch sessions (KIP-227): what a client fetches is remembered, so that requests and answers name changes only.

A session has an epoch that each request raises by one. A request with another epoch is refused, and the client begins a
new session. The number of sessions is bounded (`max.incremental.fetch.session.cache.slots`), and so is that of their
partitions (`max.incremental.fetch.session.partitions`). When there is no slot left, a new session may replace another
by Kafka's rule: a stale one first; then the smallest one that has lived for a while, if the new one has at least as
many partitions; followers' sessions last. Nothing here reads a log.

A consumer's session is looked at as a whole by each of its requests. In a follower's a partition rests while there is
nothing to tell: only those in `news` are looked at, so that a request costs what has changed.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from ...protocol.errors import ErrorCode, KafkaError
from ._wanted import Wanted

NO_SESSION = 0  # id
INITIAL_EPOCH, FINAL_EPOCH = 0, -1  # open a session, if possible; close it, and open none
MAX_ID = 2**31 - 1
LOOK_AT_ALL_S = 30.0  # how often a follower's session is looked at as a whole: retention tells nobody of a log's start
EVICTION_S = 120.0  # unused for so long a session is stale; lived for so long it may be evicted

Key = tuple[str | bytes, int]  # topic's name or id, partition


class FetchSession:
    """One client's session. `partitions` are in the order in which they are looked at.

    news: of a follower's session, the partitions that do not rest; for a consumer, all. broker_epoch: of the follower.
    stirred: the request that waits, called with a partition that rests no more and whether there may be enough now.
    """

    __slots__ = (
        "broker_epoch",
        "by_id",
        "created_s",
        "epoch",
        "evictable",
        "id",
        "last_used_s",
        "looked_s",
        "news",
        "partitions",
        "privileged",
        "size",
        "stirred",
    )

    def __init__(
        self, session_id: int, privileged: bool, by_id: bool, partitions: dict[Key, Wanted], now_s: float
    ) -> None:
        self.id = session_id
        self.privileged = privileged  # a follower's
        self.by_id = by_id
        self.partitions = partitions
        self.news = dict(partitions) if privileged else partitions
        self.broker_epoch = -1
        self.stirred: Callable[[Wanted, bool], None] | None = None
        self.looked_s = now_s  # when all was looked at
        self.epoch = 1  # of the next request
        self.size = len(partitions)  # when it was last used
        self.created_s = self.last_used_s = now_s
        self.evictable = False  # by consumers, too

    def moved(self, key: Key) -> None:
        """The partition had records. Others come first next time, since a limit may leave no space for all."""
        self.partitions[key] = self.partitions.pop(key)
        if self.news is not self.partitions:
            self.news[key] = self.news.pop(key)

    def put(self, key: Key, asked: Wanted) -> None:
        """Fetch a partition as a request says."""
        known = self.partitions.get(key)
        if known is None:
            self.partitions[key] = self.news[key] = asked
        else:
            known.follow(asked)
            self._stir(key, known)

    def forget(self, key: Key) -> None:
        known = self.partitions.pop(key, None)
        if known is not None:
            self.news.pop(key, None)
            stop_waiting(known)

    def look_at_all(self, now_s: float) -> None:
        """No partition rests."""
        self.looked_s = now_s
        for key, wanted in self.partitions.items():
            self._stir(key, wanted)

    def rest(self, key: Key, wanted: Wanted, replica_id: int) -> None:
        """A follower has all of a partition and was told all of it: it is not looked at before something changes, nor
        counted as fetched meanwhile."""
        partition = wanted.partition
        leadership = None if partition is None else partition.leadership
        if partition is None or leadership is None:
            return
        led = leadership

        def appended() -> None:
            led.kept_up(replica_id, self.last_used_s * 1000)
            self._stir(key, wanted)
            if self.stirred is not None:
                self.stirred(wanted, True)

        def committed() -> None:
            self._stir(key, wanted)
            if self.stirred is not None:
                self.stirred(wanted, led.is_read(replica_id))

        stop_waiting(wanted)
        wanted.cancel = both(partition.wait_for_append(appended), partition.wait_for_data(committed))
        del self.news[key]

    def _stir(self, key: Key, wanted: Wanted) -> None:
        if key not in self.news:
            stop_waiting(wanted)
            self.news[key] = wanted

    def close(self) -> None:
        """Nothing rests, since nobody is to be told."""
        if self.news is not self.partitions:
            for wanted in self.partitions.values():
                stop_waiting(wanted)


def stop_waiting(wanted: Wanted) -> None:
    """Nobody is told of changes of the partition any more."""
    cancel, wanted.cancel = wanted.cancel, None
    if cancel is not None:
        cancel()


def both(one: Callable[[], None], other: Callable[[], None]) -> Callable[[], None]:
    """Cancels two waits."""

    def cancel() -> None:
        one()
        other()

    return cancel


class FetchSessions:
    """The sessions of a broker: at most `slots`, with at most `max_partitions` in all of them together."""

    def __init__(self, slots: int, max_partitions: int, chance: random.Random) -> None:
        self.slots = slots
        self.max_partitions = max_partitions
        self.partitions_count = 0
        self.evictions = 0
        self._chance = chance
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def resume(self, session_id: int, epoch: int, by_id: bool) -> FetchSession:
        """The session that a request goes on with. Raises KafkaError."""
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id != by_id:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        return session

    def open(self, partitions: dict[Key, Wanted], privileged: bool, by_id: bool, now_s: float) -> int:
        """The id of a new session; NO_SESSION when no slot is free for it."""
        if self.partitions_count + len(partitions) > self.max_partitions:
            return NO_SESSION
        if len(self._sessions) >= self.slots and not self._evict(privileged, len(partitions), now_s):
            return NO_SESSION
        session_id = self._chance.randrange(1, MAX_ID)
        while session_id in self._sessions:
            session_id = self._chance.randrange(1, MAX_ID)
        self._sessions[session_id] = FetchSession(session_id, privileged, by_id, partitions, now_s)
        self.partitions_count += len(partitions)
        return session_id

    def used(self, session: FetchSession, now_s: float) -> None:
        """A request has used a session, and perhaps changed its partitions.

        Raises KafkaError when there are too many partitions now. Then the session is closed, and the client goes on
        without one.
        """
        self.partitions_count += len(session.partitions) - session.size
        session.size = len(session.partitions)
        if self.partitions_count > self.max_partitions:
            self.close(session.id)
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.epoch = next_epoch(session.epoch)
        session.last_used_s = now_s
        session.evictable = now_s - session.created_s > EVICTION_S

    def close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()
            self.partitions_count -= session.size

    def _evict(self, privileged: bool, size: int, now_s: float) -> bool:
        """Close a session in favour of a new one with so many partitions, if the rule allows it."""
        if not self._sessions:
            return False
        oldest = min(self._sessions.values(), key=lambda session: (session.last_used_s, session.id))
        if now_s - oldest.last_used_s > EVICTION_S:
            chosen = oldest
        else:
            candidates = [
                each for each in self._sessions.values() if each.evictable or (privileged and not each.privileged)
            ]
            if not candidates:
                return False
            chosen = min(candidates, key=lambda session: (session.privileged, session.size, session.id))
            if (privileged, size, 0) < (chosen.privileged, chosen.size, chosen.id):
                return False
        self.close(chosen.id)
        self.evictions += 1
        return True


def next_epoch(epoch: int) -> int:
    return 1 if epoch == MAX_ID else epoch + 1
