"""The state that a start has found in a log's directory. A log is built from it."""

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
    is_closed: bool = False  # closed by a clean shutdown: without changes, the next one writes nothing
    is_new: bool = False  # the file with the topic id may not be on disk yet
    has_new_names: bool = False  # names of files that the previous process created may not be on disk yet
