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

    path: str  # API and field names, as "ApiVersions.supported_features"
    how: str  # "left out", or "the names we have" for a list of what has a name
    reason: str


DIFFERENCES: tuple[Difference, ...] = ()


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
    how = next((each.how for each in DIFFERENCES if each.path == path), None)
    if how == "left out":
        return "<explained>", "<explained>"
    if how == "the names we have" and isinstance(ours, list) and isinstance(theirs, list):
        names = [each["name"] for each in ours]
        theirs = [each for each in theirs if each["name"] in names]
        ours, theirs = (sorted(each, key=lambda row: row["name"]) for each in (ours, theirs))
    if isinstance(ours, dict) and isinstance(theirs, dict) and ours.keys() == theirs.keys():
        pairs = {key: _strip(f"{path}.{key}", ours[key], theirs[key]) for key in ours}
        return {k: pair[0] for k, pair in pairs.items()}, {k: pair[1] for k, pair in pairs.items()}
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        rows = [_strip(path, *pair) if how is None else pair for pair in zip(ours, theirs, strict=True)]
        return [row[0] for row in rows], [row[1] for row in rows]
    return ours, theirs
