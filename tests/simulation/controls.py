"""Planted bugs: each is a change to the product, inside this process only, that the scenarios must find."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from unittest import mock

Plant = Callable[[contextlib.ExitStack], None]

PLANTS: dict[str, Plant] = {}


@contextlib.contextmanager
def planted(name: str | None) -> Iterator[None]:
    """The product with the bug `name` in it; unchanged for None."""
    with contextlib.ExitStack() as stack:
        if name is not None:
            PLANTS[name](stack)
        yield


def replace(stack: contextlib.ExitStack, target: object, attribute: str, value: object) -> None:
    stack.enter_context(mock.patch.object(target, attribute, value))
