from collections.abc import Callable
from typing import Any

from ...protocol.errors import KafkaError
from ..replication.partition import Partition
from ._frames import AtOnce

COMPILED: bool

Failed = Callable[[list[tuple[str, bytes, list[tuple[Partition, int, KafkaError | None]]]]], Any]

class ProduceAtOnce(AtOnce):
    def __init__(self, failed: Failed, version: int) -> None: ...
