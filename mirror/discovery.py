"""Finds the topics of a link in the source and makes, grows and checks their counterparts in the target.

A mirrored topic is owned by its link: the target's topic options say so, and say of which source topic it is. Looks
again and again; what is as it was costs a request to each side.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from ..client import Admin, Client
from ..client.admin import NewTopic
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.primitives import ZERO_UUID, uuid_to_str
from .link import COPIED_OPTIONS, LINK_OPTION, PATH_OPTION, SOURCE_CLUSTER_OPTION, SOURCE_TOPIC_OPTION, MirrorLink
from .partition import State

log = logging.getLogger("isthmus.mirror")

TOPIC_CONFIG_SET = 1  # DescribeConfigs: the value is the topic's own


@dataclass(frozen=True)
class Found:
    """A topic of the link and its counterpart (target_id None: not there), or what is wrong with it."""

    topic: str
    topic_id: bytes
    partitions: range
    target_topic: str
    target_id: bytes | None = None
    problem: tuple[State, str] | None = None


class Discovery:
    """`source_topics` asks the source, `settle` the target; each raises what its own side is troubled by."""

    def __init__(self, link: MirrorLink, source: Client, target: Client) -> None:
        self.link = link
        self.source = source
        self.target = target
        # topic -> source id, partitions and target id that were found to be right
        self.checked: dict[str, tuple[bytes, int, bytes | None]] = {}
        # topic -> source id, and the clusters its records came through before the source
        self.paths: dict[str, tuple[bytes, tuple[str, ...]]] = {}

    async def ensure_status_topic(self, name: str) -> None:
        try:
            options = {"cleanup.policy": "compact", "retention.ms": "-1"}
            await Admin(self.target).create_topics([NewTopic(name, 1, 1, options)])
        except KafkaError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

    async def source_topics(self, known: Iterable[str]) -> dict[str, tuple[bytes, int]]:
        """Topic of the link -> its id and number of partitions. `known` are looked at, too: they may be gone.

        What came through the target is left out: links that point both ways, or in a ring, would carry it for ever.
        """
        names = [name for name in await Admin(self.source).list_topics() if self.link.selects(name)]
        asked = sorted({*names, *known})
        if asked:
            await self.source.refresh_metadata(asked)
        found = {
            name: (self.source.topic_id(name) or ZERO_UUID, count)
            for name in names
            if (count := len(self.source.partitions(name)))
        }
        await self._find_paths({name: topic_id for name, (topic_id, _) in found.items()})
        return {name: what for name, what in found.items() if self.has(name)}

    def has(self, topic: str) -> bool:
        """Whether the source had a topic of the link by this name when it was last asked."""
        return topic in self.paths and self.target.cluster_id not in self.paths[topic][1]

    async def _find_paths(self, topics: dict[str, bytes]) -> None:
        """Ask the source where the records of topics it did not have before came from."""
        self.paths = {name: path for name, path in self.paths.items() if topics.get(name) == path[0]}
        new = [name for name in topics if name not in self.paths]
        if not new:
            return
        try:
            described = await Admin(self.source).describe_configs(new)
        except KafkaError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            return  # one was deleted just now: the others are asked about at the next look
        for name, entries in described.items():
            options = {entry.name: entry.value for entry in entries}
            path = options.get(PATH_OPTION) or options.get(SOURCE_CLUSTER_OPTION) or ""
            self.paths[name] = topics[name], tuple(path.split(",")) if path else ()
            if self.target.cluster_id in self.paths[name][1]:
                log.info("link %s: %s came from the target and is not carried back", self.link.name, name)

    async def settle(self, topics: dict[str, tuple[bytes, int]]) -> list[Found]:
        """Make the counterparts as they must be. A topic whose counterpart is not there yet is left out."""
        if topics:
            await self.target.refresh_metadata(sorted(self.link.target_name(topic) for topic in topics))
        found = []
        for topic, (topic_id, count) in topics.items():
            target_topic = self.link.target_name(topic)
            problem = None
            if self.checked.get(topic) != (topic_id, count, self.target.topic_id(target_topic)):
                self.checked.pop(topic, None)
                try:
                    problem = await self._counterpart(topic, target_topic, topic_id, count)
                except KafkaError as error:
                    if error.retriable:
                        continue
                    problem = State.FAILED, f"the target's topic {target_topic} cannot be made: {error}"
            target_id = self.target.topic_id(target_topic)
            if not problem:
                if len(self.target.partitions(target_topic)) < count:
                    continue
                self.checked[topic] = topic_id, count, target_id
            found.append(Found(topic, topic_id, range(count), target_topic, target_id, problem))
        return found

    async def _counterpart(
        self, topic: str, target_topic: str, topic_id: bytes, count: int
    ) -> tuple[State, str] | None:
        """Make, check or grow one; what is wrong with it."""
        have = len(self.target.partitions(target_topic))
        if not have:
            await self._create(topic, target_topic, topic_id, count)
        elif problem := await self._problem(topic, target_topic, topic_id):
            return problem
        elif have < count:
            await Admin(self.target).create_partitions(target_topic, count)
        await self.target.refresh_metadata([target_topic])
        return None

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
            PATH_OPTION: ",".join((*self.paths[topic][1], self.source.cluster_id or "")),
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
        cluster = options.get(SOURCE_CLUSTER_OPTION) or ""
        if cluster and cluster != self.source.cluster_id:
            return State.SOURCE_RECREATED, (
                f"the target's topic {target_topic} mirrors cluster {cluster}, but the source is now cluster "
                f"{self.source.cluster_id}: {way_out(target_topic)}"
            )
        if options.get(SOURCE_TOPIC_OPTION) != uuid_to_str(topic_id):
            return State.SOURCE_RECREATED, recreated(topic, target_topic)
        return None


def recreated(topic: str, target_topic: str) -> str:
    return f"the source topic {topic} was deleted and made anew: {way_out(target_topic)}"


def way_out(target_topic: str) -> str:
    return f"delete {target_topic} in the target to mirror anew what the source has"
