"""The topics of a datacenter: what has to be done so that they are as the file says, and doing it.

What is there and not in the file is left as it is: nothing here removes records. An option that the file named when it
was applied last, and names no more, goes back to its default; one that somebody set by hand stays.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..client import Admin, Client
from ..client.admin import NewTopic
from ..client.errors import ClientError
from ..protocol.errors import ErrorCode, KafkaError
from .errors import DeployError, counted
from .nodes import factor_of, topic_options

if TYPE_CHECKING:
    from .topology import Datacenter

OF_THE_TOPIC = 1  # source of an option's value, as DescribeConfigs tells it
START_TIMEOUT_MS = 10_000
KEYS_MOVE = "a key's records may go to another partition from then on"


@dataclass(frozen=True)
class TopicStep:
    """What is to be done to one topic. new: it is not there. count: partitions that it grows to. options: to be set, or
    with None to go back to the default. details: the same for people."""

    datacenter: str
    topic: str
    new: NewTopic | None = None
    count: int | None = None
    options: Mapping[str, str | None] = field(default_factory=dict)
    details: tuple[str, ...] = ()

    @property
    def verb(self) -> str:
        return "create" if self.new else "change"


def wanted(datacenter: Datacenter) -> dict[str, NewTopic]:
    """The topics of a datacenter as the file says, by name."""
    return {
        topic: NewTopic(topic, each.partitions, factor_of(datacenter, each), topic_options(datacenter, each))
        for topic, each in datacenter.topics.items()
    }


@contextlib.asynccontextmanager
async def administered(name: str, bootstrap: str) -> AsyncIterator[Admin]:
    """An Admin of a datacenter; whatever a cluster says in there is a DeployError that names the datacenter."""
    client = Client(bootstrap, client_id="isthmus-deploy")
    try:
        await client.start(START_TIMEOUT_MS)
        yield Admin(client)
    except (ClientError, KafkaError) as error:
        raise DeployError(f"datacenter {name}: {error}") from None
    finally:
        await client.close()


async def create_topics(bootstrap: str, name: str, datacenter: Datacenter) -> list[str]:
    """Make the datacenter's topics that are not there yet. Those that are stay as they are: gives a line for each that
    is not as the file says. Raises DeployError."""
    made = wanted(datacenter)
    if not made:
        return []
    differing = []
    async with administered(name, bootstrap) as admin:
        for topic in made.values():
            try:
                await admin.create_topics([topic])
            except KafkaError as error:
                if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise DeployError(f"datacenter {name}: topic {topic.name}: {error}") from None
                there = await _there(admin, topic.name)
                if found := there.differences(topic):
                    differing.append(f"datacenter {name}: topic {topic.name} is left as it was made: {found}")
    return differing


def new_topic(datacenter: str, topic: NewTopic) -> TopicStep:
    """The step that makes a topic that is not there."""
    details = [counted(topic.partitions, "partition"), counted(topic.replication_factor, "replica")]
    details += [f"{option}={value}" for option, value in topic.configs.items()]
    return TopicStep(datacenter, topic.name, topic, details=tuple(details))


async def plan_topics(
    admin: Admin, name: str, topics: Mapping[str, NewTopic], before: Mapping[str, NewTopic]
) -> tuple[list[TopicStep], list[str], list[str]]:
    """What is to be done; what cannot be, each with the way out; and the topics that are there and that the file has
    named before, and names no more. before: the topics when the file was applied last.

    The cluster is asked whether it would do it; nothing is changed.
    """
    there = set(await admin.list_topics())
    steps: list[TopicStep] = []
    refused: list[str] = []
    for topic in topics.values():
        if topic.name not in there:
            step: TopicStep | None = new_topic(name, topic)
        else:
            found = await _there(admin, topic.name)
            if problems := found.refusals(topic):
                refused += [f"datacenter {name}: topic {topic.name}: {each}" for each in problems]
                continue
            step = found.step(name, topic, before.get(topic.name))
        if step:
            try:
                await do(admin, step, validate_only=True)
            except KafkaError as error:
                refused.append(f"datacenter {name}: {error}")
            else:
                steps.append(step)
    return steps, refused, [topic for topic in before if topic in there and topic not in topics]


async def do(admin: Admin, step: TopicStep, validate_only: bool = False) -> None:
    """Raises KafkaError, ClientError."""
    if step.new:
        await admin.create_topics([step.new], validate_only)
    if step.count:
        await admin.create_partitions(step.topic, step.count, validate_only)
    if step.options:
        await admin.alter_configs(step.topic, step.options, validate_only)


@dataclass(frozen=True)
class There:
    """A topic as it is. options: with the defaults; own: names of those that were set for it."""

    partitions: int
    factors: Sequence[int]
    options: Mapping[str, str | None]
    own: frozenset[str]

    def differences(self, topic: NewTopic) -> str:
        """In what it is not as it is wanted: an empty text where it is. An option that is not wanted may be set:
        somebody has done so by hand."""
        found = []
        if self.factors != [topic.replication_factor]:
            factors = " or ".join(map(str, self.factors))
            found.append(f"it has {factors} replicas, the file says {topic.replication_factor}")
        if self.partitions != topic.partitions:
            found.append(f"it has {counted(self.partitions, 'partition')}, the file says {topic.partitions}")
        for option, value in self._differing(topic).items():
            found.append(f"its {option} is {self.options.get(option)}, the file says {value}")
        return "; ".join(found)

    def refusals(self, topic: NewTopic) -> list[str]:
        """What cannot be made of it while it is there, with the way out."""
        found = []
        if self.partitions > topic.partitions:
            found.append(
                f"it has {counted(self.partitions, 'partition')}, and none can be taken away: write "
                f"partitions: {self.partitions}, or give a new topic another name"
            )
        if self.factors != [topic.replication_factor]:
            factors = " or ".join(map(str, self.factors))
            found.append(
                f"it has {factors} replicas, the file says {topic.replication_factor}: `isthmus topic replicas "
                f"{topic.name} --factor {topic.replication_factor}` moves records, which this does not"
            )
        return found

    def step(self, datacenter: str, topic: NewTopic, before: NewTopic | None) -> TopicStep | None:
        """None where it is as it is wanted."""
        options: dict[str, str | None] = {}
        details = []
        if topic.partitions > self.partitions:
            details.append(f"partitions {self.partitions} -> {topic.partitions} ({KEYS_MOVE})")
        for option, value in self._differing(topic).items():
            options[option] = value
            details.append(f"{option} {self.options.get(option)} -> {value}")
        for option in before.configs if before else ():
            if option not in topic.configs and option in self.own:
                options[option] = None
                details.append(f"{option} {self.options.get(option)} -> the default")
        count = topic.partitions if topic.partitions > self.partitions else None
        return TopicStep(datacenter, topic.name, None, count, options, tuple(details)) if details else None

    def _differing(self, topic: NewTopic) -> dict[str, str | None]:
        return {
            option: value
            for option, value in topic.configs.items()
            if _parts(self.options.get(option)) != _parts(value)
        }


async def _there(admin: Admin, name: str) -> There:
    [said] = await admin.describe_topics([name])
    options = (await admin.describe_configs([name]))[name]
    return There(
        len(said.partitions),
        sorted({len(each.replica_nodes) for each in said.partitions}),
        {each.name: each.value for each in options},
        frozenset(each.name for each in options if each.config_source == OF_THE_TOPIC),
    )


def _parts(value: str | None) -> list[str] | None:
    """A value without the spaces that one of several may have."""
    return None if value is None else [part.strip() for part in value.split(",")]
