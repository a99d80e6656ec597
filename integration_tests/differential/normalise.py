"""What two brokers may rightly answer differently, and what ours answers differently from stock Kafka.

`VOLATILE` says by field name how a value that belongs to one broker or one moment is replaced by what must be equal.
`DIFFERENCES` lists every place where our answer is another one, with the reason; nothing else may differ.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from isthmus.core_broker.config import TOPIC_OPTIONS

from .error_codes import FIRST
from .peer import NO_SUCH_ID, Peer

MINUTE_MS = 60_000
THE_NODE = "<its node id>"
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
    "offline_replicas": (_node, "each cluster numbers its own nodes"),
    "eligible_leader_replicas": (_node, "each cluster numbers its own nodes"),
    "last_known_elr": (_node, "each cluster numbers its own nodes"),
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


LEFT_OUT, BY_NAME, SAYS_MORE, INSTEAD = "left out", "by name", "says more", "instead"
ABSENT = "<absent>"


@dataclass(frozen=True)
class Difference:
    """A place where our answers are not Kafka's, and why.

    path: API and field names, as "ApiVersions.supported_features"; [name] for a row of a list that is compared by name,
    [*] for each of them. how: LEFT_OUT, not compared; BY_NAME, a list in any order; SAYS_MORE, a text of ours where
    Kafka has none or an empty one; INSTEAD, `ours` where Kafka has `theirs`.
    scenario: the only one in which it holds, if there is one.
    """

    path: str
    how: str
    reason: str
    scenario: str = ""
    ours: Any = field(default=None, hash=False)  # they may be lists
    theirs: Any = field(default=None, hash=False)

    def explains(self, ours: Any, theirs: Any) -> bool:
        match self.how:
            case "left out":
                return True
            case "says more":
                return ours == "<some text>" and theirs in (None, "<empty text>")
            case "instead":
                return bool(ours == self.ours and theirs == self.theirs)
        return False


HASHED = "Kafka's order is that of a hash table"
OUR_OWN = "an option of ours"
LEADS_ON = "clients are told of no leader, but none is elected: a partition that is offline may come back"
BROKER_OPTIONS_APART = {  # by scenario
    "describes_all_options_of_a_broker_that_we_have": {
        "listeners": "each broker's own; ours opens its sockets when it starts and never after",
        "listener.security.protocol.map": "the same, and Kafka's value is in the order of a hash table",
        "log.dirs": "each broker's own; Kafka has no default for it",
        "max.connections": "ours are bounded, by what the system allows",
        "node.id": "ours has a default",
        "offsets.topic.num.partitions": "of one broker: 10, where Kafka has 50",
        "offsets.topic.replication.factor": "of one broker: 1, where Kafka has 3",
        "queued.max.request.bytes": "ours is bounded",
        "socket.listen.backlog.size": "ours is larger: many connections at once wait for one process",
        "socket.send.buffer.bytes": "ours is the system's, which fits consumers near and far",
    },
    "describes_what_was_set_for_all_brokers": {
        "min.insync.replicas": "Kafka's formatter sets it for the cluster (KIP-966)",
    },
}
DIFFERENCES: tuple[Difference, ...] = (
    Difference("ApiVersions.api_keys", LEFT_OUT, "see test_api_versions.py: we serve fewer, and one of our own"),
    Difference("ApiVersions.supported_features", LEFT_OUT, "the features of Kafka's own nodes, which we are not"),
    Difference("ApiVersions.finalized_features", LEFT_OUT, "the same"),
    Difference("ApiVersions.finalized_features_epoch", LEFT_OUT, "the same: counts changes of the metadata log"),
    Difference("CreatePartitions.results", BY_NAME, HASHED),
    *(
        Difference(f"{configs}[{name}]", LEFT_OUT, OUR_OWN)
        for configs in ("CreateTopics.topics.configs", "DescribeConfigs.results.configs")
        for name in (option.name for option in TOPIC_OPTIONS if option.own)
    ),
    Difference("CreateTopics.topics.configs", BY_NAME, HASHED),
    Difference(
        "CreateTopics.topics.configs[min.insync.replicas].config_source",
        LEFT_OUT,
        "Kafka's formatter sets it for the cluster (KIP-966), to the same value",
    ),
    *(
        Difference(f"DescribeConfigs.results.configs[min.insync.replicas].{name}", LEFT_OUT, "the same")
        for name in ("config_source", "synonyms")
    ),
    Difference("DescribeConfigs.results.configs", BY_NAME, HASHED),
    *(
        Difference(f"DescribeConfigs.results.configs[{name}]", LEFT_OUT, reason, scenario)
        for scenario, rows in BROKER_OPTIONS_APART.items()
        for name, reason in rows.items()
    ),
    Difference(
        "DescribeConfigs.results",
        LEFT_OUT,
        "a resource named twice is told once: a few bytes would ask for kilobytes",
        "resource_asked_for_twice",
    ),
    *(
        Difference(
            f"{path}.error_code",
            INSTEAD,
            "telemetry (KIP-714) and groups of the new protocol (KIP-848) are not here, and have no options",
            scenario,
            42,
            0,
        )
        for path, scenario in (
            ("DescribeConfigs.results", "describes_what_is_not_here"),
            ("IncrementalAlterConfigs.responses", "options_of_what_is_not_here"),
        )
    ),
    Difference("DescribeConfigs.results.configs", LEFT_OUT, "the same", "describes_what_is_not_here"),
    Difference("IncrementalAlterConfigs.responses.error_message", SAYS_MORE, "the same", "options_of_what_is_not_here"),
    *(
        difference
        for scenario in ("options_of_topics_that_would_change_nothing", "options_of_brokers_that_would_change_nothing")
        for difference in (
            Difference(
                "IncrementalAlterConfigs.responses.error_code",
                INSTEAD,
                "Kafka takes what would change nothing here; nobody is to rely on it",
                scenario,
                40,
                0,
            ),
            Difference("IncrementalAlterConfigs.responses.error_message", SAYS_MORE, "the same", scenario),
        )
    ),
    Difference(
        "Fetch.responses.partitions.records",
        LEFT_OUT,
        "Kafka's answer ends where a segment does, ours goes on in the next one up to the limit",
        "a_fetch_ends_where_a_segment_ends",
    ),
    *(
        Difference(path, SAYS_MORE, "where Kafka gives the code alone", scenario)
        for path, scenario in (
            ("CreateTopics.topics.error_message", "topics_within_no_time"),
            ("DeleteTopics.responses.error_message", "topics_to_delete_within_no_time"),
            ("CreatePartitions.results[*].error_message", "partitions_within_no_time"),
            ("ElectLeaders.replica_election_results.partition_result.error_message", "elections_within_no_time"),
            ("FindCoordinator.coordinators.error_message", "a_topic_of_groups_that_cannot_be_made"),
            ("FindCoordinator.coordinators.error_message", "the_coordinator_of_a_group_that_is_lost"),
        )
    ),
    Difference("DescribeConfigs.results.error_message", SAYS_MORE, "the topic's name, where Kafka's text is empty"),
    *(
        Difference(f"{partitions}.{name}", INSTEAD, LEADS_ON, scenario, ours, theirs)
        for partitions, scenario, rows in (
            ("Metadata.topics.partitions", "the_leader_of_a_partition_that_is_lost", [("leader_epoch", 0, 1)]),
            (
                "DescribeTopicPartitions.topics.partitions",
                "the_page_of_a_partition_that_is_lost",
                [
                    ("leader_epoch", 0, 1),
                    ("eligible_leader_replicas", [], [THE_NODE]),
                    ("last_known_elr", [], [THE_NODE]),
                ],
            ),
        )
        for name, ours, theirs in rows
    ),
    *(
        Difference(
            "ElectLeaders.replica_election_results.partition_result.error_code",
            INSTEAD,
            LEADS_ON,
            "elections_for_a_partition_that_is_lost",
            84,
            theirs,
        )
        for theirs in (80, 83)
    ),
    Difference(
        "DescribeLogDirs.results",
        LEFT_OUT,
        "Kafka has lost one of two directories; ours has one, which serves, and tells the size of what is lost in it",
        "the_directory_of_a_partition_that_is_lost",
    ),
    *(
        Difference(
            f"FindCoordinator.coordinators.{name}",
            INSTEAD,
            "the first answer is given once the topic of groups is made; Kafka has the client ask again",
            FIRST,
            ours,
            theirs,
        )
        for name, ours, theirs in (
            ("error_code", 0, 15),
            ("node_id", THE_NODE, -1),
            ("host", "<its host>", ""),
            ("port", "<its port>", -1),
        )
    ),
    Difference("DeleteGroups.results", BY_NAME, HASHED),
    Difference(
        "DeleteGroups.results[*].error_code",
        INSTEAD,
        "what commits nothing makes no group; Kafka's is in memory alone, and is seen once another group has written",
        "commit_of_nothing_that_can_be_kept",
        69,
        0,
    ),
    Difference("DeleteGroups.results[*].error_message", SAYS_MORE, "the reason, where Kafka has none"),
    Difference(
        "DescribeGroups.groups",
        LEFT_OUT,
        "a group named twice is told once: a few bytes would ask for megabytes",
        "groups_named_twice",
    ),
    Difference("DescribeGroups.groups", BY_NAME, "Kafka's order is that of the partitions the groups are kept in"),
    *(
        Difference(f"DescribeQuorum.topics.partitions.{name}", LEFT_OUT, "each cluster's own count of what happened")
        for name in ("leader_epoch", "high_watermark", "current_voters.log_end_offset")
    ),
    Difference(
        "DescribeQuorum.nodes.listeners", LEFT_OUT, "Kafka's controllers have a listener of their own, we have none"
    ),
    Difference(
        "ListOffsets.topics.partitions.offset",
        INSTEAD,
        "Kafka tells of a record that was deleted, we of the first with that timestamp that is there",
        "offsets_after_records_were_deleted",
        5,
        2,
    ),
    Difference(
        "ListOffsets.topics.partitions.error_code",
        INSTEAD,
        "Kafka goes on to speak of the directory that is offline, when the topic that had a partition there is deleted",
        "deletion_of_a_topic_that_lost_a_partition",
        3,
        56,
    ),
    *(
        Difference(path, INSTEAD, "a null name without an id ends in a fault of Kafka's", "unknown_topic_id", 42, -1)
        for path in ("Metadata.error_code", "Metadata.topics.error_code")
    ),
    Difference(
        "Produce.responses.partition_responses.error_code",
        INSTEAD,
        "an unknown codec ends in a fault of Kafka's; we say what is wrong",
        "headers_that_lie",
        76,
        -1,
    ),
    Difference(
        "Produce.responses.partition_responses.log_start_offset",
        INSTEAD,
        "the same",
        "headers_that_lie",
        -1,
        0,
    ),
    Difference(
        "Produce.responses.partition_responses.error_code",
        INSTEAD,
        "we look at batches, not at their records: what the CRC of a producer vouches for is kept as it is",
        "records_that_are_broken",
        0,
        87,
    ),
    Difference("Produce.responses.partition_responses.base_offset", LEFT_OUT, "the same", "records_that_are_broken"),
    *(
        Difference(
            path,
            LEFT_OUT,
            "what claims the broker's clock is refused, whichever clock the topic goes by",
            "a_producer_that_claims_the_brokers_clock_in_vain",
        )
        for path in ("Produce.responses.partition_responses", "Afterwards.topics")
    ),
    Difference(
        "Afterwards.topics.partitions.batches.max_timestamp_ms",
        LEFT_OUT,
        "the same: Kafka writes the largest timestamp that it finds into the header",
        "timestamps_out_of_bounds",
    ),
    Difference("Afterwards.topics", LEFT_OUT, "the same", "records_that_are_broken"),
    Difference(
        "Produce.responses.partition_responses.error_message",
        SAYS_MORE,
        "a reason helps whoever reads the client's log",
    ),
)  # fmt: skip


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
