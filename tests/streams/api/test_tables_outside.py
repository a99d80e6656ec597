"""Tables where no agent runs: the rows of all tasks of the worker, for reading."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from isthmus.streams import App
from isthmus.streams.engine.stores.memory import MemoryStore
from isthmus.streams.engine.stores.store import Store
from isthmus.streams.errors import AppError


class Worker:
    """A `Host` with two tasks."""

    is_leader = is_rebalancing = False

    def __init__(self, app: App, table: str) -> None:
        self.parts = [MemoryStore(app.tables[table].spec) for _ in range(2)]

    def stores(self, table: str) -> Sequence[Store]:
        return self.parts


def test_reading_gives_the_rows_of_all_tasks_of_the_worker() -> None:
    app = App("app")
    table = app.Table("t", default=int)
    worker = Worker(app, "t")
    app.worker = worker
    worker.parts[0].set("a", 1)
    worker.parts[1].set("b", 2)
    assert (table["a"], table["b"], table["c"], table.get("c")) == (1, 2, 0, None)
    assert dict(table.items()) == {"a": 1, "b": 2}
    assert (len(table), list(table), list(reversed(table)), "b" in table, "c" in table) == (
        2, ["a", "b"], ["b", "a"], True, False,
    )  # fmt: skip
    assert table == {"a": 1, "b": 2}
    assert (list(table.keys()), list(table.values()), table.copy()) == (["a", "b"], [1, 2], {"a": 1, "b": 2})


def test_a_missing_key_without_a_default_is_a_key_error() -> None:
    app = App("app")
    table = app.Table("t")
    app.worker = Worker(app, "t")
    with pytest.raises(KeyError):
        table["c"]


def test_windows_can_be_read_whole_but_not_selected_without_an_event() -> None:
    app = App("app")
    table = app.Table("t", default=int).tumbling(10)
    worker = Worker(app, "t")
    app.worker = worker
    worker.parts[1].set(("a", 0), 3)
    assert dict(table.rows()) == {("a", 0): 3}
    with pytest.raises(AppError, match=r"no event whose time selects a window: rows\(\) has all"):
        table["a"]


def test_writing_says_why_not_and_where() -> None:
    app = App("app")
    table = app.Table("t", default=int)
    app.worker = worker = Worker(app, "t")
    worker.parts[0].set("a", 1)
    for write in (
        lambda: table.__setitem__("a", 2),
        lambda: table.__delitem__("a"),
        lambda: table.pop("a"),
        lambda: table.popitem(),
        lambda: table.setdefault("x", 1),
        lambda: table.update(a=1),
        lambda: table.clear(),
    ):
        with pytest.raises(AppError, match="table t is changed outside of an agent, where it can only be read"):
            write()
    assert dict(table.items()) == {"a": 1}


def test_without_a_worker_there_are_no_rows_to_read() -> None:
    table = App("app").Table("t", default=int)
    with pytest.raises(AppError, match="table t is used outside of an agent, and no worker of its app runs here"):
        table["a"]


def test_a_table_is_drawn_for_a_terminal() -> None:
    app = App("app")
    table = app.Table("t", default=int)
    worker = Worker(app, "t")
    app.worker = worker
    worker.parts[0].set("fox", 12)
    worker.parts[1].set("dog", 3)
    assert table.as_ansitable(key="word", value="count", title="$$ TALLY $$", sort=True) == "\n".join(
        ["┌$$ TALLY $$───┐", "│ word │ count │", "├──────┼───────┤", "│ dog  │ 3     │", "│ fox  │ 12    │",
         "└──────┴───────┘"]
    )  # fmt: skip
