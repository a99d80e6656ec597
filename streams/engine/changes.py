"""What has changed between the code of an app and the state that it has: what goes on, and what is refused. Pure.

The state is known by the last markers of its changelogs (`engine/checkpoint.py`) and by what its group has committed;
`runtime/written.py` reads both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ..errors import ChangeRefused
from . import topic_names
from .checkpoint import Marker
from .described import BRIDGED_BY, GIVEN_BY, WAITING, doubts
from .feeding import FEEDS
from .tables import TableSpec
from .topology import SubTopology
from .versions import adopted, check_bridged, path

GOES_ON, DOUBTED, MIGRATES, LEFT, REFUSED = "goes on", "doubted", "migrates", "left", "refused"


@dataclass(frozen=True)
class Change:
    """effect: of those above; doubted: goes on, and may not be meant; left: what the code has no use for any more, and
    may have again. what: the table, topic or step; said: what has changed; ways: out of a refusal."""

    effect: str
    what: str
    said: str
    ways: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.what} {self.said}" + (f" ({'; or '.join(self.ways)})" if self.ways else "")


@dataclass(frozen=True)
class Code:
    """What an app's code is. subtopologies: as declared, without bridges. steps: of pipelines; retired: tables.
    bridged_by: table -> the rule by which bridges bring its records, of tables that have them."""

    app: str
    subtopologies: tuple[SubTopology, ...]
    specs: Mapping[str, TableSpec]
    guarantee: str
    steps: frozenset[str] = frozenset()
    retired: frozenset[str] = frozenset()
    bridged_by: Mapping[str, str] = field(default_factory=dict)

    @property
    def topics(self) -> set[str]:
        return {topic for each in self.subtopologies for topic in each.topics}

    @property
    def readers(self) -> list[str]:
        return sorted({reader for each in self.subtopologies for reader in each.readers})


@dataclass(frozen=True)
class Written:
    """What an app has on a cluster. markers: table -> partition -> the last one; partitions: table -> of its changelog;
    committed: topics of the group's offsets; unread: topic -> records that are behind these."""

    markers: Mapping[str, Mapping[int, Marker]] = field(default_factory=dict)
    partitions: Mapping[str, int] = field(default_factory=dict)
    committed: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    unread: Mapping[str, int] = field(default_factory=dict)

    def all_markers(self) -> Iterator[Marker]:
        return (marker for each in self.markers.values() for marker in each.values())


def compare(code: Code, written: Written) -> list[Change]:
    """In the order of tables, topics, steps."""
    if not written.markers and not written.committed:
        return [Change(GOES_ON, f"app {code.app}", "has never run here: it begins anew")]
    return [
        *_tables(code, written),
        *_ties(code, written),
        *_topics(code, written),
        *_steps(code, written),
        *_guarantee(code, written),
    ]


def refusal(app: str, changes: Iterable[Change]) -> ChangeRefused | None:
    """The error for all that is refused; None if nothing is."""
    refused = [str(change) for change in changes if change.effect == REFUSED]
    if not refused:
        return None
    return ChangeRefused(
        f"app {app}: its state does not go with its code: {'. '.join(refused)}. `isthmus streams diff` shows this "
        "before a worker is started"
    )


def _tables(code: Code, written: Written) -> Iterator[Change]:
    new = sorted(code.specs.keys() - written.markers.keys())
    for table, markers in sorted(written.markers.items()):
        what = f"table {table}"
        if table in code.specs:
            yield from _table(code, written, code.specs[table], markers)
        elif table not in code.retired and _waiting(markers) and _given_by(markers) in code.steps:
            step = _given_by(markers)
            yield Change(
                REFUSED,
                what,
                f"has {_waiting(markers)} events that wait for {step}, which would give them no more",
                (
                    "give the step its grace= again",
                    "let it run with grace=0, which gives them as the time of the events goes on, and take that away "
                    "when none wait",
                    f'if they are to be lost, write app.retire("{table}")',
                ),
            )
        elif table in code.retired or not new:
            said = "is not in the code: nobody writes it, and what comes until it is there again would be lacking in it"
            if waiting := _waiting(markers):
                said += f"; the {waiting} events that wait in it are not given"
            yield Change(LEFT, what, said)
        else:
            yield Change(
                REFUSED,
                what,
                f"has rows, and the code does not have it, but {', '.join(new)}, which would begin empty",
                (
                    f'if one of them is {table} with another name, give it the name "{table}" again',
                    f'if it is to be no more, write app.retire("{table}")',
                ),
            )
    for table in new:
        yield _new_table(code, written, table)


def _waiting(markers: Mapping[int, Marker]) -> int:
    """How many events are in a table to be given later; an earlier release did not keep that."""
    return sum(marker.table.get(WAITING, 0) for marker in markers.values())


def _given_by(markers: Mapping[int, Marker]) -> str:
    return next((str(by) for marker in markers.values() if (by := marker.table.get(GIVEN_BY))), "")


def _new_table(code: Code, written: Written, table: str) -> Change:
    what = f"table {table}"
    of = [name for name in code.specs[table].rows_of if name in written.markers]
    if not of:
        return Change(GOES_ON, what, "is new: it begins empty, with the records that come from now on")
    if any(FEEDS not in marker.table for name in of for marker in written.markers[name].values()):
        return Change(
            DOUBTED,
            what,
            f"is new, and begins without the rows that {', '.join(of)} has: it was not kept who has had them",
            ("run the code without it once, with this release, and add it then: it is filled with them",),
        )
    return Change(GOES_ON, what, f"is new: it is filled with the rows that {', '.join(of)} has")


def _table(code: Code, written: Written, spec: TableSpec, markers: Mapping[int, Marker]) -> Iterator[Change]:
    what = f"table {spec.name}"
    versions: dict[int, list[int]] = {}
    for partition, marker in sorted(markers.items()):
        versions.setdefault(marker.table.get("version", 1), []).append(partition)
    for version, partitions in sorted(versions.items()):
        error = _refused(lambda before=markers[partitions[0]].table: path(spec, before))  # type: ignore[misc]
        if error is not None:
            yield Change(REFUSED, what, error.removeprefix(f"{what} "))
        elif version != spec.version:
            numbers = ", ".join(map(str, partitions))
            said = f"has rows of version {version} in partitions {numbers}: they become version {spec.version}"
            if spec.adopt is not None:
                said += f", where {adopted(spec, markers[partitions[0]].table)}"
            yield Change(MIGRATES, what, said)
            if behind := sorted({name for names in spec.feeds.values() for name in names if name in written.markers}):
                yield Change(
                    DOUBTED,
                    f"tables {', '.join(behind)}",
                    f"are made of the rows of {what}, and keep what they have of those of version {version}",
                    ("give them and their steps new names, with which they are filled with the rows that come of it",),
                )
        elif doubted := doubts(markers[partitions[0]].table, spec.description):
            way = f"version={version + 1} and a migration make rows what they are now"
            ways = () if spec.part else (way,)
            yield Change(DOUBTED, what, f"has rows of version {version}, and {'; '.join(doubted)}", ways)
    rules = {rule: None for _, each in sorted(markers.items()) if (rule := each.topology.get(BRIDGED_BY))}
    for rule in rules:
        error = _refused(lambda before=rule: check_bridged(spec.name, before, code.bridged_by.get(spec.name)))  # type: ignore[misc]
        if error is not None:
            yield Change(REFUSED, what, error.removeprefix(f"{what} "))
    behind = [
        f"{topic}-{partition} by {last - marker.positions[topic].offset}"
        for partition, marker in sorted(markers.items())
        for topic in sorted(marker.positions)
        if topic in marker.reads(spec.name)
        and (last := _last(written, spec.name, topic, partition)) > marker.positions[topic].offset
    ]
    if behind:
        yield Change(
            REFUSED,
            what,
            f"lacks records that the app has read without it: of {', '.join(behind)}",
            (
                "take it out of the code again",
                "give it another name, with which it begins empty",
                f"stop the workers and run `isthmus streams forget {code.app} {spec.name}`: it begins empty, too",
            ),
        )


def _refused(check: Callable[[], object]) -> str | None:
    try:
        check()
    except ChangeRefused as error:
        return str(error)
    return None


def _last(written: Written, without: str, topic: str, partition: int) -> int:
    """Up to where a topic was read by tables whose tasks had not this one. A checkpoint that has it, too, may have been
    written while the markers were read, one after the other."""
    found = (each[partition] for each in written.markers.values() if partition in each)
    at = [
        marker.positions[topic].offset for marker in found if topic in marker.positions and without not in marker.tables
    ]
    return max(at, default=0)


def _ties(code: Code, written: Written) -> Iterator[Change]:
    """Tables that have parted, or come together."""
    before = {
        frozenset(table for table in marker.tables if table in written.markers)
        for table, each in written.markers.items()
        for marker in [max(each.values(), key=lambda marker: marker.number)]
        if table in code.specs
    }
    for each in code.subtopologies:
        known = frozenset(table for table in each.tables if table in written.markers)
        sizes = {table: written.partitions[table] for table in sorted(known)}
        if len(set(sizes.values())) > 1:
            said = ", ".join(f"{table} has {size}" for table, size in sizes.items())
            yield Change(
                REFUSED,
                f"tables {', '.join(sizes)}",
                f"are used together now, and have different numbers of partitions: {said}",
                ("use them apart", "give one another name, with which it begins empty"),
            )
        elif len(known) > 1 and not any(known <= tables for tables in before):
            yield Change(
                GOES_ON, f"tables {', '.join(sorted(known))}", "are in the same tasks now, with their positions"
            )
    for tables in sorted(sorted(each) for each in before):
        parts = {each.name for each in code.subtopologies if set(tables) & set(each.tables)}
        if len(parts) > 1:
            yield Change(GOES_ON, f"tables {', '.join(tables)}", "are in tasks of their own now, with their positions")


def _topics(code: Code, written: Written) -> Iterator[Change]:
    known = {_unbridged(code, topic) for topic in written.committed}
    known |= {_unbridged(code, topic) for marker in written.all_markers() for topic in marker.positions}
    left = {topic for marker in written.all_markers() for topic in marker.left}
    for topic in sorted(known - code.topics - left):
        unread = written.unread.get(topic, 0)
        said = f"is not read any more; {unread} records wait there, and are read from there by code that reads it again"
        yield Change(LEFT, f"topic {topic}", said)
    for topic in sorted(code.topics & left):
        yield Change(GOES_ON, f"topic {topic}", "is read again, from where it was left")
    for topic in sorted(code.topics - known - left):
        said = "is new to the app: it is read from its beginning, or as consumer_auto_offset_reset says"
        yield Change(GOES_ON, f"topic {topic}", said)


def _unbridged(code: Code, topic: str) -> str:
    """The topic whose records a bridge has."""
    return topic_names.bridged(code.app, topic) or topic


def _steps(code: Code, written: Written) -> Iterator[Change]:
    before = {name for marker in written.all_markers() for name in marker.topology.get("readers", ())}
    if not before:
        return
    for names, said in ((set(code.readers) - before, "is new"), (before - set(code.readers), "is no more")):
        for name in sorted(names):
            yield Change(GOES_ON, f"agent or pipeline {name}", said)


def _guarantee(code: Code, written: Written) -> Iterator[Change]:
    before = {marker.topology.get("guarantee", code.guarantee) for marker in written.all_markers()}
    for guarantee in sorted(before - {code.guarantee}):
        yield Change(
            GOES_ON,
            "the guarantee",
            f"was {guarantee}, and is {code.guarantee}: tables are exact with both; outputs follow the new one from "
            "the next commit on",
        )
