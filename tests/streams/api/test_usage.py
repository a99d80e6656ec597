"""Which tables an agent uses is seen in its code."""

import functools
from types import ModuleType
from typing import Any

import pytest

from isthmus.streams import App, AppError
from isthmus.streams.api.tables import TableLike
from isthmus.streams.api.usage import used

app = App("app")
one, two, three, four = (app.Table(name, default=int) for name in ("one", "two", "three", "four"))
minutes = app.Table("minutes", default=int).tumbling(60)
module = ModuleType("elsewhere")
module.table, module.other = three, four  # type: ignore[attr-defined]


def names(function: Any) -> set[str]:
    return {table.spec.name for table in used(function, (TableLike,))}


async def of_globals(stream: Any) -> None:
    async for key in stream:
        one[key] += two[key]


async def in_a_function_within(stream: Any) -> None:
    def note(key: Any) -> None:
        one[key] += 1

    [note(key) async for key in stream]


def helper(key: Any) -> None:
    deeper(key)


def deeper(key: Any) -> None:
    two[key] += 1
    if key:
        helper(key - 1)


async def by_helpers(stream: Any) -> None:
    async for key in stream:
        helper(key)


async def by_a_module(stream: Any) -> None:
    async for key in stream:
        module.table[key] += 1


async def with_windows(stream: Any) -> None:
    async for key in stream:
        minutes[key] += 1


async def by_default(stream: Any, table: Any = one, *, other: Any = two) -> None: ...


async def none(stream: Any) -> None:
    one = {}  # type: ignore[var-annotated]
    async for key in stream:
        one[key] = 1


def closed(table: Any) -> Any:
    async def count(stream: Any) -> None:
        async for key in stream:
            table[key] += 1

    return count


class Counter:
    def __init__(self, table: Any) -> None:
        self.table = table

    async def count(self, stream: Any) -> None:
        async for key in stream:
            self.table[key] += 1


counter = Counter(three)


async def by_an_object(stream: Any) -> None:
    async for key in stream:
        await counter.count(key)


def wrapped(function: Any) -> Any:
    @functools.wraps(function)
    def around(*given: Any) -> Any:
        return function(*given)

    return around


async def given(table: Any, stream: Any) -> None: ...


@pytest.mark.parametrize(
    ("function", "tables"),
    [
        (of_globals, {"one", "two"}),
        (in_a_function_within, {"one"}),
        (by_helpers, {"two"}),
        (by_a_module, {"three"}),
        (with_windows, {"minutes"}),
        (by_default, {"one", "two"}),
        (none, set()),
        (closed(four), {"four"}),
        (Counter(four).count, {"four"}),
        (by_an_object, {"three"}),
        (wrapped(by_helpers), {"two"}),
        (functools.partial(given, one), {"one"}),
        (functools.partial(closed(two)), {"two"}),
        (lambda stream: one, {"one"}),
    ],
)
def test_tables_are_seen(function, tables):
    assert names(function) == tables


def test_a_name_that_is_not_bound_yet_is_no_table():
    def later() -> Any:
        return table

    assert names(later) == set()
    table = one
    assert names(later) == {"one"}


def test_tables_of_another_agent_are_not_ones_own():
    """An agent that another one sends to works in tasks of its own."""
    made = App("two")
    table = made.Table("t", default=int)

    @made.agent(made.topic("counted"))
    async def count(stream: Any) -> None:
        async for key in stream:
            table[key] += 1

    @made.agent(made.topic("in"))
    async def forward(stream: Any) -> None:
        async for key in stream:
            await count.send(value=key)

    assert {name: each.tables for name, each in made.topology().subtopologies.items()} == {
        "counted": ("t",),
        "in": (),
    }


def test_a_table_that_is_not_seen_belongs_to_the_only_part_or_is_named():
    made = App("hidden")
    tables = {"t": made.Table("t")}

    async def hidden(stream: Any) -> None:
        async for key in stream:
            tables["t"][key] = 1

    made.agent(made.topic("a"))(hidden)
    assert made.topology().of_table("t").topics == ("a",)  # type: ignore[union-attr]
    made.agent(made.topic("b"))(none)
    with pytest.raises(AppError, match=r"app hidden: which agents use table t .* tables=\[t\]"):
        made.topology()
    made.agent(made.topic("b"), tables=[tables["t"]])(none)
    assert made.topology().of_table("t").topics == ("b",)  # type: ignore[union-attr]
