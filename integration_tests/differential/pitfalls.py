"""Forty places where brokers that speak Kafka's protocol went wrong, and the scenarios that would show it here.

Collected from the faults of other brokers and from Kafka's own issues. A line names scenarios, or says why one node
of stock Kafka cannot show it, or where else it is tested.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Pitfall:
    number: int
    what: str
    scenarios: tuple[str, ...] = ()
    elsewhere: str = ""  # where it is tested, or why it does not apply


TRANSACTIONS = "there are no transactions yet"
PITFALLS: tuple[Pitfall, ...] = (
    Pitfall(1, "ApiVersions always answers with the first header, also to a version to come", ("says_what_it_serves",)),
    Pitfall(2, "Produce is announced from 0 on, and 0 to 2 are refused", ("appends",)),
    Pitfall(3, "the client id of a flexible request is an old string", ("describes_the_cluster", "describes_a_topic")),
    Pitfall(4, "null and empty lists differ", ("no_topics", "all_topics_with_one_of_ours", "commits_nothing")),
    Pitfall(5, "unknown tagged fields are skipped", ("tagged_fields_that_nobody_knows",)),
    Pitfall(6, "answers come in the order of the requests", ("requests_that_do_not_wait_for_each_other",)),
    Pitfall(7, "unknown keys and versions close the connection", ("keys_and_versions_that_are_not_served",)),
    Pitfall(
        8,
        "acks=0 is not answered, and closes the connection where it fails",
        ("acks_zero_is_not_answered", "acks_zero_that_fails_closes_the_connection"),
    ),
    Pitfall(
        9,
        "the first batch comes whatever the limits, the rest obey them, in order",
        ("one_batch_comes_even_if_it_is_too_large", "partitions_share_the_limit_in_order"),
    ),
    Pitfall(10, "a fetch from within a batch gives the whole batch", ("reads_what_was_appended",)),
    Pitfall(
        11,
        "between the high watermark and the log's end there is nothing, and no error",
        elsewhere="needs replicas: test_upper_offset_bounds_what_is_read of tests/core_broker/storage/log/test_read.py",
    ),
    Pitfall(
        12,
        "when a fetch waits and when it does not",
        ("waits_for_enough_bytes", "no_topics_to_fetch", "is_answered_when_records_come"),
    ),
    Pitfall(
        13,
        "leader epochs of clients are checked, -1 is not",
        ("fetch_with_a_leader_epoch_to_come", "clients_with_the_old_epoch_are_fenced"),
    ),
    Pitfall(
        14,
        "where epochs end",
        ("ends_of_epochs", "ends_of_epochs_of_an_empty_log", "the_old_epoch_ended_at_the_restart"),
    ),
    Pitfall(
        15,
        "offsets of timestamps: none is no error, the largest one's is not the last one's",
        ("offsets_by_timestamp", "offsets_of_records_out_of_order", "offsets_for_readers_of_what_is_committed"),
    ),
    Pitfall(
        16,
        "offsets of tiers that are not there, and OFFSET_NOT_AVAILABLE of a new leader",
        ("offsets_by_timestamp", "offsets_of_an_empty_partition"),
        "of a new leader: needs replicas, a leader alone has its high watermark at once",
    ),
    Pitfall(
        17,
        "duplicates are answered as the first time; sequences go round",
        ("takes_a_repeated_batch_once", "repeats_of_the_last_five_batches_are_known", "sequences_go_round"),
    ),
    Pitfall(18, "an old epoch of a producer is told so, and not that it is fenced", ("an_epoch_that_is_over",)),
    Pitfall(19, "InitProducerId during a transaction", elsewhere=TRANSACTIONS),
    Pitfall(20, "the list of aborted transactions", ("reads_committed",), "of aborted ones: " + TRANSACTIONS),
    Pitfall(21, "the last stable offset", ("reads_committed",), "of an open transaction: " + TRANSACTIONS),
    Pitfall(22, "features that announce transactions", elsewhere=TRANSACTIONS),
    Pitfall(
        23,
        "offsets that were never committed are -1 and no error; metadata comes back",
        ("offsets_of_an_unknown_group", "all_offsets_of_an_unknown_group", "reads_committed_offsets"),
    ),
    Pitfall(
        24,
        "in which states a commit is taken",
        ("commits_while_others_join", "commit_while_assignments_are_awaited", "commits_without_a_member"),
    ),
    Pitfall(25, "a member must come back with the id that it is given", ("joins_alone",)),
    Pitfall(
        26,
        "a static member comes back without a rebalance, and its old id is fenced",
        ("a_static_member_takes_its_place_again", "a_static_member_under_an_id_that_it_has_no_more"),
    ),
    Pitfall(27, "groups of the new protocol (KIP-848)", elsewhere="there are none yet"),
    Pitfall(
        28,
        "a topic made again under its name is another one",
        ("topic_made_again_is_another_one", "topic_of_a_session_is_deleted_and_made_again", "fetch_unknown_topic"),
    ),
    Pitfall(
        29,
        "names that collide, defaults, validating only",
        ("names_that_collide", "name_that_collides_is_not_made", "creates_a_topic_by_defaults", "validates_only"),
    ),
    Pitfall(
        30,
        "all options are described, with source and synonyms",
        ("describes_all_options_of_a_topic", "describes_all_options_of_a_broker_that_we_have"),
    ),
    Pitfall(
        31,
        "-1 deletes up to the high watermark; what is compacted refuses; it lasts",
        ("deletes_all_by_the_high_watermark", "records_of_a_compacted_topic", "offsets_are_what_they_were"),
    ),
    Pitfall(
        32,
        "max.message.bytes is for the batch as it comes; a batch must fit a segment",
        ("batch_too_large", "batch_larger_than_a_segment"),
    ),
    Pitfall(33, "the broker's time: attribute, header, answer", ("appends_at_the_brokers_time",)),
    Pitfall(34, "throttling mutes and does not delay", elsewhere="there are no quotas yet"),
    Pitfall(
        35,
        "addresses are those of the listener that was asked",
        elsewhere="of two: test_each_listener_tells_its_own_address of integration_tests/broker/test_serving.py; "
        "of another broker: test_who_asks_the_wrong_broker_is_told_the_leader of "
        "tests/core_broker/server/apis/test_fetch.py",
    ),
    Pitfall(36, "fetch sessions in full", ("session_tells_what_has_changed", "wrong_session_epochs")),
    Pitfall(37, "offsets do not go back in a restart", ("offsets_are_what_they_were", "producers_go_on")),
    Pitfall(38, "files after a crash", elsewhere="tests/core_broker/storage/startup/test_recovery.py"),
    Pitfall(39, "names of client software are checked", ("wrong_software_name",)),
    Pitfall(40, "APPEND and SUBTRACT, and what they refuse", ("appends_and_subtracts", "options_that_are_refused")),
)  # fmt: skip
