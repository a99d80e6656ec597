"""How an app is laid out over topics of different sizes."""

from typing import Any

import pytest

from isthmus.client import TopicPartition
from isthmus.streams import App
from isthmus.streams.driver import TestDriver
from isthmus.streams.engine.steps import STEP_ROWS
from isthmus.streams.engine.stores.memory import MemoryStore
from isthmus.streams.engine.task import Task, TaskId
from isthmus.streams.errors import ChangeRefused
from isthmus.streams.runtime.layout import Layout, between_options, reset_of
from tests.running import in_loop, run_by


def new_app() -> App:
    """Two topics with a table, and one without."""
    app = App("app")
    counts = app.Table("counts", default=int)

    @app.agent(app.topic("a", "b"))
    async def count(stream: Any) -> None:
        async for key, _ in stream.items():
            counts[key] += 1

    @app.agent(app.topic("c"))
    async def skip(stream: Any) -> None:
        async for _ in stream:
            pass

    return app


def read(layout: Layout) -> dict[str, list[str]]:
    """What agents and bridges read."""
    agents = {each.agent.name.rpartition("test_layout.")[2]: sorted(each.topics) for each in layout.readings}
    return agents | {part[-1].name: sorted(part[0].topics) for part in layout.chains}


def test_topics_of_one_size_are_read_as_they_are():
    layout = Layout.of(new_app(), {"a": 2, "b": 2, "c": 5}, {})
    assert (layout.bridges, layout.tables, layout.direct) == ({}, {"counts": 2}, {"a", "b"})
    assert read(layout) == {"count": ["a", "b"], "skip": ["c"]}
    assert list(layout.topology.subtopologies) == ["a+b", "c"]


def test_partitions_beyond_those_of_the_tables_are_of_no_task():
    """Of a topic that has grown, until the app is laid out again."""
    layout = Layout.of(new_app(), {"a": 2, "b": 2, "c": 5}, {})
    known = {(topic, n) for topic in "abcx" for n in (1, 2) if layout.knows(TopicPartition(topic, n))}
    assert known == {("a", 1), ("b", 1), ("c", 1), ("c", 2)}


def test_a_smaller_topic_goes_through_a_bridge():
    layout = Layout.of(new_app(), {"a": 2, "b": 3, "c": 5}, {})
    assert (layout.bridges, layout.tables, layout.direct) == ({"app-a-copartitioned": 3}, {"counts": 3}, {"b"})
    assert read(layout) == {
        "a>app-a-copartitioned": ["a"],
        "count": ["app-a-copartitioned", "b"],
        "skip": ["c"],
    }
    assert list(layout.topology.subtopologies) == ["a", "app-a-copartitioned+b", "c"]
    bridge = layout.topics["app-a-copartitioned"]
    assert bridge.is_internal and bridge.reads_alike(layout.topics["a"])


@pytest.mark.parametrize("purge_s", [0, 30])
def test_topics_between_steps_take_and_keep_events_of_any_time(purge_s: float):
    """An hour after now is most of what brokers take by default: an event that says it is of next year ended the worker
    with each start. And a retention goes by events' times: old ones were deleted before they were read."""
    app = App("app", repartition_purge_interval=purge_s)
    for name in ("app-by-x-repartition", "app-a-copartitioned"):
        options = between_options(app, name)
        for limit in ("before", "after"):
            assert options[f"message.timestamp.{limit}.max.ms"] == "9223372036854775807"
        assert options["retention.ms"] == "-1"
    assert between_options(app, "app-dead-letters") == between_options(app, "other-by-x-repartition") == {}


def test_topics_between_steps_are_read_from_their_beginning():
    """A task may have written one before the tasks that read it know where they begin."""
    app = App("app", consumer_auto_offset_reset="latest")
    names = ("in", "app-by-x-repartition", "app-in-copartitioned", "other-by-x-repartition")
    assert [reset_of(app, name) for name in names] == ["latest", "earliest", "earliest", "latest"]


def test_a_table_keeps_its_size_whatever_grows():
    layout = Layout.of(new_app(), {"a": 4, "b": 4, "c": 1}, {"counts": 2})
    assert layout.tables == {"counts": 2} and not layout.direct
    assert layout.bridges == {"app-a-copartitioned": 2, "app-b-copartitioned": 2}


def test_tables_that_were_apart_and_have_other_sizes_are_not_used_together():
    app = App("app")
    one, other = app.Table("one", default=int), app.Table("other", default=int)

    @app.agent(app.topic("a"), tables=[one, other])
    async def count(stream: Any) -> None: ...

    assert Layout.of(app, {"a": 4}, {"one": 2, "other": 2}).tables == {"one": 2, "other": 2}
    with pytest.raises(ChangeRefused, match="same number of partitions, and one has 2, other has 4: their keys are"):
        Layout.of(app, {"a": 4}, {"one": 2, "other": 4})


@run_by(in_loop)
async def test_a_bridge_passes_records_on_as_they_are(monkeypatch):
    app = new_app()
    whole = Layout.of(app, {"a": 1, "b": 2, "c": 1}, {})
    monkeypatch.setattr(Layout, "of", classmethod(lambda *_: whole))
    driver = TestDriver(app)
    driver.send("a", key=b"k", value=b'{"n":1}', timestamp_ms=7)
    driver.send("a", value=b"2", timestamp_ms=8)
    assert [each[:4] for each in driver.sent] == [
        ("app-a-copartitioned", b"k", b'{"n":1}', 7),
        ("app-a-copartitioned", None, b"2", 8),
    ]
    driver.close()


def test_what_is_written_and_read_together_has_one_rule():
    """A bridge writes as what it is for, whatever its source; what is declared to differ is told."""
    app = App("app", producer_partitioner="fnv1a_random")
    counts = app.Table("counts", default=int)

    @app.agent(app.topic("a", partitioner="consistent_random"))
    async def count(stream: Any) -> None:
        async for key, _ in stream.items():
            counts[key] += 1

    @app.agent(app.topic("b"), tables=[counts])
    async def also(stream: Any) -> None:
        async for _ in stream:
            pass

    apart = Layout.of(app, {"a": 3, "b": 3}, {})
    assert apart.apart == ("a by consistent_random, b by fnv1a_random",)
    assert {name: places._rule for name, places in apart.places().items()} == {
        "a": "consistent_random",
        "b": "fnv1a_random",
    }
    assert apart.rule_of("a+b") == "consistent_random"
    bridged = Layout.of(app, {"a": 3, "b": 2}, {})
    assert not bridged.apart
    assert bridged.topics["app-b-copartitioned"].partitioner == "consistent_random"
    assert list(bridged.places()) == ["a"]


def test_steps_write_by_partitioners_of_their_own():
    app = App("app")
    app.stream("in").group_by(len, name="by", partitioner="murmur2").to(app.topic("out"), partitioner="fnv1a")
    layout = Layout.of(app, {"in": 2, "app-by-repartition": 2}, {})
    tasks = {name: Task("app", TaskId(name, 0), {}) for name in layout.topology.subtopologies}
    written = [
        (topic.names[0], topic.partitioner)
        for task in tasks.values()
        for chained in layout.parts(task).chained
        for topic in chained.sinks.values()
    ]
    assert sorted(written) == [("app-by-repartition", "murmur2"), ("out", "fnv1a")]


def test_operators_look_at_many_rows_in_steps_once():
    app = App("app")
    app.stream("in").tumbling(1).count(name="n")
    store = MemoryStore(app.all_tables()["n"])
    for number in range(2 * STEP_ROWS + 5):
        store.set((number, 0), [1, 0, 0])
    parts = Layout.of(app, {"in": 1}, {}).parts(Task("app", TaskId("in", 0), {"n": store}))
    assert len(list(parts.read())) == 3
    assert list(parts.read()) == []
