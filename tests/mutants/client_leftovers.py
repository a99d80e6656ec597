"""Bugs planted on purpose, one at a time; `python -m tests.mutants` checks that a test sees each.

What a client leaves behind: tasks, timers, connections, and futures that nobody will ever resolve.
"""

from __future__ import annotations

from tests.mutants import Mutant

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a closed connection keeps its timer",
        "client/connection.py",
        """        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._frame = None
""",
        """        self._timer = None
        self._frame = None
""",
        ("tests/client/test_admin.py::test_the_cluster_is_described",),
    ),
    Mutant(
        "requests of a lost connection are never answered",
        "client/connection.py",
        "                waiter.future.set_exception(self._gone())\n",
        "                pass\n",
        ("tests/client/test_operation.py::test_closing_the_client_ends_what_is_under_way_at_once",),
    ),
    Mutant(
        "a connection stays open when its handshake is broken off",
        "client/connection.py",
        """    except BaseException as error:
        if connection is not None:
            connection.close(error if isinstance(error, Exception) else None)
        raise
""",
        """    except BaseException:
        raise
""",
        ("tests/client/test_operation.py::test_closing_the_client_ends_what_is_under_way_at_once",),
    ),
    Mutant(
        "a closed client keeps its metadata timer",
        "client/cluster.py",
        "            self._age_timer.cancel()\n",
        "            pass\n",
        ("tests/client/test_admin.py::test_the_cluster_is_described",),
    ),
    Mutant(
        "closing a client does not end operations under way",
        "client/cluster.py",
        """            operation.end(ClientClosed(f"client {self.client_id} was closed during {operation.what}"))
""",
        "            pass\n",
        ("tests/client/test_operation.py::test_closing_the_client_ends_what_is_under_way_at_once",),
    ),
    Mutant(
        "a member that left sends heartbeats",
        "client/classic_membership.py",
        """        await self._heart.stop()
        try:
            await self._send_leave""",
        """        try:
            await self._send_leave""",
        ("tests/client/test_groups.py::test_one_member_reads_everything_once_and_commits",),
    ),
    Mutant(
        "a member that left keeps its connection",
        "client/classic_membership.py",
        "            await self.client.close_lane(self.coordinator.lane)\n",
        "            pass\n",
        (
            "tests/client/test_group_deadlines.py::test_a_close_that_is_cancelled_leaves_nothing_behind_but_the_clients_own",
        ),
    ),
    Mutant(
        "a closed consumer goes on joining",
        "client/classic_membership.py",
        "            joining.cancel()\n            await asyncio.gather(joining, return_exceptions=True)\n",
        "            pass\n",
        ("tests/client/test_consumer.py::test_a_consumer_that_is_closed_leaves_nothing_of_what_it_was_doing[joins]",),
    ),
    Mutant(
        "a closed consumer keeps its connection for fetches",
        "client/consumer.py",
        """            finally:
                await self.client.close_lane(self._lane)
""",
        """            finally:
                pass
""",
        (
            "tests/client/test_consumer.py::"
            "test_a_consumer_that_is_closed_leaves_nothing_of_what_it_was_doing[waits_for_data]",
        ),
    ),
    Mutant(
        "a closed consumer goes on asking for leaders",
        "client/fetcher.py",
        "        await self._refresher.close()\n",
        "",
        (
            "tests/client/test_consumer.py::"
            "test_a_consumer_that_is_closed_leaves_nothing_of_what_it_was_doing[waits_for_a_leader]",
        ),
    ),
    Mutant(
        "a closed producer keeps its timer",
        "client/sender.py",
        "        for handle in (self._drain_handle, self._timer):\n",
        "        for handle in (self._drain_handle,):\n",
        ("tests/client/test_producer_trouble.py::test_a_broker_that_is_down_holds_up_no_other",),
    ),
    Mutant(
        "who waits for space waits for ever once the producer is closed",
        "client/sender.py",
        """{CLOSED}; {doubt}"))
                self._release(each, batch)
""",
        """{CLOSED}; {doubt}"))
""",
        (
            "tests/client/test_operation.py::"
            "test_a_producer_closes_by_its_deadline_and_each_record_has_an_end[known_topic]",
        ),
    ),
    Mutant(
        "records of a topic that is still unknown have no end when the producer is closed",
        "client/producer.py",
        "            self._unlearned.fail(lambda topic: ClientError(",
        "            str(lambda topic: ClientError(",
        (
            "tests/client/test_operation.py::"
            "test_a_producer_closes_by_its_deadline_and_each_record_has_an_end[topic_being_learnt]",
        ),
    ),
)
