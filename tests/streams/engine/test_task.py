"""A task's checkpoints, and where it goes on."""

import pytest

from isthmus.streams.engine.checkpoint import MARKER, Marker, Position, Row
from isthmus.streams.engine.steps import STEP_ROWS
from isthmus.streams.engine.stores.memory import MemoryStore
from isthmus.streams.engine.tables import TableSpec
from isthmus.streams.engine.task import Task, TaskId
from isthmus.streams.engine.versions import prepare
from isthmus.streams.engine.windows import TableWindows
from isthmus.streams.errors import ChangelogError, ChangeRefused


def new_task(*tables: str, **restored: Marker | None) -> Task:
    """With stores of these tables; restored: with what their changelogs end with."""
    stores = {name: MemoryStore(TableSpec(name)) for name in (*tables, *restored)}
    task = Task("app", TaskId("in", 3), stores)
    for name, each in restored.items():
        stores[name].restore([], 1, None if each is None else each.encode())
    task.restored()
    return task


def marker(number: int, offset: int, *tables: str) -> Marker:
    return Marker("app", number, tables, {"in": Position(offset, 1)}, {"in": "id"}, table=TableSpec("t").description)


def test_a_checkpoint_has_what_changed_and_a_marker_in_each_table():
    task = new_task("t", "u")
    task.bind_topic_id("in", "id")
    assert not task.changed
    task.stores["t"].set("k", 1)
    task.mark_processed("in", Position(5, 1))
    assert task.changed
    made = task.checkpoint()
    said = Row(MARKER, marker(1, 5, "t", "u").encode())
    assert (made.task, made.positions) == (task, {"in": Position(5, 1)})
    assert made.rows == {"t": [Row(b'"k"', b"1"), said], "u": [said]}
    assert not task.changed
    task.mark_processed("in", Position(6, 1))
    assert made.positions == {"in": Position(5, 1)}  # of what stood then
    again = task.checkpoint()
    assert again.rows["t"] == again.rows["u"] == [Row(MARKER, marker(2, 6, "t", "u").encode())]


def test_a_store_is_told_up_to_where_the_changelog_has_it():
    task = new_task("t")
    made = task.checkpoint()
    task.confirm(made, {"t": 17})
    assert (task.stores["t"].changelog_offset, task.stores["t"].marker) == (17, made.markers["t"])


def test_another_apps_changelog_is_refused():
    with pytest.raises(ChangelogError, match="the changelog of table t, partition 3, has a marker of app other"):
        new_task(t=Marker("other", 1))


def test_it_goes_on_from_the_marker():
    task = new_task("new", t=marker(4, 9, "t"))
    assert (task.positions, task.topic_ids) == ({"in": Position(9, 1)}, {"in": "id"})
    assert Marker.decode(task.checkpoint().rows["new"][-1].value, "app", "").number == 5


def test_a_task_without_any_marker_knows_no_position():
    assert new_task("t").positions == {}


def test_tables_of_different_checkpoints_are_refused():
    """Rows would include other input than the positions say."""
    with pytest.raises(ChangelogError, match="task in-3 of app app: the changelog of table u ends with checkpoint 3, "):
        new_task(t=marker(4, 9, "t", "u"), u=marker(3, 7, "t", "u"))


def test_a_topic_that_nobody_reads_is_read_on_later_and_one_that_another_task_reads_is_not_read_twice():
    task = new_task("t")
    for offset, topic in enumerate(("stays", "left", "moved")):
        task.mark_processed(topic, Position(offset))
    task.keep_topics(["stays"], others=["moved"])
    written = task.checkpoint().markers["t"]
    task = new_task(t=Marker.decode(written, "app", "here"))
    assert (task.positions, task.left) == ({"stays": Position(0)}, {"left": Position(1)})
    task.keep_topics(["stays", "left", "moved"])
    assert (task.positions, task.left) == ({"stays": Position(0), "left": Position(1)}, {})


def test_a_table_that_comes_back_after_checkpoints_without_it_lacks_records():
    with pytest.raises(ChangeRefused, match="table u has the records of in up to offset 7, and table t up to 9"):
        new_task(t=marker(4, 9, "t"), u=marker(3, 7, "t", "u"))
    assert new_task(t=marker(4, 9, "t"), u=marker(3, 9, "t", "u")).positions == {"in": Position(9, 1)}


def test_a_topic_of_the_same_name_is_told_from_the_one_that_the_state_is_of():
    task = new_task(t=marker(1, 5, "t"))
    assert task.bind_topic_id("in", "id") and not task.bind_topic_id("in", "another")
    assert task.topic_ids == {"in": "id"}
    assert task.bind_topic_id("more", "x") and task.topic_ids["more"] == "x"


def test_the_windows_of_many_rows_are_found_in_steps():
    spec = TableSpec("t")
    spec.use_windows(TableWindows(10, 10))
    store, count = MemoryStore(spec), 2 * STEP_ROWS + 5
    for number in range(count):
        store.set((number, number % 3 * 10), 1)
    task = Task("app", TaskId("in", 0), {"t": store})
    assert len(list(prepare(task))) == 3
    assert [len(task.windows_of("t").keys(start)) for start in (0, 10, 20)] == [669, 668, 668]
    task.windows_of("t").set("new", 30, 1)
    assert len(list(task.open_windows())) == 0 and task.windows_of("t").time_ms == 20


def test_a_window_that_has_closed_stays_closed_after_a_restart():
    """Though no row says so any more: the windows that had the greatest time are removed."""
    spec = TableSpec("t")
    spec.use_windows(TableWindows(10, 10, expires_ms=5))
    before = Task("app", TaskId("in", 3), {"t": MemoryStore(spec)})
    before.windows_of("t").time_ms = 40
    store = MemoryStore(spec)
    store.restore([], 1, before.checkpoint().markers["t"])
    after = Task("app", TaskId("in", 3), {"t": store})
    after.restored()
    after.windows_of("t").set("k", 20, 1)
    assert (after.windows_of("t").dropped, dict(store.rows)) == (1, {})


def test_positions_of_topics_wait_for_who_reads_them_again():
    """But not of those that other tasks read now: these go on there."""
    task = new_task("t")
    for topic, offset in (("in", 5), ("gone", 6), ("moved", 7)):
        task.set_start(topic, Position(offset))
        task.bind_topic_id(topic, f"id of {topic}")
    task.keep_topics(["in"], others=["in", "moved"])
    assert (task.positions, task.left) == ({"in": Position(5)}, {"gone": Position(6)})
    assert task.topic_ids == {"in": "id of in", "gone": "id of gone"}
    again = new_task(t=Marker.decode(task.checkpoint().markers["t"], "app", ""))
    again.keep_topics(["in", "gone", "moved"])
    assert (again.positions, again.left) == ({"in": Position(5), "gone": Position(6)}, {})
