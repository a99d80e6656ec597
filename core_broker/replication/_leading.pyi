import asyncio
from collections.abc import Callable
from typing import Any

from ...protocol.errors import KafkaError
from ..storage.log._ranges import LogRanges
from ..storage.log._tail import LogTail
from ..storage.log.log import Log
from .traffic import Traffic

class Counts:
    __slots__: tuple[str, ...]
    appends: int
    failed_appends: int
    bytes_in: int
    bytes_refused: int
    messages_in: int
    fetches: int
    failed_fetches: int
    bytes_out: int

class Leading:
    log: Log
    tail: LogTail
    ranges: LogRanges
    traffic: Traffic
    failure: KafkaError | None
    refusal: str
    mirror_link: str
    line: asyncio.Future[None] | None
    isr: list[int]
    leader_epoch: int
    least_in_sync: int
    high_watermark: int
    _end_waiters: list[list[Any]]
    _data_waiters: dict[int, Callable[[], None]]
    _holds_back: bool
