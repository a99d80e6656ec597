"""The configuration of a mirror link: which topics of which source are copied to which target, under which names, and
with which limits. Pure: it has no connection."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..protocol.topic_names import why_invalid
from .errors import MirrorError

# Topic options that a mirrored topic copies from its source: those that define the meaning of the data, and those that
# define how long it is kept. Placement and durability belong to the target.
COPIED_OPTIONS = (
    "cleanup.policy",
    "max.message.bytes",
    "message.timestamp.type",
    "retention.ms",
    "retention.bytes",
    "compression.type",
    "delete.retention.ms",
    "min.compaction.lag.ms",
    "max.compaction.lag.ms",
)
LINK_OPTION = "mirror.link"
SOURCE_CLUSTER_OPTION = "mirror.source.cluster.id"
SOURCE_TOPIC_OPTION = "mirror.source.topic.id"
PATH_OPTION = "mirror.source.path"  # comma-separated ids of the clusters that the records passed


def patterns(text: str) -> list[str]:
    """Split a comma-separated list of regular expressions; spaces around each are dropped, as in Kafka's lists. Topic
    names have no commas, so a comma inside an expression can only be that of `{m,n}`."""
    return re.split(r"\s*,\s*(?![^{}]*\})", text.strip())


def check_pattern(pattern: str) -> None:
    """Raises MirrorError if a pattern cannot match any topic."""
    if not pattern:
        raise MirrorError("an empty one matches no topic: write a name or a regular expression, `.*` for all topics")
    try:
        re.compile(pattern)
    except re.error as error:
        raise MirrorError(f"'{pattern}' is not a regular expression: {error}") from None


def check_rename(rename: str) -> None:
    """Raises MirrorError if a rename gives an invalid name, or the same name to two topics."""
    try:
        parts = list(string.Formatter().parse(rename))
    except ValueError as error:
        raise MirrorError(f"'{rename}' may contain only {{source}} and {{topic}}: {error}") from None
    fields = [part[1:] for part in parts if part[1] is not None]  # name, format and conversion of each
    if any(name not in ("source", "topic") or form or conversion for name, form, conversion in fields):
        raise MirrorError(f"'{rename}' may contain only {{source}} and {{topic}}, written exactly so")
    if not any(name == "topic" for name, _, _ in fields):
        raise MirrorError(f"'{rename}' gives all topics the same name: it must contain {{topic}}")
    if reason := why_invalid(rename.format(source="s", topic="t")):
        raise MirrorError(f"'{rename}' gives no topic a valid name: {reason}")


@dataclass(frozen=True)
class Limits:
    """Limits of one link. `budget_bytes` limits the bytes that are fetched and not yet acknowledged by the target."""

    budget_bytes: int = 64 << 20
    fetch_max_bytes: int = 16 << 20
    fetch_partition_max_bytes: int = 4 << 20
    fetch_max_wait_ms: int = 500
    appends_in_flight: int = 4  # requests of the link
    request_timeout_ms: int = 30_000
    discovery_interval_ms: int = 2_000
    status_interval_ms: int = 1_000
    stop_timeout_ms: int = 5_000
    backoff_min_ms: int = 100
    backoff_max_ms: int = 2_000  # also the time in which a second worker notices that the first has ended
    options_topics: int = 200  # topics whose options are re-read in each round of discovery, in turn
    refused_backoff_max_ms: int = 30_000  # between tries of what the source refuses, which rarely changes by itself


@dataclass(frozen=True)
class MirrorLink:
    """One link. topics: regular expressions that match whole names, as `patterns` returns them. rename: the target's
    name, made of {source} and {topic}. Raises MirrorError for invalid values."""

    name: str
    source_alias: str
    topics: Sequence[str]
    rename: str = "{source}.{topic}"
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        object.__setattr__(self, "topics", patterns(",".join(self.topics)))  # frozen
        try:
            part = "topics"
            for pattern in self.topics:
                check_pattern(pattern)
            part = "rename"
            check_rename(self.rename)
        except MirrorError as error:
            raise MirrorError(f"link {self.name}: {part}: {error}") from None

    def selects(self, topic: str) -> bool:
        """Internal topics (`__…`) are never mirrored."""
        return not topic.startswith("__") and any(re.fullmatch(pattern, topic) for pattern in self.topics)

    def unused(self, topics: Iterable[str]) -> list[str]:
        """The expressions that match none of these topics."""
        names = [topic for topic in topics if not topic.startswith("__")]
        return [pattern for pattern in self.topics if not any(re.fullmatch(pattern, name) for name in names)]

    def target_name(self, topic: str) -> str:
        return self.rename.format(source=self.source_alias, topic=topic)
