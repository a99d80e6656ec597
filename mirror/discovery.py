"""Finds the topics of a link in the source, and creates, grows and checks their counterparts in the target.

A mirrored topic is owned by its link: options of the target's topic name the link and the source topic. Options that
define the meaning of the data, and how long it is kept, follow the source's. Discovery is repeated; without changes it
costs two requests to the source and one to the target. If the source refuses a topic, only that topic is affected.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..client import Admin, Client
from ..client.admin import TOPIC, NewTopic
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages import describe_configs
from ..protocol.primitives import ZERO_UUID, uuid_to_str
from ..runtime import Runtime
from .link import COPIED_OPTIONS, LINK_OPTION, PATH_OPTION, SOURCE_CLUSTER_OPTION, SOURCE_TOPIC_OPTION, MirrorLink
from .partition import State, longer

log = logging.getLogger("isthmus.mirror")

TOPIC_CONFIG_SET = 1  # DescribeConfigs: the value is set on the topic
READ_OPTIONS = (*COPIED_OPTIONS, PATH_OPTION, SOURCE_CLUSTER_OPTION)


@dataclass(frozen=True)
class Found:
    """A topic of the link and its counterpart (target_id None: it does not exist), or the problem with it.

    next_try_ms: wall time of the next try of what the source refused; -1: it refused nothing.
    """

    topic: str
    topic_id: bytes
    partitions: range
    target_topic: str
    target_id: bytes | None = None
    problem: tuple[State, str] | None = None
    next_try_ms: int = -1


@dataclass(frozen=True)
class SourceTopic:
    """The options of a source topic. path: ids of the clusters that its records passed before the source. options:
    those of COPIED_OPTIONS that are set on it."""

    topic_id: bytes
    path: tuple[str, ...]
    options: Mapping[str, str]


@dataclass(frozen=True)
class Refusal:
    """Why the source does not allow reading a topic's options. retry_at: loop time; next_try_ms: wall time."""

    topic_id: bytes
    reason: str
    backoff_ms: float
    retry_at: float
    next_try_ms: int


@dataclass(frozen=True)
class Checked:
    """Source and target as they were when a counterpart was last found correct."""

    source: SourceTopic
    count: int
    target_id: bytes | None


class Discovery:
    """`source_topics` asks the source, `reconcile_target` the target; each raises errors of its own side only."""

    def __init__(self, link: MirrorLink, source: Client, target: Client, runtime: Runtime) -> None:
        self.link = link
        self.source = source
        self.target = target
        self.runtime = runtime
        self.selected: list[str] = []  # source topics that the link selected at the last listing
        self.checked: dict[str, Checked] = {}
        self.known: dict[str, SourceTopic] = {}  # in the order in which their options are re-read
        self.refused: dict[str, Refusal] = {}

    async def source_topics(self, known: Iterable[str]) -> dict[str, tuple[bytes, int]]:
        """Topics of the link: name -> id and number of partitions. `known` topics are checked too: they may be deleted.

        Topics that came through the target are left out: links in both directions, or in a ring, would copy for ever.
        """
        self.selected = [name for name in await Admin(self.source).list_topics() if self.link.selects(name)]
        asked = sorted({*self.selected, *known})
        if asked:
            await self.source.refresh_metadata(asked, timeout_ms=self.link.limits.request_timeout_ms)
        found = {
            name: (self.source.topic_id(name) or ZERO_UUID, count)
            for name in self.selected
            if (count := len(self.source.partitions(name)))
        }
        await self._read_options({name: topic_id for name, (topic_id, _) in found.items()})
        return {name: what for name, what in found.items() if self.has(name)}

    def has(self, topic: str) -> bool:
        """Whether the source had a topic of this name, selected by the link, when it was last asked."""
        if topic in self.known:
            return self.target.cluster_id not in self.known[topic].path
        return topic in self.refused

    async def _read_options(self, topics: Mapping[str, bytes]) -> None:
        """Ask the source for the options of new topics, and of some others in turn."""
        self.known = {name: topic for name, topic in self.known.items() if topics.get(name) == topic.topic_id}
        self.refused = {name: why for name, why in self.refused.items() if topics.get(name) == why.topic_id}
        now = asyncio.get_running_loop().time()
        new = [name for name in topics if name not in self.known]
        in_turn = list(self.known)[: self.link.limits.options_topics]  # `_learn` puts each at the end
        asked = [*new, *in_turn]
        asked = [name for name in asked if name not in self.refused or self.refused[name].retry_at <= now]
        if not asked:
            return
        for result in await _described(self.source, asked):
            name = result.resource_name
            if name not in topics:
                continue
            if not result.error_code:
                self._learn(name, topics[name], result.configs)
            elif result.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # else it was just deleted
                self._refuse(name, topics[name], KafkaError.of(result.error_code, result.error_message or ""))

    def _learn(self, topic: str, topic_id: bytes, entries: Iterable[Any]) -> None:
        self.refused.pop(topic, None)
        is_new = self.known.pop(topic, None) is None
        values = {entry.name: entry.value for entry in entries}
        path = values.get(PATH_OPTION) or values.get(SOURCE_CLUSTER_OPTION) or ""
        self.known[topic] = SourceTopic(topic_id, tuple(path.split(",")) if path else (), _set_options(entries))
        if is_new and self.target.cluster_id in self.known[topic].path:
            log.info("link %s: %s came from the target and is not mirrored back", self.link.name, topic)

    def _refuse(self, topic: str, topic_id: bytes, error: KafkaError) -> None:
        """Ask again at growing intervals. A topic whose options were read before keeps using those."""
        limits = self.link.limits
        before = self.refused.get(topic)
        backoff_ms = longer(
            before.backoff_ms if before else 0, limits.discovery_interval_ms, limits.refused_backoff_max_ms
        )
        reason = (
            f"the source refuses to describe the options of {topic}: {error}: allow the mirror DescribeConfigs on the "
            "topic; without them it is unknown whether its records came from the target"
        )
        retry_at = asyncio.get_running_loop().time() + self.runtime.jittered(backoff_ms) / 1000
        next_try_ms = self.runtime.wall_ms() + round(backoff_ms)
        self.refused[topic] = Refusal(topic_id, reason, backoff_ms, retry_at, next_try_ms)
        if topic in self.known:
            self.known[topic] = self.known.pop(topic)
            if before is None:
                log.warning("link %s: %s; its copy keeps the options it has", self.link.name, reason)

    async def reconcile_target(self, topics: dict[str, tuple[bytes, int]]) -> list[Found]:
        """Make, check and grow the counterparts of these topics. Left out: those whose counterpart is not there yet."""
        if topics:
            wanted = sorted(self.link.target_name(topic) for topic in topics)
            await self.target.refresh_metadata(wanted, timeout_ms=self.link.limits.request_timeout_ms)
        found = []
        for topic, (topic_id, count) in topics.items():
            target_topic = self.link.target_name(topic)
            each = Found(topic, topic_id, range(count), target_topic)
            source = self.known.get(topic)
            if source is None:
                why = self.refused[topic]
                found.append(replace(each, problem=(State.FAILED, why.reason), next_try_ms=why.next_try_ms))
                continue
            problem = None
            if self.checked.get(topic) != Checked(source, count, self.target.topic_id(target_topic)):
                self.checked.pop(topic, None)
                try:
                    problem = await self._counterpart(topic, target_topic, source, count)
                except KafkaError as error:
                    state = State.CATCHING_UP if error.retriable else State.FAILED
                    problem = state, f"the target's topic {target_topic} cannot be created or described: {error}"
            target_id = self.target.topic_id(target_topic)
            if not problem:
                if len(self.target.partitions(target_topic)) < count:
                    continue
                self.checked[topic] = Checked(source, count, target_id)
            found.append(replace(each, target_id=target_id, problem=problem))
        return found

    async def _counterpart(
        self, topic: str, target_topic: str, source: SourceTopic, count: int
    ) -> tuple[State, str] | None:
        """Create, check, grow or alter one counterpart. Returns the problem, if any."""
        have = len(self.target.partitions(target_topic))
        if not have:
            await self._create(target_topic, source, count)
        else:
            entries = (await Admin(self.target).describe_configs([target_topic]))[target_topic]
            if problem := self._problem(topic, target_topic, source.topic_id, entries):
                return problem
            if have < count:
                await Admin(self.target).create_partitions(target_topic, count)
            await self._follow_options(target_topic, source.options, _set_options(entries))
        await self.target.refresh_metadata([target_topic], timeout_ms=self.link.limits.request_timeout_ms)
        return None

    async def _create(self, target_topic: str, source: SourceTopic, count: int) -> None:
        cluster_id = self.source.cluster_id or ""
        options = {
            **source.options,
            LINK_OPTION: self.link.name,
            SOURCE_CLUSTER_OPTION: cluster_id,
            SOURCE_TOPIC_OPTION: uuid_to_str(source.topic_id),
            PATH_OPTION: ",".join((*source.path, cluster_id)),
        }
        try:
            await Admin(self.target).create_topics([NewTopic(target_topic, count, -1, options)])
        except KafkaError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:  # a second worker of the link was first
                raise

    async def _follow_options(self, target_topic: str, wanted: Mapping[str, str], present: Mapping[str, str]) -> None:
        """Set the source topic's current options on the counterpart. A refusal is logged; records are still copied."""
        changes: dict[str, str | None] = {name: None for name in present if name not in wanted}
        changes |= {name: value for name, value in wanted.items() if present.get(name) != value}
        if not changes:
            return
        said = ", ".join(f"{name}={'default' if value is None else value}" for name, value in changes.items())
        try:
            await Admin(self.target).alter_configs(target_topic, changes)
        except KafkaError as error:
            if error.retriable:
                raise
            log.warning(
                "link %s: %s cannot follow its source's options %s: %s", self.link.name, target_topic, said, error
            )
        else:
            log.info("link %s: %s follows its source's options: %s", self.link.name, target_topic, said)

    def _problem(
        self, topic: str, target_topic: str, topic_id: bytes, entries: Iterable[Any]
    ) -> tuple[State, str] | None:
        """Why the target's topic, which has these options, cannot belong to this link; None if it does."""
        options = {entry.name: entry.value for entry in entries}
        owner = options.get(LINK_OPTION) or ""
        if owner != self.link.name:
            by = f"is owned by link {owner}" if owner else "was not created by a mirror"
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


async def _described(client: Client, topics: Iterable[str]) -> list[Any]:
    """`describe_configs.DescribeConfigsResult` of each topic, with its own error. Raises ClientError."""
    resources = [
        describe_configs.DescribeConfigsResource(
            resource_type=TOPIC, resource_name=name, configuration_keys=list(READ_OPTIONS)
        )
        for name in topics
    ]
    answer = await client.request(describe_configs.Request(resources=resources))
    results: list[Any] = answer.results
    return results


def _set_options(entries: Iterable[Any]) -> dict[str, str]:
    """The options that are set on the topic itself and that a mirror copies."""
    return {
        entry.name: entry.value
        for entry in entries
        if entry.name in COPIED_OPTIONS and entry.config_source == TOPIC_CONFIG_SET and entry.value is not None
    }


def recreated(topic: str, target_topic: str) -> str:
    return f"the source topic {topic} was deleted and created again: {way_out(target_topic)}"


def way_out(target_topic: str) -> str:
    return f"delete {target_topic} in the target to mirror the source again from its start"
