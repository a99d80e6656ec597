"""Timestamps that topics do not take: `message.timestamp.before.max.ms` and `after.max.ms`, with an output for them.

A broker refuses the whole batch, after the event that has sent the record was done. So the limits of a topic that has
refused one are asked for, its worker goes back to the last commit, and the record is refused when it is sent again: by
then it is known whose it is, and it goes by the `on_error` of the agent or step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...client import Admin, Client
from ...client.errors import ClientError
from ...protocol.errors import KafkaError
from ...runtime import Runtime
from ..engine.event import Event

_BEFORE, AFTER_MAX = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"
_BOTH = "message.timestamp.difference.max.ms"  # of Kafka before 3.6
# By which the broker's clock may be off: the next one is taken where a topic goes on refusing what its limits allow.
MARGINS_MS = (0, 1_000, 10_000, 60_000)


class TimestampRefused(ValueError):
    """A record that its topic would not take. The message has the topic, the timestamp and the way out."""


class _Limits(NamedTuple):
    """From now. margin: index of MARGINS_MS. is_new: nothing was refused by them yet."""

    before_ms: int
    after_ms: int
    margin: int = 0
    is_new: bool = True


class TimeLimits:
    """Of the topics that have refused a record of this worker."""

    def __init__(self, client: Client, runtime: Runtime) -> None:
        self._client = client
        self._runtime = runtime
        self.known: dict[str, _Limits] = {}  # by topic

    def check(self, topic: str, timestamp_ms: int) -> None:
        """Raises TimestampRefused for a record of a topic of `known`."""
        limits = self.known[topic]
        ahead_ms, margin_ms = timestamp_ms - self._runtime.wall_ms(), MARGINS_MS[limits.margin]
        if -limits.before_ms + margin_ms <= ahead_ms <= limits.after_ms - margin_ms:
            return
        self.known[topic] = limits._replace(is_new=False)
        option, side = (AFTER_MAX, "after") if ahead_ms > 0 else (_BEFORE, "before")
        raise TimestampRefused(
            f"topic {topic} takes no record with the timestamp {timestamp_ms}, {abs(ahead_ms)} ms {side} now: "
            f"send it with another timestamp=, or say `isthmus topic alter {topic} --set {option}=…`"
        )

    def takes(self, topic: str, events: Sequence[Event]) -> bool:
        """Whether a topic of `known` takes the times of all these events."""
        times = [event.timestamp_ms for event in events]
        try:
            for each in (min(times), max(times)) if times else ():
                self.check(topic, each)
        except TimestampRefused:
            return False
        return True

    async def learn(self, error: KafkaError) -> bool:
        """What the topic takes that has refused a record with INVALID_TIMESTAMP. Returns False where that helps
        nobody: it is not told, or the topic refuses what it says that it takes."""
        if (topic := error.topic) is None:
            return False
        try:
            told = (await Admin(self._client).describe_configs([topic]))[topic]
        except (KafkaError, ClientError):
            return False
        options = {each.name: int(each.value) for each in told if each.name in (_BEFORE, AFTER_MAX, _BOTH)}
        both = options.get(_BOTH, (1 << 63) - 1)
        limits = _Limits(options.get(_BEFORE, both), options.get(AFTER_MAX, both))
        before = self.known.get(topic)
        if before is not None and before[:2] == limits[:2]:
            margin = before.margin + before.is_new
            if margin == len(MARGINS_MS):
                return False
            limits = limits._replace(margin=margin)
        self.known[topic] = limits
        return True
