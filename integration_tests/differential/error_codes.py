"""Which error codes each API has that stock Kafka gives on one node, and the scenario that does.

GIVEN is held both ways: a code that stock Kafka gives in a scenario and that is not here, and one that is here and that
it does not give, fail the tests. What it does not give is in `absent_codes.py`. Both are printed by
`python -m integration_tests.differential`.
"""

from __future__ import annotations

from isthmus.protocol.errors import ErrorCode as E

FIRST = "before_there_is_a_coordinator"  # test_group_limits.py: what is told first
NEWER = "a_version_to_come_is_answered_in_the_first_layout"  # test_api_versions.py

GIVEN: dict[int, dict[E, str]] = {
    0: {
        E.UNKNOWN_SERVER_ERROR: "headers_that_lie",
        E.CORRUPT_MESSAGE: "batches_of_other_formats",
        E.UNKNOWN_TOPIC_OR_PARTITION: "appends_to_some_of_several_partitions",
        E.MESSAGE_TOO_LARGE: "batch_that_just_fits",
        E.INVALID_TOPIC_EXCEPTION: "internal_topics",
        E.RECORD_LIST_TOO_LARGE: "batch_larger_than_a_segment",
        E.NOT_ENOUGH_REPLICAS: "appends_to_a_transaction_in_each_state-PrepareAbort",
        E.INVALID_REQUIRED_ACKS: "wrong_acks",
        E.INVALID_TIMESTAMP: "timestamps_out_of_bounds",
        E.UNSUPPORTED_VERSION: "appends_by_the_new_protocol_at_level_0",
        E.INVALID_REQUEST: "transactional_batches_without_a_transactional_id",
        E.OUT_OF_ORDER_SEQUENCE_NUMBER: "a_new_epoch_that_does_not_begin_at_zero",
        E.INVALID_PRODUCER_EPOCH: "an_epoch_that_is_over",
        E.INVALID_TXN_STATE: "a_repeated_batch_comes_after_the_end",
        E.INVALID_PRODUCER_ID_MAPPING: "appends_as_another_producer",
        E.CONCURRENT_TRANSACTIONS: "appends_to_a_transaction_in_each_state-PrepareAbort",
        E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional_batches_outside_of_a_transaction",
        E.KAFKA_STORAGE_ERROR: "appends_to_a_partition_that_is_lost",
        E.UNSUPPORTED_COMPRESSION_TYPE: "zstd_for_clients_that_do_not_know_it",
        E.INVALID_RECORD: "batches_of_other_formats",
        E.UNKNOWN_TOPIC_ID: "unknown_topic",
        E.TRANSACTION_ABORTABLE: "appends_in_the_old_way_after_the_new_end",
    },
    1: {
        E.UNKNOWN_SERVER_ERROR: "one_batch_comes_even_if_it_is_too_large",
        E.OFFSET_OUT_OF_RANGE: "errors_are_told_each_time",
        E.UNKNOWN_TOPIC_OR_PARTITION: "errors_are_told_each_time",
        E.NOT_LEADER_OR_FOLLOWER: "fetch_as_a_replica_that_is_none",
        E.KAFKA_STORAGE_ERROR: "fetch_of_a_partition_that_is_lost",
        E.FETCH_SESSION_ID_NOT_FOUND: "session_is_closed",
        E.INVALID_FETCH_SESSION_EPOCH: "wrong_session_epochs",
        E.FENCED_LEADER_EPOCH: "clients_with_the_old_epoch_are_fenced",
        E.UNKNOWN_LEADER_EPOCH: "epoch_of_a_session_partition_is_wrong",
        E.UNKNOWN_TOPIC_ID: "fetch_of_a_topic_that_was_made_again",
        E.INCONSISTENT_TOPIC_ID: "topic_of_a_session_is_deleted_and_made_again",
        E.FETCH_SESSION_TOPIC_ID_ERROR: "session_by_names_is_used_by_ids_and_the_other_way_round",
    },
    2: {
        E.UNKNOWN_SERVER_ERROR: "offsets_at_an_isolation_level_that_is_none",
        E.UNKNOWN_TOPIC_OR_PARTITION: "offsets_of_an_unknown_partition",
        E.UNSUPPORTED_VERSION: "offsets_by_a_timestamp_this_version_has_not",
        E.INVALID_REQUEST: "offsets_of_a_partition_named_twice",
        E.KAFKA_STORAGE_ERROR: "offsets_of_a_partition_that_is_lost",
        E.FENCED_LEADER_EPOCH: "offsets_for_clients_with_the_old_epoch",
        E.UNKNOWN_LEADER_EPOCH: "offsets_with_a_leader_epoch_to_come",
    },
    3: {
        E.UNKNOWN_SERVER_ERROR: "unknown_topic_id",
        E.UNKNOWN_TOPIC_OR_PARTITION: "name_that_collides_is_not_made",
        E.LEADER_NOT_AVAILABLE: "the_leader_of_a_partition_that_is_lost",
        E.INVALID_TOPIC_EXCEPTION: "wrong_topic_name",
        E.INVALID_REQUEST: "topic_ids_before_they_could_be_asked_for",
        E.UNKNOWN_TOPIC_ID: "name_and_id_of_one_topic",
    },
    8: {
        E.UNKNOWN_SERVER_ERROR: "commit_larger_than_a_batch_may_be",
        E.UNKNOWN_TOPIC_OR_PARTITION: "commit_for_unknown_topics",
        E.OFFSET_METADATA_TOO_LARGE: "commit_with_too_much_metadata",
        E.NOT_COORDINATOR: FIRST,
        E.ILLEGAL_GENERATION: "commit_by_who_may_not-CompletingRebalance",
        E.UNKNOWN_MEMBER_ID: "commit_by_a_fenced_member-CompletingRebalance",
        E.REBALANCE_IN_PROGRESS: "commit_while_assignments_are_awaited",
        E.UNSUPPORTED_VERSION: "a_member_that_left_commits",
        E.GROUP_ID_NOT_FOUND: "commit_for_a_generation_of_no_group",
        E.FENCED_INSTANCE_ID: "commit_by_a_fenced_member-CompletingRebalance",
        E.UNKNOWN_TOPIC_ID: "commit_for_a_topic_without_id",
        E.STALE_MEMBER_EPOCH: "a_member_that_left_commits",
    },
    9: {
        E.UNKNOWN_SERVER_ERROR: "others_than_members_read_offsets-Assigning",
        E.NOT_COORDINATOR: FIRST,
        E.UNKNOWN_MEMBER_ID: "others_than_members_read_offsets-Assigning",
        E.GROUP_ID_NOT_FOUND: "a_group_goes_with_its_last_offset",
        E.UNSTABLE_OFFSET_COMMIT: "offsets_are_unstable_until_all_transactions_end",
        E.UNKNOWN_TOPIC_ID: "offsets_for_an_unknown_topic",
        E.STALE_MEMBER_EPOCH: "others_than_members_read_offsets-Assigning",
    },
    10: {
        E.COORDINATOR_NOT_AVAILABLE: "a_topic_of_groups_that_cannot_be_made",
        E.INVALID_REQUEST: "unknown_kind_of_coordinator",
    },
    11: {
        E.UNKNOWN_SERVER_ERROR: "an_id_that_was_given_out_for_no_static_member",
        E.NOT_COORDINATOR: FIRST,
        E.INCONSISTENT_GROUP_PROTOCOL: "no_protocols_for_a_new_group",
        E.INVALID_GROUP_ID: "joins_with_what_is_refused",
        E.UNKNOWN_MEMBER_ID: "a_static_member_under_an_id_that_it_has_no_more-CompletingRebalance",
        E.INVALID_SESSION_TIMEOUT: "joins_with_what_is_refused",
        E.MEMBER_ID_REQUIRED: "an_empty_group_takes_another_kind_of_member",
        E.GROUP_MAX_SIZE_REACHED: "a_static_member_joins_a_full_group",
        E.FENCED_INSTANCE_ID: "a_static_member_under_an_id_that_it_has_no_more-CompletingRebalance",
    },
    12: {
        E.NOT_COORDINATOR: FIRST,
        E.ILLEGAL_GENERATION: "heartbeat_in_another_generation-CompletingRebalance",
        E.INVALID_GROUP_ID: "heartbeat_without_a_group",
        E.UNKNOWN_MEMBER_ID: "heartbeat_in_a_group_that_is_not_there",
        E.REBALANCE_IN_PROGRESS: "is_told_to_join_again",
        E.FENCED_INSTANCE_ID: "heartbeat_of_a_fenced_member-CompletingRebalance",
    },
    13: {
        E.NOT_COORDINATOR: FIRST,
        E.INVALID_GROUP_ID: "leaves_without_a_group",
        E.UNKNOWN_MEMBER_ID: "a_fenced_member_leaves-CompletingRebalance",
        E.FENCED_INSTANCE_ID: "a_fenced_member_leaves-CompletingRebalance",
    },
    14: {
        E.UNKNOWN_SERVER_ERROR: "assignments_larger_than_a_batch_may_be",
        E.NOT_COORDINATOR: FIRST,
        E.ILLEGAL_GENERATION: "sync_for_another_generation-CompletingRebalance",
        E.INCONSISTENT_GROUP_PROTOCOL: "sync_in_a_group_that_is_not_there",
        E.INVALID_GROUP_ID: "sync_without_a_group",
        E.UNKNOWN_MEMBER_ID: "sync_by_a_fenced_member-CompletingRebalance",
        E.REBALANCE_IN_PROGRESS: "sync_while_members_join",
        E.FENCED_INSTANCE_ID: "a_static_member_comes_back_while_it_waits",
    },
    15: {
        E.NOT_COORDINATOR: FIRST,
        E.GROUP_ID_NOT_FOUND: "describes_a_group_that_was_deleted",
    },
    18: {
        E.UNSUPPORTED_VERSION: NEWER,
        E.INVALID_REQUEST: "meant_for_another_broker",
        E.REBOOTSTRAP_REQUIRED: "meant_for_another_broker",
    },
    19: {
        E.REQUEST_TIMED_OUT: "topics_within_no_time",
        E.INVALID_TOPIC_EXCEPTION: "names_that_collide",
        E.TOPIC_ALREADY_EXISTS: "options_of_new_topics_that_are_refused",
        E.INVALID_PARTITIONS: "numbers_of_partitions_that_cannot_be",
        E.INVALID_REPLICATION_FACTOR: "numbers_of_replicas_that_cannot_be",
        E.INVALID_REPLICA_ASSIGNMENT: "assignments_that_are_refused",
        E.INVALID_CONFIG: "options_of_new_topics_that_are_refused",
        E.INVALID_REQUEST: "assignments_that_are_refused",
        E.POLICY_VIOLATION: "too_many_partitions",
    },
    20: {
        E.REQUEST_TIMED_OUT: "topics_to_delete_within_no_time",
        E.UNKNOWN_TOPIC_OR_PARTITION: "deletes_some_of_several_topics",
        E.INVALID_REQUEST: "topic_ids_to_delete_that_are_refused",
        E.TOPIC_DELETION_DISABLED: "names_of_topics_that_cannot_be_deleted",
        E.UNKNOWN_TOPIC_ID: "topic_ids_to_delete_that_are_refused",
    },
    21: {
        E.OFFSET_OUT_OF_RANGE: "offsets_outside_of_the_log",
        E.UNKNOWN_TOPIC_OR_PARTITION: "records_of_an_unknown_topic_or_partition",
        E.INVALID_TOPIC_EXCEPTION: "records_of_an_internal_topic",
        E.POLICY_VIOLATION: "records_of_a_compacted_topic",
        E.KAFKA_STORAGE_ERROR: "records_to_delete_of_a_partition_that_is_lost",
    },
    22: {
        E.NOT_COORDINATOR: FIRST,
        E.INVALID_REQUEST: "producer_ids_that_are_refused",
        E.INVALID_PRODUCER_EPOCH: "an_id_and_epoch_told_for_an_unknown_transactional_id",
        E.INVALID_TRANSACTION_TIMEOUT: "timeouts_of_transactions_out_of_bounds",
        E.CONCURRENT_TRANSACTIONS: "a_producer_tells_its_id_and_epoch-Ongoing",
        E.PRODUCER_FENCED: "an_id_and_epoch_told_for_an_unknown_transactional_id",
    },
    23: {
        E.UNKNOWN_TOPIC_OR_PARTITION: "client_is_ahead_of_the_leader_epoch",
        E.KAFKA_STORAGE_ERROR: "epochs_of_a_partition_that_is_lost",
        E.FENCED_LEADER_EPOCH: "epochs_for_clients_with_the_old_one",
        E.UNKNOWN_LEADER_EPOCH: "client_is_ahead_of_the_leader_epoch",
    },
    24: {
        E.UNKNOWN_TOPIC_OR_PARTITION: "adds_partitions_that_are_not_there",
        E.NOT_COORDINATOR: FIRST,
        E.TOPIC_AUTHORIZATION_FAILED: "adds_partitions_of_internal_topics",
        E.INVALID_REQUEST: "adds_partitions_to_no_transaction",
        E.INVALID_PRODUCER_EPOCH: "a_fenced_producer_adds_partitions",
        E.INVALID_PRODUCER_ID_MAPPING: "adds_partitions_as_another_producer-CompleteAbort",
        E.CONCURRENT_TRANSACTIONS: "adds_partitions_as_another_producer-PrepareAbort",
        E.OPERATION_NOT_ATTEMPTED: "adds_partitions_of_internal_topics",
        E.PRODUCER_FENCED: "a_fenced_producer_adds_partitions",
        E.TRANSACTION_ABORTABLE: "asks_whether_partitions_are_in_a_transaction-CompleteAbort",
    },
    25: {
        E.NOT_COORDINATOR: FIRST,
        E.INVALID_REQUEST: "adds_a_group_to_no_transaction",
        E.INVALID_PRODUCER_EPOCH: "adds_a_group_as_another_producer-CompleteAbort",
        E.INVALID_PRODUCER_ID_MAPPING: "adds_a_group_as_another_producer-CompleteAbort",
        E.CONCURRENT_TRANSACTIONS: "adds_a_group_as_another_producer-PrepareAbort",
        E.PRODUCER_FENCED: "adds_a_group_as_another_producer-CompleteAbort",
    },
    26: {
        E.NOT_COORDINATOR: FIRST,
        E.UNSUPPORTED_VERSION: "ends_a_transaction_by_the_new_protocol_at_level_0-Ongoing",
        E.INVALID_REQUEST: "ends_no_transaction",
        E.INVALID_PRODUCER_EPOCH: "a_fenced_producer_ends_its_transaction-abort",
        E.INVALID_TXN_STATE: "ends_a_transaction_as_another_producer-CompleteAbort",
        E.INVALID_PRODUCER_ID_MAPPING: "ends_a_transaction_as_another_producer-CompleteAbort",
        E.CONCURRENT_TRANSACTIONS: "ends_a_transaction_again_while_markers_are_written-PrepareAbort",
        E.PRODUCER_FENCED: "a_fenced_producer_ends_its_transaction-abort",
    },
    27: {
        E.UNKNOWN_SERVER_ERROR: "marks_as_producers_that_are_not_there",
        E.UNKNOWN_TOPIC_OR_PARTITION: "marks_what_is_not_there",
        E.INVALID_PRODUCER_EPOCH: "a_marker_of_the_second_version_in_the_same_epoch",
        E.TRANSACTION_COORDINATOR_FENCED: "coordinators_that_were_replaced",
    },
    28: {
        E.UNKNOWN_TOPIC_OR_PARTITION: "offsets_of_topics_that_are_not_there",
        E.OFFSET_METADATA_TOO_LARGE: "offsets_with_too_much_metadata",
        E.COORDINATOR_NOT_AVAILABLE: FIRST,
        E.ILLEGAL_GENERATION: "members_of_groups_that_are_not_there",
        E.INVALID_GROUP_ID: "offsets_in_no_transaction",
        E.UNKNOWN_MEMBER_ID: "others_than_members_commit_in_a_transaction-CompletingRebalance",
        E.UNSUPPORTED_VERSION: "offsets_by_the_new_protocol_at_level_0",
        E.INVALID_REQUEST: "offsets_in_no_transaction",
        E.INVALID_PRODUCER_EPOCH: "a_fenced_producer_commits_offsets",
        E.INVALID_TXN_STATE: "a_producer_commits_offsets_after_the_end",
        E.INVALID_PRODUCER_ID_MAPPING: "an_idempotent_producer_commits_offsets_as_another",
        E.CONCURRENT_TRANSACTIONS: "offsets_by_another_producer-PrepareAbort",
        E.GROUP_ID_NOT_FOUND: "members_of_groups_that_are_not_there",
        E.FENCED_INSTANCE_ID: "others_than_members_commit_in_a_transaction-CompletingRebalance",
        E.UNKNOWN_TOPIC_ID: "offsets_of_topics_that_are_not_there",
        E.STALE_MEMBER_EPOCH: "others_than_members_of_a_consumer_group_commit_in_a_transaction-Assigning",
        E.TRANSACTION_ABORTABLE: "offsets_of_a_group_that_was_not_added-Empty",
    },
    32: {
        E.UNKNOWN_TOPIC_OR_PARTITION: "options_of_what_is_not_there",
        E.INVALID_TOPIC_EXCEPTION: "options_of_what_is_not_there",
        E.INVALID_REQUEST: "describes_levels",
    },
    33: {
        E.UNKNOWN_TOPIC_OR_PARTITION: "replacements_that_are_refused",
        E.INVALID_TOPIC_EXCEPTION: "replacements_that_are_refused",
        E.INVALID_CONFIG: "replacements_that_are_refused",
        E.INVALID_REQUEST: "levels_by_the_old_request",
    },
    34: {
        E.UNKNOWN_TOPIC_OR_PARTITION: "a_partition_that_is_not_there",
        E.KAFKA_STORAGE_ERROR: "a_move_of_a_partition_that_is_lost",
        E.LOG_DIR_NOT_FOUND: "a_directory_that_is_not_there",
    },
    35: {
        E.KAFKA_STORAGE_ERROR: "the_directory_of_a_partition_that_is_lost",
    },
    37: {
        E.REQUEST_TIMED_OUT: "partitions_within_no_time",
        E.UNKNOWN_TOPIC_OR_PARTITION: "adds_partitions_to_some_of_several_topics",
        E.INVALID_PARTITIONS: "adds_partitions_to_some_of_several_topics",
        E.INVALID_REPLICA_ASSIGNMENT: "assignments_of_more_partitions_that_are_refused",
        E.INVALID_REQUEST: "topic_to_grow_named_twice",
        E.POLICY_VIOLATION: "too_many_partitions_more",
    },
    42: {
        E.NOT_COORDINATOR: FIRST,
        E.NON_EMPTY_GROUP: "deletes_a_group_that_had_members",
        E.GROUP_ID_NOT_FOUND: "deletes_a_group_of_offsets_alone",
    },
    43: {
        E.REQUEST_TIMED_OUT: "elections_within_no_time",
        E.UNKNOWN_TOPIC_OR_PARTITION: "elections_in_what_is_not_there",
        E.INVALID_REQUEST: "unknown_kind_of_election",
        E.PREFERRED_LEADER_NOT_AVAILABLE: "elections_for_a_partition_that_is_lost",
        E.ELIGIBLE_LEADERS_NOT_AVAILABLE: "elections_for_a_partition_that_is_lost",
        E.ELECTION_NOT_NEEDED: "elections_in_what_is_not_there",
    },
    44: {
        E.UNKNOWN_SERVER_ERROR: "operations_that_there_are_not",
        E.UNKNOWN_TOPIC_OR_PARTITION: "alters_some_of_several_resources",
        E.INVALID_TOPIC_EXCEPTION: "options_that_are_refused",
        E.INVALID_CONFIG: "alters_some_of_several_resources",
        E.INVALID_REQUEST: "levels_and_loggers_that_are_none",
    },
    45: {
        E.REQUEST_TIMED_OUT: "a_move_within_no_time",
        E.UNKNOWN_TOPIC_OR_PARTITION: "a_move_of_what_is_not_there",
        E.INVALID_REPLICA_ASSIGNMENT: "brokers_that_cannot_hold_it",
        E.NO_REASSIGNMENT_IN_PROGRESS: "nothing_to_cancel",
    },
    47: {
        E.UNKNOWN_TOPIC_OR_PARTITION: "offsets_of_a_topic_that_members_read-CompletingRebalance",
        E.NOT_COORDINATOR: FIRST,
        E.INVALID_GROUP_ID: "offsets_to_delete_of_an_unknown_group",
        E.NON_EMPTY_GROUP: "offsets_of_members_that_are_no_consumers",
        E.GROUP_ID_NOT_FOUND: "deletes_nothing",
        E.GROUP_SUBSCRIBED_TO_TOPIC: "offsets_of_a_topic_that_members_read-CompletingRebalance",
    },
    55: {
        E.UNKNOWN_TOPIC_OR_PARTITION: "quorums_that_are_not_there",
    },
    57: {
        E.INVALID_UPDATE_VERSION: "levels_that_cannot_be",
    },
    60: {
        E.MISMATCHED_ENDPOINT_TYPE: "endpoints_that_are_not_here",
        E.UNSUPPORTED_ENDPOINT_TYPE: "endpoints_that_are_not_here",
    },
    61: {
        E.UNKNOWN_TOPIC_OR_PARTITION: "producers_of_what_is_not_there",
        E.INVALID_TOPIC_EXCEPTION: "producers_of_what_is_not_there",
        E.KAFKA_STORAGE_ERROR: "producers_of_a_partition_that_is_lost",
    },
    64: {
        E.BROKER_ID_NOT_REGISTERED: "brokers_that_are_not_there",
    },
    65: {
        E.NOT_COORDINATOR: FIRST,
        E.INVALID_REQUEST: "describes_several_transactions",
        E.TRANSACTIONAL_ID_NOT_FOUND: "describes_several_transactions",
    },
    66: {
        E.INVALID_REGULAR_EXPRESSION: "patterns_that_are_none",
    },
    68: {
        E.NOT_COORDINATOR: FIRST,
        E.UNKNOWN_MEMBER_ID: "a_place_that_a_static_member_has",
        E.INVALID_REQUEST: "a_static_member_leaves_for_now_in_a_wrong_epoch",
        E.GROUP_ID_NOT_FOUND: "a_consumer_joins_a_classic_group_with_assignments_of_its_own_kind",
        E.GROUP_MAX_SIZE_REACHED: "joins_a_full_consumer_group",
        E.FENCED_INSTANCE_ID: "a_place_that_a_static_member_has",
        E.FENCED_MEMBER_EPOCH: "epochs_that_a_member_has_not-Assigning",
        E.UNRELEASED_INSTANCE_ID: "a_place_that_a_static_member_has",
        E.UNSUPPORTED_ASSIGNOR: "joins_with_what_a_consumer_group_refuses",
        E.INVALID_REGULAR_EXPRESSION: "joins_with_patterns_that_are_refused",
    },
    69: {
        E.NOT_COORDINATOR: FIRST,
        E.INVALID_GROUP_ID: "describes_several_consumer_groups",
        E.GROUP_ID_NOT_FOUND: "describes_a_group_before_and_after_its_upgrade",
    },
    74: {
        E.UNSUPPORTED_VERSION: "a_kind_that_is_not_known",
    },
    75: {
        E.UNKNOWN_SERVER_ERROR: "partitions_of_a_topic_without_a_name",
        E.UNKNOWN_TOPIC_OR_PARTITION: "cursors_that_point_nowhere",
        E.INVALID_TOPIC_EXCEPTION: "partitions_of_what_is_not_there",
        E.INVALID_REQUEST: "cursors_that_point_nowhere",
    },
    80: {
        E.INCONSISTENT_CLUSTER_ID: "voters_for_another_cluster",
    },
    81: {
        E.INCONSISTENT_CLUSTER_ID: "a_voter_of_another_cluster",
    },
    94: {
        E.CONTROLLER_ID_NOT_REGISTERED: "controllers_that_are_not_there",
    },
}  # fmt: skip


def wrong(given: dict[int, dict[int, set[str]]], scenarios: set[str]) -> list[str]:
    """Where GIVEN is not what stock Kafka gave in some scenarios, a line each, as they ought to stand there.

    given: by API and code, the scenarios that gave it.
    """
    lines = []
    for key in sorted({*GIVEN, *given}):
        have, seen = GIVEN.get(key, {}), given.get(key, {})
        for code, scenario in have.items():
            if scenario in scenarios and scenario not in seen.get(code, ()):
                others = sorted(seen.get(code, ()))
                lines.append(f"{key}: E.{code.name} is not given by {scenario}; by {', '.join(others) or 'none'}")
        for number in sorted(seen):
            if E(number) not in have:
                labels = sorted(seen[number])
                lines.append(f'{key}: missing: E.{E(number).name}: "{labels[0]}", (of {len(labels)})')
    return lines
