"""What a library must have for transactional histories, and the three ways in which its calls fail."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol

TIMEOUT_S = 5.0  # a transaction that is open for longer is aborted by the cluster
DELIVERY_S = 4.0  # of a record: librdkafka wants no more than the transaction's
ANSWER_S = 10.0  # of one call

NAMES = ("librdkafka", "java", "isthmus")


class Doomed(Exception):
    """The transaction can only be aborted; the producer goes on."""


class Later(Exception):
    """The call has not ended in time: the same one again goes on with it."""


class Over(Exception):
    """The producer can only be closed. fenced: another has its transactional id."""

    def __init__(self, text: str, fenced: bool) -> None:
        super().__init__(text)
        self.fenced = fenced


class TransactionalWriter(Protocol):
    """One transactional producer. Calls raise Doomed, Later or Over."""

    async def start(self) -> None:
        """End what an earlier producer with the id has left open, and fence it."""

    async def begin(self) -> None: ...

    async def send(self, topic: str, partition: int, value: str) -> asyncio.Future[int]:
        """A future of its offset; -1: the library does not know it."""

    async def offsets(self, topic: str, positions: Mapping[int, int], group: Any) -> None:
        """group: what `Copier.metadata` told."""

    async def commit(self) -> None: ...

    async def abort(self) -> None: ...

    async def close(self) -> None:
        """Leave the transaction open, if there is one."""
