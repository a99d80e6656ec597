"""One mirrored partition: how far the target's log has come, what is in flight, and the state that is reported.

Pure: the worker reports what was fetched and answered, and asks what to fetch and append next. The target's log is the
checkpoint: `next_offset` and `epoch` come from the target's own answers, and are asked for again after any doubt.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ..protocol import records

CATCHING_UP_AFTER_MS = 10_000  # behind the source's high watermark for this long


class State(StrEnum):
    CATCHING_UP = "CATCHING_UP"
    MIRRORING = "MIRRORING"
    SOURCE_UNAVAILABLE = "SOURCE_UNAVAILABLE"  # the source does not answer, or not for this partition; tried again
    GAP = "GAP"  # the source deleted records before they were mirrored
    DIVERGED = "DIVERGED"  # the target holds records that the source no longer has
    SOURCE_RECREATED = "SOURCE_RECREATED"  # the source topic is another one by the same name
    FAILED = "FAILED"  # the target rejects the data, or the source does not describe the topic: see `reason`
    NO_TOPICS = "NO_TOPICS"  # of a link: one of its expressions selects no topic of the source


# In these states nothing is appended until a person acts.
HELD = frozenset({State.GAP, State.DIVERGED, State.SOURCE_RECREATED, State.FAILED})

# In these states it is not known where the source ends now: what was known before is no lag.
UNSEEN = frozenset({State.SOURCE_UNAVAILABLE, State.SOURCE_RECREATED})


@dataclass(frozen=True)
class Run:
    """Consecutive whole batches, as fetched. first, next: offsets; epoch: of the last batch; data: their bytes.

    Without data: the target's log must begin at `next_offset`, like the source's, which has no record yet.
    """

    first_offset: int
    next_offset: int
    epoch: int
    data: memoryview


def longer(backoff_ms: float, least_ms: float, most_ms: float) -> float:
    """The back-off that follows `backoff_ms`: twice as long, within limits."""
    return min(max(2 * backoff_ms, least_ms), most_ms)


class PartitionMirror:
    """State of one partition. Offsets are those of the source, and the same in the target."""

    def __init__(
        self,
        topic: str,
        index: int,
        target_topic: str,
        topic_id: bytes,
        now_ms: int,
        target_id: bytes | None = None,
    ) -> None:
        self.topic = topic
        self.index = index
        self.target_topic = target_topic
        self.topic_id = topic_id
        self.target_id = target_id
        self.state = State.CATCHING_UP
        self.reason = ""
        self.since_ms = now_ms
        self.probed = False  # since the last doubt, the target was asked where its log ends
        self.next_offset = 0  # end of the target's log: acknowledged
        self.epoch = -1  # leader epoch of the target's last batch
        self.append_offset = 0  # end of the target's log when all appends in flight are acknowledged
        self.append_epoch = -1  # leader epoch of the last batch in flight
        self.fetch_offset = 0
        self.fetch_epoch = -1
        self.quiet_at = -1  # `append_offset` at the last discovery
        self.compared = False  # since the source was last unavailable, its last batch was compared with the source's
        self.asking = False  # the target is to be asked again, without a doubt
        self.served = 0  # when it last got data, as a counter: the partition that has waited longest is fetched first
        self.in_flight = 0  # appends
        self.doubts = 0  # counts resets: answers to requests sent before a reset are ignored
        self.source_high_watermark = -1
        self.seen_ms = -1  # wall time at which the source was asked for its high watermark
        self.at_high_watermark_ms = now_ms
        self.retry_at = 0.0  # loop time
        self.backoff_ms = 0.0  # of the target
        self.source_backoff_ms = 0.0
        self.next_try_ms = -1  # see `turn`

    @property
    def held(self) -> bool:
        return self.state in HELD

    @property
    def lag_records(self) -> int:
        return max(0, self.source_high_watermark - self.next_offset) if self.source_high_watermark >= 0 else 0

    def lag_ms(self, now_ms: int) -> int:
        """How long the target has been behind the source's high watermark."""
        return now_ms - self.at_high_watermark_ms if self.lag_records else 0

    def hold(self, state: State, reason: str, now_ms: int, next_try_ms: int = -1) -> None:
        self.turn(state, reason, now_ms, next_try_ms)
        self.doubt()

    def turn(self, state: State, reason: str, now_ms: int, next_try_ms: int = -1) -> None:
        """next_try_ms: wall time of the next try of what the source refused; -1: it refused nothing."""
        if state != self.state:
            self.since_ms = now_ms
        self.state, self.reason, self.next_try_ms = state, reason, next_try_ms

    def doubt(self) -> None:
        """Forget what is in flight; the target must be asked again where its log ends."""
        self.probed = self.asking = False
        self.doubts += 1
        self.in_flight = 0

    def probe_answered(self, next_offset: int, epoch: int) -> None:
        """The target's log ends at `next_offset`; its last batch has `epoch` (-1: it is empty)."""
        self.probed, self.asking = True, False
        self.next_offset = self.append_offset = self.fetch_offset = next_offset
        self.epoch = self.append_epoch = self.fetch_epoch = epoch

    @property
    def target_is_empty(self) -> bool:
        """Nothing was ever appended. The epoch alone does not show that: retention may have emptied the target."""
        return self.next_offset == 0 and self.append_offset == 0

    def fetched(self, data: memoryview) -> Run | None:
        """The whole batches that go to the target next; None if there are none. Advances the fetch position.

        A first batch may begin before the fetch offset (if the log start is within a batch); it is copied whole.
        """
        end, first, last = 0, -1, None
        for position, header in records.walk(data):
            if header.next_offset <= self.fetch_offset:
                continue
            if first < 0:
                first, begin = header.base_offset, position
            end, last = position + header.size_bytes, header
        if last is None:
            return None
        self.fetch_offset, self.fetch_epoch = last.next_offset, last.partition_leader_epoch
        return Run(first, last.next_offset, last.partition_leader_epoch, data[begin:end])

    def begins_at(self, log_start_offset: int) -> Run | None:
        """A run without data: it makes the target's log begin where the source's does, when the source has no records.

        None if it begins there already, or has had records. Advances the fetch position.
        """
        if not self.target_is_empty or log_start_offset <= 0:
            return None
        self.fetch_offset, self.fetch_epoch = log_start_offset, -1
        return Run(log_start_offset, log_start_offset, -1, memoryview(b""))

    def appended(self, next_offset: int, epoch: int, now_ms: int) -> None:
        """The target has acknowledged everything up to `next_offset`."""
        self.backoff_ms = 0.0
        if next_offset > self.next_offset:
            self.next_offset, self.epoch = next_offset, epoch
        self.observe(now_ms)

    def observe(self, now_ms: int) -> None:
        """Derive the state from the lag."""
        if not self.lag_records:
            self.at_high_watermark_ms = now_ms
        if not self.held:
            behind = now_ms - self.at_high_watermark_ms > CATCHING_UP_AFTER_MS
            first = self.state is State.CATCHING_UP and self.lag_records > 0
            self.turn(State.CATCHING_UP if behind or first else State.MIRRORING, "", now_ms)

    def status(self, now_ms: int) -> dict[str, object]:
        """What `isthmus mirror status` shows; the value of a record in `__mirror_status`. The source's high watermark
        and both lags are -1 while it is not known where the source ends."""
        is_seen = self.state not in UNSEEN and self.source_high_watermark >= 0
        return {
            "state": str(self.state),
            "reason": self.reason,
            "since_ms": self.since_ms,
            "source_topic": self.topic,
            "target_topic": self.target_topic,
            "source_high_watermark": self.source_high_watermark if is_seen else -1,
            "next_offset": self.next_offset,
            "epoch": self.epoch,
            "lag_records": self.lag_records if is_seen else -1,
            "lag_ms": self.lag_ms(now_ms) if is_seen else -1,
            "next_try_ms": self.next_try_ms,
            "updated_ms": now_ms,
        }
