"""What a log is built from: the state that a start has found in its directory."""

from __future__ import annotations

from dataclasses import dataclass, field

from ._producers import ProducerStates
from ._segment import Segment
from .epochs import LeaderEpochs


@dataclass(slots=True)
class Loaded:
    """What a directory holds."""

    segments: list[Segment]
    epochs: LeaderEpochs
    producers: ProducerStates
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    first_dirty_offset: int
    notes: list[str] = field(default_factory=list)  # what was cut off or rebuilt
    is_closed: bool = False  # the files are as a clean stop leaves them: one that follows has nothing to write
    is_new: bool = False  # the file that says which topic it is of may not be on disk yet
    has_new_names: bool = False  # of files that the process before has made, which may not be on disk either
