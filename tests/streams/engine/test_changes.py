"""What a change of an app's code does to its state: each is said, and what would lose or double something refused."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.streams.engine.changes import GOES_ON, LEFT, MIGRATES, REFUSED, Change, Code, Written, compare, refusal
from isthmus.streams.engine.checkpoint import Marker, Position
from isthmus.streams.engine.migration import Migration
from isthmus.streams.engine.tables import TableSpec
from isthmus.streams.engine.topology import Reader, Topology


def code(*readers: Reader, **options: Any) -> Code:
    """options: specs: those that are not plain ones."""
    specs = {table: TableSpec(table) for reader in readers for table in reader.tables} | options.pop("specs", {})
    options = {"guarantee": "at_least_once", **options}
    return Code("app", tuple(Topology("app", readers).subtopologies.values()), specs, **options)


def marker(tables: str, number: int = 1, *, version: int = 1, said: Any = (), **positions: int) -> Marker:
    topology = {"guarantee": "at_least_once", "readers": ["a"], **dict(said)}
    at = {topic: Position(offset) for topic, offset in positions.items()}
    return Marker("app", number, tuple(tables), at, topology=topology, table={"version": version})


def written(unread: int = 0, partitions: int = 1, **markers: Marker) -> Written:
    committed = {topic: {0: at.offset} for each in markers.values() for topic, at in each.positions.items()}
    counts = dict.fromkeys(markers, partitions)
    return Written({table: {0: each} for table, each in markers.items()}, counts, committed, {"y": unread})


A, B = Reader("a", ("x",), ("t",)), Reader("b", ("y",), ("u",))


def found(code: Code, written: Written) -> dict[str, str]:
    return {change.what: change.effect for change in compare(code, written)}


def test_code_that_has_not_changed_has_nothing_to_say() -> None:
    assert compare(code(A), written(t=marker("t", x=5))) == []
    assert found(code(A), Written()) == {"app app": GOES_ON}
    bridged = Marker("app", 1, ("t",), {"app-x-copartitioned": Position(5)}, table={"version": 1})
    assert compare(code(A), Written({"t": {0: bridged}}, {"t": 1}, {"x": {0: 5}, "app-x-copartitioned": {0: 5}})) == []


def test_another_rule_of_bridges_is_refused_where_both_are_known() -> None:
    state = written(t=marker("t", x=5, said={"bridged_by": "murmur2"}))
    for rules, effect in (({}, {}), ({"t": "murmur2"}, {}), ({"t": "consistent"}, {"table t": REFUSED})):
        assert found(code(A, bridged_by=rules), state) == effect
    assert found(code(A, bridged_by={"t": "consistent"}), written(t=marker("t", x=5))) == {}


def test_what_is_new_goes_on() -> None:
    changes = found(code(A, B, guarantee="exactly_once"), written(t=marker("t", x=5)))
    assert changes == {
        "table u": GOES_ON,
        "topic y": GOES_ON,
        "agent or pipeline b": GOES_ON,
        "the guarantee": GOES_ON,
    }


def test_a_table_may_go_but_not_where_it_may_have_another_name() -> None:
    state = written(t=marker("t", x=5), old=marker("t", x=5))
    assert found(code(A), state) == {"table old": LEFT}
    [change] = compare(code(Reader("a", ("x",), ("t", "new"))), state)[:1]
    assert (change.effect, change.what) == (REFUSED, "table old")
    assert change.ways[1] == 'if it is to be no more, write app.retire("old")'
    said = str(refusal("app", [change]))
    assert said.startswith("app app: its state does not go with its code: table old has rows, and the code does not ")
    retired = code(Reader("a", ("x",), ("t", "new")), retired=frozenset(["old"]))
    assert found(retired, state) == {"table old": LEFT, "table new": GOES_ON}


def test_a_table_that_was_away_is_refused() -> None:
    both = code(Reader("a", ("x",), ("t", "old")))
    changes = compare(both, written(t=marker("t", 7, x=9), old=marker("ab", 3, x=5)))
    [change] = [each for each in changes if each.effect == REFUSED]
    assert change.what == "table old" and "lacks records that the app has read without it: of x-0 by 4" in str(change)


def test_a_checkpoint_that_is_written_while_the_markers_are_read_is_no_change() -> None:
    both = code(Reader("a", ("x",), ("t", "u")))
    assert compare(both, written(t=marker("tu", 7, x=9), u=marker("tu", 6, x=5))) == []


@pytest.mark.parametrize(("to", "effect"), [(2, MIGRATES), (3, REFUSED)])
def test_versions_migrate_where_there_is_a_way(to: int, effect: str) -> None:
    spec = TableSpec("t", version=to, migrations=[Migration(1, 2, lambda key, value: value)])
    [change] = compare(code(A, specs={"t": spec}), written(t=marker("t", x=5)))
    assert change.effect == effect and "version 1" in change.said


def test_a_topic_that_is_not_read_any_more_may_be_read_again() -> None:
    [change] = compare(code(A), written(3, t=marker("t", x=5, y=2)))
    assert (change.effect, change.what) == (LEFT, "topic y") and "3 records wait" in change.said
    left = Marker("app", 1, ("t",), {"x": Position(5)}, left={"y": Position(2)}, table={"version": 1})
    state = Written({"t": {0: left}}, {"t": 1}, {"x": {0: 5}, "y": {0: 2}})
    assert compare(code(A), state) == []  # that was said before
    [change] = compare(code(Reader("a", ("x", "y"), ("t",))), state)
    assert (change.what, change.said) == ("topic y", "is read again, from where it was left")


def test_tables_part_and_join_where_their_partitions_allow() -> None:
    together = written(t=marker("tu", x=5, y=2), u=marker("tu", x=5, y=2))
    assert found(code(A, B), together)["tables t, u"] == GOES_ON
    apart = written(t=marker("t", x=5), u=marker("u", y=2))
    tied = code(A, B, Reader("both", ("x", "y"), ("t", "u")))
    assert found(tied, apart)["tables t, u"] == GOES_ON
    uneven = Written(apart.markers, {"t": 1, "u": 2}, apart.committed)
    [change] = [each for each in compare(tied, uneven) if each.effect == REFUSED]
    assert change.said.endswith("different numbers of partitions: t has 1, u has 2")


def test_nothing_is_refused_where_all_goes_on() -> None:
    assert refusal("app", [Change(GOES_ON, "a", "b"), Change(MIGRATES, "c", "d")]) is None
