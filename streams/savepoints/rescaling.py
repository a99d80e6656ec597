"""The plan by which tables get other numbers of partitions: rows go where records of their keys will be. Pure but for
the files of the savepoint.

Inputs keep their partitions, and the positions in them. Where a topic and its tables do not agree any more, the app
makes bridges (`runtime/layout.py`). Topics between steps are made anew, with the numbers that their tables have, and
get what no step had read of them.

Which task a row is of was decided by whoever wrote the records of its key. So it is looked at first whether each row is
where its key would be: if not, the rows' keys are not the records', or another partitioner was used, and nothing is
changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from ...client import Client, TopicPartition
from ..api.app import App
from ..engine import topic_names
from ..engine.checkpoint import Marker, Position, as_written
from ..engine.event import Event
from ..engine.heartbeats import ALONG, is_heartbeat
from ..engine.origin import Origins
from ..engine.partitioning import KeyRule, differing, key_rule, name_of, partition_of
from ..engine.placement import EVERYWHERE, FARTHEST
from ..engine.tables import TableSpec
from ..engine.topology import SubTopology
from ..errors import AppError
from ..runtime.layout import BETWEEN_OPTIONS, Layout
from . import fence
from .format import Part, Savepoint, Topic
from .plan import NewTopic, Plan, Put, marker_of, records_of, rows

Encode = Callable[[Any], bytes | None]  # a key as in the records of a topic
Place = Callable[[bytes, int], int | None]  # of a key, among so many partitions
V = TypeVar("V")
Mover = tuple[Encode, Place]  # of a table's rows, to where they will be


@dataclass(frozen=True)
class Rescaled:
    """counts: of tables, before and after; bridges: with how many partitions; notes: what could not be looked at."""

    plan: Plan
    counts: Mapping[str, tuple[int, int]]
    bridges: Mapping[str, int]
    notes: tuple[str, ...]


def rescale(
    app: App,
    savepoint: Savepoint,
    inputs: Mapping[str, int],
    positions: Mapping[TopicPartition, Position],
    partitions: int,
    tables: Iterable[str] = (),
    partitioner: str | None = None,
    origins: Origins | None = None,
) -> Rescaled:
    """inputs: partitions of the topics that the app reads, as they are in the cluster; positions: in them. tables: that
    get `partitions`, with all that share a task with them; none: all. partitioner: of those who write the
    inputs that are declared without one; None: the app's. origins: what the inputs are copies of; None: of nothing.

    Raises AppError where the app's rows cannot be placed.
    """
    by = check(app, partitions, tables, partitioner)
    origins = origins or Origins(app.datacenter)
    return _Rescaling(app, savepoint, inputs, positions, partitions, tuple(tables), by, origins).done()


def check(app: App, partitions: int, tables: Iterable[str] = (), partitioner: str | None = None) -> KeyRule:
    """The rule of those who write the inputs. Raises AppError for what cannot be, whatever the state is."""
    if partitions < 1:
        raise AppError(f"a table has at least one partition, not {partitions}")
    known = app.all_tables()
    if unknown := [name for name in tables if name not in known]:
        raise AppError(f"app {app.id} has no table {unknown[0]}: it has {', '.join(known) or 'none'}")
    return app.conf.producer_partitioner if partitioner is None else key_rule(partitioner, "the inputs")


async def begun(client: Client, app_id: str) -> Savepoint | None:
    """The savepoint of a change that was not finished; None: there is none. Raises AppError where the folder has
    another one now, or where a reset was not finished."""
    if not await fence.is_up(client, app_id):
        return None
    change = await fence.read(client, app_id)
    if change is None:
        await fence.take_down(client, app_id)
        return None
    if change.what != fence.RESTORE:
        raise AppError(f"app {app_id}: a {change.what} was not finished: run it again")
    saved = Savepoint.open(Path(change.folder))
    if saved.manifest.taken_ms != change.taken_ms:
        raise AppError(
            f"app {app_id}: a restore of {change.folder} was not finished, and the folder has another savepoint now: "
            f"`isthmus streams restore FOLDER`, of the one that it had, goes on"
        )
    return saved


class _Rescaling:
    def __init__(
        self,
        app: App,
        savepoint: Savepoint,
        inputs: Mapping[str, int],
        positions: Mapping[TopicPartition, Position],
        partitions: int,
        tables: tuple[str, ...],
        partitioner: KeyRule,
        origins: Origins,
    ) -> None:
        saved = savepoint.manifest
        self.app, self.savepoint, self.saved, self.positions = app, savepoint, saved, positions
        self.partitioner, self.origins = partitioner, origins
        self.specs = app.all_tables()
        self.notes: list[str] = []
        self.deleted: dict[Part, frozenset[Any]] = {}
        if saved.app != app.id:
            raise AppError(f"{savepoint.folder} is of app {saved.app}, not of {app.id}")
        topology = app.topology()
        changed = [
            each
            for each in topology.subtopologies.values()
            if each.tables and (not tables or not set(tables).isdisjoint(each.tables))
        ]
        self.changed = dict.fromkeys(name for each in changed for name in each.tables)
        if not self.changed:
            raise AppError(f"app {app.id} has no tables: an app without tables has as many tasks as its topics have")
        self.kept = {name: topic for name, topic in saved.tables.items() if name in self.specs}
        self.notes += [
            f"table {name} is not in the app any more: it stays in the savepoint alone"
            for name in saved.tables
            if name not in self.specs
        ]
        read = {topic for each in changed for topic in each.topics}
        own = [name for name in app.input_topics() if topic_names.kind_of(app.id, name) in topic_names.BETWEEN]
        before = {name: saved.between[name].partitions if name in saved.between else partitions for name in own}
        after = {name: partitions if name in read else before[name] for name in own}
        counts = {name: topic.partitions for name, topic in self.kept.items()}
        self.own = own
        self.before = Layout.of(app, {**inputs, **before}, counts)
        self.after = Layout.of(
            app, {**inputs, **after}, {name: partitions if name in self.changed else counts[name] for name in counts}
        )
        self.counts = after
        self.topics = self._topics()

    def done(self) -> Rescaled:
        movers = {
            name: (self._encoder(name), self._place(self.after, name)) for name in self.kept if name in self.changed
        }
        routes = self._routes()
        for name, topic in self.kept.items():
            if self.specs[name].placed is FARTHEST:
                self._check_even(name, topic)
        return Rescaled(
            Plan(
                self.app.id,
                self.topics,
                partial(self._puts, movers, routes),
                self._markers(),
                {tp: at.offset for tp, at in self._starts().items()},
            ),
            {name: (topic.partitions, self._size(name)) for name, topic in self.kept.items() if name in self.changed},
            {name: count for name, count in self.after.bridges.items() if name not in self.saved.between},
            tuple(self.notes),
        )

    def _size(self, table: str) -> int:
        """A global table keeps its partitions: it belongs to no task."""
        return self.after.tables.get(table, self.kept[table].partitions)

    def _changelog(self, table: str, partition: int) -> TopicPartition:
        return TopicPartition(self.app.changelog_topic(table), partition)

    def _topics(self) -> dict[str, NewTopic]:
        tables = {
            self.app.changelog_topic(name): NewTopic(self._size(name), topic.options)
            for name, topic in self.kept.items()
        }
        between = {
            name: NewTopic(self.counts[name], self.saved.between[name].options)
            for name in self.own
            if name in self.saved.between
        }
        options = {name: topic.options for name, topic in self.saved.between.items()}
        bridges = {
            name: NewTopic(count, options.get(name, BETWEEN_OPTIONS)) for name, count in self.after.bridges.items()
        }
        return {**tables, **between, **bridges}

    # --- Positions ----------------------------------------------------------------------------------

    def _starts(self) -> dict[TopicPartition, Position]:
        own = self.topics.items()
        starts = {TopicPartition(name, p): Position(0) for name, each in own for p in range(each.partitions)}
        read = set(self.after.topology.topics)
        return {**self.positions, **{tp: at for tp, at in starts.items() if tp.topic in read}}

    def _markers(self) -> dict[TopicPartition, Marker]:
        starts = self._starts()
        found: dict[TopicPartition, Marker] = {}
        for part in self.after.topology.subtopologies.values():
            tables = [name for name in part.tables if name in self.kept]
            old = self._old_markers(tables)
            tasks = sorted({each.partition for name in tables for each in self.kept[name].parts})
            for partition in range(self._size(tables[0]) if old else 0):
                of = tasks if self._moves(tables[0]) else [partition]
                its = [each for each in old if each[1] in of]
                if not its:
                    continue  # it has begun nothing yet
                number = max(marker.number for _, _, marker in its)
                by_task = [[marker for _, task, marker in its if task == each] for each in of]
                times = _of_all([_of_any([marker.times for marker in each], min) for each in by_task], min)
                watermarks = _watermarks(by_task)
                positions = {
                    topic: starts[tp] for topic in part.topics if (tp := TopicPartition(topic, partition)) in starts
                }
                marker = Marker(self.app.id, number, tuple(tables), positions, {}, times, watermarks)
                for name in tables:
                    said = [each.table for table, _, each in its if table == name]
                    found[self._changelog(name, partition)] = replace(marker, table=self._described(name, said))
        for name in self.kept:
            if self.specs[name].is_global:
                found |= {self._changelog(name, number): marker for _, number, marker in self._old_markers([name])}
        return found

    def _described(self, table: str, said: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        """What a table is, of what the markers of its partitions say."""
        versions = sorted({each.get("version", 1) for each in said})
        if len(versions) > 1:
            raise AppError(
                f"table {table} has rows of versions {', '.join(map(str, versions))}: let workers with the new code "
                "run until all partitions are migrated, and take another savepoint"
            )
        return said[0] if said else {}

    def _old_markers(self, tables: Iterable[str]) -> list[tuple[str, int, Marker]]:
        return [
            (name, part.partition, marker_of(self.saved, part))
            for name in tables
            for part in self.kept[name].parts
            if part.marker is not None
        ]

    # --- Rows ---------------------------------------------------------------------------------------

    def _rule(self, layout: Layout, name: str) -> KeyRule:
        topic = layout.topics[name]
        if topic.partitioner is None and topic_names.kind_of(self.app.id, name) not in topic_names.BETWEEN:
            return self.partitioner
        return self.app.partitioner_of(topic)

    def _place(self, layout: Layout, table: str) -> Place:
        return partial(partition_of, by=self._rule_at(layout, table))

    def _rule_at(self, layout: Layout, table: str) -> KeyRule:
        """By which rule the records of a table's keys come to its tasks in a layout."""
        part = layout.topology.of_table(table)
        assert part is not None
        rules = {name: self._rule(layout, name) for name in part.topics}
        if differ := differing(rules):
            raise AppError(
                f"table {table}: its topics are partitioned by different rules, {differ}: records of one key would be "
                "in two tasks. Choose a number of partitions that none of the inputs has"
            )
        return rules[part.topics[0]]

    def _moves(self, table: str) -> bool:
        """Whether its tasks have other keys than before."""
        if table not in self.changed:
            return False
        size = self.kept[table].partitions
        return self._size(table) != size or self._rule_at(self.before, table) != self._rule_at(self.after, table)

    def _encoder(self, table: str) -> Encode:
        """How keys of the table's rows are written as those of records. Raises AppError where a row is not where its
        key would be."""
        spec, topic = self.specs[table], self.kept[table]
        part = self.app.topology().of_table(table)
        assert part is not None
        place = self._place(self.before, table)
        if topic.partitions == 1 and any(each.records for each in topic.parts):
            self.notes.append(
                f"table {table} had one partition, so that it cannot be seen whether the keys of its rows are those of "
                "the records: they must be"
            )
        problem = ""
        for encode in _encoders(self.app, part):
            problem = self._misplaced(spec, topic, encode, place)
            if not problem:
                return encode
        raise AppError(
            f"table {table}: {problem}. Either the rows' keys are not those of the records: send the records through "
            "group_by() first; or who writes the inputs has another partitioner: say --partitioner"
        )

    def _misplaced(self, spec: TableSpec, topic: Topic, encode: Encode, place: Place) -> str:
        """What is wrong with the first row that is not where its key would be; nothing, if all are."""
        for part in topic.parts:
            for key, value in self._rows(part):
                record_key = self._record_key(spec, key, value)
                if record_key is EVERYWHERE:
                    continue
                try:
                    data = encode(record_key)
                except (TypeError, ValueError, AttributeError) as error:
                    return f"key {record_key!r} cannot be that of a record: {error}"
                if data is None:
                    return "rows of records without a key have no place of their own"
                where = place(data, topic.partitions)
                if where is None:
                    by = name_of(self.partitioner)
                    return f"records of key {record_key!r} are in any partition, by partitioner {by}"
                if where != part.partition:
                    return f"the row of key {record_key!r} is in partition {part.partition}, not in {where}"
        return ""

    def _record_key(self, spec: TableSpec, key: bytes, value: bytes | None) -> Any:
        """Of a row as it is in a changelog. A row that was deleted has a place only where its key alone says it."""
        placed = spec.placed
        if not placed.needs_value:
            return placed.record_key(spec.decode_key(key), None)
        return EVERYWHERE if value is None else placed.record_key(spec.decode_key(key), spec.decode_value(value))

    def _rows(self, part: Part) -> Iterator[tuple[Any, bytes | None]]:
        return chain.from_iterable(self._chunks(part))

    def _chunks(self, part: Part) -> Iterator[list[tuple[Any, bytes | None]]]:
        """What was written of rows that are there in the end. Others may be of keys that the code does not have any
        more, or that were in the wrong place, which is why they were deleted."""
        if part not in self.deleted:
            self.deleted[part] = self._deleted(part)
        deleted = self.deleted[part]
        for columns in self.savepoint.read(part):
            rows = zip(columns.keys, columns.values, strict=True)
            yield [row for row in rows if row[0] not in deleted] if deleted else list(rows)

    def _deleted(self, part: Part) -> frozenset[Any]:
        found: set[Any] = set()
        for columns in self.savepoint.read(part):
            for key, value in zip(columns.keys, columns.values, strict=True):
                if value is None:
                    found.add(key)
                elif found:
                    found.discard(key)
        return frozenset(found)

    def _puts(self, movers: Mapping[str, Mover], routes: Mapping[str, str]) -> Iterator[Put]:
        for name, topic in self.kept.items():
            spec = self.specs[name]
            if not self._moves(name):
                for part in topic.parts:
                    yield from rows(self.savepoint, part, self._changelog(name, part.partition))
            elif spec.placed.merge is not None:
                yield from self._merged(spec, topic)
            elif spec.placed.needs_value:
                for part in topic.parts:
                    newest = dict(self._rows(part)).items()
                    there = ((key, value) for key, value in newest if value is not None)
                    yield from self._placed(spec, topic, part, there, movers[name])
            else:
                for part in topic.parts:
                    for some in self._chunks(part):
                        yield from self._placed(spec, topic, part, some, movers[name])
        for name, to in routes.items():
            for part in self.saved.between[name].parts:
                for put in records_of(self.savepoint, part, TopicPartition(to, part.partition)):
                    yield from self._spread(_without_heartbeats(put), self.topics[to].partitions, name)

    def _placed(
        self,
        spec: TableSpec,
        topic: Topic,
        part: Part,
        some: Iterable[tuple[bytes, bytes | None]],
        mover: Mover,
    ) -> Iterator[Put]:
        size, (encode, place) = self._size(spec.name), mover
        by_partition: dict[int, list[tuple[bytes, bytes | None]]] = {}
        for key, value in some:
            record_key = self._record_key(spec, key, value)
            if spec.placed.is_numbered:
                *others, number = spec.decode_key(key)
                key = spec.encode_key((*others, number * topic.partitions + part.partition))
            if record_key is EVERYWHERE:
                where: Iterable[int] = range(size)
            else:
                data = encode(record_key)
                at = None if data is None else place(data, size)
                assert at is not None, "`_misplaced` has looked at it"
                where = [at]
            for partition in where:
                by_partition.setdefault(partition, []).append((key, value))
        for partition, found in sorted(by_partition.items()):
            yield self._put(spec.name, partition, found)

    def _put(self, table: str, partition: int, found: Iterable[tuple[bytes, bytes | None]]) -> Put:
        written = as_written(found)
        keys, values = [row.key for row in written], [row.value for row in written]
        return Put(self._changelog(table, partition), None, keys, values)

    def _merged(self, spec: TableSpec, topic: Topic) -> Iterator[Put]:
        """Rows that all tasks get, of those of all tasks."""
        assert spec.placed.merge is not None
        values: dict[bytes, list[Any]] = {}
        for part in topic.parts:
            for key, value in dict(self._rows(part)).items():
                if value is not None:
                    values.setdefault(key, []).append(spec.decode_value(value))
        found = [
            (key, spec.encode_value(spec.decode_key(key), spec.placed.merge(each))) for key, each in values.items()
        ]
        for partition in range(self._size(spec.name)) if found else ():
            yield self._put(spec.name, partition, found)

    # --- What `dedup_origin` has had ----------------------------------------------------------------

    def _check_even(self, table: str, topic: Topic) -> None:
        """A row says how far a task has an origin partition, and from now on for the keys of all: so no other task may
        have less of it. Where a task reads a partition of a topic itself, it has all that there is of it. Where records
        come to tasks by their keys, nothing of them may be left to read, for a row that is not there says nothing.
        Raises AppError."""
        own, given = self._upstream(table)
        moves = self._moves(table)
        for name in own:
            left = self.saved.between.get(name)
            is_as_it_was = left is not None and name in self.topics and self.topics[name].partitions == left.partitions
            if left is None or (is_as_it_was and not moves):
                continue
            if any(map(self._has_records, left.parts)):
                raise self._uneven(table, name)
        copies = self.origins.copies
        known = {(copies[name][:2] if name in copies else (self.origins.datacenter, name)) for name in given}
        keys = (self.specs[table].decode_key(key) for part in topic.parts for key, _ in self._rows(part))
        brought = sorted({(datacenter, name) for datacenter, name, _ in keys} - known)
        if not moves or not brought:
            return
        for name in given:
            its = self.saved.inputs.get(name)
            if its is None or its.unread is None or its.unread:
                raise self._uneven(table, name)
        bridged = [name for name in given if name in self.after.bridged and self.after.counts[name] > 1]
        if bridged:
            of = ", ".join(f"{name} of {datacenter or 'this datacenter'}" for datacenter, name in brought)
            self.notes.append(
                f"step {table} has had records of {of} that came in {' or '.join(bridged)}, whose partitions go "
                "through a bridge in no order between them: all records of an origin partition must be in one there"
            )

    def _uneven(self, table: str, topic: str) -> AppError:
        return AppError(
            f"step {table} tells repeated records by how far its tasks are, and {topic} has records that it has not "
            "read yet: other tasks would take some of them for repeated, and drop them. Let the app run, while nobody "
            f"writes to its inputs, until `isthmus streams lag {self.app.id}` shows that it has read them, and stop it"
        )

    def _upstream(self, table: str) -> tuple[list[str], list[str]]:
        """The topics that a step's records come through: the app's own, and those of others."""
        graph = self.app.pipeline.graph
        steps = [node for node in graph.nodes.values() if any(spec.name == table for spec in node.specs)]
        waiting = [topic for node in steps for output in node.sources for topic in graph.nodes[output.node].topics]
        own: dict[str, None] = {}
        given: dict[str, None] = {}
        while waiting:
            name = waiting.pop()
            if name in own or name in given:
                continue
            own[topic_names.bridge(self.app.id, name)] = None
            if topic_names.kind_of(self.app.id, name) in topic_names.BETWEEN:
                own[name] = None
                waiting += graph.made_from(name) or self.app.input_topics()  # an agent may write it, of any
            else:
                given[name] = None
        return list(own), list(given)

    def _has_records(self, part: Part) -> bool:
        """Whether something is left in a topic between two steps but heartbeats."""
        return part.records > 0 and any(
            not is_heartbeat(headers) for columns in self.savepoint.read(part) for headers in columns.headers
        )

    # --- Topics between steps -----------------------------------------------------------------------

    def _routes(self) -> dict[str, str]:
        """Topics between steps -> where what is left of them goes, those that come first in it first."""
        topics = self.topics
        routes: dict[str, str] = {}
        for name, topic in sorted(self.saved.between.items(), key=lambda each: each[0] in self.own):
            left = sum(part.records for part in topic.parts)
            source = topic_names.bridged(self.app.id, name)
            to = name if name in topics else source if source in topics else None
            if to is not None:
                routes[name] = to
            elif left:
                raise AppError(
                    f"{name} has {left} records that no step has read yet, and is not needed with these partitions: "
                    f"let the app run, while nobody writes to its inputs, until `isthmus streams lag {self.app.id}` "
                    "shows that it has read them, and stop it. Or choose a number of partitions that none of the "
                    "inputs has"
                )
        return routes

    def _event(self, put: Put, row: int) -> Event:
        coders = self.after.topics[put.tp.topic].serialization
        key, value = coders.decode_key(put.keys[row]), coders.decode_value(put.values[row])
        return Event(key, value, 0, *put.tp, -1)

    def _spread(self, put: Put, count: int, name: str) -> Iterator[Put]:
        """Records of a topic in the partitions that they have in one of the same content with `count` partitions."""
        if put.tp.topic == name and self.saved.between[name].partitions == count:
            yield put
            return
        place: Place = partial(partition_of, by=self._rule(self.after, put.tp.topic))
        placed = self.after.place_in(put.tp.topic)
        by_partition: dict[int, list[int]] = {}
        for row, key in enumerate(put.keys):
            found = None if placed is None else placed(self._event(put, row), count)
            if found is None and key is not None:
                found = place(key, count)
            partition = put.tp.partition % count if found is None else found
            by_partition.setdefault(partition, []).append(row)
        assert put.timestamps is not None and put.headers is not None
        for partition, chosen in sorted(by_partition.items()):
            yield Put(
                TopicPartition(put.tp.topic, partition),
                [put.timestamps[row] for row in chosen],
                [put.keys[row] for row in chosen],
                [put.values[row] for row in chosen],
                [put.headers[row] for row in chosen],
            )


def _watermarks(tasks: Sequence[Sequence[Marker]]) -> dict[str, dict[str, Sequence[Any]]]:
    """Those of one task, of the markers of several, by part of the pipelines."""
    found = {}
    for part in {part: None for markers in tasks for marker in markers for part in marker.watermarks}:
        kept = [_of_any([marker.watermarks.get(part, {}) for marker in markers], _less) for markers in tasks]
        found[part] = _of_all(kept, _less)
    return found


def _of_any(some: Iterable[Mapping[str, V]], merge: Callable[[V, V], V]) -> dict[str, V]:
    found: dict[str, V] = {}
    for each in some:
        for name, value in each.items():
            found[name] = merge(found[name], value) if name in found else value
    return found


def _of_all(tasks: Sequence[Mapping[str, V]], merge: Callable[[V, V], V]) -> dict[str, V]:
    """How far several tasks are, each thing as where it is least far: one task lacks what has come nowhere there."""
    return {name: at for name, at in _of_any(tasks, merge).items() if all(name in each for each in tasks)}


def _less(at: Sequence[Any], other: Sequence[Any]) -> Sequence[Any]:
    """Of two watermarks of a source, with their states, the one that is less far."""
    lacking = min(at, other, key=lambda each: each[0])[2:]
    return [min(at[0], other[0]), min(at[1], other[1]), *lacking]


def _without_heartbeats(put: Put) -> Put:
    """What tasks have said of their time was of as many tasks as there were; they say it anew."""
    if put.timestamps is None or put.headers is None:
        return put
    kept = [row for row, headers in enumerate(put.headers) if not is_heartbeat(headers)]
    return Put(
        put.tp,
        [put.timestamps[row] for row in kept],
        [put.keys[row] for row in kept],
        [put.values[row] for row in kept],
        [tuple(each for each in put.headers[row] if each[0] != ALONG) for row in kept],
    )


def _encoders(app: App, part: SubTopology) -> list[Encode]:
    """How keys are written in the topics of a part, each way once."""
    topics = app.input_topics()
    found = {id(topics[name].serialization.key): topics[name].encode_key for name in part.topics}
    return list(found.values())
