"""Reads what an app has on a cluster: the last markers of its changelogs, and what its group has committed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import orjson

from ...client import Admin, Client, TopicPartition
from ...client.raw import READ_COMMITTED
from ..admin import last_markers, own_topics
from ..api.app import App
from ..engine import topic_names
from ..engine.changes import Change, Code, Written, compare
from ..engine.checkpoint import Marker
from ..errors import ChangeRefused
from .layout import Layout


def code_of(app: App) -> Code:
    return Code(
        app.id,
        tuple(app.topology().subtopologies.values()),
        {name: spec for name, spec in app.all_tables().items() if not spec.is_global},
        app.conf.processing_guarantee,
        frozenset(app.pipeline.graph.nodes),
        frozenset(app.retired_tables),
    )


async def diff(client: Client, app: App) -> list[Change]:
    """How an app's code differs from what its state on this cluster was written by."""
    return (await compared(client, app))[0]


async def compared(client: Client, app: App) -> tuple[list[Change], Written]:
    """The same, and that state."""
    code = code_of(app)
    found = await written(client, app.id, code.topics)
    return compare(replace(code, bridged_by=await _bridged_by(client, app, found)), found), found


async def _bridged_by(client: Client, app: App, found: Written) -> Mapping[str, str]:
    inputs = list(app.input_topics())
    await client.refresh_metadata(inputs)
    try:
        return Layout.of(app, {topic: len(client.partitions(topic)) for topic in inputs}, found.partitions).bridged_by
    except ChangeRefused:  # `compare` says why
        return {}


async def written(client: Client, app_id: str, read: Iterable[str] = ()) -> Written:
    """read: topics that the app's code reads, of which it need not be known how much is unread. Raises ChangelogError
    for a changelog of an earlier release."""
    admin = Admin(client)
    changelogs = await own_topics(client, app_id, topic_names.CHANGELOG)
    topics = {topic_names.table_of(app_id, topic): topic for topic in changelogs}
    markers: dict[str, dict[int, Marker]] = {}
    partitions: dict[str, int] = {}
    if topics:
        for tp, data in (await last_markers(client, list(topics.values()))).items():
            if orjson.loads(data).get("app") == app_id:  # else it is of an app whose name begins like this one's
                marker = Marker.decode(data, app_id, f"{tp.topic}-{tp.partition}")
                if marker.positions:  # else it is of a global table
                    markers.setdefault(topic_names.table_of(app_id, tp.topic), {})[tp.partition] = marker
        partitions = {table: len(client.partitions(topics[table])) for table in markers}
    offsets = await admin.group_offsets(app_id)
    committed: dict[str, dict[int, int]] = {}
    for tp, offset in offsets.items():
        committed.setdefault(tp.topic, {})[tp.partition] = offset
    return Written(markers, partitions, committed, await _unread(client, committed, frozenset(read)))


async def _unread(client: Client, committed: Mapping[str, Mapping[int, int]], read: frozenset[str]) -> dict[str, int]:
    gone = sorted(committed.keys() - read)
    if not gone:
        return {}
    await client.refresh_metadata(gone)
    tps = [TopicPartition(topic, number) for topic in gone for number in client.partitions(topic)]
    ends = await Admin(client).list_offsets(dict.fromkeys(tps, "latest"), READ_COMMITTED) if tps else {}
    found: dict[str, int] = {}
    for tp, (end, *_) in ends.items():
        found[tp.topic] = found.get(tp.topic, 0) + max(0, end - committed[tp.topic].get(tp.partition, 0))
    return found
