"""What two brokers may rightly answer differently, and what ours answers differently from stock Kafka.

`VOLATILE` says by field name how a value that belongs to one broker or one moment is replaced by what must be equal.
`DIFFERENCES` lists every place where our answer is another one, with the reason; nothing else may differ.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .admin import KNOWN_OPTIONS as MUST_HAVE
from .data import NO_SUCH_ID
from .peer import Peer

MINUTE_MS = 60_000
GENERATED = re.compile(r"-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$")


def _node(value: Any, peer: Peer) -> Any:
    if isinstance(value, list):
        return [_node(each, peer) for each in value]
    return "<its node id>" if value == peer.node_id else value


def _topic_id(value: bytes, peer: Peer) -> Any:
    if value in peer.topic_ids:
        return f"<id of {peer.topic_ids[value]}>"
    if value in (bytes(16), NO_SUCH_ID):
        return value
    return "<an id>"


def _when(value: int, peer: Peer) -> Any:
    return "<now>" if abs(value - time.time() * 1000) < MINUTE_MS else value


def _text(value: str | None, peer: Peer) -> Any:
    return f"<{'some' if value else 'empty'} text>" if value is not None else None


def _member(value: str, peer: Peer) -> Any:
    return GENERATED.sub("-<uuid>", value)


def _its_own(attribute: str) -> Callable[[Any, Peer], Any]:
    return lambda value, peer: f"<its {attribute}>" if value == getattr(peer, attribute) else value


VOLATILE: dict[str, tuple[Callable[[Any, Peer], Any], str]] = {
    "node_id": (_node, "each cluster numbers its own nodes"),
    "broker_id": (_node, "each cluster numbers its own nodes"),
    "leader_id": (_node, "each cluster numbers its own nodes"),
    "controller_id": (_node, "each cluster numbers its own nodes"),
    "replica_nodes": (_node, "each cluster numbers its own nodes"),
    "isr_nodes": (_node, "each cluster numbers its own nodes"),
    "resource_name": (lambda value, peer: _node_name(value, peer), "a broker's options are asked for by its node id"),
    "host": (_its_own("host"), "where the broker listens"),
    "port": (_its_own("port"), "where the broker listens"),
    "cluster_id": (_its_own("cluster_id"), "made at random when a cluster is formatted"),
    "topic_id": (_topic_id, "made at random for each topic"),
    "producer_id": (lambda value, peer: "<a producer id>" if value >= 0 else value, "counted by the cluster"),
    "member_id": (_member, "the client id and a random UUID"),
    "leader": (_member, "a member id"),
    "session_id": (lambda value, peer: "<a session>" if value else value, "a random number"),
    "log_append_time_ms": (_when, "the broker's clock"),
    "error_message": (_text, "its wording is for people; that there is one is compared"),
    "documentation": (_text, "its wording is for people; that there is one is compared"),
}


def _node_name(value: str, peer: Peer) -> Any:
    return "<its node id>" if value == str(peer.node_id) else value


@dataclass(frozen=True)
class Difference:
    """A field of our answers that is not compared, or is compared by its common part."""

    path: str  # API and field names, as "ApiVersions.supported_features"; [name] or [*] for a row of a list by name
    how: str  # LEFT_OUT; BY_NAME: in any order; COMMON_NAMES: BY_NAME, and what only one of them has is left out;
    # SAYS_MORE: we have a text where Kafka has none or an empty one
    reason: str


LEFT_OUT, BY_NAME, COMMON_NAMES, SAYS_MORE = "left out", "by name", "the names that both have", "ours says more"
DIFFERENCES: tuple[Difference, ...] = tuple(
    Difference(path, how, reason)
    for path, how, reason in (
        ("ApiVersions.api_keys", LEFT_OUT, "compared in test_api_versions.py: we serve fewer, and one of our own"),
        ("ApiVersions.supported_features", LEFT_OUT, "the features of Kafka's own nodes, which we are not"),
        ("ApiVersions.finalized_features", LEFT_OUT, "the same"),
        ("ApiVersions.finalized_features_epoch", LEFT_OUT, "the same: counts changes of the metadata log"),
        ("CreateTopics.topics.configs", COMMON_NAMES, "a topic has options that one of the brokers has not"),
        (
            "CreateTopics.topics.configs[min.insync.replicas].config_source",
            LEFT_OUT,
            "Kafka's formatter sets it for the cluster (KIP-966), to the same value",
        ),
        ("DeleteGroups.results", BY_NAME, "Kafka's order is that of a hash table"),
        ("DeleteGroups.results[*].error_message", SAYS_MORE, "the reason, where Kafka has none"),
        ("DescribeConfigs.results.configs", BY_NAME, "Kafka's order is that of a hash table"),
        (
            "DescribeConfigs.results.configs[log.retention.ms].read_only",
            LEFT_OUT,
            "a broker of ours takes its options at start only",
        ),
        ("DescribeConfigs.results.error_message", SAYS_MORE, "the topic's name, where Kafka's text is empty"),
        ("Fetch.session_id", LEFT_OUT, "we open no sessions: 0 tells the client so (KIP-227), and it goes on without"),
        (
            "Produce.responses.partition_responses.error_message",
            SAYS_MORE,
            "a reason helps whoever reads the client's log",
        ),
    )
)


def normalised(answer: Any, peer: Peer, name: str = "") -> Any:
    """The answer with what is volatile replaced; `name` is that of the field the value stands in."""
    if name in VOLATILE:
        return VOLATILE[name][0](answer, peer)
    if isinstance(answer, dict):
        return {key: normalised(value, peer, key) for key, value in answer.items()}
    if isinstance(answer, list):
        return [normalised(each, peer, name) for each in answer]
    return answer


def without_differences(api: str, ours: Any, theirs: Any) -> tuple[Any, Any]:
    """Both answers without what DIFFERENCES explains."""
    return _strip(api, ours, theirs)


def _strip(path: str, ours: Any, theirs: Any) -> tuple[Any, Any]:
    any_row = re.sub(r"\[.*\]", "[*]", path)
    how = next((each.how for each in DIFFERENCES if each.path in (path, any_row)), None)
    if how == LEFT_OUT:
        return "<explained>", "<explained>"
    if how and isinstance(ours, list) and isinstance(theirs, list):
        if how == COMMON_NAMES and theirs and _has_all(ours):
            ours, theirs = _rows_in(ours, theirs), _rows_in(theirs, ours)
        ours, theirs = sorted(ours, key=_name), sorted(theirs, key=_name)
        if [_name(row) for row in ours] != [_name(row) for row in theirs]:
            return ours, theirs
        rows = [_strip(f"{path}[{_name(pair[0])}]", *pair) for pair in zip(ours, theirs, strict=True)]
        return [row[0] for row in rows], [row[1] for row in rows]
    if how == SAYS_MORE and ours == "<some text>" and theirs in (None, "<empty text>"):
        return "<explained>", "<explained>"
    if isinstance(ours, dict) and isinstance(theirs, dict) and ours.keys() == theirs.keys():
        pairs = {key: _strip(f"{path}.{key}", ours[key], theirs[key]) for key in ours}
        return {k: pair[0] for k, pair in pairs.items()}, {k: pair[1] for k, pair in pairs.items()}
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        rows = [_strip(path, *pair) for pair in zip(ours, theirs, strict=True)]
        return [row[0] for row in rows], [row[1] for row in rows]
    return ours, theirs


def _name(row: Any) -> str:
    return row.get("name", row.get("group_id"))


def _rows_in(rows: list, others: list) -> list:
    names = {row["name"] for row in others}
    return [row for row in rows if row["name"] in names]


def _has_all(ours: list) -> bool:
    """Whether ours names at least what every topic of ours must have; else nothing is left out, and it differs."""
    return set(MUST_HAVE) <= {row["name"] for row in ours}
