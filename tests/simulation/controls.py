"""Planted bugs: each is a change to the product, inside this process only, that the scenarios must find."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

Plant = Callable[[contextlib.ExitStack], None]


@contextlib.contextmanager
def planted(name: str | None) -> Iterator[None]:
    """The product with the bug `name` in it; unchanged for None."""
    with contextlib.ExitStack() as stack:
        if name is not None:
            PLANTS[name](stack)
        yield


def _replace(stack: contextlib.ExitStack, target: object, attribute: str, value: object) -> None:
    stack.enter_context(mock.patch.object(target, attribute, value))


def recovery_without_crc(stack: contextlib.ExitStack) -> None:
    from isthmus.core_broker.storage import recovery

    real = recovery.headers
    _replace(stack, recovery, "headers", lambda file, position, verify: real(file, position, False))


def producers_not_recovered(stack: contextlib.ExitStack) -> None:
    from isthmus.core_broker.storage import recovery, upkeep
    from isthmus.core_broker.storage.producers import ProducerStates

    def forget(*_: Any) -> ProducerStates:
        return ProducerStates()

    _replace(stack, recovery, "load_producers", forget)
    _replace(stack, upkeep, "load_producers", forget)


def ack_before_write(stack: contextlib.ExitStack) -> None:
    """A producer is answered at once; its records are written a little later."""
    import asyncio

    from isthmus.core_broker.replication.partition import Partition
    from isthmus.core_broker.storage.log import AppendInfo, Origin

    real = Partition.append
    ahead: dict[int, int] = {}

    def append(self: Any, records: Any, origin: Any, wall_ms: int, expected_next_offset: int | None = None) -> Any:
        if origin is not Origin.CLIENT:
            return real(self, records, origin, wall_ms, expected_next_offset)
        data = bytes(records)
        count = int.from_bytes(data[23:27], "big") + 1
        first = max(ahead.get(id(self), 0), self.log.log_end_offset)
        ahead[id(self)] = first + count
        asyncio.get_running_loop().call_later(0.003, _write_late, real, self, data, origin, wall_ms)
        return AppendInfo(first, first + count - 1, first + count, -1, -1, 0, count, len(data), False)

    _replace(stack, Partition, "append", append)


def _write_late(append: Any, partition: Any, data: bytes, origin: Any, wall_ms: int) -> None:
    with contextlib.suppress(Exception):
        append(partition, data, origin, wall_ms, None)


def append_without_expected_offset(stack: contextlib.ExitStack) -> None:
    from isthmus.core_broker.replication.partition import Partition

    real = Partition.append

    def append(self: Any, records: Any, origin: Any, wall_ms: int, expected_next_offset: int | None = None) -> Any:
        return real(self, records, origin, wall_ms, None)

    _replace(stack, Partition, "append", append)


def answers_out_of_order(stack: contextlib.ExitStack) -> None:
    """A request that has to wait no longer holds up the answers to those behind it."""
    from isthmus.core_broker.server.connection import Connection

    real = Connection._request

    def request(self: Any, frame: Any) -> None:
        real(self, frame)
        pending, route, correlation = self._pending, self._route, self._correlation
        if pending is not None:
            self._pending, self.busy = None, False
            pending._callback = lambda answer: _answer_late(self, route, correlation, answer)

    _replace(stack, Connection, "_request", request)


def _answer_late(connection: Any, route: Any, correlation: int, answer: Any) -> None:
    if answer is not None and not connection._transport.is_closing():
        connection._answer(route, correlation, answer)
        connection._flush()


# name -> how it is planted; which scenario finds it is in test_scenarios.py
PLANTS: dict[str, Plant] = {
    "ack-before-write": ack_before_write,
    "answers-out-of-order": answers_out_of_order,
    "append-without-expected-offset": append_without_expected_offset,
    "producers-not-recovered": producers_not_recovered,
    "recovery-without-crc": recovery_without_crc,
}
