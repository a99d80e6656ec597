from collections.abc import Callable
from typing import Any

from ...protocol.errors import KafkaError
from ..replication.partition import Partition
from .context import Context

COMPILED: bool

Failed = Callable[[list[tuple[str, bytes, list[tuple[Partition, int, KafkaError | None]]]]], Any]

def produce(failed: Failed, version: int, frame: memoryview, at: int, correlation: int, context: Context) -> Any: ...
