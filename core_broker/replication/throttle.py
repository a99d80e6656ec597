"""How fast replicas are copied that an operator throttles, so that clients keep their share of the line (KIP-73).

Topics name the replicas, brokers the rates: `leader.replication.throttled.*` for what a leader serves to its followers,
`follower.replication.throttled.*` for what a follower fetches. A replica that is in sync is not held back, though its
bytes count. A rate is measured over a window of samples, as Kafka's ReplicationQuotaManager does, so that one large
answer is followed by a pause. Nothing here does I/O.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .partition import Partition

RECHECK_S = 1.0  # the longest pause: the throttle may be lifted meanwhile
ALL = ("*",)  # the value of a topic's option that means all its replicas


class Quota:
    """A rate in bytes/s that is not to be exceeded over the window. time: of the event loop, in seconds.

    option: the broker option that has the rate; None there is no limit.
    """

    def __init__(self, option: str, config: Mapping[str, Any], time: Callable[[], float]) -> None:
        self._option = option
        self._config = config
        self._time = time
        self._sample_s: int = config["replication.quota.window.size.seconds"]
        self._window_s: int = config["replication.quota.window.num"] * self._sample_s
        self._samples: deque[list[float]] = deque()  # begin, bytes; the oldest first
        self._total = 0.0

    @property
    def limit(self) -> int | None:
        """Bytes/s; None for no limit."""
        limit: int | None = self._config[self._option]
        return limit

    def record(self, size_bytes: int) -> None:
        """So many bytes of throttled replicas went over the line."""
        now = self._time()
        self._forget(now)
        if not self._samples or now - self._samples[-1][0] >= self._sample_s:
            self._samples.append([now, 0])
        self._samples[-1][1] += size_bytes
        self._total += size_bytes

    def bytes_per_s(self) -> float:
        """The rate now."""
        now = self._time()
        self._forget(now)
        return self._total / max(now - self._samples[0][0], self._sample_s) if self._samples else 0.0

    def is_exceeded(self) -> bool:
        limit = self.limit
        return limit is not None and self.bytes_per_s() > limit

    def pause_s(self) -> float:
        """How long nothing may follow, RECHECK_S at most; 0 if it is not exceeded."""
        limit = self.limit
        if limit is None or self.bytes_per_s() <= limit:
            return 0.0
        begin = self._samples[0][0]
        ends = begin + self._window_s  # the oldest sample does not count from then on
        if limit:
            ends = min(ends, begin + self._total / limit)
        return min(max(ends - self._time(), 0.001), RECHECK_S)

    def _forget(self, now: float) -> None:
        while self._samples and now - self._samples[0][0] >= self._window_s:
            self._total -= self._samples.popleft()[1]


class Throttle:
    """Both quotas of a broker. leading: for what it serves to followers; following: for what it fetches."""

    def __init__(self, node_id: int, config: Mapping[str, Any], time: Callable[[], float]) -> None:
        self.leading = Quota("leader.replication.throttled.rate", config, time)
        self.following = Quota("follower.replication.throttled.rate", config, time)
        self._node_id = node_id

    def mark(self, partition: Partition) -> None:
        """Note whether the topic's options name this broker's replica."""
        options = partition.configs
        name = f"{partition.index}:{self._node_id}"
        partition.throttled_leader = _names(options["leader.replication.throttled.replicas"], name)
        partition.throttled_follower = _names(options["follower.replication.throttled.replicas"], name)


def _names(replicas: Sequence[str], name: str) -> bool:
    return tuple(replicas) == ALL or name in replicas
