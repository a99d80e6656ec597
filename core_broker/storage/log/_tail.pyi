from ....protocol.errors import KafkaError
from ..disk.files import File
from ._appended import Positions
from .epochs import LeaderEpochs
from .index import OffsetIndex, TimeIndex
from .log_config import LogConfig
from .producers import ProducerEntry, ProducerStates
from .segment import Segment

COMPILED: bool
SCAN_BYTES: int
BATCHES_KEPT: int

class AppendLimits:
    def __init__(self, config: LogConfig) -> None: ...

class SegmentTail:
    file: File
    offsets: OffsetIndex | None
    times: TimeIndex | None
    base_offset: int
    created_ms: int
    last_offset: int
    max_timestamp: int
    max_timestamp_offset: int
    first_timestamp: int
    bytes_since_index: int
    def start_of(self, offset: int) -> int: ...
    def indexed_before(self, position: int) -> int: ...
    def seek(self, offset: int, position: int, may_wait: bool) -> tuple[int, int]: ...
    def note(
        self, position: int, size_bytes: int, last_offset: int, max_timestamp: int, interval_bytes: int
    ) -> None: ...

class ProducerTail:
    epoch: int
    timestamp: int
    coordinator_epoch: int
    transaction_start: int
    def __init__(self, epoch: int) -> None: ...
    def begin(self, epoch: int) -> None: ...
    def take(self, base_sequence: int, base_offset: int, last_offset: int, timestamp: int) -> None: ...
    @property
    def last_sequence(self) -> int: ...
    def rows(self) -> list[tuple[int, int, int, int, int]]: ...

class ProducerTails:
    entries: dict[int, ProducerEntry]
    open: dict[int, int]
    complete: bool

class LogTail:
    config: LogConfig
    producers: ProducerStates
    epochs: LeaderEpochs
    failure: KafkaError | None
    log_start_offset: int
    log_end_offset: int
    is_noted: bool
    _active: Segment
    _positions: Positions | None
    _wall_ms: int
