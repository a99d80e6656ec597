"""Tables of sets, and changing them from outside."""

from typing import Any

import pytest

from isthmus.streams import App
from isthmus.streams.driver import TestDriver
from isthmus.streams.errors import AppError
from tests.running import in_loop, run_by


@run_by(in_loop)
async def test_sets_are_stored_with_each_change():
    """As examples/tableofset.py of faust-streaming."""
    app = App("app")
    table = app.SetTable("people", value_type=str)

    @app.agent(app.topic("in"))
    async def change(stream: Any) -> None:
        async for _ in stream:
            people = table["a"]
            people.add("x")
            people.add("y")
            people.add("x")
            assert people == {"x", "y"} and "x" in people and len(people) == 2 and repr(table["b"]) == "set()"
            people.discard("x")
            people.discard("z")
            people |= {"p", "q"}
            table["a"] = people
            people.symmetric_difference_update(["q", "r"])
            people.intersection_update(["p", "r", "y"])
            people.difference_update(["y"], ["none"])
            assert people | {"s"} == {"p", "r", "s"}
            table["c"].update("12", "3")
            table["c"].clear()
            assert "c" not in table and list(table) == ["a"]

    driver = TestDriver(app)
    driver.send("in", value=b"1")
    driver.commit()
    driver.crash()
    assert driver.table("people") == {"a": ["p", "r"]}
    driver.close()


@run_by(in_loop)
async def test_a_manager_changes_sets_from_outside_of_agents():
    app = App("app")
    table = app.SetTable("sets", start_manager=True)
    driver = TestDriver(app)
    manager = table.manager
    for member in (1, 2, 3):
        await manager.add("k", member)
    await manager.discard("k", 1)
    await manager.difference_update("k", {9})
    await manager.symmetric_difference_update("k", [3, 4, 5])
    await manager.intersection_update("k", iter([4, 2]))
    await manager.add("gone", 1)
    await manager.clear("gone")
    driver.send("sets-setmanager", key=b"l", value=b'{"action": "ADD", "members": ["x"]}')
    assert driver.table("sets") == {"k": [2, 4], "l": ["x"]}
    with pytest.raises(AppError, match="knows no action 'NONE'"):
        driver.send("sets-setmanager", key=b"l", value=b'{"action": "NONE", "members": []}')
    driver.close()


@run_by(in_loop)
async def test_what_sets_cannot_do_they_say():
    app = App("app")
    table = app.SetTable("sets")
    with pytest.raises(AppError, match="table sets has sets, which have no windows"):
        table.tumbling(10)
    with pytest.raises(AppError, match="table sets has no manager: declare it with start_manager=True"):
        await table.manager.add("k", 1)
    with pytest.raises(AppError, match="app app has two tables called sets"):
        app.SetTable("sets")
