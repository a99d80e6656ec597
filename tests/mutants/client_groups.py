"""Bugs of the two kinds of membership: partitions with two owners, lost acknowledgements, members that stay away."""

from tests.mutants import Mutant

HOLDINGS, MEMBER, MEMBERSHIP = "client/holdings.py", "client/consumer_member.py", "client/consumer_membership.py"
CLASSIC, ASSIGNORS, SHARED = "client/classic_membership.py", "client/assignors.py", "client/membership.py"
COMMITTED = "client/committed.py"
PURE = "tests/client/test_consumer_member.py"
GROUP = "tests/client/test_consumer_group.py"
COOPERATION = "tests/client/test_cooperation.py"
DEALS = "tests/client/test_assignors.py"
CUSTOM = "tests/client/test_custom_assignors.py"
MODEL = f"{PURE}::test_whatever_is_lost_no_partition_has_two_owners_and_all_have_one_in_the_end"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "what_may_yet_be_taken_is_not_claimed",
        HOLDINGS,
        "for each in (self.held, self._target or {})",
        "for each in (self.held,)",
        (MODEL,),
    ),
    Mutant(
        "an_assignment_that_came_and_went_is_not_acknowledged",
        MEMBER,
        "return told.claims != self.holdings.claims or told.assignment != self._fulfilled(told)",
        "return told.claims != self.holdings.claims",
        (f"{PURE}::test_what_came_and_went_between_polls_is_acknowledged",),
    ),
    Mutant(
        "a_revocation_is_acknowledged_before_it_is_done",
        HOLDINGS,
        "return frozenset((topic_id, tp) for each in (self.held, self._target or {})",
        "return frozenset((topic_id, tp) for each in (self._target or {},)",
        (MODEL, f"{GROUP}::test_what_is_given_up_is_acknowledged_when_on_revoked_has_run_and_at_once"),
    ),
    Mutant(
        "after_a_lost_heartbeat_only_news_are_sent",
        MEMBER,
        'it may have been heard or not."""\n        self._told = None\n',
        'it may have been heard or not."""\n',
        (f"{PURE}::test_after_a_heartbeat_that_failed_all_is_said_again",),
    ),
    Mutant(
        "a_late_answer_brings_a_member_back",
        MEMBER,
        "        if self.phase not in (Phase.JOINING, Phase.IN):\n            return\n        is_first",
        "        is_first",
        (f"{PURE}::test_who_is_refused_or_stalls_joins_in_the_next_poll_only",),
    ),
    Mutant(
        "an_acknowledgement_waits_for_the_interval",
        MEMBERSHIP,
        "        if self.member.has_news:\n            self._heart.wake()\n",
        "",
        (f"{GROUP}::test_what_is_given_up_is_acknowledged_when_on_revoked_has_run_and_at_once",),
    ),
    Mutant(
        "a_static_member_leaves_for_good",
        MEMBER,
        "epoch = LEAVE if self.instance_id is None else LEAVE_FOR_NOW",
        "epoch = LEAVE",
        (f"{GROUP}::test_who_closes_leaves_for_good_or_for_a_while",),
    ),
    Mutant(
        "a_stale_epoch_is_told",
        COMMITTED,
        "if membership.generation < 0 or membership.holdings.given_up != given_up:",
        "if True:",
        (f"{GROUP}::test_a_commit_under_a_stale_epoch_goes_on_under_the_next_one",),
    ),
    Mutant(
        "a_commit_outlives_the_possession",
        COMMITTED,
        "if membership.generation < 0 or membership.holdings.given_up != given_up:",
        "if membership.generation < 0:",
        (f"{GROUP}::test_a_commit_does_not_outlive_the_possession",),
    ),
    Mutant(
        "a_commit_that_is_tried_again_is_of_no_member",
        COMMITTED,
        "if membership.generation < 0 or membership.holdings.given_up != given_up:",
        "if membership.holdings.given_up != given_up:",
        (f"{GROUP}::test_a_commit_does_not_outlive_the_membership",),
    ),
    Mutant(
        "a_poll_that_waits_is_a_stall",
        SHARED,
        "if self.max_ms is None or self._waits:",
        "if self.max_ms is None:",
        (f"{COOPERATION}::test_a_member_that_is_not_polled_leaves_and_comes_back_with_a_poll",),
    ),
    Mutant(
        "a_member_that_stalls_only_falls_silent",
        CLASSIC,
        "        await self._send_leave(LEAVE_TIMEOUT_MS)\n        self._put_out",
        "        self._put_out",
        (f"{COOPERATION}::test_a_member_that_is_not_polled_leaves_and_comes_back_with_a_poll",),
    ),
    Mutant(
        "a_cooperative_member_gives_up_all",
        CLASSIC,
        "        if not self.is_cooperative:\n            return {}\n",
        "        return {}\n",
        (f"{COOPERATION}::test_what_a_member_keeps_is_neither_revoked_nor_assigned_again",),
    ),
    Mutant(
        "what_was_given_up_is_left_unassigned",
        CLASSIC,
        "                self._joins_again = any(tp not in given.partitions for tp in held)\n",
        "                self._joins_again = False\n",
        (f"{COOPERATION}::test_what_a_member_keeps_is_neither_revoked_nor_assigned_again",),
    ),
    Mutant(
        "a_cooperative_member_joins_on_the_lane_of_its_commits",
        CLASSIC,
        'lane = f"{self.coordinator.lane} join" if self.holdings.held else self.coordinator.lane',
        "lane = self.coordinator.lane",
        (f"{COOPERATION}::test_members_read_and_commit_on_while_the_group_waits_for_one",),
    ),
    Mutant(
        "what_is_lost_is_held_on_through_a_join",
        CLASSIC,
        "        self.holdings.lose()\n",
        "",
        (f"{COOPERATION}::test_a_cooperative_member_that_was_put_out_loses_all",),
    ),
    Mutant(
        "a_partition_is_assigned_while_another_has_it",
        ASSIGNORS,
        "if all(owner == member for owner in owners.get(tp, ()))",
        "if True",
        (f"{DEALS}::test_cooperation_withholds_what_another_still_has",),
    ),
    Mutant(
        "an_assignor_is_told_before_its_partitions_are_given_up",
        CLASSIC,
        "        if isinstance(step, Take):\n            self._tell_assignor()\n",
        "        self._tell_assignor()\n",
        (f"{CUSTOM}::test_what_a_leader_moves_is_given_up_by_one_before_the_other_has_it",),
    ),
    Mutant(
        "an_assignor_that_failed_is_not_told_again",
        CLASSIC,
        "        if (given := self._untold) is not None:\n",
        "        given, self._untold = self._untold, None\n        if given is not None:\n",
        (f"{CUSTOM}::test_an_error_of_on_assignment_is_raised_by_the_poll_and_the_next_one_calls_it_again",),
    ),
    Mutant(
        "an_assignor_takes_what_others_have",
        ASSIGNORS,
        "if others := [owner for owner in owners.get(tp, ()) if owner != member]:",
        "if others := [owner for owner in () if owner != member]:",
        (f"{CUSTOM}::test_an_assignment_that_would_harm_the_group_is_none",),
    ),
    Mutant(
        "an_older_claim_counts",
        ASSIGNORS,
        "if claim.generation >= generation:",
        "if True:",
        (f"{DEALS}::test_of_two_that_claim_a_partition_the_later_generation_has_it_and_of_equals_neither",),
    ),
    Mutant(
        "a_pattern_is_matched_once",
        CLASSIC,
        "            if found != self.topics:\n",
        "            if False:\n",
        (f"{COOPERATION}::test_topics_that_match_a_pattern_are_read_from_when_they_come_until_they_go",),
    ),
)
