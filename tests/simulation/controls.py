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
    from isthmus.core_broker.storage import log, recovery
    from isthmus.core_broker.storage.producers import ProducerStates

    def forget(*_: Any) -> ProducerStates:
        return ProducerStates()

    _replace(stack, recovery, "load_producers", forget)
    _replace(stack, log, "load_producers", forget)


# name -> how it is planted; which scenario finds it is in test_scenarios.py
PLANTS: dict[str, Plant] = {
    "recovery-without-crc": recovery_without_crc,
    "producers-not-recovered": producers_not_recovered,
}
