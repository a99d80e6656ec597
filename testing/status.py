"""What a test is told of a mirror."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MirrorStatus:
    """One mirrored partition, seen from both ends.

    `source_end` and `target_end` are end offsets that the two clusters were asked for just now; None: that cluster
    does not answer, being paused, killed or stopped. A mirror keeps offsets, so `lag_records` is their difference.
    `state` and `reason` are what the mirror last wrote into its target's `__mirror_status`; while it cannot reach its
    target it cannot say anything newer.
    """

    mirror: str
    topic: str
    partition: int
    target_topic: str
    source_end: int | None
    target_end: int | None
    state: str | None = None
    reason: str = ""

    @property
    def lag_records(self) -> int | None:
        """Records of the source that the target has not got yet; None when an end does not answer."""
        if self.source_end is None or self.target_end is None:
            return None
        return max(0, self.source_end - self.target_end)
