"""Brokers whose groups are wrong in one place: what the scenarios of the group APIs must notice, each of them."""

from __future__ import annotations

from .mutants import BROKER, Mutant

COORDINATORS = f"{BROKER}.coordinators"
TABLE = f"{COORDINATORS}.group_states"

GROUP_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "offsets_can_be_committed_before_the_assignment_is_known",
        TABLE,
        "Event.COMMIT:                (_ok,    _ok,    _busy, ",
        "Event.COMMIT:                (_ok,    _ok,    _ok,   ",
        "commit_while_assignments_are_awaited",
    ),
    Mutant(
        "offsets_cannot_be_committed_while_others_join",
        TABLE,
        "Event.COMMIT:                (_ok,    _ok,    _busy, ",
        "Event.COMMIT:                (_ok,    _busy,  _busy, ",
        "commits_while_others_join",
    ),
    Mutant(
        "the_leader_cannot_ask_for_a_new_assignment",
        TABLE,
        "Event.LEADER_REJOIN:         (_who,   _later, _tell,  _again,",
        "Event.LEADER_REJOIN:         (_who,   _later, _tell,  _tell, ",
        "the_leader_joins_a_stable_group_again",
    ),
    Mutant(
        "a_lost_answer_begins_another_generation",
        TABLE,
        "Event.REJOIN:                (_who,   _later, _tell,  _tell, ",
        "Event.REJOIN:                (_who,   _later, _again, _tell, ",
        "members_join_again_while_assignments_are_awaited",
    ),
    Mutant(
        "heartbeats_are_refused_while_assignments_are_awaited",
        TABLE,
        "Event.HEARTBEAT:             (_who,   _busy,  _ok,    _ok,   ",
        "Event.HEARTBEAT:             (_who,   _busy,  _busy,  _ok,   ",
        "is_alive_while_assignments_are_awaited",
    ),
    Mutant(
        "a_group_that_others_join_can_be_deleted",
        TABLE,
        "Event.DELETE:                (_ok,    _used,  _used, ",
        "Event.DELETE:                (_ok,    _ok,    _used, ",
        "deletes_a_group_with_members-PreparingRebalance",
    ),
    Mutant(
        "whose_place_was_taken_is_only_unknown",
        f"{COORDINATORS}.group",
        "return ErrorCode.FENCED_INSTANCE_ID",
        "return ErrorCode.UNKNOWN_MEMBER_ID",
        "the_one_whose_place_was_taken",
    ),
    Mutant(
        "a_static_leader_assigns_anew",
        f"{COORDINATORS}.group",
        "response.skip_assignment = is_leader",
        "response.skip_assignment = False",
        "a_static_leader_takes_its_place_again",
    ),
    Mutant(
        "the_first_vote_decides_between_equals",
        f"{COORDINATORS}.members",
        "max(java_order(votes), key=",
        "max(votes, key=",
        "equally_many_like_two_protocols",
    ),
    Mutant(
        "subscriptions_do_not_keep_offsets",
        f"{COORDINATORS}.offsets",
        "            if used[topic]:",
        "            if False:",
        "offsets_of_a_topic_that_members_read-Stable",
    ),
    Mutant(
        "metadata_is_measured_in_characters",
        f"{COORDINATORS}.offsets",
        "if java_length(metadata) > max_metadata:",
        "if len(metadata) > max_metadata:",
        "commit_with_too_much_metadata",
    ),
    Mutant(
        "offsets_outlive_their_topic",
        f"{COORDINATORS}.group_host",
        "        if delta.deleted:\n",
        "        if delta.links:\n",
        "offsets_of_a_topic_that_was_deleted",
    ),
    Mutant(
        "states_are_filtered_by_the_letter",
        f"{COORDINATORS}.inspection",
        "states = [state.strip().lower() for state in request.states_filter]",
        "states = [state.strip() for state in request.states_filter]",
        "lists_groups_by_state",
    ),
)
