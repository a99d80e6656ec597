"""Foreign key joins. The scenarios are those of Kafka's KTableKTableForeignKeyJoinIntegrationTest and
KTableKTableForeignKeyJoinScenarioTest."""

from typing import Any

import pytest

from isthmus.streams.api.pipeline import Pipeline
from isthmus.streams.engine.event import Event
from isthmus.streams.engine.operators.foreign_key_join import STALE, ForeignKeyResult, hash_of, response_place
from isthmus.streams.engine.operators.stream_join import INNER
from isthmus.streams.engine.operators.stream_join import LEFT as LEFT_JOIN
from isthmus.streams.engine.operators.table_sources import Change
from isthmus.streams.engine.tables import TableSpec
from isthmus.streams.errors import RecordError
from tests.streams.engine.operators.running import Running, plain
from tests.streams.flowing import Flowing

LEFT, RIGHT = "left", "right"
HOWS = pytest.mark.parametrize("how", [INNER, LEFT_JOIN])
VERSIONED = pytest.mark.parametrize(
    "versioned", [(False, False), (True, False), (False, True), (True, True)], ids=["", "left", "right", "both"]
)
Step = tuple[str, str, str | None]


def reference(value: str) -> str | None:
    return value.split("|")[1] or None


def pair(left: str, right: str | None) -> str:
    return f"({left},{'null' if right is None else right})"


def joined(how: str, versioned: tuple[bool, bool] = (False, False)) -> Flowing:
    app = Pipeline("app")
    left, right = (
        app.topic(name).table(f"{name}-table", history=1_000 if has else None)
        for name, has in zip((LEFT, RIGHT), versioned, strict=True)
    )
    join = left.join if how == INNER else left.left_join
    join(right, key=reference, value=pair, name="join").stream().to("out")
    return Flowing(app)


def feed(run: Flowing, steps: list[Step]) -> list[dict[Any, Any]]:
    """What each step gave, as Kafka's test reads it: the last value of each key."""
    given = []
    for at, (topic, key, value) in enumerate(steps):
        run.sent.clear()
        run.send(topic, (key, value, at))
        given.append({event.key: event.value for event in run.sent["out"]})
    return given


@HOWS
def test_left_rows_come_and_go(how: str) -> None:
    given = feed(joined(how), [
        (RIGHT, "rhs1", "rhsValue1"), (RIGHT, "rhs2", "rhsValue2"), (RIGHT, "rhs3", "rhsValue3"),
        (LEFT, "lhs1", "lhsValue1|rhs1"), (LEFT, "lhs2", "lhsValue2|rhs2"), (LEFT, "lhs3", "lhsValue3|rhs1"),
        (LEFT, "lhs1", None),
    ])  # fmt: skip
    assert given == [
        {}, {}, {},
        {"lhs1": "(lhsValue1|rhs1,rhsValue1)"}, {"lhs2": "(lhsValue2|rhs2,rhsValue2)"},
        {"lhs3": "(lhsValue3|rhs1,rhsValue1)"},
        {"lhs1": None},
    ]  # fmt: skip


@HOWS
def test_right_rows_come_and_go(how: str) -> None:
    given = feed(joined(how), [
        (LEFT, "lhs1", "lhsValue1|rhs1"), (LEFT, "lhs2", "lhsValue2|rhs2"), (LEFT, "lhs3", "lhsValue3|rhs1"),
        (RIGHT, "rhs1", "rhsValue1"), (RIGHT, "rhs2", "rhsValue2"), (RIGHT, "rhs3", "rhsValue3"),
        (RIGHT, "rhs1", None),
    ])  # fmt: skip
    left = how == LEFT_JOIN
    assert given == [
        {"lhs1": "(lhsValue1|rhs1,null)"} if left else {},
        {"lhs2": "(lhsValue2|rhs2,null)"} if left else {},
        {"lhs3": "(lhsValue3|rhs1,null)"} if left else {},
        {"lhs1": "(lhsValue1|rhs1,rhsValue1)", "lhs3": "(lhsValue3|rhs1,rhsValue1)"},
        {"lhs2": "(lhsValue2|rhs2,rhsValue2)"},
        {},
        {key: f"(lhsValue{key[-1]}|rhs1,null)" if left else None for key in ("lhs1", "lhs3")},
    ]


@HOWS
def test_a_reference_moves(how: str) -> None:
    # Kafka gives tombstones for inner results that there never were, since it does not keep its result.
    given = feed(joined(how), [
        (LEFT, "lhs1", "lhsValue1|rhs1"), (LEFT, "lhs1", "lhsValue1|rhs2"), (LEFT, "lhs1", "lhsValue1|rhs3"),
        (RIGHT, "rhs1", "rhsValue1"),
        (LEFT, "lhs1", "lhsValue1|rhs1"),
        (LEFT, "lhs1", "lhsValue1|rhs2"),
        (RIGHT, "rhs1", "again"),
    ])  # fmt: skip
    left = how == LEFT_JOIN
    assert given == [
        {"lhs1": "(lhsValue1|rhs1,null)"} if left else {},
        {"lhs1": "(lhsValue1|rhs2,null)"} if left else {},
        {"lhs1": "(lhsValue1|rhs3,null)"} if left else {},
        {},
        {"lhs1": "(lhsValue1|rhs1,rhsValue1)"},
        {"lhs1": "(lhsValue1|rhs2,null)" if left else None},
        {},
    ]


@HOWS
def test_a_row_that_refers_to_none(how: str) -> None:
    given = feed(
        joined(how),
        [(LEFT, "lhs1", "lhsValue1|"), (RIGHT, "rhs1", "rhsValue1"), (LEFT, "lhs1", None), (LEFT, "lhs1", None)],
    )
    left = how == LEFT_JOIN
    assert given == [{"lhs1": "(lhsValue1|,null)"} if left else {}, {}, {"lhs1": None} if left else {}, {}]


@HOWS
def test_a_reference_that_has_moved_is_not_followed(how: str) -> None:
    given = feed(joined(how), [
        (RIGHT, "rhs1", "rhsValue1"), (RIGHT, "rhs2", "rhsValue2"),
        (LEFT, "lhs1", "lhsValue1|rhs1"), (LEFT, "lhs1", "lhsValue1|rhs2"),
        (RIGHT, "rhs1", "rhsValue1Delta"), (RIGHT, "rhs2", "rhsValue2Delta"),
    ])  # fmt: skip
    assert given == [
        {}, {},
        {"lhs1": "(lhsValue1|rhs1,rhsValue1)"}, {"lhs1": "(lhsValue1|rhs2,rhsValue2)"},
        {}, {"lhs1": "(lhsValue1|rhs2,rhsValue2Delta)"},
    ]  # fmt: skip


@HOWS
@VERSIONED
def test_of_versioned_tables_updates_out_of_order_change_nothing(how: str, versioned: tuple[bool, bool]) -> None:
    run = joined(how, versioned)
    for topic, key, value, at in [
        (RIGHT, "rhs1", "rhsValue1", 4), (RIGHT, "rhs2", "rhsValue2", 5),
        (LEFT, "lhs1", "lhsValue1|rhs1", 3), (LEFT, "lhs1", "old|rhs2", 2), (RIGHT, "rhs1", "old", 1),
    ]:  # fmt: skip
        run.send(topic, (key, value, at))
    left, right = "lhsValue1|rhs1" if versioned[0] else "old|rhs2", "rhsValue1" if versioned[1] else "old"
    want = pair(left, right if versioned[0] else "rhsValue2")
    assert run.rows("join") == {"lhs1": want}


@HOWS
def test_a_join_is_joined_again_with_its_left_table(how: str) -> None:
    app = Pipeline("app")
    left, right = app.topic(LEFT).table("left-table"), app.topic(RIGHT).table("right-table")
    once = left.join(right, key=reference, value=pair, name="join")
    (once.join if how == INNER else once.left_join)(
        left, value=lambda result, value: f"rejoin({result},{value})", name="again"
    ).stream().to("out")
    given = feed(Flowing(app), [(RIGHT, "rhs1", "x"), (LEFT, "lhs1", "v|rhs1"), (LEFT, "lhs1", None)])
    assert given[1]["lhs1"] == "rejoin((v|rhs1,x),v|rhs1)"
    assert given[2]["lhs1"] is None


def test_a_table_is_joined_with_itself() -> None:
    app = Pipeline("app")
    people = app.topic(LEFT).table("people")
    people.left_join(people, key=reference, value=pair, name="join").stream().to("out")
    run = Flowing(app)
    feed(run, [(LEFT, "boss", "b|"), (LEFT, "one", "o|boss"), (LEFT, "boss", "c|")])
    assert run.rows("join") == {"boss": "(c|,null)", "one": "(o|boss,c|)"}


def test_who_refers_to_what_is_known_after_a_restart() -> None:
    run = joined(INNER)
    feed(run, [(LEFT, ("a", 1), "v|rhs1"), (LEFT, "lhs2", "w|rhs1"), (LEFT, "lhs2", "w|rhs2")])  # type: ignore[list-item]
    run.restart()
    assert feed(run, [(RIGHT, "rhs1", "x"), (RIGHT, "rhs2", "y"), (LEFT, "lhs2", None), (RIGHT, "rhs2", "z")]) == [
        {("a", 1): "(v|rhs1,x)"}, {"lhs2": "(w|rhs2,y)"}, {"lhs2": None}, {},
    ]  # fmt: skip
    assert run.rows("join-references") == {("rhs1", ("a", 1)): [0, 1, hash_of("v|rhs1")]}


def test_an_answer_to_what_the_row_was_before_is_dropped() -> None:
    run = Running(lambda: ForeignKeyResult("join", "left", pair), tables=[TableSpec("left")])
    run.stores["left"].set("lhs1", "new|rhs1")
    assert run.send("lhs1", [0, 1, hash_of("old|rhs1"), "x"], 2, 1) == []
    assert run.operator.counts == {STALE: 1}
    assert [(key, value.new) for key, value, _ in plain(run.send("lhs1", [0, 1, hash_of("new|rhs1"), "x"], 3, 1))] == [
        ("lhs1", "(new|rhs1,x)")
    ]
    run.stores["left"].delete("lhs1")
    run.send("lhs1", Change("new|rhs1", None), 4)
    assert run.send("lhs1", [0, 1, hash_of("new|rhs1"), "y"], 5, 1) == [] and run.rows() == {}


def test_an_answer_goes_to_the_task_that_has_asked_as_long_as_rows_are_where_they_were() -> None:
    answer = Event("lhs1", [2, 3, hash_of("v|rhs1"), "x"], 0, "answers", 0, 0)
    assert [response_place(answer, count) for count in (2, 3, 4)] == [None, 2, None]


def test_a_function_that_fails_names_operator_and_record() -> None:
    with pytest.raises(RecordError, match=r"operator join-asks: IndexError: .* at left-0 offset 0"):
        feed(joined(INNER), [(LEFT, "lhs1", "no reference")])
