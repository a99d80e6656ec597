"""Creates topics that a program declares."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...client import Admin, Client
from ...client.admin import NewTopic
from ...protocol.errors import ErrorCode, KafkaError
from ..api.settings import Settings
from ..errors import AppError
from .changelogs import Patience

if TYPE_CHECKING:
    from ..api.topics import Topic

log = logging.getLogger("isthmus.streams")

_POLICY = "cleanup.policy"

# Only segments that are closed are compacted: small ones, as Kafka Streams has them, keep a restart short.
CHANGELOG_OPTIONS = {_POLICY: "compact", "retention.ms": "-1", "segment.bytes": str(50 * 1024 * 1024)}

# Of Kafka 3.6. Before, a topic takes records of any time, unless somebody has said otherwise.
NEWER_OPTIONS = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")


async def create(client: Client, conf: Settings, topics: Mapping[str, tuple[int, Mapping[str, Any]]]) -> None:
    """Create what is not there. topics: name -> partitions, options. Raises AppError where the app may create none, and
    for a topic that is there and would lose what it must keep."""
    if not topics:
        return
    await client.refresh_metadata(list(topics))
    missing = {name: each for name, each in topics.items() if not client.partitions(name)}
    kept = [name for name, (_, options) in topics.items() if options.get(_POLICY) == "compact" and name not in missing]
    await _check_kept(client, conf.id, kept)
    if missing and not conf.topic_allow_declare:
        wanted = ", ".join(f"{name} with {partitions} partitions" for name, (partitions, _) in missing.items())
        raise AppError(f"app {conf.id} may create no topics (topic_allow_declare=False) and needs {wanted}")
    for name, (partitions, options) in missing.items():
        asked = [NewTopic(name, partitions, conf.topic_replication_factor, dict(options))]
        while asked:
            try:
                await Admin(client).create_topics(asked)
                log.info("app %s has created topic %s with %d partitions", conf.id, name, partitions)
                break
            except KafkaError as error:
                asked = [] if error.code == ErrorCode.TOPIC_ALREADY_EXISTS else without_unknown(asked, error)
    if missing:
        await client.refresh_metadata(list(topics))


def without_unknown(topics: Sequence[NewTopic], error: KafkaError) -> list[NewTopic]:
    """The topics without the option of NEWER_OPTIONS that the broker does not know; else raises its error."""
    is_known = error.code != ErrorCode.INVALID_CONFIG or "unknown" not in error.message.lower()
    unknown = None if is_known else next((each for each in NEWER_OPTIONS if each in error.message), None)
    if unknown is None or not any(unknown in topic.configs for topic in topics):
        raise error
    log.info("the cluster does not know the option %s: topics are made without it", unknown)
    return [
        replace(topic, configs={name: value for name, value in topic.configs.items() if name != unknown})
        for topic in topics
    ]


async def _check_kept(client: Client, app_id: str, changelogs: list[str]) -> None:
    """Raises AppError for a changelog whose rows the cluster deletes by their age."""
    if not changelogs:
        return
    patience = Patience()
    while True:
        try:
            found = await Admin(client).describe_configs(changelogs)
            break
        except KafkaError as error:  # another broker may not know what another worker has just created
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or not await patience.again():
                raise
    for topic, options in found.items():
        policy = next((each.value for each in options if each.name == _POLICY), None) or ""
        if "delete" in policy:
            raise AppError(
                f"app {app_id}: topic {topic} has {_POLICY}={policy}, so that rows of its table would be lost with "
                f"time. Say `isthmus topic alter {topic} --set {_POLICY}=compact`"
            )


async def declare(client: Client, conf: Settings, topic: Topic) -> None:
    """Create a topic, unless it is there. Raises AppError where the app may create none."""
    await create(client, conf, dict.fromkeys(topic.names, (topic.partitions or conf.topic_partitions, topic.config)))
