"""Bugs of the consumer in what its user does while something is under way, such as a seek during a fetch."""

from tests.mutants import Mutant

CONSUMER, FETCHER, MEMBERSHIP = "client/consumer.py", "client/fetcher.py", "client/classic_membership.py"
COMMITTED = "client/committed.py"
BY_HAND = "tests/client/test_consumer.py"
TURNS = "tests/client/test_consumer_turns.py"
LEADERS = "tests/client/test_consumer_leaders.py"
BATCHES = "tests/client/test_consumer_batches.py"
COMMITS = "tests/client/test_group_commits.py"
REBALANCES = "tests/client/test_group_rebalances.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "an_iteration_takes_records_ahead",
        CONSUMER,
        "taken = chunk.take(1)",
        "taken = chunk.take(500)",
        (f"{BY_HAND}::test_the_position_of_an_iteration_is_after_the_record_in_hand",),
    ),
    Mutant(
        "the_position_is_that_of_the_fetch",
        CONSUMER,
        "            if chunk.tp == tp:\n                return chunk.position, chunk.epoch\n",
        "            if chunk.tp == tp:\n                continue\n",
        (
            f"{BY_HAND}::test_the_position_of_an_iteration_is_after_the_record_in_hand",
            f"{COMMITS}::test_a_commit_in_on_revoked_is_of_what_was_handed_over",
        ),
    ),
    Mutant(
        "a_seek_keeps_what_is_at_hand",
        CONSUMER,
        "        self._forget([tp])\n        self._fetcher.seek(tp, offset)",
        "        self._fetcher.seek(tp, offset)",
        (f"{BY_HAND}::test_the_position_of_an_iteration_is_after_the_record_in_hand",),
    ),
    Mutant(
        "another_assignment_drops_what_stays",
        CONSUMER,
        "if positions.get(each.tp, -1) is not None]",
        "]",
        (f"{TURNS}::test_assigning_again_keeps_what_was_not_handed_over",),
    ),
    Mutant(
        "an_error_drops_the_records_before_it",
        CONSUMER,
        "                if found:\n",
        "                if False:\n",
        (f"{BATCHES}::test_records_before_a_corrupt_batch_are_handed_over_before_it_is_told",),
    ),
    Mutant(
        "batches_leave_out_what_a_poll_had_begun",
        CONSUMER,
        "return [each.rest() for each in begun] + self._fetcher.take()",
        "return self._fetcher.take()",
        (f"{BY_HAND}::test_batches_go_on_where_a_poll_of_records_stopped",),
    ),
    Mutant(
        "a_rebalance_keeps_what_is_at_hand",
        CONSUMER,
        "        self._forget(step.tps)\n        self._assign({tp: None",
        "        self._assign({tp: None",
        (f"{REBALANCES}::test_a_rebalance_gives_out_nothing_of_what_was_fetched_before_it",),
    ),
    Mutant(
        "partitions_are_gone_when_on_revoked_is_called",
        CONSUMER,
        "        try:\n            await self._call(self._on_lost if self._is_lost",
        "        self._assign({})\n        try:\n            await self._call(self._on_lost if self._is_lost",
        (f"{COMMITS}::test_a_commit_in_on_revoked_is_of_what_was_handed_over",),
    ),
    Mutant(
        "an_error_of_on_revoked_keeps_the_partitions",
        CONSUMER,
        "        except Exception:\n            self._drop(membership, step)\n            raise",
        "        except Exception:\n            raise",
        (f"{REBALANCES}::test_an_error_of_on_revoked_is_raised_once_and_the_partitions_are_given_up",),
    ),
    Mutant(
        "what_is_lost_is_revoked",
        CONSUMER,
        "return self._on_lost is not None and step.is_lost",
        "return False",
        (
            f"{COMMITS}::test_a_member_that_was_put_out_commits_nothing_and_is_told_of_its_loss",
            f"{COMMITS}::test_a_member_that_closes_after_it_was_put_out_is_told_of_its_loss",
        ),
    ),
    Mutant(
        "who_was_put_out_commits_as_no_member",
        COMMITTED,
        "if as_member and membership.generation < 0:",
        "if False:",
        (f"{COMMITS}::test_a_member_that_was_put_out_commits_nothing_and_is_told_of_its_loss",),
    ),
    Mutant(
        "a_refused_commit_leaves_the_member_in",
        COMMITTED,
        "not_a_member(group, code)\n                    membership.told_of_loss(code, generation)\n",
        "not_a_member(group, code)\n",
        (f"{COMMITS}::test_a_member_that_closes_after_it_was_put_out_is_told_of_its_loss",),
    ),
    Mutant(
        "a_commit_is_tried_again_in_another_generation",
        COMMITTED,
        "                answer = await membership.coordinator.ask(request, most_version=NAMES_UP_TO)\n",
        "                request.generation_id_or_member_epoch = membership.generation\n"
        "                answer = await membership.coordinator.ask(request, most_version=NAMES_UP_TO)\n",
        (f"{COMMITS}::test_a_commit_that_is_tried_again_is_of_the_generation_it_began_in",),
    ),
    Mutant(
        "the_offset_of_a_deleted_topic_is_committed",
        CONSUMER,
        "if not each.invalid and (at",
        "if (at",
        (f"{COMMITS}::test_the_offset_of_a_topic_made_anew_is_not_committed",),
    ),
    Mutant(
        "a_closed_consumer_commits",
        CONSUMER,
        "            self._closed = True\n",
        "            self._subscribed = False\n",
        (f"{COMMITS}::test_a_closed_consumer_commits_nothing",),
    ),
    Mutant(
        "an_answer_counts_after_a_seek",
        FETCHER,
        "if self.positions.get(answer.tp) is position and position.fetch_offset == offset:",
        "if answer.tp in self.positions:",
        (f"{TURNS}::test_a_seek_drops_what_was_being_fetched",),
    ),
    Mutant(
        "an_answer_counts_after_the_partition_has_gone",
        FETCHER,
        "if self.positions.get(answer.tp) is position and position.fetch_offset == offset:",
        "if position.fetch_offset == offset:",
        (f"{TURNS}::test_another_assignment_drops_what_was_being_fetched",),
    ),
    Mutant(
        "a_seek_keeps_what_was_fetched",
        FETCHER,
        "        self.ready = deque(each for each in self.ready if each.tp != tp)\n",
        "",
        (f"{TURNS}::test_a_seek_drops_what_was_being_fetched",),
    ),
    Mutant(
        "a_seek_keeps_what_was_wrong_with_the_old_position",
        FETCHER,
        "        self.unsettled.pop(tp, None)\n        self.wake()",
        "        self.wake()",
        (f"{TURNS}::test_a_seek_drops_what_was_being_fetched",),
    ),
    Mutant(
        "what_was_wrong_with_a_partition_outlives_its_assignment",
        FETCHER,
        "        self.unsettled = {tp: position for",
        "        self.unsettled |= {tp: position for",
        (f"{TURNS}::test_another_assignment_drops_what_was_being_fetched",),
    ),
    Mutant(
        "a_lookup_counts_after_a_seek",
        FETCHER,
        "        if self.positions.get(tp) is not position:\n            return False\n",
        "        if tp not in self.positions:\n            return False\n",
        (f"{TURNS}::test_where_the_user_turns_while_an_offset_is_looked_up_counts",),
    ),
    Mutant(
        "a_lookup_counts_after_the_partition_has_gone",
        FETCHER,
        "        if self.positions.get(tp) is not position:\n            return False\n",
        "",
        (f"{TURNS}::test_where_the_user_turns_while_an_offset_is_looked_up_counts",),
    ),
    Mutant(
        "a_lookup_holds_up_other_partitions",
        CONSUMER,
        "        self._resolve_positions()\n\n",
        "        self._resolve_positions()\n"
        "        if self._lookup is not None:\n"
        "            await asyncio.wait([self._lookup])\n\n",
        (f"{LEADERS}::test_a_position_that_is_being_looked_up_holds_up_no_other_partition",),
    ),
    Mutant(
        "a_partition_without_a_leader_holds_up_others",
        CONSUMER,
        "for tp, each in fetcher.unsettled.items() if self.client.leader(tp) is not None}",
        "for tp, each in fetcher.unsettled.items()}",
        (f"{LEADERS}::test_a_partition_that_is_not_there_holds_up_no_other_and_is_asked_for_ever_more_rarely",),
    ),
    Mutant(
        "a_leader_that_another_has_learned_of_is_not_noticed",
        FETCHER,
        "                except TimeoutError:\n                    self.wake()\n",
        "                except TimeoutError:\n                    pass\n",
        (f"{LEADERS}::test_a_leader_that_another_user_of_the_client_has_learned_of_is_fetched_from",),
    ),
    Mutant(
        "a_poll_goes_on_when_its_consumer_is_closed",
        FETCHER,
        "        self._closed = True\n        self.arrived.set()",
        "        self._closed = True\n        pass",
        (f"{BY_HAND}::test_a_consumer_that_is_closed_leaves_nothing_of_what_it_was_doing[waits_for_data]",),
    ),
    Mutant(
        "partitions_are_asked_for_in_one_order_for_ever",
        FETCHER,
        "sorted(self.positions.items(), key=lambda each: each[1].served)",
        "self.positions.items()",
        (f"{LEADERS}::test_full_partitions_of_a_node_take_turns",),
    ),
    Mutant(
        "partitions_of_one_answer_keep_their_order",
        FETCHER,
        "        position.served = self._served\n",
        "        position.served = self._served // 8\n",
        (f"{LEADERS}::test_full_partitions_of_a_node_take_turns",),
    ),
    Mutant(
        "a_fetch_names_each_topic_once",
        "client/raw.py",
        "    for tp, (offset, last_epoch) in positions.items():",
        "    for tp, (offset, last_epoch) in sorted(positions.items(), key=lambda each: each[0].topic):",
        (f"{LEADERS}::test_full_partitions_of_a_node_take_turns",),
    ),
    Mutant(
        "who_was_put_out_keeps_its_generation",
        MEMBERSHIP,
        '        self.generation = -1\n        if code in JOIN_ANEW:\n            self.member_id = ""\n',
        '        if code in JOIN_ANEW:\n            self.member_id = ""\n',
        (f"{COMMITS}::test_a_member_that_was_put_out_commits_nothing_and_is_told_of_its_loss",),
    ),
    Mutant(
        "a_heartbeat_that_says_so_puts_nobody_out",
        MEMBERSHIP,
        "        self.told_of_loss(code, generation)\n",
        "",
        (f"{COMMITS}::test_a_member_that_was_put_out_commits_nothing_and_is_told_of_its_loss",),
    ),
    Mutant(
        "who_was_fenced_joins_under_a_new_member_id",
        MEMBERSHIP,
        '        if code in JOIN_ANEW:\n            self.member_id = ""\n        self.holdings.lose()',
        '        self.member_id = ""\n        self.holdings.lose()',
        (f"{COMMITS}::test_a_member_whose_place_another_took_is_told_of_its_loss_and_does_not_take_it_back",),
    ),
    Mutant(
        "a_subscription_during_a_join_is_forgotten",
        MEMBERSHIP,
        "                self.holdings.shall_hold(assigned, must_tell=True)\n",
        "                self.holdings.shall_hold(assigned, must_tell=True)\n                self.must_join = False\n",
        (f"{REBALANCES}::test_another_subscription_counts_whenever_it_comes",),
    ),
    Mutant(
        "a_subscription_waits_for_the_end_of_a_poll",
        MEMBERSHIP,
        "        self.topics = list(subscription.topics)\n        self._must_join()",
        "        self.topics = list(subscription.topics)\n        self.must_join = True",
        (f"{REBALANCES}::test_another_subscription_counts_whenever_it_comes",),
    ),
    Mutant(
        "a_join_that_was_refused_is_not_tried_again",
        MEMBERSHIP,
        "        self.error = error\n        self._must_join()",
        "        self.error = error\n        self.changed.set()",
        (f"{COMMITS}::test_a_member_whose_place_another_took_is_told_of_its_loss_and_does_not_take_it_back",),
    ),
    Mutant(
        "a_consumer_that_was_closed_while_it_waited_for_a_leader_is_assigned",
        CONSUMER,
        "min(TOPICS_TIMEOUT_MS, remaining_ms))\n            self._check_open()\n",
        "min(TOPICS_TIMEOUT_MS, remaining_ms))\n",
        (f"{REBALANCES}::test_a_consumer_that_is_closed_while_it_joins_is_assigned_nothing",),
    ),
    Mutant(
        "a_consumer_that_was_closed_in_its_callback_waits_for_data",
        CONSUMER,
        "        await self._call(self._on_assigned, step.tps)\n        self._check_open()\n",
        "        await self._call(self._on_assigned, step.tps)\n",
        (f"{REBALANCES}::test_a_consumer_that_is_closed_while_it_joins_is_assigned_nothing",),
    ),
)
