"""Finds the tables and topics that a function uses, by looking at its code: the names it reads, and what these are.

Followed are globals, closures, bound methods, partials, attributes of modules and of the objects that these names are,
and the functions among them. What is reached in other ways, such as by a key in a dict, is not seen: the agent says it,
by `tables=`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

SEEN_MAX = 10_000  # objects looked at for one function
_FUNCTIONS = (FunctionType, MethodType, functools.partial)


def used(function: Callable[..., Any], kinds: tuple[type, ...], beside: frozenset[str] | None = None) -> list[Any]:
    """The objects of these types that the function's code names, each once, in the order found. beside: names of
    methods; gives those only that are named by code which names one of these, too, or a function whose code does, and
    none that are attributes of objects, whose code may name others of these."""
    found: dict[int, Any] = {}
    seen: dict[int, Any] = {}
    waiting: list[Any] = [function]
    while waiting and len(seen) < SEEN_MAX:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen[id(each)] = each
        if isinstance(each, kinds):
            found[id(each)] = each
        elif isinstance(each, _FUNCTIONS):
            named = _named_by(each)
            if beside is None or any(map(beside.intersection, map(_own_names, (each, *named)))):
                waiting += named
            else:
                waiting += [value for value in named if not isinstance(value, kinds)]
        elif beside is None and _is_users(each):
            waiting += [value for value in vars(each).values() if isinstance(value, (*kinds, FunctionType, MethodType))]
    return list(found.values())


def names(function: Callable[..., Any]) -> set[str]:
    """All names in the function's code and in the functions within it."""
    code = getattr(inspect.unwrap(_plain(function)), "__code__", None)
    return {name for each in _codes(code) for name in each.co_names} if code is not None else set()


def _own_names(value: Any) -> set[str]:
    """The names in the code of a function, and none of what it wraps; of what is none, no names."""
    code = getattr(_plain(value), "__code__", None) if isinstance(value, _FUNCTIONS) else None
    return {name for each in _codes(code) for name in each.co_names} if isinstance(code, CodeType) else set()


def _plain(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__func__", function)


def _named_by(function: Any) -> list[Any]:
    if isinstance(function, functools.partial):
        return [function.func, *function.args, *function.keywords.values()]
    if isinstance(function, MethodType):
        return [function.__func__, function.__self__]
    found = [cell.cell_contents for cell in function.__closure__ or () if not _is_empty(cell)]
    found += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    if (wrapped := getattr(function, "__wrapped__", None)) is not None:
        found.append(wrapped)
    for code in _codes(function.__code__):
        values = [function.__globals__[name] for name in code.co_names if name in function.__globals__]
        for value in values:
            if isinstance(value, ModuleType):
                found += [getattr(value, name) for name in code.co_names if name in vars(value)]
            else:
                found.append(value)
    return found


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _is_empty(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018  # raises where a name is not bound yet
    except ValueError:
        return True
    return False


def _is_users(value: Any) -> bool:
    """Whether to look at the attributes of an object: not of modules and classes, which have too many, nor of an app's
    other agents."""
    is_ours = type(value).__module__.partition(".")[0] == __name__.partition(".")[0]
    return hasattr(value, "__dict__") and not is_ours and not isinstance(value, (ModuleType, type))
