from collections.abc import Callable
from typing import Any

from ...protocol.errors import KafkaError
from ..replication.partition import Partition
from ._frames import AtOnce
from .context import Context

COMPILED: bool

Appended = tuple[Partition, int, int, KafkaError | None]
OtherAnswer = Callable[[list[tuple[str, bytes, list[Appended]]], int, Context], Any]

class ProduceAtOnce(AtOnce):
    def __init__(self, other_answer: OtherAnswer, version: int) -> None: ...
