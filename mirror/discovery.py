"""Finds the topics of a link in the source and makes, grows and checks their counterparts in the target.

A mirrored topic is owned by its link: the target's topic options say so, and say of which source topic it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..client import Admin, Client
from ..client.admin import NewTopic
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.primitives import ZERO_UUID, uuid_to_str
from .link import COPIED_OPTIONS, LINK_OPTION, SOURCE_CLUSTER_OPTION, SOURCE_TOPIC_OPTION, MirrorLink
from .partition import State

TOPIC_CONFIG_SET = 1  # DescribeConfigs: the value is the topic's own


@dataclass(frozen=True)
class Found:
    """A topic of the link, or what is wrong with it."""

    topic: str
    target_topic: str
    topic_id: bytes
    partitions: range
    problem: tuple[State, str] | None = None


class Discovery:
    """Looks again and again; what is as it was costs two metadata requests."""

    def __init__(self, link: MirrorLink, source: Client, target: Client) -> None:
        self.link = link
        self.source = source
        self.target = target
        self.checked: dict[str, tuple[bytes, int]] = {}  # topic -> source id and partitions the target is known to have

    async def ensure_status_topic(self, name: str) -> None:
        try:
            options = {"cleanup.policy": "compact", "retention.ms": "-1"}
            await Admin(self.target).create_topics([NewTopic(name, 1, 1, options)])
        except KafkaError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

    async def look(self) -> list[Found]:
        """All topics of the link that the source has now; their counterparts exist when this returns."""
        names = [name for name in sorted(await Admin(self.source).list_topics()) if self.link.selects(name)]
        if not names:
            return []
        await self.source.refresh_metadata(names)
        found = []
        for name in names:
            count = len(self.source.partitions(name))
            if count:
                found.append(await self._counterpart(name, self.source.topic_id(name) or ZERO_UUID, count))
        await self.target.refresh_metadata([each.target_topic for each in found])
        return found

    async def _counterpart(self, topic: str, topic_id: bytes, count: int) -> Found:
        target_topic = self.link.target_name(topic)
        found = Found(topic, target_topic, topic_id, range(count))
        if self.checked.get(topic) == (topic_id, count):
            return found
        await self.target.refresh_metadata([target_topic])
        have = len(self.target.partitions(target_topic))
        if not have:
            await self._create(topic, target_topic, topic_id, count)
        elif problem := await self._problem(topic, target_topic, topic_id):
            return Found(topic, target_topic, topic_id, range(count), problem)
        elif have < count:
            await Admin(self.target).create_partitions(target_topic, count)
        self.checked[topic] = (topic_id, count)
        return found

    async def _create(self, topic: str, target_topic: str, topic_id: bytes, count: int) -> None:
        source_options = (await Admin(self.source).describe_configs([topic]))[topic]
        options = {
            entry.name: entry.value
            for entry in source_options
            if entry.name in COPIED_OPTIONS and entry.config_source == TOPIC_CONFIG_SET
        }
        options |= {
            LINK_OPTION: self.link.name,
            SOURCE_CLUSTER_OPTION: self.source.cluster_id or "",
            SOURCE_TOPIC_OPTION: uuid_to_str(topic_id),
        }
        try:
            await Admin(self.target).create_topics([NewTopic(target_topic, count, -1, options)])
        except KafkaError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:  # a second worker of the link was first
                raise

    async def _problem(self, topic: str, target_topic: str, topic_id: bytes) -> tuple[State, str] | None:
        """Why the target's topic cannot be this link's; None when it is."""
        entries = (await Admin(self.target).describe_configs([target_topic]))[target_topic]
        options = {entry.name: entry.value for entry in entries}
        owner = options.get(LINK_OPTION) or ""
        if owner != self.link.name:
            by = f"is owned by link {owner}" if owner else "was not made by a mirror"
            return State.FAILED, (
                f"the target's topic {target_topic} {by}: delete it, or give link {self.link.name} another rename"
            )
        if options.get(SOURCE_TOPIC_OPTION) != uuid_to_str(topic_id):
            return State.SOURCE_RECREATED, (
                f"the source topic {topic} was deleted and made anew: delete {target_topic} in the target to mirror it "
                "from its beginning"
            )
        return None
