"""Tables with other numbers of partitions: every row is where records of its key come, and the app goes on as if it had
always had them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.client import TopicPartition
from isthmus.client.partitioner import PARTITIONERS, partition_for_key
from isthmus.streams import App, AppError
from isthmus.streams.engine.checkpoint import MARKER, Marker, Position, as_read
from isthmus.streams.engine.codecs import encode_table_key, encode_table_value
from isthmus.streams.engine.event import Event
from isthmus.streams.engine.heartbeats import Heartbeat
from isthmus.streams.engine.operators.keeping import pack_event, unpack_event
from isthmus.streams.engine.origin import HEADER, Copy, Origin, Origins, current_origins
from isthmus.streams.engine.stores.memory import MemoryStore
from isthmus.streams.engine.task import Task, TaskId
from isthmus.streams.runtime.layout import Layout
from isthmus.streams.savepoints import fence
from isthmus.streams.savepoints.format import (
    Input,
    Manifest,
    Part,
    PartWriter,
    Reached,
    Savepoint,
    Topic,
    file_of,
    finish,
)
from isthmus.streams.savepoints.plan import Plan
from isthmus.streams.savepoints.rescaling import Rescaled, begun, rescale

END_MS = 1 << 42
OWN_HEADERS = (("own", b"1"),)
Row = tuple[bytes | None, bytes | None]


def part_of(folder: Path, kind: str, name: str, partition: int, rows: Iterable[Row], marker: bytes | None) -> Part:
    writer = PartWriter(folder, file_of(kind, name, partition))
    some = list(rows)
    beat = Heartbeat("left", 3, 4, 8)  # a record without key and value is one, and others take one along
    along = (*OWN_HEADERS, beat.along)
    headers = [beat.headers if each == (None, None) else along for each in some] if kind == "topics" else None
    writer.write([9] * len(some), [key for key, _ in some], [value for _, value in some], headers)
    return writer.close(partition, marker)


def saved_of(
    folder: Path,
    app: App,
    tables: Mapping[str, list[tuple[list[Row], bytes | None]]],
    inputs: Mapping[str, list[int]],
    between: Mapping[str, list[list[Row]]] | None = None,
    unread: Iterable[int] = (),
) -> Savepoint:
    """tables: rows and the marker of each partition; inputs: offsets; between: what is left, by partition; unread:
    partitions of inputs that have more."""
    topics = {}
    for name, parts in tables.items():
        made = [part_of(folder, "tables", name, p, rows, marker) for p, (rows, marker) in enumerate(parts)]
        topics[name] = Topic(app.changelog_topic(name), len(made), {"cleanup.policy": "compact"}, tuple(made))
    left = {}
    for name, some in (between or {}).items():
        made = [part_of(folder, "topics", name, p, rows, None) for p, rows in enumerate(some)]
        left[name] = Topic(name, len(made), {}, tuple(made))
    reached = {name: Input("", len(at), dict(enumerate(map(Reached, at))), list(unread)) for name, at in inputs.items()}
    return finish(folder, Manifest(app.id, "", 0, topics, left, reached))


def positions_of(saved: Savepoint) -> dict[TopicPartition, Position]:
    return {
        TopicPartition(topic, partition): Position(at.offset)
        for topic, each in saved.manifest.inputs.items()
        for partition, at in each.reached.items()
    }


def rescaled(app: App, saved: Savepoint, partitions: int, **more: Any) -> Rescaled:
    counts = {name: each.partitions for name, each in saved.manifest.inputs.items()}
    return rescale(app, saved, counts, positions_of(saved), partitions, **more)


def rows_of(plan: Plan) -> dict[TopicPartition, dict[bytes, bytes]]:
    """What a table has, by changelog partition, once the plan is carried out."""
    found: dict[TopicPartition, dict[bytes, bytes]] = {}
    for put in plan.puts():
        assert put.tp.partition < plan.topics[put.tp.topic].partitions
        rows, marker = as_read(put.keys, put.values, "here")
        assert marker is None
        for key, value in rows:
            found.setdefault(put.tp, {}).pop(key, None)
            if value is not None:
                found[put.tp][key] = value
    return {tp: rows for tp, rows in found.items() if rows}


def stores_of(app: App, plan: Plan) -> Callable[[str, int], MemoryStore]:
    """What tasks are restored from, once the plan is carried out."""
    rows, specs = rows_of(plan), app.all_tables()

    def store_of(table: str, partition: int) -> MemoryStore:
        store, tp = MemoryStore(specs[table]), TopicPartition(app.changelog_topic(table), partition)
        store.restore(rows.get(tp, {}).items(), 0, plan.markers[tp].encode() if tp in plan.markers else None)
        return store

    return store_of


# --- Rows -------------------------------------------------------------------------------------------

KEYS = {
    "raw": st.binary(min_size=1, max_size=4) | st.sampled_from([MARKER, b"\0", b"\0\0marker"]),
    "json": st.text(min_size=1, max_size=3) | st.integers(-5, 5) | st.tuples(st.integers(0, 3), st.text(max_size=1)),
}


SIZES = st.integers(1, 6)
PLACING = [name for name in PARTITIONERS if name != "random"]


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(KEYS)),
    st.integers(1, 6),
    st.integers(1, 6),
    st.sampled_from(sorted(PLACING)),
    st.data(),
)
def test_each_row_is_where_its_key_is_hashed_to(
    tmp_path_factory: pytest.TempPathFactory, codec: str, before: int, after: int, partitioner: str, data: st.DataObject
) -> None:
    keys = data.draw(st.lists(KEYS[codec], max_size=12, unique_by=repr))
    place = PARTITIONERS[partitioner]
    place_after = place if before == after else PARTITIONERS["murmur2"]  # a bridge writes them then
    app = App("app")
    counts = app.Table("counts", default=int)
    minutes = app.Table("minutes", default=int).tumbling(60)

    @app.agent(app.topic("in", key_serializer=codec))
    async def count(stream: Any) -> None:
        async for event in stream.events():
            counts[event.key] += 1
            minutes[event.key] += 1

    encode = app.input_topics()["in"].encode_key
    specs = app.all_tables()
    rows: dict[str, list[list[Row]]] = {name: [[] for _ in range(before)] for name in specs}
    want: dict[TopicPartition, dict[bytes, bytes]] = {}
    for number, key in enumerate(keys):
        hashed = encode(key)
        is_deleted = data.draw(st.booleans())
        for name, row_key in (("counts", key), ("minutes", (key, number * 60_000))):
            written = specs[name].encode_key(specs[name].canonical_key(row_key))
            where = rows[name][place(hashed, before)]
            where += [(written, b"1"), (written, None if is_deleted else b"2")]
            if not is_deleted:
                to = TopicPartition(app.changelog_topic(name), place_after(hashed, after))
                want.setdefault(to, {})[written] = b"2"
    marker = Marker("app", 3, tuple(specs), {"in": Position(5)}).encode()
    tables = {name: [(part, marker) for part in parts] for name, parts in rows.items()}
    saved = saved_of(tmp_path_factory.mktemp("saved"), app, tables, {"in": [5] * before})
    assert rows_of(rescaled(app, saved, after, partitioner=partitioner).plan) == want


def counting() -> App:
    app = App("app")
    counts = app.Table("counts", default=int)

    @app.agent(app.topic("in"))
    async def count(stream: Any) -> None:
        async for event in stream.events():
            counts[event.key] += 1

    return app


def seen(watermark_ms: int, state: int) -> dict[str, Any]:
    return {"in": {"": [watermark_ms, 2 * watermark_ms], "in": [watermark_ms, state]}}


def counted(folder: Path, app: App, rows: list[list[Row]], **more: Any) -> Savepoint:
    markers = [
        Marker("app", n + 3, ("counts",), {"in": Position(5 + n)}, {}, {"counts": 70 + n}, seen(60 + n, n)).encode()
        for n in range(len(rows))
    ]
    return saved_of(folder, app, {"counts": list(zip(rows, markers, strict=True))}, {"in": [5, 6, 7]}, **more)


def test_rows_that_are_not_where_their_keys_are_hashed_to_are_refused(tmp_path: Path) -> None:
    app = counting()
    encode = app.all_tables()["counts"].encode_key
    [home] = {partition_for_key(b"a", 3)}
    rows: list[list[Row]] = [[], [], []]
    rows[(home + 1) % 3] = [(encode(b"a"), b"1")]
    with pytest.raises(
        AppError, match=rf"table counts: the row of key b'a' is in partition {(home + 1) % 3}, not in {home}"
    ):
        rescaled(app, counted(tmp_path / "wrong", app, rows), 7)
    rows = [[], [], []]
    rows[home] = [(encode("\udcff"), b"1")]
    with pytest.raises(AppError, match=r"key '\\udcff' cannot be that of a record"):
        rescaled(app, counted(tmp_path / "type", app, rows), 7)
    rows[home] = [(encode(None), b"1")]
    with pytest.raises(AppError, match="rows of records without a key have no place"):
        rescaled(app, counted(tmp_path / "none", app, rows), 7)
    found = rescaled(app, saved_of(tmp_path / "one", app, {"counts": [([(encode(b"a"), b"1")], None)]}, {"in": [1]}), 7)
    assert "had one partition" in found.notes[0]


def test_rows_that_are_deleted_may_have_been_anywhere(tmp_path: Path) -> None:
    """As those are that a migration has brought under the keys of the records, or that another version wrote."""
    app = counting()
    a = app.all_tables()["counts"].encode_key(b"a")
    [home] = {partition_for_key(b"a", 3)}
    rows: list[list[Row]] = [[], [], []]
    rows[home] = [(b"of another type", b"1"), (b"of another type", None), (a, None), (a, b"2")]
    rows[(home + 1) % 3] = [(a, b"1"), (a, None)]
    plan = rescaled(app, counted(tmp_path, app, rows), 7).plan
    assert rows_of(plan) == {TopicPartition("app-counts-changelog", partition_for_key(b"a", 7)): {a: b"2"}}


def test_a_global_table_stays_as_it_is(tmp_path: Path) -> None:
    app = counting()
    app.GlobalTable("rates", default=int)
    marker = Marker("app", 3, ("counts",), {"in": Position(5)}).encode()
    rates: list[Row] = [(b"1", b"2"), (b"7", b"8")]
    found = rescaled(app, saved_of(tmp_path, app, {"counts": [([], marker)], "rates": [(rates, None)]}, {"in": [5]}), 4)
    assert found.counts == {"counts": (1, 4)}
    assert rows_of(found.plan) == {TopicPartition("app-rates-changelog", 0): dict(rates)}
    assert found.plan.topics["app-rates-changelog"].partitions == 1
    assert {tp.topic for tp in found.plan.markers} == {"app-counts-changelog"}


def test_positions_are_those_of_the_inputs_and_bridges_begin_at_0(tmp_path: Path) -> None:
    app = counting()
    saved = counted(tmp_path, app, [[], [], []])
    bridge = "app-in-copartitioned"
    found = rescaled(app, saved, 7).plan
    assert found.topics["app-counts-changelog"].partitions == found.topics[bridge].partitions == 7
    inputs = {TopicPartition("in", p): 5 + p for p in range(3)}
    assert found.offsets == inputs | {TopicPartition(bridge, p): 0 for p in range(7)}
    want = Marker("app", 5, ("counts",), {bridge: Position(0)}, {}, {"counts": 70}, seen(60, 0))
    assert found.markers == {TopicPartition("app-counts-changelog", p): want for p in range(7)}


def test_the_savepoint_of_another_app_or_of_another_change_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = counted(tmp_path, counting(), [[], [], []])
    with pytest.raises(AppError, match=f"{tmp_path} is of app app, not of other"):
        rescaled(App("other"), saved, 4)

    taken_down: list[str] = []

    async def begins(taken_ms: int | None, what: str = fence.RESTORE) -> Savepoint | None:
        async def is_up(*_: Any) -> bool:
            return True

        async def read(*_: Any) -> fence.Change | None:
            return None if taken_ms is None else fence.Change(what, str(tmp_path), taken_ms)

        async def take_down(_: Any, app: str) -> None:
            taken_down.append(app)

        monkeypatch.setattr(fence, "is_up", is_up)
        monkeypatch.setattr(fence, "read", read)
        monkeypatch.setattr(fence, "take_down", take_down)
        client: Any = None
        return await begun(client, "app")

    found = asyncio.run(begins(0))
    assert found is not None and found.manifest == saved.manifest
    with pytest.raises(AppError, match="was not finished, and the folder has another savepoint now"):
        asyncio.run(begins(1))
    with pytest.raises(AppError, match="app app: a reset was not finished: run it again"):
        asyncio.run(begins(0, fence.RESET))
    assert taken_down == []
    assert asyncio.run(begins(None)) is None and taken_down == ["app"], "nothing was changed yet"


def test_rows_of_several_versions_are_refused(tmp_path: Path) -> None:
    app = counting()
    parts = [([], Marker("app", 3, ("counts",), table={"version": version}).encode()) for version in (2, 1)]
    with pytest.raises(AppError, match="table counts has rows of versions 1, 2: let workers with the new code run"):
        rescaled(app, saved_of(tmp_path, app, {"counts": parts}, {"in": [5, 6]}), 4)


def test_a_number_at_which_inputs_meet_that_are_partitioned_by_different_rules_is_refused(tmp_path: Path) -> None:
    app = App("app")
    left, right = (
        app.stream(app.topic(name, partitioner=by)) for name, by in [("left", "murmur2"), ("right", "fnv1a")]
    )
    give_joins(app, left, right)
    marker = Marker("app", 3, tuple(app.all_tables())).encode()
    parts: dict[str, Any] = {name: [([], marker)] * 4 for name in app.all_tables()}
    saved = saved_of(tmp_path, app, parts, {"left": [5] * 3, "right": [5] * 3})
    with pytest.raises(AppError, match="partitioned by different rules, left by murmur2, right by fnv1a: records of"):
        rescaled(app, saved, 3)
    assert rescaled(app, saved, 5).bridges == {"app-left-copartitioned": 5, "app-right-copartitioned": 5}


def test_what_is_left_in_a_bridge_goes_to_the_next_one_or_must_be_read_first(tmp_path: Path) -> None:
    app = counting()
    bridge, keys = "app-in-copartitioned", [b"k%d" % n for n in range(20)]
    left: list[list[Row]] = [[(key, b"v") for key in keys if partition_for_key(key, 2) == p] for p in range(2)]
    left[1].append((b"", b"last"))
    marker = Marker("app", 3, ("counts",), {bridge: Position(8)}).encode()
    saved = saved_of(tmp_path, app, {"counts": [([], marker)] * 2}, {"in": [5, 6, 7]}, {bridge: left})
    moved: dict[int, list[bytes | None]] = {}
    for put in rescaled(app, saved, 5).plan.puts():
        assert put.tp.topic == bridge and put.timestamps == [9] * len(put.keys)
        moved.setdefault(put.tp.partition, []).extend(put.keys)
    every = [*keys, b""]
    want = {p: [key for key in every if partition_for_key(key, 5) == p] for p in range(5)}
    assert {p: sorted(found) for p, found in moved.items()} == {p: sorted(found) for p, found in want.items() if found}
    with pytest.raises(AppError, match=f"{bridge} has 21 records that no step has read yet"):
        rescaled(app, saved, 3)  # as many as the input has: there is no bridge any more


def test_what_is_left_of_a_step_is_read_in_the_order_in_which_it_was_written(tmp_path: Path) -> None:
    app = App("app")
    app.stream(app.topic("in")).group_by(lambda value: value, name="by").group_by_key().count(name="n")
    topic, bridge = "app-by-repartition", "app-app-by-repartition-copartitioned"
    key = encode_table_key("k")
    left: dict[str, list[list[Row]]] = {topic: [[] for _ in range(2)], bridge: [[] for _ in range(3)]}
    left[topic][partition_for_key(key, 2)].append((key, b"then"))
    left[bridge][partition_for_key(key, 3)].append((key, b"first"))
    marker = Marker("app", 3, ("n", "n-watermarks"), {bridge: Position(8)}).encode()
    tables: dict[str, list[tuple[list[Row], bytes | None]]] = {name: [([], marker)] * 3 for name in app.all_tables()}
    plan = rescaled(app, saved_of(tmp_path, app, tables, {"in": [5]}, left), 5).plan
    assert bridge not in plan.topics and plan.topics[topic].partitions == 5
    to = TopicPartition(topic, partition_for_key(key, 5))
    assert [(put.tp, put.values) for put in plan.puts()] == [(to, [b"first"]), (to, [b"then"])]
    assert {tp.partition for tp in plan.markers} == set(range(5))
    assert all(marker.positions == {topic: Position(0)} for marker in plan.markers.values())


def test_rows_that_their_tasks_have_numbered_do_not_replace_each_other(tmp_path: Path) -> None:
    app = App("app")
    give_tables(app, *(app.stream(app.topic(name)) for name in ("left", "right")))
    spec = app.all_tables()["looked-up-waiting"]
    marker = Marker("app", 3, tuple(app.all_tables()), {}).encode()
    tables: dict[str, list[tuple[list[Row], bytes | None]]] = {name: [([], marker)] * 3 for name in app.all_tables()}
    homes = {partition_for_key(key, 3): key for key in (b"k%d" % n for n in range(9))}
    events = {p: Event(homes[p], p, 7, "left", p, 0) for p in range(3)}
    row = spec.encode_key((7, 1))
    tables[spec.name] = [([(row, spec.encode_value(row, pack_event(events[p])))], marker) for p in range(3)]
    plan = rescaled(app, saved_of(tmp_path, app, tables, {"left": [0] * 3, "right": [0] * 3}), 1).plan
    found = rows_of(plan)[TopicPartition(app.changelog_topic(spec.name), 0)]
    assert sorted(unpack_event(spec.decode_value(value), 0).key for value in found.values()) == sorted(homes.values())
    assert {spec.decode_key(key)[0] for key in found} == {7}


def test_a_number_that_a_task_has_used_again_is_of_the_last_event_alone(tmp_path: Path) -> None:
    app = App("app")
    give_tables(app, *(app.stream(app.topic(name)) for name in ("left", "right")))
    spec = app.all_tables()["looked-up-waiting"]
    keys = [b"k%d" % n for n in range(20)]
    given, waits = (next(key for key in keys if partition_for_key(key, 2) == p) for p in (0, 1))
    row = spec.encode_key((7, 1))
    written = [spec.encode_value(row, pack_event(Event(key, "v", 7, "left", 0, 0))) for key in (given, waits)]
    marker = Marker("app", 3, tuple(app.all_tables()), {}).encode()
    tables: dict[str, list[tuple[list[Row], bytes | None]]] = {name: [([], marker)] for name in app.all_tables()}
    tables[spec.name] = [([(row, written[0]), (row, None), (row, written[1])], marker)]
    plan = rescaled(app, saved_of(tmp_path, app, tables, {"left": [0], "right": [0]}), 2).plan
    assert {tp.partition: list(rows.values()) for tp, rows in rows_of(plan).items()} == {1: [written[1]]}


def test_what_tasks_have_seen_and_timers_without_a_key_are_in_all_tasks(tmp_path: Path) -> None:
    app = App("app")
    source = app.stream(app.topic("in")).dedup_origin(name="once").dedup(lambda value: value, within=5, name="seen")
    source.process(Twice, name="twice").to("out")
    marker = Marker("app", 3, tuple(app.all_tables()), {}).encode()
    rows = {  # of the two tasks that there were
        "once": [{("fra", "in", 0): 7}, {("fra", "in", 0): 4}],
        "seen": [{1: [10, 30]}, {1: [20]}],
        "twice-timers": [{(0, 50, None, ""): 1}, {(0, 60, None, ""): 1}],
    }
    specs = app.all_tables()
    tables: dict[str, Any] = {name: [([], marker)] * 2 for name in specs} | {
        name: [
            (
                [(specs[name].encode_key(key), specs[name].encode_value(key, value)) for key, value in its.items()],
                marker,
            )
            for its in parts
        ]
        for name, parts in rows.items()
    }
    saved = saved_of(tmp_path, app, tables, {"in": [0, 0]})

    def found(partitions: int) -> dict[tuple[str, int], dict[Any, Any]]:
        return {
            (name, tp.partition): {
                specs[name].decode_key(key): specs[name].decode_value(value) for key, value in its.items()
            }
            for tp, its in rows_of(rescaled(app, saved, partitions).plan).items()
            for name in rows
            if tp.topic == app.changelog_topic(name)
        }

    merged = {
        "once": {("fra", "in", 0): 7},  # nothing is left to read, so that the other one lacks nothing
        "seen": {1: [10, 20, 30]},
        "twice-timers": {(0, 50, None, ""): 1, (0, 60, None, ""): 1},
    }
    assert found(3) == {(name, p): merged[name] for name in rows for p in range(3)}
    assert found(2) == {(name, p): rows[name][p] for name in rows for p in range(2)}, "they stay where they are"


# --- What was applied, by its origin ----------------------------------------------------------------


def once() -> App:
    app = App("app")
    app.stream(app.topic("in")).dedup_origin(name="once").group_by_key().count(name="n").stream().to("out")
    return app


@pytest.fixture
def origins() -> Iterator[None]:
    token = current_origins.set(Origins())
    yield
    current_origins.reset(token)


def brought(key: bytes, partition: int, offset: int) -> Event:
    """As a bridge has a record of the input."""
    header = (HEADER, Origin("", "in", partition, offset).encode())
    return Event(key, 1, offset, "in", partition, offset, (header,))


ONE_TO_EIGHT = [str(count) for count in range(1, 9)]


def counts_of(tasks: Iterable[Tasks]) -> dict[bytes, list[str]]:
    """What each key was counted to."""
    found: dict[bytes, list[str]] = {}
    for each in tasks:
        for _, key, count, _ in each.out:
            found.setdefault(key, []).append(count)
    return found


@pytest.mark.usefixtures("origins")
def test_what_a_task_behind_a_bridge_has_not_read_must_be_read_before_it_counts_as_repeated(tmp_path: Path) -> None:
    app, bridge = once(), "app-in-copartitioned"
    specs = app.all_tables()
    keys = [next(key for key in (b"k%d" % n for n in range(20)) if partition_for_key(key, 2) == p) for p in (0, 1)]
    records = [brought(keys[n % 2], 0, n) for n in range(16)]
    layout = Layout.of(app, {"in": 1}, dict.fromkeys(specs, 2))

    def ran(read: Iterable[Event]) -> Tasks:
        tasks = Tasks(app, layout, lambda table, _: MemoryStore(specs[table]))
        for event in read:
            tasks.give(event, together=False)
        return tasks

    left: list[Row] = [(event.key, b"1") for event in records[1:10:2]]
    with pytest.raises(
        AppError, match=rf"step once .* and {bridge} has records that it has not read yet: .* streams lag"
    ):
        rescaled(app, ran(records[:10:2]).saved(tmp_path / "behind", {bridge: [[], left]}), 3)
    first = ran(records[:10])
    heartbeats: list[list[Row]] = [[(None, None)], [(None, None)]]
    plan = rescaled(app, first.saved(tmp_path / "even", {bridge: heartbeats}), 3).plan
    then = Tasks(app, Layout.of(app, {"in": 1}, dict.fromkeys(specs, 3)), stores_of(app, plan))
    for event in records:  # a bridge that runs at least once brings some again
        then.give(event, together=False)
    assert counts_of([first, then]) == dict.fromkeys(keys, ONE_TO_EIGHT)


@pytest.mark.usefixtures("origins")
def test_a_task_that_reads_a_partition_itself_may_have_more_to_read(tmp_path: Path) -> None:
    app = once()
    specs = app.all_tables()
    keys = [next(key for key in (b"k%d" % n for n in range(30)) if partition_for_key(key, 3) == p) for p in range(3)]
    first = Tasks(app, Layout.of(app, {"in": 3}, {}), lambda table, _: MemoryStore(specs[table]))
    for partition, read in enumerate((8, 3, 0)):
        for offset in range(read):
            first.give(Event(keys[partition], 1, offset, "in", partition, offset), together=False)
    plan = rescaled(app, first.saved(tmp_path, unread=[1, 2]), 7).plan
    then = Tasks(app, Layout.of(app, {"in": 3}, dict.fromkeys(specs, 7)), stores_of(app, plan))
    for partition, key in enumerate(keys):
        for offset in range(8):
            then.give(brought(key, partition, offset), together=False)
    assert counts_of([first, then]) == dict.fromkeys(keys, ONE_TO_EIGHT)


def test_records_that_bring_their_origin_along_must_be_read_first(tmp_path: Path) -> None:
    """They may be in any partition of the input."""
    app = once()
    spec = app.all_tables()["once"]
    rows: list[Row] = [(spec.encode_key(("fra", "orders", 0)), b"2")]
    marker = Marker("app", 3, tuple(app.all_tables()), {"in": Position(5)}).encode()
    tables: dict[str, Any] = {name: [([], marker)] * 2 for name in app.all_tables()} | {
        "once": [(rows, marker), ([], marker)]
    }
    saved = saved_of(tmp_path / "unread", app, tables, {"in": [5, 5]}, unread=[1])
    with pytest.raises(AppError, match=r"step once .* and in has records that it has not read yet"):
        rescaled(app, saved, 3)
    assert not rescaled(app, saved, 3, origins=Origins("", {"in": Copy("fra", "orders")})).notes
    [note] = rescaled(app, saved_of(tmp_path / "read", app, tables, {"in": [5, 5]}), 3).notes
    assert "records of orders of fra that came in in, whose partitions go through a bridge" in note


# --- Steps of pipelines -----------------------------------------------------------------------------


class Twice:
    """Remembers values by key, and gives the sum a while after the first."""

    def process(self, event: Event, context: Any) -> None:
        if event.key not in context.state:
            context.set_timer(event.timestamp_ms + 4_000, event.key)
        context.state[event.key] = context.state.get(event.key, 0) + event.value

    def on_timer(self, timer: Any, context: Any) -> None:
        context.forward(context.state.pop(timer[2]), key=timer[2])


def give_windows(app: App, left: Any, right: Any) -> None:
    left.tumbling(5).count(name="tumbling").final().to("out")
    left.hopping(6, 2).sum(name="hopping").final().to("out")
    left.sliding(3).count(name="sliding").final().to("out")
    left.session(2).count(name="sessions").final().to("out")


def give_joins(app: App, left: Any, right: Any) -> None:
    left.outer_join(right, value=lambda a, b: [a, b], within=3, name="pairs").to("out")


def give_tables(app: App, left: Any, right: Any) -> None:
    table = right.table("now", history=20)
    left.left_join(table, value=lambda a, b: [a, b], grace=3, name="looked-up").to("out")


def give_others(app: App, left: Any, right: Any) -> None:
    left.dedup(within=8, name="by-key").to("out")
    left.dedup(lambda value: value % 24, within=5, name="by-value").process(Twice, name="twice").to("out")
    left.group_by_key().count(name="all").suppress(4, name="fewer").to("out")


class Tasks:
    """All tasks of an app's only part, over their tables."""

    def __init__(self, app: App, layout: Layout, stores: Callable[[str, int], MemoryStore]) -> None:
        self.app, self.layout = app, layout
        [(self.name, part)] = [each for each in layout.topology.subtopologies.items() if each[1].tables]
        self.tables, self.topics = part.tables, part.topics
        self.size = layout.tables[part.tables[0]]
        self.tasks, self.chains = [], []
        for partition in range(self.size):
            task = Task(app.id, TaskId(self.name, partition), {name: stores(name, partition) for name in part.tables})
            task.restored()
            self.tasks.append(task)
            parts = layout.parts(task)
            list(parts.read())
            self.chains.append([each.chain for each in parts.chained])
        self.out: list[tuple[Any, ...]] = []

    def give(self, event: Event, *, together: bool = True) -> None:
        """together: all tasks come to the event's time, so that it does not matter how many there are."""
        bridged = f"{self.app.id}-{event.topic}-copartitioned"
        topic = bridged if bridged in self.layout.bridges else event.topic
        partition = partition_for_key(event.key, self.size)
        copy = Event(event.key, event.value, event.timestamp_ms, topic, partition, event.offset, event.raw_headers)
        if together:
            self.complete(event.timestamp_ms)
        for chain in self.chains[partition]:
            self._take(chain.process(topic, [copy], 0))

    def complete(self, until_ms: int) -> None:
        """All records up to then were read."""
        for chains in self.chains:
            for chain in chains:
                for topic in self.topics:
                    if topic in self.layout.bridges:
                        self._take(chain.process(topic, self._beats(topic, until_ms), 0))
                    else:
                        chain.clocks.complete(topic, until_ms)
                self._take(chain.advance())

    def _beats(self, bridge: str, until_ms: int) -> list[Event]:
        """What those that write a bridge say of it."""
        [topic] = [name for name, its in self.layout.bridged.items() if its == bridge]
        count = self.layout.counts[topic]
        beats = [Heartbeat(topic, partition, count, until_ms) for partition in range(count)]
        return [Event(None, beat, until_ms, bridge, 0, 0) for beat in beats]

    def _take(self, given: Mapping[str, list[Event]]) -> None:
        for node, events in given.items():
            self.out += [(node, each.key, str(each.value), each.timestamp_ms) for each in events]

    def saved(self, folder: Path, between: Mapping[str, list[list[Row]]] | None = None, **more: Any) -> Savepoint:
        tables: dict[str, list[tuple[list[Row], bytes | None]]] = {name: [] for name in self.tables}
        for task, chains in zip(self.tasks, self.chains, strict=True):
            for chain in chains:
                chain.save()
            checkpoint = task.checkpoint()
            for name, records in checkpoint.rows.items():
                tables[name].append(as_read([each.key for each in records], [each.value for each in records], "here"))
        inputs = {name: [0] * self.layout.counts[name] for name in self.app.input_topics()}
        return saved_of(folder, self.app, tables, inputs, between, **more)


@pytest.mark.parametrize("give", [give_windows, give_joins, give_tables, give_others])
@pytest.mark.parametrize(("before", "after"), [(3, 7), (5, 2), (1, 4)])
def test_steps_go_on_as_if_they_had_always_had_as_many_tasks(
    tmp_path: Path, give: Callable[[App, Any, Any], None], before: int, after: int
) -> None:
    app = App("app")
    left, right = (app.stream(app.topic(name)) for name in ("left", "right"))
    give(app, left, right)
    random = Random(before * 10 + after)
    events = [
        Event(b"k%d" % (value % 12), value, at_ms, random.choice(("left", "right")), 0, n)
        for n, at_ms in enumerate(sorted(250 * random.randrange(120) for _ in range(400)))
        for value in [random.randrange(50)]
    ]
    specs = app.all_tables()
    inputs = dict.fromkeys(app.input_topics(), before)

    def fresh(table: str, partition: int) -> MemoryStore:
        return MemoryStore(specs[table])

    always = Tasks(app, Layout.of(app, inputs, {}), fresh)
    first = Tasks(app, Layout.of(app, inputs, {}), fresh)
    read = [event for event in events if event.topic in always.topics]
    for event in read:
        always.give(event)
    always.complete(END_MS)
    for event in read[: len(read) // 2]:
        first.give(event)
    moved = stores_of(app, rescaled(app, first.saved(tmp_path), after).plan)
    then = Tasks(app, Layout.of(app, inputs, dict.fromkeys(first.tables, after)), moved)
    for event in read[len(read) // 2 :]:
        then.give(event)
    then.complete(END_MS)
    assert Counter(first.out + then.out) == Counter(always.out)
    assert len(first.out) > 5 and len(then.out) > 5


@pytest.mark.parametrize("read_ms", [2_000, -1], ids=["slow", "has read nothing"])
@pytest.mark.parametrize("inputs", [2, 3], ids=["bridged", "grown"])
def test_what_a_slow_task_has_not_read_yet_is_not_late_afterwards(tmp_path: Path, inputs: int, read_ms: int) -> None:
    app = App("app")
    app.stream(app.topic("left")).tumbling(1).count(name="n").final().to("out")
    specs = app.all_tables()
    keys = [b"k%d" % n for n in range(9)]
    events = [Event(key, 1, at_ms, "left", 0, 0) for at_ms in range(0, 9_000, 300) for key in keys]
    first = Tasks(app, Layout.of(app, {"left": 2}, {}), lambda table, _: MemoryStore(specs[table]))
    unread = []
    for event in events:
        if event.timestamp_ms > 6_000 or (event.timestamp_ms > read_ms and partition_for_key(event.key, 2)):
            unread.append(event)
        else:
            first.give(event, together=False)
    assert first.out
    saved = first.saved(tmp_path)
    moved = stores_of(app, rescale(app, saved, {"left": inputs}, positions_of(saved), 3).plan)
    then = Tasks(app, Layout.of(app, {"left": inputs}, dict.fromkeys(first.tables, 3)), moved)
    for event in unread:
        then.give(event, together=False)
    then.complete(END_MS)
    found = [(key, start) for _, key, _, start in first.out + then.out]
    assert len(found) == len(set(found)) == 9 * len(keys)


def test_what_was_late_is_late_behind_a_bridge_too(tmp_path: Path) -> None:
    app = App("app")
    app.stream(app.topic("left")).tumbling(1).count(name="n").final().to("out")
    specs = app.all_tables()
    tasks = Tasks(app, Layout.of(app, {"left": 2}, {}), lambda table, _: MemoryStore(specs[table]))
    given = []
    for size in (3, 4):  # the second time it was behind one before
        tasks.give(Event(b"k", 1, 100, "left", 0, 0), together=False)
        tasks.complete(6_000)
        given.append([(key, at_ms) for _, key, _, at_ms in tasks.out])
        moved = stores_of(app, rescaled(app, tasks.saved(tmp_path / str(size)), size).plan)
        tasks = Tasks(app, Layout.of(app, {"left": 2}, dict.fromkeys(tasks.tables, size)), moved)
    tasks.give(Event(b"k", 1, 100, "left", 0, 0), together=False)
    tasks.complete(6_000)
    assert [*given, tasks.out] == [[(b"k", 999)], [], []]


def test_a_task_that_has_begun_nothing_is_the_one_that_is_least_far(tmp_path: Path) -> None:
    app = counting()
    some = Marker("app", 3, ("counts",), {"in": Position(5)}, {}, {"counts": 70}, seen(60, 0)).encode()
    found = rescaled(app, saved_of(tmp_path, app, {"counts": [([], some), ([], None)]}, {"in": [5, 0]}), 3).plan
    [marker] = {marker.encode() for marker in found.markers.values()}
    assert Marker.decode(marker, "app", "here").times == {}
    assert Marker.decode(marker, "app", "here").watermarks == {"in": {}}


def test_a_global_table_of_several_partitions_keeps_its_markers(tmp_path: Path) -> None:
    app = App("app")
    counts, rates = app.Table("counts", default=int), app.GlobalTable("rates", default=int, partitions=2)

    @app.agent(app.topic("in"), tables=[counts, rates])
    async def count(stream: Any) -> None: ...

    keys = [b"a", b"b", b"c"]
    rows = [[(encode_table_key(key), b"1") for key in keys if partition_for_key(key, 2) == p] for p in range(2)]
    tables = {
        "counts": [(each, Marker(app.id, 3, ("counts",), {"in": Position(1)}).encode()) for each in rows],
        "rates": [([(b'"usd"', b"7")], Marker(app.id, 9, ("rates",)).encode()), ([], None)],
    }
    done = rescaled(app, saved_of(tmp_path, app, tables, {"in": [1, 1]}), 3)  # type: ignore[arg-type]
    assert done.plan.markers[TopicPartition("app-rates-changelog", 0)].number == 9
    assert done.plan.topics["app-rates-changelog"].partitions == 2
    placed = rows_of(done.plan)
    assert placed.pop(TopicPartition("app-rates-changelog", 0)) == {b'"usd"': b"7"}
    assert {tp.topic for tp in placed} == {"app-counts-changelog"}


def test_what_is_left_between_the_hops_of_a_foreign_key_goes_to_the_tasks_that_have_the_rows(tmp_path: Path) -> None:
    app = App("app")
    left, right = app.stream("left").table("l"), app.stream("right").table("r")
    left.join(right, key=bytes.decode, value=lambda a, b: [a, b], name="j").stream().to("out")
    keys = [b"k%d" % number for number in range(9)]
    requests: list[list[Row]] = [[], []]
    responses: list[list[Row]] = [[], []]
    for key in keys:
        at = partition_for_key(key, 2)
        requests[at].append((encode_table_key(key), encode_table_value([[b"l", 0, 2, "hash"]])))
        responses[at].append((encode_table_key(key), encode_table_value([[at, 2, "hash", 7]])))
    for part in (*requests, *responses):
        part.append((None, None))
    between = {"app-j-request-repartition": requests, "app-j-response-repartition": responses}
    marker = Marker("app", 1).encode()
    tables: Any = {name: [([], marker), ([], marker)] for name in app.all_tables()}
    plan = rescaled(app, saved_of(tmp_path, app, tables, {"left": [0, 0], "right": [0, 0]}, between), 3).plan
    found = {name: {} for name in between}
    for put in plan.puts():
        if put.tp.topic in between:
            found[put.tp.topic] |= dict.fromkeys(put.keys, put.tp.partition)
            assert put.headers == [OWN_HEADERS] * len(put.keys)
    expected = {encode_table_key(key): partition_for_key(key, 3) for key in keys}
    assert found == dict.fromkeys(between, expected)
