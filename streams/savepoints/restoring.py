"""Carries out a plan: an app's topics are made anew and filled, or whoever comes next sees that it was not finished.

From the first change to the last one, the app has a topic that keeps workers away (`fence.py`). Rows are written in
transactions of a bounded size; the last one has all markers and the group's offsets. A restore that finds the topic of
an earlier one removes all that there is, and begins anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from ...client import Admin, Client, Producer
from ...client.admin import NewTopic
from ...client.errors import ProducerFailed
from ...client.types import GroupMetadata
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.primitives import uuid_to_str
from .. import admin
from ..engine import topic_names
from ..engine.checkpoint import MARKER, Marker
from ..errors import AppError, StreamsError
from ..runtime.declaring import without_unknown
from . import fence
from .format import Savepoint
from .plan import Plan, Put

TRANSACTION_TIMEOUT_MS = 60_000
TRANSACTION_BYTES = 32 << 20
TRANSACTION_S = 10.0
PUT_RECORDS_MAX = 10_000  # handed to the producer at a time
TOPICS_TIMEOUT_MS = 30_000.0  # until a deleted topic can be made anew
COMPRESSION = "lz4"

Told = Callable[[str], None]


async def check(client: Client, app_id: str, force: bool) -> None:
    """Raises AppError where a restore would be refused: the app runs, or has something here."""
    await admin.check_stopped(client, app_id)
    if force or (await fence.is_up(client, app_id) and await fence.read(client, app_id) is not None):
        return  # what is there is what a change has left that was not finished
    has = await admin.own_topics(client, app_id, topic_names.CHANGELOG, *topic_names.BETWEEN)
    if await admin.group_state(client, app_id) is not None and await Admin(client).group_offsets(app_id):
        has.append("offsets of its group")
    if has:
        raise AppError(
            f"app {app_id} has state here: {', '.join(has)}. Say --force to replace it (take a savepoint of it first), "
            "or --as ID to restore under another id"
        )


async def restore(
    client: Client, savepoint: Savepoint, plan: Plan, *, force: bool = False, told: Told = lambda words: None
) -> int:
    """Write what the plan says of a savepoint; returns the number of rows and records.

    Raises AppError where the app runs or, without `force`, has state here; KafkaError, ClientError and StreamsError
    where it could not be finished: then workers of the app do not start until it was."""
    await check(client, plan.app, force)
    folder = str(savepoint.folder.absolute())
    await fence.put_up(client, plan.app, fence.Change(fence.RESTORE, folder, savepoint.manifest.taken_ms))
    if await admin.is_running(client, plan.app):
        await fence.take_down(client, plan.app)
        await admin.check_stopped(client, plan.app)
    await _made_anew(client, plan)
    told(f"{len(plan.topics)} topics made")
    producer = Producer(
        client,
        compression=COMPRESSION,
        transactional_id=topic_names.fence(plan.app),
        transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
    )
    try:
        await producer.start()
    except (ProducerFailed, KafkaError) as error:
        raise StreamsError(
            f"app {plan.app}: the cluster gives no transactions, which a restore needs: {error}"
        ) from error
    try:
        count = await _fill(producer, plan, told)
        await producer.begin_transaction()
        await _send(producer, _markers(client, plan))
        await producer.send_offsets(plan.offsets, GroupMetadata(plan.app))
        await producer.commit_transaction()
    finally:
        await producer.close()
    await fence.take_down(client, plan.app)
    return count


async def _made_anew(client: Client, plan: Plan) -> None:
    """All topics of the app but dead letters, and its group, are removed, and those of the plan made."""
    cluster = Admin(client)
    old = await admin.own_topics(client, plan.app, topic_names.CHANGELOG, *topic_names.BETWEEN)
    if await admin.group_state(client, plan.app) is not None:
        await cluster.delete_groups([plan.app])
    if old:
        await cluster.delete_topics(old)
    wanted = [NewTopic(name, each.partitions, -1, each.options) for name, each in plan.topics.items()]
    async with client.operation(f"topics of app {plan.app}", TOPICS_TIMEOUT_MS) as operation:
        while wanted:
            try:
                await cluster.create_topics(wanted)
                break
            except KafkaError as error:
                if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                    wanted = without_unknown(wanted, error)
                    continue
                there = set(await cluster.list_topics())
                wanted = [each for each in wanted if each.name in old or each.name not in there]
                await operation.pause(error)  # of one that is being deleted, the name is free only then
    await client.refresh_metadata(list(plan.topics))
    for name, each in plan.topics.items():
        if len(client.partitions(name)) != each.partitions:
            raise AppError(
                f"topic {name} has {len(client.partitions(name))} partitions, not {each.partitions}: another program "
                "makes it. Stop the app's workers, and restore again"
            )


async def _fill(producer: Producer, plan: Plan, told: Told) -> int:
    loop = asyncio.get_running_loop()
    count = size_bytes = 0
    began_s = told_s = loop.time()
    await producer.begin_transaction()
    for put in plan.puts():
        await _send(producer, [put])
        count += len(put.keys)
        size_bytes += put.size_bytes
        now = loop.time()
        if size_bytes >= TRANSACTION_BYTES or now - began_s >= TRANSACTION_S:
            await producer.commit_transaction()
            await producer.begin_transaction()
            size_bytes, began_s = 0, loop.time()
        if now - told_s >= TRANSACTION_S:
            told_s = now
            told(f"{count:,} rows and records written")
    await producer.commit_transaction()
    return count


async def _send(producer: Producer, puts: Sequence[Put]) -> None:
    """Raises what keeps one of the records from being written."""
    sent = []
    for put in puts:
        for start in range(0, len(put.keys), PUT_RECORDS_MAX):
            some = slice(start, start + PUT_RECORDS_MAX)
            await producer.wait_for_space()
            sent.append(
                producer.send_many(
                    put.tp.topic,
                    put.values[some],
                    put.keys[some],
                    partition=put.tp.partition,
                    timestamps_ms=None if put.timestamps is None else put.timestamps[some],
                    headers=None if put.headers is None else put.headers[some],
                )
            )
    await producer.flush()
    await asyncio.gather(*sent)


def _markers(client: Client, plan: Plan) -> list[Put]:
    return [Put(tp, None, [MARKER], [_bound(marker, client, plan).encode()]) for tp, marker in plan.markers.items()]


def _bound(marker: Marker, client: Client, plan: Plan) -> Marker:
    """With the ids of the inputs. Those of topics that were just made anew are bound by the task that reads them: a
    broker that lags behind would tell the id of the one before."""
    ids = {topic: client.topic_id(topic) for topic in marker.positions if topic not in plan.topics}
    return replace(marker, topic_ids={topic: uuid_to_str(id) for topic, id in ids.items() if id is not None})
