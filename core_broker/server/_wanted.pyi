from collections.abc import Callable

from ...protocol.messages.fetch import PartitionData
from ..replication._core import PartitionCore
from ..replication.partition import Partition

class Wanted:
    topic: str | None
    topic_id: bytes
    index: int
    fetch_offset: int
    current_leader_epoch: int
    last_fetched_epoch: int
    max_bytes: int
    high_watermark: int
    log_start_offset: int
    partition: Partition | None
    idle: PartitionCore | None
    idle_epoch: int
    size: int
    cancel: Callable[[], None] | None
    def __init__(
        self,
        topic: str | None,
        topic_id: bytes,
        index: int,
        fetch_offset: int = 0,
        current_leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        max_bytes: int = 0,
    ) -> None: ...
    def follow(self, later: Wanted) -> None: ...
    @property
    def is_idle(self) -> bool: ...
    def tell(self, data: PartitionData) -> bool: ...
