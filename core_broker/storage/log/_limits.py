# cython: auto_pickle=False
"""What of a topic's options each append is compared with, as C variables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

if TYPE_CHECKING:
    from ....compiled import Readonly


@cython.final
@cython.cclass
class AppendLimits:
    """Part of a LogConfig, which makes it. Never changed.

    batch_bytes: the largest batch that is taken. index_entries_safe: with so many entries no index of a segment can be
    full; -1 where the segment must be asked. keeps_batches: clients' batches are appended as they are, judged by their
    headers.
    """

    segment_bytes: Readonly[cython.longlong]
    batch_bytes: Readonly[cython.longlong]
    index_interval_bytes: Readonly[cython.longlong]
    index_entries_safe: Readonly[cython.longlong]
    roll_ms: Readonly[cython.longlong]
    timestamp_after_max_ms: Readonly[cython.longlong]
    keeps_batches: Readonly[cython.bint]

    def __init__(
        self,
        *,
        segment_bytes: cython.longlong,
        batch_bytes: cython.longlong,
        index_interval_bytes: cython.longlong,
        index_entries_safe: cython.longlong,
        roll_ms: cython.longlong,
        timestamp_after_max_ms: cython.longlong,
        keeps_batches: cython.bint,
    ) -> None:
        self.segment_bytes = segment_bytes
        self.batch_bytes = batch_bytes
        self.index_interval_bytes = index_interval_bytes
        self.index_entries_safe = index_entries_safe
        self.roll_ms = roll_ms
        self.timestamp_after_max_ms = timestamp_after_max_ms
        self.keeps_batches = keeps_batches
