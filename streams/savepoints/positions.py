"""Where inputs are read on in the cluster that a savepoint is restored to.

An offset means something in the very topic that it was read in, or in a mirror's copy that keeps offsets. So it is kept
by itself only where the topic has the same id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...client import Admin, Client, TopicPartition
from ...protocol.primitives import uuid_to_str
from ..engine.checkpoint import Position
from ..errors import AppError
from .format import Input

KEEP, TIME, EARLIEST, LATEST = "keep", "time", "earliest", "latest"
WAYS = (KEEP, TIME, EARLIEST, LATEST)
ALL = ""  # topics that no way is named for
OTHERS_SHOWN = 5


def parse(said: Sequence[str]) -> dict[str, str]:
    """`WAY`, or `TOPIC=WAY`, as they are typed -> way by topic, ALL for the others. Raises AppError."""
    found: dict[str, str] = {}
    for each in said:
        topic, _, way = each.rpartition("=")
        if way not in WAYS:
            raise AppError(f"--positions {each}: write WAY or TOPIC=WAY, and as way one of {', '.join(WAYS)}")
        found[topic] = way
    return found


async def resolve(
    client: Client, inputs: Mapping[str, Input], ways: Mapping[str, str]
) -> dict[TopicPartition, Position]:
    """The position of each input partition here. Topics that are not here have none: the app waits for them, and
    begins them as a new app does; that must be said by the way `earliest` or `latest`.

    Raises AppError where it is not said what to do with a topic, a way is for another topic, or a position does not
    exist here.
    """
    if unknown := sorted(ways.keys() - inputs.keys() - {ALL}):
        raise AppError(f"--positions {unknown[0]}={ways[unknown[0]]}: the app has not read it, but {', '.join(inputs)}")
    await client.refresh_metadata(list(inputs))
    found: dict[TopicPartition, Position] = {}
    unsaid: list[str] = []
    absent: list[str] = []
    for topic, saved in inputs.items():
        there = client.topic_id(topic)
        is_same = there is not None and uuid_to_str(there) == saved.topic_id
        way = ways.get(topic, KEEP if is_same else ways.get(ALL, ""))
        if not way:
            (unsaid if client.partitions(topic) else absent).append(topic)
        elif not client.partitions(topic):
            if way not in (EARLIEST, LATEST):
                raise AppError(
                    f"topic {topic} is not here, so that positions in it cannot be kept: make it first (a mirror's "
                    f"copy keeps offsets), or say --positions {topic}={EARLIEST}: the app waits for it"
                )
        elif way == KEEP:
            found |= await _kept(client, topic, saved, is_same)
        else:
            found |= await _looked_up(client, topic, saved, way)
    if absent:
        raise AppError(
            f"topic {absent[0]} is not here, and the app has read it: make it first (a mirror's copy keeps offsets) "
            f"and say --positions {KEEP}, or say --positions {absent[0]}={EARLIEST}: the app waits for it"
        )
    if unsaid:
        names = ", ".join(unsaid[:OTHERS_SHOWN]) + ", …" * (len(unsaid) > OTHERS_SHOWN)
        raise AppError(
            f"{names}: not the topic that the app has read, by its id, so that offsets may mean something else. Say "
            f"where it goes on: --positions {KEEP} for copies of a mirror that keeps offsets; {TIME}: with the first "
            f"record of the time that it had come to (some may count twice); {EARLIEST} or {LATEST}; or TOPIC=WAY for "
            "one of them"
        )
    return found


async def _kept(client: Client, topic: str, saved: Input, is_same: bool) -> dict[TopicPartition, Position]:
    tps = [TopicPartition(topic, partition) for partition in saved.reached]
    if missing := [tp for tp in tps if tp.partition not in client.partitions(topic)]:
        raise AppError(
            f"topic {topic} has {len(client.partitions(topic))} partitions here, and the app has read partition "
            f"{missing[0].partition}: it is not a copy of the same topic. Say another way than {KEEP}"
        )
    begins = await Admin(client).list_offsets(dict.fromkeys(tps, "earliest"))
    ends = await Admin(client).list_offsets(dict.fromkeys(tps, "latest"))
    found = {}
    for tp in tps:
        at = saved.reached[tp.partition]
        if not begins[tp][0] <= at.offset <= ends[tp][0]:
            raise AppError(
                f"{tp.topic}-{tp.partition} has offsets {begins[tp][0]} to {ends[tp][0]} here, and the state goes up "
                f"to {at.offset}: wait until a mirror has brought them, or say another way than {KEEP}: "
                f"--positions {topic}={TIME}"
            )
        found[tp] = Position(at.offset, at.leader_epoch if is_same else -1)
    return found


async def _looked_up(client: Client, topic: str, saved: Input, way: str) -> dict[TopicPartition, Position]:
    tps = [TopicPartition(topic, partition) for partition in client.partitions(topic)]
    wanted: dict[TopicPartition, str | int] = dict.fromkeys(tps, way)
    if way == TIME:
        # Records may be in other partitions here: each goes on at the earliest time of all.
        times = [at.timestamp_ms for at in saved.reached.values() if at.timestamp_ms >= 0]
        alike = len(tps) == saved.partitions
        for tp in tps:
            own = saved.reached[tp.partition].timestamp_ms if alike and tp.partition in saved.reached else -1
            wanted[tp] = own if own >= 0 else min(times, default=EARLIEST)
    found = await Admin(client).list_offsets(wanted)
    late = [tp for tp, (offset, *_) in found.items() if offset < 0]
    if late:
        found |= await Admin(client).list_offsets(dict.fromkeys(late, LATEST))
    return {tp: Position(offset) for tp, (offset, *_) in found.items()}
