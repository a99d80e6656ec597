"""The reference of public names of `isthmus.streams`, for `docs/generate.py`."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from typing import Any

from isthmus import streams
from isthmus.streams.api.pipeline import Aggregated, GroupedTable, Keyed, Late, Source, TableView, Windowed
from isthmus.streams.api.windows import WindowedTable, WindowSet
from isthmus.streams.contrib import asgi

MADE = "<!-- made from the code by `make docs`: do not edit -->"

STEPS = (Source, Late, Windowed, Keyed, Aggregated, TableView, GroupedTable)
OF_TABLES = (WindowedTable, WindowSet)


def streams_api() -> str:
    """Every public name of isthmus.streams, with what it takes and the first paragraph that it says of itself."""
    lines = [
        MADE,
        "# Public names of isthmus.streams",
        "",
        "As the code has them. Settings of an app are in [streams](streams.md), what differs from Faust in",
        "[streams and Faust](streams-and-faust.md).",
    ]
    for name in streams.__all__:
        lines += ["", *_public(name, getattr(streams, name))]
    lines += ["", "# Steps of pipelines", "", "`app.stream(topic)` gives a `Source`; each call declares a step."]
    for each in STEPS:
        lines += ["", *_public(each.__name__, each)]
    lines += ["", "# Tables with windows", "", "`app.Table(…).tumbling(size)` gives a `WindowedTable`."]
    for each in OF_TABLES:
        lines += ["", *_public(each.__name__, each)]
    lines += ["", "# Beside an ASGI application", "", "`isthmus.streams.contrib.asgi` has these names of Faust's."]
    for name in asgi.__all__:
        lines += ["", *_public(name, getattr(asgi, name))]
    return "\n".join([*lines, ""])


def _public(name: str, value: Any) -> Iterator[str]:
    if inspect.ismodule(value):
        yield f"## {name}"
        yield from ("", _first(value), "", f"Names: {', '.join(f'`{each}`' for each in getattr(value, '__all__', ()))}")
        return
    if name != getattr(value, "__name__", name):
        yield from (f"## {name}", "", f"`{value.__name__}`, by the name that Faust has for its type.")
        return
    yield from (f"## {name}", "", f"```python\n{name}{_signature(value)}\n```", "", _first(value))
    if not inspect.isclass(value):
        return
    rows = [
        (each, member)
        for each, member in inspect.getmembers_static(value)
        if not each.startswith("_") and _own(value, each) and _doc(member)
    ]
    if rows:
        yield from ("", "| name | what |", "|---|---|")
    for each, member in rows:
        function = inspect.unwrap(getattr(member, "__func__", member)) if callable(member) else None
        called = f"{each}{_signature(function, bound=True)}" if function is not None else each
        if isinstance(member, classmethod | staticmethod):
            called = f"{each}{_signature(member.__func__, bound=isinstance(member, classmethod))}"
        yield f"| `{cell(called)}` | {cell(_doc(member))} |"


def _own(cls: Any, name: str) -> bool:
    """Whether a class of ours has said it, rather than one of Python's."""
    return any(name in vars(each) for each in cls.__mro__ if each.__module__.startswith("isthmus"))


def _signature(value: Any, bound: bool = False) -> str:
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return "(…)"
    parameters = list(found.parameters.values())[bound:]
    shown = [each.replace(annotation=each.empty, default=_default(each)) for each in parameters]
    return str(found.replace(parameters=shown, return_annotation=found.empty))


class _Shown:
    """A default, as it is written."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _default(of: inspect.Parameter) -> Any:
    value = of.default
    if isinstance(value, str):
        return _Shown(json.dumps(value))  # quoted as the formatter has it
    if value is of.empty or isinstance(value, int | float | bool | tuple | None):
        return value
    return _Shown(getattr(value, "__name__", "…"))


def _doc(member: Any) -> str:
    """The first sentence."""
    text = _first(member)
    return text.split(". ")[0].removesuffix(".") + "." if text else ""


def _first(value: Any) -> str:
    """The first paragraph of a docstring, in one line."""
    return " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())


def cell(text: str) -> str:
    """Text for a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")
