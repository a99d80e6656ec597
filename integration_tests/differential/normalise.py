"""What two brokers may rightly answer differently, and where two answers are not equal.

`VOLATILE` says by field name how a value that belongs to one broker or one moment is replaced by what must be equal.
What else ours answers differently is in `differences.py`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

from .differences import ABSENT, BY_NAME, DIFFERENCES, THE_NODE, Difference
from .peer import NO_SUCH_ID, Peer

MINUTE_MS = 60_000
SHOWN = 300  # characters of a value in a message
GENERATED = re.compile(r"-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$")


def _node(value: Any, peer: Peer) -> Any:
    if isinstance(value, list):
        return [_node(each, peer) for each in value]
    return THE_NODE if value == peer.node_id else value


def _topic_id(value: bytes, peer: Peer) -> Any:
    if value in peer.topic_ids:
        return f"<id of {peer.topic_ids[value]}>"
    if value in (bytes(16), NO_SUCH_ID):
        return value
    return "<an id>"


def _when(value: int, peer: Peer) -> Any:
    return "<now>" if abs(value - time.time() * 1000) < MINUTE_MS else value


def _producer(value: int, peer: Peer) -> Any:
    return f"<the id of {peer.producer_ids.get(value, 'a producer')}>" if value >= 0 else value


def _text(value: str | None, peer: Peer) -> Any:
    return f"<{'some' if value else 'empty'} text>" if value is not None else None


def _member(value: str | None, peer: Peer) -> Any:
    return GENERATED.sub("-<uuid>", value) if value else value


def _its_own(attribute: str) -> Callable[[Any, Peer], Any]:
    return lambda value, peer: f"<its {attribute}>" if value == getattr(peer, attribute) else value


VOLATILE: dict[str, tuple[Callable[[Any, Peer], Any], str]] = {
    "node_id": (_node, "each cluster numbers its own nodes"),
    "broker_id": (_node, "each cluster numbers its own nodes"),
    "leader_id": (_node, "each cluster numbers its own nodes"),
    "controller_id": (_node, "each cluster numbers its own nodes"),
    "replica_nodes": (_node, "each cluster numbers its own nodes"),
    "isr_nodes": (_node, "each cluster numbers its own nodes"),
    "offline_replicas": (_node, "each cluster numbers its own nodes"),
    "eligible_leader_replicas": (_node, "each cluster numbers its own nodes"),
    "last_known_elr": (_node, "each cluster numbers its own nodes"),
    "resource_name": (lambda value, peer: _node_name(value, peer), "a broker's options are asked for by its node id"),
    "host": (_its_own("host"), "where the broker listens"),
    "port": (_its_own("port"), "where the broker listens"),
    "cluster_id": (_its_own("cluster_id"), "made at random when a cluster is formatted"),
    "topic_id": (_topic_id, "made at random for each topic"),
    "producer_id": (_producer, "counted by the cluster"),
    "previous_producer_id": (_producer, "counted by the cluster"),
    "next_producer_id": (_producer, "counted by the cluster"),
    "transaction_start_time_ms": (_when, "the broker's clock"),
    "transaction_last_update_timestamp_ms": (_when, "the broker's clock"),
    "transaction_start_timestamp_ms": (_when, "the broker's clock"),
    "last_timestamp": (_when, "the broker's clock, of a marker"),
    "timestamp": (_when, "the same"),
    "member_id": (_member, "the client id and a random UUID"),
    "leader": (_member, "a member id"),
    "session_id": (lambda value, peer: "<a session>" if value else value, "a random number"),
    "log_append_time_ms": (_when, "the broker's clock"),
    "base_timestamp_ms": (_when, "the broker's clock, where it stamps the records"),
    "max_timestamp_ms": (_when, "the same"),
    "last_fetch_timestamp": (_when, "the broker's clock"),
    "last_caught_up_timestamp": (_when, "the broker's clock"),
    "replica_id": (_node, "each cluster numbers its own nodes"),
    "log_dir": (lambda value, peer: "<a path>" if value.startswith("/") else value, "where the broker keeps its data"),
    "total_bytes": (lambda value, peer: "<bytes>" if value > 0 else value, "of a disk that others write to"),
    "usable_bytes": (lambda value, peer: "<bytes>" if value > 0 else value, "of a disk that others write to"),
    "error_message": (_text, "its wording is for people; that there is one is compared"),
    "batch_index_error_message": (_text, "its wording is for people; that there is one is compared"),
    "documentation": (_text, "its wording is for people; that there is one is compared"),
}


def _node_name(value: str, peer: Peer) -> Any:
    return THE_NODE if value == str(peer.node_id) else value


def normalised(answer: Any, peer: Peer, name: str = "") -> Any:
    """The answer with what is volatile replaced; `name` is that of the field the value stands in."""
    if name in VOLATILE:
        return VOLATILE[name][0](answer, peer)
    if isinstance(answer, dict):
        return {key: normalised(value, peer, key) for key, value in answer.items()}
    if isinstance(answer, list):
        return [normalised(each, peer, name) for each in answer]
    return answer


def unexplained(
    api: str, ours: Any, theirs: Any, scenario: str = "", explained: set[Difference] | None = None
) -> list[str]:
    """Where two answers differ and DIFFERENCES does not say why: one line for each place.

    An answer that is a dict by API, as `Case.see` keeps it, is compared by the paths of that API. `explained` takes the
    differences that were met.
    """
    found: list[str] = []
    _compare(api, ours, theirs, scenario, found, set() if explained is None else explained)
    return found


def _compare(path: str, ours: Any, theirs: Any, scenario: str, found: list[str], explained: set[Difference]) -> None:
    if ours == theirs:
        return
    any_row = re.sub(r"\[.*?\]", "[*]", path)
    known = [d for d in DIFFERENCES if d.path in (path, any_row) and d.scenario in ("", scenario)]
    met = [each for each in known if each.explains(ours, theirs)]
    if met:
        explained.update(met)
        return
    if isinstance(ours, list) and isinstance(theirs, list):
        by_name = [each for each in known if each.how == BY_NAME]
        if by_name:
            explained.update(by_name)
            mine, yours = _by_name(ours), _by_name(theirs)
            for name in sorted({**mine, **yours}):
                _compare(f"{path}[{name}]", mine.get(name, ABSENT), yours.get(name, ABSENT), scenario, found, explained)
            return
        if len(ours) == len(theirs):
            for one, another in zip(ours, theirs, strict=True):
                _compare(path, one, another, scenario, found, explained)
            return
    if isinstance(ours, dict) and isinstance(theirs, dict) and ours.keys() == theirs.keys():
        for key in ours:
            inner = key if key[0].isupper() else f"{path}.{key}"
            _compare(inner, ours[key], theirs[key], scenario, found, explained)
        return
    found.append(f"{path}: ours {_short(ours)}, stock Kafka's {_short(theirs)}")


def _by_name(rows: list[Any]) -> dict[str, Any]:
    """Rows by name; those of one name are told apart by their place among them."""
    named: dict[str, Any] = {}
    for row in rows:
        name = str(row.get("name", row.get("group_id")))
        while name in named:
            name += " again"
        named[name] = row
    return named


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]} …"
