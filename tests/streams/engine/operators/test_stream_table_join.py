"""Stream-table joins. The tables are those of Kafka's StreamTableJoinIntegrationTest and
StreamTableJoinWithGraceIntegrationTest."""

from collections.abc import Callable
from typing import Any

import pytest

from isthmus.streams.engine.operators.operator import Operator
from isthmus.streams.engine.operators.stream_join import INNER
from isthmus.streams.engine.operators.stream_join import LEFT as LEFT_JOIN
from isthmus.streams.engine.operators.stream_table_join import StreamTableJoin
from isthmus.streams.engine.operators.table_sources import TableSource, VersionedTableSource
from isthmus.streams.engine.stores.memory import MemoryStore
from isthmus.streams.engine.stores.store import Store
from isthmus.streams.engine.stores.versioned import VersionedRows
from isthmus.streams.engine.tables import TableSpec
from isthmus.streams.errors import AppError, RecordError
from tests.streams.engine.operators.kafka_joins import INPUT, LEFT, RIGHT, dashed, with_tables
from tests.streams.engine.operators.running import Running, plain

MINUTES = 5 * 60_000


def joined(how: str, history_ms: int | None = None, grace_ms: int | None = None) -> list[list[Any]]:
    def source() -> Operator:
        return VersionedTableSource("right", history_ms) if history_ms else TableSource("right")

    def join() -> Operator:
        return StreamTableJoin("join", "right", dashed, how, history_ms=history_ms, grace_ms=grace_ms)

    return with_tables([(RIGHT, source)], join, (LEFT,))(INPUT)


def results(found: dict[int, Any]) -> list[list[Any]]:
    """A list for each input; found: what those gave that gave something, by their number from 1 on."""
    return [[found[number]] if number in found else [] for number in range(1, len(INPUT) + 1)]


@pytest.mark.parametrize(
    ("how", "history_ms", "expected"),
    [
        (INNER, None, {5: ("B-a", 5), 15: ("D-d", 6), 19: ("E-e", 15)}),
        (LEFT_JOIN, None, {
            3: ("A-null", 3), 5: ("B-a", 5), 9: ("C-null", 9), 15: ("D-d", 6), 19: ("E-e", 15), 22: ("F-null", 4),
        }),
        (INNER, MINUTES, {5: ("B-a", 5), 15: ("D-b", 6), 19: ("E-e", 15), 22: ("F-a", 4)}),
        (LEFT_JOIN, MINUTES, {
            3: ("A-null", 3), 5: ("B-a", 5), 9: ("C-null", 9), 15: ("D-b", 6), 19: ("E-e", 15), 22: ("F-a", 4),
        }),
    ],
    ids=["inner", "left", "inner versioned", "left versioned"],
)  # fmt: skip
def test_results_are_those_of_kafka(how: str, history_ms: int | None, expected: dict[int, Any]) -> None:
    given = joined(how, history_ms)
    assert [[(event.value, event.timestamp_ms) for event in events] for events in given] == results(expected)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        (INNER, [("B-a", 5), ("D-b", 6), ("F-a", 4)]),
        (LEFT_JOIN, [("A-null", 3), ("B-a", 5), ("D-b", 6), ("C-null", 9), ("F-a", 4)]),
    ],
)
def test_results_with_a_grace_are_those_of_kafka(how: str, expected: list[Any]) -> None:
    # Grace 2. They may come earlier than in Kafka, where only events of the stream, not of the table, move its time.
    given = joined(how, MINUTES, 2)
    assert sorted((event.value, event.timestamp_ms) for events in given for event in events) == sorted(expected)


def with_versions(make: Callable[[], StreamTableJoin], history_ms: int, **rows: list[tuple[int, str]]) -> Running:
    """A join with a versioned table `t` of these rows: their times and values."""
    spec = TableSpec("t")
    store = MemoryStore(spec)
    versions = VersionedRows(store, history_ms)
    for key, each in rows.items():
        for at, value in each:
            versions.put(key, value, at)
    stores: dict[str, Store] = {"t": store, **{each.name: MemoryStore(each) for each in make().specs}}
    return Running(make, tables=[spec], stores=stores, versions={"t": versions})


def test_an_event_that_waits_gets_the_row_of_its_time() -> None:
    run = with_versions(
        lambda: StreamTableJoin("join", "t", dashed, history_ms=1_000, grace_ms=10), 1_000, a=[(4, "old")]
    )
    assert run.send("a", "order", 5) == []
    run.context.versions["t"].put("a", "new", 6)
    assert run.send("b", "x", 14) == []
    again = run.restarted()
    [result] = again.send("b", "x", 15)
    assert plain([result]) == [("a", "order-old", 5)]
    assert (result.topic, result.offset, result.watermark_ms) == ("left", 0, 5)
    assert again.stores["join-waiting"].rows.keys() == {(14, 2), (15, 3)}
    late = again.send("a", "late", 4)  # does not wait
    assert plain(late) == [("a", "late-old", 4)]


def test_the_key_may_be_made_of_the_value() -> None:
    run = Running(
        lambda: StreamTableJoin("join", "users", dashed, LEFT_JOIN, key=lambda value: value[0]),
        tables=[TableSpec("users")],
    )
    run.stores["users"].set("u", "Ada")
    assert [event.value for event in run.send(None, "u1", 1) + run.send(None, "x1", 2)] == ["u1-Ada", "x1-null"]


def test_events_without_key_or_value_are_skipped() -> None:
    run = Running(lambda: StreamTableJoin("join", "users", dashed), tables=[TableSpec("users")])
    assert run.send(None, "v", 1) + run.send("a", None, 2) == []
    assert run.operator.counts == {"skipped": 2}
    left = Running(lambda: StreamTableJoin("join", "users", dashed, LEFT_JOIN), tables=[TableSpec("users")])
    assert plain(left.send(None, "v", 1)) == [(None, "v-null", 1)]


def test_errors_name_operator_and_record() -> None:
    run = Running(
        lambda: StreamTableJoin("join", "users", dashed, key=lambda value: value["id"]), tables=[TableSpec("users")]
    )
    with pytest.raises(RecordError, match=r"operator join: KeyError: 'id', at left-0 offset 0"):
        run.send("a", {}, 1)
    with pytest.raises(RecordError, match="cannot be a table's key"):
        run.send("a", {"id": []}, 1)
    with pytest.raises(AppError, match="this task has no table users"):
        Running(lambda: StreamTableJoin("join", "users", dashed))


def test_a_grace_needs_versions() -> None:
    with pytest.raises(AppError, match="table users must have a history= of at least the grace"):
        StreamTableJoin("join", "users", dashed, grace_ms=5)
    with pytest.raises(AppError, match="at least the grace"):
        StreamTableJoin("join", "users", dashed, history_ms=4, grace_ms=5)


def test_there_is_no_row_for_an_event_later_than_the_history() -> None:
    run = with_versions(
        lambda: StreamTableJoin("join", "t", dashed, LEFT_JOIN, history_ms=10), 10, a=[(0, "old"), (20, "new")]
    )
    assert [event.value for event in run.send("a", "y", 10) + run.send("a", "z", 9)] == ["y-old", "z-null"]
