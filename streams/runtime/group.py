"""How a worker is in its group: by the classic protocol, or by KIP-848.

In a classic group one worker assigns whole tasks (`assignor.py`), keeps them where their tables are, and has copies
made before a task moves. By KIP-848 (`group_protocol='consumer'`) the cluster assigns partitions, and knows nothing of
tasks (KIP-1071 would): workers tell each other nothing, so that there are no standbys, no copies before a task moves,
and nobody knows where a key's row is. A task begins where all of its partitions are. `range` gives one worker the same
partition numbers of all topics with equal counts, if all workers read the same topics, and so it is asked for where a
task reads several topics. Otherwise the cluster's first assignor is used: `uniform`, which leaves most where it is.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence
from functools import partial

from ...client import Admin, Client, Consumer, TopicPartition
from ...client.joining import CONSUMER
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.primitives import uuid_from_str
from ..api.app import App
from ..engine.task import TaskId
from ..engine.topology import Topology
from ..errors import AppError
from .assignor import TaskAssignor

log = logging.getLogger("isthmus.streams")

MEMBER = "member-"  # begins the name of a worker that its group of KIP-848 has named
TOGETHER = "range"  # the server's assignor that keeps a task's partitions together
SPLIT_S = 30.0  # for so long a task may be here in part before that is said: others have to give up the rest first
CLASSIC_OPTIONS = ("broker_session_timeout", "broker_heartbeat_interval", "table_standby_replicas")

_CLASSIC = "workers of the classic protocol are in its group, whose assignor is their own: stop them all first"
_REFUSALS: Mapping[int, str] = {
    ErrorCode.UNSUPPORTED_VERSION: "the cluster has no such groups: it must be of Kafka 4.0 or later, with "
    "group.version 1 (kafka-features upgrade)",
    ErrorCode.UNSUPPORTED_ASSIGNOR: f"tasks that read several topics need the assignor '{TOGETHER}', which the "
    "cluster's group.consumer.assignors lacks",
    ErrorCode.GROUP_ID_NOT_FOUND: _CLASSIC,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: _CLASSIC,
}


def new_consumer(app: App, client: Client, topology: Topology, assignor: TaskAssignor) -> Consumer:
    """Of the app's group."""
    conf = app.conf
    make = partial(
        Consumer,
        client,
        group_id=app.id,
        auto_offset_reset="none",  # positions come from checkpoints
        isolation="read_committed",  # what a transaction aborted is no input
        max_poll_interval_ms=None,  # agents may take long between polls
        group_instance_id=conf.consumer_group_instance_id,
        rebalance_timeout_ms=round(conf.broker_rebalance_timeout * 1000),
        partition_max_bytes=conf.consumer_max_fetch_size,
    )
    if conf.group_protocol == CONSUMER:
        is_tied = any(len(each.topics) > 1 for each in topology.subtopologies.values())
        return make(group_protocol=CONSUMER, server_assignor=TOGETHER if is_tied else None)
    return make(
        assignors=[assignor],
        session_timeout_ms=round(conf.broker_session_timeout * 1000),
        heartbeat_interval_ms=round(conf.broker_heartbeat_interval * 1000),
    )


def name_of(consumer: Consumer) -> str | None:
    """Of a worker that nobody gave one, in a group of KIP-848: what the group knows it by. None in a classic group."""
    return _named(consumer.member_id) if consumer.member_id else None


def _named(member_id: str) -> str:
    return MEMBER + uuid_from_str(member_id).hex()


async def writers_named_by(client: Client, app_id: str) -> set[str]:
    """The transactional ids of the workers that a group of KIP-848 has now, and that are named by it."""
    [group] = await Admin(client).describe_consumer_groups([app_id])
    found = set[str]()
    for member in group.members:
        with contextlib.suppress(ValueError):  # else it is of another kind
            found.add(f"{app_id}-{_named(member.member_id)}")
    return found


def tell_what_is_not_there(app: App) -> None:
    """Log what a worker is without in a group of KIP-848."""
    if app.conf.group_protocol != CONSUMER:
        return
    unused = [name for name in CLASSIC_OPTIONS if app.conf.said.get(name)]
    log.warning(
        "app %s: group_protocol='consumer': the cluster assigns partitions. There are no standbys and no copies before "
        "a task moves, and requests for a key that is elsewhere are refused%s",
        app.id,
        f". Set, and without effect: {', '.join(unused)}" if unused else "",
    )


def refusal(app: App, error: KafkaError) -> AppError | None:
    """What keeps the app from a group of KIP-848 for good, with the way out; None: something else."""
    if app.conf.group_protocol != CONSUMER or error.code not in _REFUSALS:
        return None
    return AppError(f"app {app.id} cannot have group_protocol='consumer': {_REFUSALS[ErrorCode(error.code)]}: {error}")


class Split:
    """Notices tasks that stay here in part, since the rest of their partitions is assigned to others."""

    def __init__(self, app: str) -> None:
        self._app = app
        self._since: dict[TaskId, float] = {}
        self._told: dict[TaskId, None] = {}

    def seen(self, now_s: float, missing: Mapping[TaskId, Sequence[TopicPartition]]) -> None:
        """missing: of each task of which some partitions are here, those that are not."""
        self._since = {id: self._since.get(id, now_s) for id in missing}
        self._told = {id: None for id in self._told if id in missing}
        late = [id for id, since in self._since.items() if now_s - since >= SPLIT_S and id not in self._told]
        if not late:
            return
        self._told |= dict.fromkeys(late)
        names = ", ".join(f"{tp.topic}-{tp.partition}" for tp in missing[late[0]])
        log.error(
            "app %s: %d tasks cannot begin here for %.0f s, since a part of their partitions is elsewhere (of %s: %s). "
            "Workers that read other topics, such as another version of the app, or that want another assignor, split "
            "tasks: let all run the same app, or use group_protocol='classic'",
            self._app,
            len(late),
            SPLIT_S,
            late[0],
            names,
        )
