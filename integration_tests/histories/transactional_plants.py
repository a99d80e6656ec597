"""Planted bugs of transactions, for the controls of the histories: rules of the coordinator taken out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any
from unittest import mock

Plant = Callable[[contextlib.ExitStack], None]


def markers_disagree(stack: contextlib.ExitStack) -> None:
    """The brokers that lead a partition 0 of a transaction, and no group's offsets, are told that it is aborted."""
    from isthmus.core_broker.coordinators.transactions import markers

    real = markers._marker

    def marker(marking: Any, places: Any) -> Any:
        made = real(marking, places)
        if any(index == 0 for _, index in places) and not any(topic.startswith("__") for topic, _ in places):
            made.transaction_result = False
        return made

    stack.enter_context(mock.patch.object(markers, "_marker", marker))


def old_epochs_may_commit(stack: contextlib.ExitStack) -> None:
    """Whoever ends a transaction counts as its present producer."""
    from isthmus.core_broker.coordinators.transactions import transaction

    for name in ("end", "end_raising"):
        real = getattr(transaction, name)

        def ended(known: Any, given: Any, *, real: Any = real, **options: Any) -> Any:
            return real(known, given._replace(producer_id=known.producer_id, epoch=known.epoch), **options)

        stack.enter_context(mock.patch.object(transaction, name, ended))


PLANTS: dict[str, Plant] = {
    "markers-disagree": markers_disagree,
    "old-epochs-may-commit": old_epochs_may_commit,
}
