"""What ours answers differently from stock Kafka.

`DIFFERENCES` lists every place where our answer is another one, with the reason; nothing else may differ.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from isthmus.core_broker.config import TOPIC_OPTIONS

from .error_codes import FIRST

THE_NODE = "<its node id>"
LEFT_OUT, BY_NAME, SAYS_MORE, INSTEAD, OWN_DEFAULT = "left out", "by name", "says more", "instead", "own default"
ABSENT = "<absent>"


@dataclass(frozen=True)
class Difference:
    """A place where our answers are not Kafka's, and why.

    path: API and field names, as "ApiVersions.supported_features"; [name] for a row of a list that is compared by name,
    [*] for each of them. how: LEFT_OUT, not compared; BY_NAME, a list in any order; SAYS_MORE, a text of ours where
    Kafka has none or an empty one; INSTEAD, `ours` where Kafka has `theirs`; OWN_DEFAULT, an option told alike but for
    its default and the fields in `ours`.
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
            case "own default":
                return ours != ABSENT != theirs and without_default(ours, self.ours) == without_default(
                    theirs, self.ours
                )
        return False


DEFAULT = 5  # source of an option's value


def without_default(option: dict[str, Any], own: tuple[str, ...]) -> dict[str, Any]:
    """What is told of an option, but for its default and the fields `own`."""
    told = {key: value for key, value in option.items() if key not in own}
    if option["config_source"] == DEFAULT:
        told.pop("value", None)
    told["synonyms"] = []
    if "config_source" not in own:
        told["synonyms"] = [
            {key: value for key, value in row.items() if key not in own}
            for row in option["synonyms"]
            if row["source"] != DEFAULT
        ]
    return told


HASHED = "Kafka's order is that of a hash table"
OUR_OWN = "an option of ours"
LEADS_ON = "clients are told of no leader, but none is elected: a partition that is offline may come back"
TIED = "between two assignors that equally many like, Kafka wavers: each heartbeat raises the epoch, for ever"
OWN_OPTIONS: dict[str, tuple[str, ...]] = {  # with what is told of them differently, beside their default
    "broker.heartbeat.interval.ms": (),
    "broker.session.timeout.ms": (),
    "controller.quorum.voters": ("value",),
    "listener.security.protocol.map": ("read_only",),  # sockets are opened at the start, and never after
    "listeners": ("read_only", "value"),
    "log.dir": (),
    "log.dirs": ("value",),
    "max.connections": ("config_source", "value"),  # no more than the system allows
    "node.id": (),
    "offsets.topic.num.partitions": (),
    "process.roles": (),
    "queued.max.request.bytes": (),
    "socket.listen.backlog.size": (),
    "socket.send.buffer.bytes": (),
    "transaction.state.log.num.partitions": (),
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
    Difference("DescribeConfigs.results.configs", BY_NAME, HASHED),
    *(
        Difference(
            f"DescribeConfigs.results.configs[{name}]",
            OWN_DEFAULT,
            "a broker alone on its machine has defaults of its own, and tells where it is (configuration.md)",
            "describes_all_options_of_a_broker_that_we_have",
            fields,
        )
        for name, fields in OWN_OPTIONS.items()
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
    Difference(
        "IncrementalAlterConfigs.responses.error_code",
        INSTEAD,
        "Kafka keeps a broker's option that it does not know, and nobody learns of a slip",
        "options_of_brokers_that_nobody_has",
        40,
        0,
    ),
    Difference(
        "IncrementalAlterConfigs.responses.error_message", SAYS_MORE, "the same", "options_of_brokers_that_nobody_has"
    ),
    Difference(
        "Fetch.responses.partitions.records",
        LEFT_OUT,
        "Kafka's answer ends where a segment does, ours goes on in the next one up to the limit",
        "a_fetch_ends_where_a_segment_ends",
    ),
    Difference(
        "Fetch.responses.partitions.last_stable_offset",
        INSTEAD,
        "it is not before the log's start: Kafka's is where the batch begins whose first records are deleted",
        "records_of_an_open_transaction_are_deleted",
        2,
        1,
    ),
    *(
        Difference(path, SAYS_MORE, "where Kafka gives the code alone", scenario)
        for path, scenario in (
            ("CreateTopics.topics.error_message", "topics_within_no_time"),
            ("DeleteTopics.responses.error_message", "topics_to_delete_within_no_time"),
            ("CreatePartitions.results[*].error_message", "partitions_within_no_time"),
            ("IncrementalAlterConfigs.responses.error_message", "operations_that_there_are_not"),
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
        "OffsetFetch.groups",
        LEFT_OUT,
        "all offsets of a group that is named twice are told once: a few bytes would ask for megabytes",
        "all_offsets_of_a_group_that_is_named_twice",
    ),
    Difference("ConsumerGroupHeartbeat.error_message", SAYS_MORE, "why there is no coordinator", FIRST),
    Difference(
        "DescribeTopicPartitions.topics",
        LEFT_OUT,
        "an empty name ends in a fault of Kafka's, for all that is asked with it",
        "partitions_of_a_topic_without_a_name",
    ),
    Difference(
        "IncrementalAlterConfigs.responses.error_code",
        INSTEAD,
        "an operation on a topic's option that there is not ends in a fault of Kafka's",
        "operations_that_there_are_not",
        42,
        -1,
    ),
    Difference(
        "DeleteGroups.results[*].error_code",
        INSTEAD,
        "what commits nothing makes no group; Kafka's is in memory alone, and is seen once another group has written",
        "commit_of_nothing_that_can_be_kept",
        69,
        0,
    ),
    Difference(
        "ConsumerGroupDescribe.groups",
        LEFT_OUT,
        "a group named twice is told once: a few bytes would ask for megabytes",
        "consumer_groups_named_twice",
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
    *(
        Difference(path, LEFT_OUT, "what a broker names twice is taken twice", "a_transaction_named_twice")
        for path in (
            "AddPartitionsToTxn.results_by_transaction",
            "DescribeTransactions.transaction_states.topics.partitions",
            "Afterwards.transactions.records",
        )
    ),
    *(
        Difference(
            "OffsetFetch.groups.error_code",
            INSTEAD,
            "an epoch of no member ends in a fault of Kafka's",
            f"others_than_members_read_offsets-{state}",
            25,
            -1,
        )
        for state in ("Empty", "Assigning", "Reconciling", "Stable")
    ),
    Difference(
        "DescribeTransactions.transaction_states",
        LEFT_OUT,
        "a transaction named twice is told once: a few bytes would ask for megabytes",
        "describes_several_transactions",
    ),
    *(
        Difference(path, LEFT_OUT, TIED, "two_assignors_that_equally_many_like")
        for path in ("ConsumerGroupHeartbeat.member_epoch", "ConsumerGroupDescribe.groups")
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
