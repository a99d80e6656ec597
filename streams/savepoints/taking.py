"""Takes a savepoint of an app from its cluster, while it runs or not.

Each task is saved at one checkpoint of its own (`tail.py`): rows of its tables and positions of its inputs go together.
Tasks that read each other's records, through topics between their steps, must be saved together, and with what is in
these topics. That is possible only while the app does not run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ...client import Admin, Client, Consumer, TopicPartition
from ...client.committed import Committed, fetch_committed
from ...client.coordinator import Coordinator
from ...client.raw import READ_COMMITTED, READ_UNCOMMITTED
from ...protocol import records
from ...protocol.primitives import uuid_to_str
from .. import admin
from ..engine import topic_names
from ..engine.checkpoint import Marker
from ..errors import AppError, ChangelogError
from . import fence
from .format import Input, Manifest, Part, PartWriter, Reached, Savepoint, Topic, begin, file_of, finish
from .tail import Tail, common

POLL_MS = 500
STUCK_S = 120.0  # without a record or a decided transaction: longer than any transaction of a worker is open
TOPIC_OPTION = 1  # source of an option's value: it was set for the topic
TIMES_S = 30.0  # to find out the times of positions; a partition that cannot be read has none then
OFFSETS_TIMEOUT_MS = 60_000.0  # for transactions with offsets of the group to end

Told = Callable[[str], None]


async def take(client: Client, app_id: str, folder: Path, told: Told = lambda words: None) -> Savepoint:
    """Save an app's state into a folder that is empty or not there. told: what is done, for people.

    Raises AppError for an app that is not here, or that must be stopped for it, ChangelogError for changelogs that are
    not whole.
    """
    await fence.check(client, app_id)
    runs = await admin.is_running(client, app_id)
    changelogs = {
        topic_names.table_of(app_id, topic): topic
        for topic in await admin.own_topics(client, app_id, topic_names.CHANGELOG)
    }
    between = await admin.own_topics(client, app_id, *topic_names.BETWEEN)
    if runs and between:
        raise AppError(
            f"app {app_id} runs, and has topics between its steps ({', '.join(between)}): what is on its way there is "
            "in no checkpoint. Stop its workers first"
        )
    committed = await fetch_committed(Coordinator(client, app_id), None, OFFSETS_TIMEOUT_MS)
    if not changelogs and not committed:
        raise AppError(f"app {app_id} has nothing on this cluster: it never ran here, or was reset")
    begin(folder)
    await client.refresh_metadata([*changelogs.values(), *between, *sorted({tp.topic for tp in committed})])
    tables = await _tables(client, app_id, changelogs, folder, runs, told)
    of_tables = {name: markers_of(app_id, each) for name, each in tables.items()}
    everywhere = [name for name, its in of_tables.items() if any(not marker.positions for _, marker in its)]
    if runs and everywhere:
        raise AppError(
            f"app {app_id} runs, and has global tables ({', '.join(everywhere)}): their rows are in no task's "
            "checkpoint. Stop its workers first"
        )
    markers = [marker for each in of_tables.values() for marker in each]
    reached = _reached(committed, markers)
    inputs = await _inputs(client, {tp: at for tp, at in reached.items() if tp.topic not in between}, markers)
    saved = {topic: await _between(client, topic, reached, folder, told) for topic in between}
    options = await _options(client, [*changelogs.values(), *between])
    manifest = Manifest(
        app_id,
        client.cluster_id or "",
        client.runtime.wall_ms(),
        {
            name: Topic(changelogs[name], len(parts), options[changelogs[name]], tuple(parts))
            for name, parts in tables.items()
        },
        {topic: Topic(topic, len(parts), options[topic], tuple(parts)) for topic, parts in saved.items()},
        inputs,
    )
    return finish(folder, manifest)


def markers_of(app_id: str, parts: Iterable[Part]) -> list[tuple[int, Marker]]:
    """The markers of a table, with their partitions."""
    return [
        (part.partition, Marker.decode(part.marker.encode(), app_id, part.file))
        for part in parts
        if part.marker is not None
    ]


# --- Tables -----------------------------------------------------------------------------------------


async def _tables(
    client: Client, app_id: str, changelogs: Mapping[str, str], folder: Path, runs: bool, told: Told
) -> dict[str, list[Part]]:
    tps = [TopicPartition(topic, p) for topic in changelogs.values() for p in client.partitions(topic)]
    if not tps:
        return {}
    names = {topic: table for table, topic in changelogs.items()}
    # Of an app that does not run, what may still be committed must be decided first.
    isolation = READ_COMMITTED if runs else READ_UNCOMMITTED
    ends = await _ends(client, tps, isolation)
    tails = {
        tp: Tail(
            app_id,
            names[tp.topic],
            tp,
            PartWriter(folder, file_of("tables", names[tp.topic], tp.partition)),
            ends[tp],
        )
        for tp in tps
    }
    try:
        chosen = await _followed(client, tails, isolation, told)
        return {
            table: [
                tails[tp].close(chosen[tp], runs=runs)
                for tp in (TopicPartition(topic, partition) for partition in client.partitions(topic))
            ]
            for table, topic in changelogs.items()
        }
    finally:
        for tail in tails.values():
            tail.abandon()


async def _followed(
    client: Client, tails: Mapping[TopicPartition, Tail], isolation: int, told: Told
) -> dict[TopicPartition, int | None]:
    """Read until each task has a checkpoint that all its tables have; which that is, by changelog partition."""
    loop = asyncio.get_running_loop()
    consumer = Consumer(client, auto_offset_reset="earliest", isolation="read_committed")
    consumer.assign(dict.fromkeys(tails))
    waiting: dict[int, dict[str, Tail]] = {}
    for tp, tail in tails.items():
        waiting.setdefault(tp.partition, {})[tail.table] = tail
    chosen: dict[TopicPartition, int | None] = {}
    rows, stuck_at, is_following = 0, loop.time() + STUCK_S, False
    try:
        while True:
            if not is_following and all(tail.is_read for tail in tails.values()):
                is_following = True
                for tp, end in (await _ends(client, list(tails), isolation)).items():
                    tails[tp].follow(end)
            for partition, tables in list(waiting.items()):
                if (found := common(tables)) is not None:
                    del waiting[partition]
                    chosen |= {tables[name].tp: number for name, number in found.items()}
                    consumer.pause([tail.tp for tail in tables.values()])
            if not waiting:
                told(f"{rows:,} rows read from {len(tails)} partitions of changelogs")
                return chosen
            for batches in await consumer.poll_batches(POLL_MS):
                tail = tails[batches.tp]
                if batches.tp not in chosen:
                    rows += tail.take(batches)
                    stuck_at = loop.time() + STUCK_S
            if loop.time() > stuck_at:
                raise ChangelogError(_stuck(waiting))
    finally:
        await consumer.close()


def _stuck(waiting: Mapping[int, Mapping[str, Tail]]) -> str:
    tables = next(iter(waiting.values()))
    for tail in tables.values():
        if not tail.is_read:
            where = f"{tail.tp.topic}-{tail.tp.partition}"
            return (
                f"{where} was read up to offset {tail.position} of {tail.end}, and for {STUCK_S:.0f} s no further: a "
                "transaction is open there that does not end (see `isthmus transaction list`), the partition has no "
                "leader, or its broker hangs"
            )
    found = {name: tail.cuts[-1].marker.number if tail.cuts else "none" for name, tail in tables.items()}
    said = ", ".join(f"{name} {number}" for name, number in found.items())
    return (
        f"the changelogs of partition {next(iter(waiting))} end with different checkpoints ({said}): a broker lost "
        "records that it had acknowledged, or a topic was deleted"
    )


async def _ends(client: Client, tps: Iterable[TopicPartition], isolation: int) -> dict[TopicPartition, int]:
    found = await Admin(client).list_offsets(dict.fromkeys(tps, "latest"), isolation)
    return {tp: offset for tp, (offset, *_) in found.items()}


# --- Positions --------------------------------------------------------------------------------------


def _reached(
    committed: Mapping[TopicPartition, Committed], markers: Iterable[tuple[int, Marker]]
) -> dict[TopicPartition, Reached]:
    """Where each input is read on: by the markers, where a task has tables, else by the group. A marker and the group's
    offsets are of one transaction: where the group is further, another task without tables reads the topic now, such as
    the one that brings it to a bridge."""
    found: dict[TopicPartition, Reached] = {}
    newest: dict[TopicPartition, int] = {}
    for partition, marker in markers:
        for topic, at in marker.positions.items():
            tp = TopicPartition(topic, partition)
            if marker.number > newest.get(tp, -1):  # another is of a table that its task does not have any more
                newest[tp] = marker.number
                found[tp] = Reached(*at)
    for tp, each in committed.items():
        if tp not in found or each.offset > found[tp].offset:
            found[tp] = Reached(each.offset, each.leader_epoch)
    return found


async def _inputs(
    client: Client, reached: Mapping[TopicPartition, Reached], markers: Iterable[tuple[int, Marker]]
) -> dict[str, Input]:
    topics = sorted({tp.topic for tp in reached})
    await client.refresh_metadata(topics)
    here = [TopicPartition(topic, partition) for topic in topics for partition in client.partitions(topic)]
    times, unread = await _ahead(client, {tp: reached[tp].offset if tp in reached else 0 for tp in here})
    ids = {topic: id for _, marker in markers for topic, id in marker.topic_ids.items()}
    found = {}
    for topic in topics:
        there = client.topic_id(topic)
        found[topic] = Input(
            ids.get(topic, "" if there is None else uuid_to_str(there)),
            len(client.partitions(topic)),
            {
                tp.partition: Reached(at.offset, at.leader_epoch, times.get(tp, -1))
                for tp, at in sorted(reached.items())
                if tp.topic == topic
            },
            [tp.partition for tp in here if tp.topic == topic and tp in unread],
        )
    return found


async def _ahead(
    client: Client, offsets: Mapping[TopicPartition, int]
) -> tuple[dict[TopicPartition, int], set[TopicPartition]]:
    """When the first record from these offsets on came into being; where there is none, a time after all others. And
    the partitions that have one, or of which that could not be found out."""
    if not offsets:
        return {}, set()
    begins = await Admin(client).list_offsets(dict.fromkeys(offsets, "earliest"))
    ends = await _ends(client, offsets, READ_UNCOMMITTED)
    latest = await Admin(client).list_offsets(dict.fromkeys(offsets, "max_timestamp"))
    found = {tp: timestamp + 1 for tp, (_, timestamp, _) in latest.items() if timestamp >= 0}
    waiting = {tp: at for tp, offset in offsets.items() if (at := max(offset, begins[tp][0])) < ends[tp]}
    unread = set(waiting)
    consumer = Consumer(client, auto_offset_reset="earliest", isolation="read_uncommitted")
    consumer.assign(waiting)
    loop = asyncio.get_running_loop()
    over_at = loop.time() + TIMES_S
    try:
        while waiting and loop.time() < over_at:
            for batches in await consumer.poll_batches(POLL_MS):
                tp = batches.tp
                times = records.decode_lists(batches.records, from_offset=batches.from_offset).timestamps
                if tp in waiting and times:
                    found[tp] = times[0]
                if times or batches.next_offset >= ends[tp]:
                    if tp in waiting and not times:
                        unread.discard(tp)  # markers of transactions alone
                    waiting.pop(tp, None)
                    consumer.pause([tp])
    finally:
        await consumer.close()
    return found, unread


# --- Topics between steps ---------------------------------------------------------------------------


async def _between(
    client: Client, topic: str, reached: Mapping[TopicPartition, Reached], folder: Path, told: Told
) -> list[Part]:
    """What no step has read yet."""
    tps = [TopicPartition(topic, partition) for partition in client.partitions(topic)]
    begins = await Admin(client).list_offsets(dict.fromkeys(tps, "earliest"))
    starts = {tp: max(reached[tp].offset if tp in reached else 0, begins[tp][0]) for tp in tps}
    ends = await _ends(client, tps, READ_UNCOMMITTED)
    writers = {tp: PartWriter(folder, file_of("topics", topic, tp.partition)) for tp in tps}
    waiting = {tp for tp in tps if starts[tp] < ends[tp]}
    consumer = Consumer(client, auto_offset_reset="none", isolation="read_committed")
    consumer.assign({tp: starts[tp] for tp in sorted(waiting)})
    loop = asyncio.get_running_loop()
    count, stuck_at = 0, loop.time() + STUCK_S
    try:
        while waiting:
            for batches in await consumer.poll_batches(POLL_MS):
                found = records.decode_lists_with_headers(batches.records, from_offset=batches.from_offset)
                writers[batches.tp].write(*found[1:])
                count += len(found.offsets)
                stuck_at = loop.time() + STUCK_S
                if batches.next_offset >= ends[batches.tp]:
                    waiting.discard(batches.tp)
            if waiting and loop.time() > stuck_at:
                raise ChangelogError(
                    f"{topic} was not read to its end: a transaction is open there that does not end, or its broker "
                    "hangs"
                )
        if count:
            told(f"{count:,} records of {topic} that no step has read yet")
        return [writers[tp].close(tp.partition) for tp in tps]
    finally:
        await consumer.close()
        for writer in writers.values():
            writer.abandon()


async def _options(client: Client, topics: list[str]) -> dict[str, dict[str, str]]:
    """Those that were set for each topic."""
    if not topics:
        return {}
    found: dict[str, list[Any]] = await Admin(client).describe_configs(topics)
    return {
        topic: {each.name: each.value for each in options if each.config_source == TOPIC_OPTION}
        for topic, options in found.items()
    }
