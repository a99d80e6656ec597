"""What is done with an app from outside, while it runs or not: its topics, how far it is behind, its tables, a new
start.

An app's topics are known by their names (`engine/topic_names.py`). Of one that may as well be of an app whose id goes
on longer, such as `<app>-v2`, it is asked who has written or read it: the markers of a changelog say whose it is, and
of other topics the group that has committed offsets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import orjson

from ..client import Admin, Client, Consumer, TopicPartition
from ..client.raw import READ_COMMITTED
from ..protocol import records
from .engine.checkpoint import MARKER, Marker
from .engine.time import Progress, watermark_by_source
from .engine.topic_names import CHANGELOG, DEAD_LETTERS, RESTORING, changelog, kind_of, table_of
from .errors import AppError, ChangelogError
from .savepoints import fence

INPUT = "input"
POLL_MS = 500
MARKER_TAILS = (50, 5_000, 1 << 62)  # offsets before the end in which a marker is looked for, one after the other
MARKER_S = 30.0  # without a record while it is looked for
_NO_MEMBERS = ("empty", "dead")  # states of a group


class Lag(NamedTuple):
    """How far an app is behind in one partition. kind: `input`, or of the app's own topics. committed: None if nothing
    was committed yet. watermark_ms: up to which event time its pipelines have it, as committed; None where they do not
    read it, or have read nothing yet. rests: they do not wait for it; is_excluded: nor do they, since its datacenter is
    stalled."""

    topic: str
    partition: int
    kind: str
    committed: int | None
    end: int
    watermark_ms: int | None = None
    rests: bool = False
    is_excluded: bool = False

    @property
    def lag(self) -> int:
        return self.end - (self.committed or 0)


@dataclass(frozen=True)
class Reset:
    """What a new start removes, and where inputs are read then. topics: the app's own; group: whether there is one;
    offsets: of inputs, where they are set."""

    topics: tuple[str, ...]
    group: bool
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)


# Given what the group has committed of inputs: where they are read on.
Where = Callable[[Mapping[TopicPartition, int]], Awaitable[Mapping[TopicPartition, int]]]


async def own_topics(client: Client, app_id: str, *kinds: str) -> list[str]:
    """The app's own topics, of these kinds or all, sorted."""
    admin = Admin(client)
    longer = [group.group_id for group in await admin.list_groups() if group.group_id.startswith(f"{app_id}-")]
    found = {topic: kind_of(app_id, topic) for topic in await admin.list_topics()}
    named = {topic: kind for topic, kind in found.items() if kind is not None and (not kinds or kind in kinds)}
    doubted = [topic for topic in named if any(kind_of(id, topic) is not None for id in longer)]
    read = {tp.topic for tp in await admin.group_offsets(app_id)} if doubted else set()
    for topic in doubted:
        is_own = await _writer_of(client, topic) == app_id if named[topic] == CHANGELOG else topic in read
        if not is_own:
            del named[topic]
    return sorted(named)


async def _writer_of(client: Client, changelog: str) -> str | None:
    """The app whose markers a changelog has; None: it has none."""
    for marker in (await last_markers(client, [changelog])).values():
        return str(orjson.loads(marker).get("app"))
    return None


async def last_markers(client: Client, changelogs: Sequence[str]) -> dict[TopicPartition, bytes]:
    """The last committed marker of each partition that has one. Raises ChangelogError where none can be read."""
    await client.refresh_metadata(list(changelogs))
    tps = [TopicPartition(topic, partition) for topic in changelogs for partition in client.partitions(topic)]
    begins = await Admin(client).list_offsets(dict.fromkeys(tps, "earliest"))
    ends = await Admin(client).list_offsets(dict.fromkeys(tps, "latest"), READ_COMMITTED)
    found: dict[TopicPartition, bytes] = {}
    for tail in MARKER_TAILS:
        places = {
            tp: (max(begins[tp][0], ends[tp][0] - tail), ends[tp][0])
            for tp in tps
            if tp not in found and ends[tp][0] > begins[tp][0]
        }
        if places:
            await _read_markers(client, places, found)
    return found


async def _read_markers(
    client: Client, places: Mapping[TopicPartition, tuple[int, int]], found: dict[TopicPartition, bytes]
) -> None:
    loop = asyncio.get_running_loop()
    consumer = Consumer(client, auto_offset_reset="earliest", isolation="read_committed")
    consumer.assign({tp: begin for tp, (begin, _) in places.items()})
    stuck_at = loop.time() + MARKER_S
    try:
        while waiting := [tp for tp, (_, end) in places.items() if (consumer.position(tp) or 0) < end]:
            if loop.time() > stuck_at:
                tp = waiting[0]
                raise ChangelogError(
                    f"{tp.topic}-{tp.partition} was read up to offset {consumer.position(tp)} of {places[tp][1]}, and "
                    f"for {MARKER_S:.0f} s no further: is its broker overloaded or hung?"
                )
            for batches in await consumer.poll_batches(POLL_MS):
                stuck_at = loop.time() + MARKER_S
                columns = records.decode_lists(batches.records, from_offset=batches.from_offset)
                for key, value in zip(columns.keys, columns.values, strict=True):
                    if key == MARKER and value is not None:
                        found[batches.tp] = value
    finally:
        await consumer.close()


async def tables(client: Client, app_id: str) -> list[str]:
    """Names of the tables that the app has on this cluster."""
    return [table_of(app_id, topic) for topic in await own_topics(client, app_id, CHANGELOG)]


async def group_state(client: Client, app_id: str) -> str | None:
    """Of the app's group; None: there is none."""
    return {group.group_id: group.group_state for group in await Admin(client).list_groups()}.get(app_id)


async def is_running(client: Client, app_id: str) -> bool:
    """Whether it has workers; one that was killed counts until its session is over."""
    state = await group_state(client, app_id)
    return state is not None and state.lower() not in _NO_MEMBERS


async def check_stopped(client: Client, app_id: str) -> None:
    """Raises AppError while workers of the app run."""
    if await is_running(client, app_id):
        raise AppError(
            f"app {app_id} has workers that run (its group is {await group_state(client, app_id)}): stop them first; "
            "one that was killed is out after its session timeout"
        )


async def lags(client: Client, app_id: str) -> list[Lag]:
    """Each partition that the app reads, with what it has committed. Raises AppError for an app that never ran here."""
    committed = await Admin(client).group_offsets(app_id)
    if not committed:
        raise AppError(f"app {app_id} has committed nothing on this cluster: it never ran here, or was reset")
    topics = sorted({tp.topic for tp in committed})
    await client.refresh_metadata(topics)
    tps = [TopicPartition(topic, partition) for topic in topics for partition in client.partitions(topic)]
    ends = await Admin(client).list_offsets(dict.fromkeys(tps, "latest"))
    known = await watermarks(client, app_id)
    return [
        Lag(*tp, kind_of(app_id, tp.topic) or INPUT, committed.get(tp), offset, *known.get(tp, (None,)))
        for tp, (offset, *_) in sorted(ends.items())
    ]


async def watermarks(client: Client, app_id: str) -> dict[TopicPartition, Progress]:
    """Up to which event time in ms the pipelines of an app have each partition, as committed."""
    found: dict[TopicPartition, Progress] = {}
    done: set[str] = set()  # tables; all that a task has keep the same
    for topic in await own_topics(client, app_id, CHANGELOG):
        if table_of(app_id, topic) in done:
            continue
        for (_, partition), data in (await last_markers(client, [topic])).items():
            marker = Marker.decode(data, app_id, f"{topic}-{partition}")
            done.update(marker.tables)
            for kept in marker.watermarks.values():
                for name, at in watermark_by_source(kept).items():
                    found[TopicPartition(name, partition)] = at
    return found


async def forget(client: Client, app_id: str, table: str, *, dry_run: bool = False) -> str:
    """Delete the changelog of a table, whose name is returned. Raises AppError where there is none, and while workers
    run."""
    await check_stopped(client, app_id)
    topic = changelog(app_id, table)
    if topic not in await own_topics(client, app_id, CHANGELOG):
        raise AppError(f"app {app_id} has no table {table} on this cluster: there is no topic {topic}")
    if not dry_run:
        await Admin(client).delete_topics([topic])
    return topic


async def reset(
    client: Client,
    app_id: str,
    *,
    dry_run: bool = False,
    keep: Sequence[str] = (DEAD_LETTERS,),
    where: Where | None = None,
) -> Reset:
    """Remove what the app has kept: its offsets, its tables and the topics of its own, so that it begins anew. keep:
    kinds of topics that stay. where: gives offsets for the inputs; None: they are read as by a new app. Raises AppError
    while workers of it run. One that is interrupted keeps workers away until it is done again."""
    admin = Admin(client)
    await check_stopped(client, app_id)
    has_group = await group_state(client, app_id) is not None
    topics = [topic for topic in await own_topics(client, app_id) if kind_of(app_id, topic) not in (*keep, RESTORING)]
    if not topics and not has_group and not await fence.is_up(client, app_id):
        raise AppError(f"app {app_id} has nothing on this cluster")
    there = set(await admin.list_topics())
    committed = await admin.group_offsets(app_id) if has_group else {}
    inputs = {tp: at for tp, at in committed.items() if kind_of(app_id, tp.topic) is None and tp.topic in there}
    offsets: Mapping[TopicPartition, int] = {}
    if where is not None:
        if not inputs:
            raise AppError(f"app {app_id} has committed nothing of its inputs, so that it is not known what they are")
        offsets = await where(inputs)
    if not dry_run:
        await fence.put_up(client, app_id, fence.Change(fence.RESET))
        if await is_running(client, app_id):
            await fence.take_down(client, app_id)
            await check_stopped(client, app_id)
        if offsets:  # those of other topics go first: of topics that are gone, Kafka deletes none
            await admin.delete_group_offsets(app_id, [tp for tp in committed if tp not in inputs and tp.topic in there])
        if topics:
            await admin.delete_topics(topics)
        if offsets:
            await admin.alter_group_offsets(app_id, offsets)
        elif has_group:
            await admin.delete_groups([app_id])
        await fence.take_down(client, app_id)
    return Reset(tuple(topics), has_group, dict(offsets))
