"""A function that is called where nothing can wait is refused where it is declared, if it is async."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from isthmus.streams import App, AppError, aggregates


async def later(*given: Any) -> Any:
    return False


async def some(*given: Any) -> Any:
    yield False


class Later:
    async def __call__(self, *given: Any) -> Any:
        return False


def source(app: App) -> Any:
    return app.stream("in")


def table(app: App) -> Any:
    return app.Table("t", version=2)


PLACES: dict[str, Callable[[App, Any], object]] = {
    "step in-filter": lambda app, function: source(app).filter(function),
    "step in-branch": lambda app, function: source(app).branch(bool, function),
    "step by-key": lambda app, function: source(app).group_by(function, name="by"),
    "step j": lambda app, function: source(app).join(source(app).table("rows"), value=min, key=function, name="j"),
    "step a": lambda app, function: source(app).tumbling(1).aggregate(initial=int, add=function, name="a"),
    "step r": lambda app, function: source(app).tumbling(1).aggregate(result=function, n=aggregates.Count(), name="r"),
    "a column": lambda app, function: aggregates.Sum(function),
    "Reduce": lambda app, function: aggregates.Reduce(function),
    "migrate= of step m": lambda app, function: source(app).process(Later, version=2, migrate={1: function}, name="m"),
    "a migration of table t": lambda app, function: table(app).migration(from_version=1)(function),
    "default= of table t": lambda app, function: app.Table("t", default=function),
    "timestamp= of topic t": lambda app, function: app.topic("t", timestamp=function),
    "partitioner= of topic t": lambda app, function: app.topic("t", partitioner=function),
}


@pytest.mark.parametrize("place", PLACES)
def test_it_is_refused_at_each_place(place: str) -> None:
    with pytest.raises(AppError, match=f"^{place}: later is async, and is called for each event or row"):
        PLACES[place](App("app"), later)


@pytest.mark.parametrize(("function", "name"), [(some, "some"), (Later(), "Later"), (partial(later, 1), "later")])
def test_it_is_refused_in_each_form(function: Any, name: str) -> None:
    with pytest.raises(AppError, match=f": {name} is async"):
        source(App("app")).map(function)
