"""Functions of the app that are called where nothing can wait: for each event, key or row. Pure."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

from ..errors import AppError


def refuse_async(what: str, *given: Any) -> None:
    """Raises AppError for a function that is async, also one in a partial or collection. Else what it returns would be
    taken for the result, which is true and not None. what: calls it, for people."""
    for each in given:
        if isinstance(each, partial):
            refuse_async(what, each.func, *each.args, *each.keywords.values())
        elif isinstance(each, (list, tuple)):
            refuse_async(what, *each)
        elif type(each) is dict:
            refuse_async(what, *each.values())
        elif _is_async(each) or (not isinstance(each, type) and _is_async(getattr(each, "__call__", None))):  # noqa: B004
            name = getattr(each, "__qualname__", type(each).__qualname__)
            raise AppError(
                f"{what}: {name} is async, and is called for each event or row, where nothing can wait: write def "
                "without async, or wait in an agent"
            )


def check_functions(what: str, *given: Any) -> None:
    """Raises AppError for what cannot be called, also within a collection. Else each event would fail. None: not
    given."""
    for each in given:
        if isinstance(each, (list, tuple)):
            check_functions(what, *each)
        elif each is not None and not callable(each):
            hint = f": a field is lambda value: value[{each!r}]" if isinstance(each, str) else ""
            raise AppError(f"{what}: {each!r} is no function{hint}")


def _is_async(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
