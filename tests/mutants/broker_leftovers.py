"""What a broker leaves behind: waiters of clients that have gone, tasks and timers after its stop."""

from __future__ import annotations

from tests.mutants import Mutant

SERVER = "core_broker/server/"
OF = "tests/core_broker/server/test_left_behind.py::test_"
FETCHED = f"{OF}a_fetch_waits_no_longer_than_its_client_stays"
WOKEN = f"{OF}a_fetch_that_was_woken_and_goes_does_not_wait_again"
PRODUCED = f"{OF}a_produce_waits_no_longer_than_its_client_stays"
PREPARED = f"{OF}a_produce_that_is_prepared_waits_no_longer_than_its_client_stays"
SEARCHED = f"{OF}a_search_by_timestamp_ends_with_its_client"
STOPPED = f"{OF}a_broker_that_has_stopped_leaves_no_task_timer_or_connection"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a pending of a client that has gone is kept",
        "core_broker/purgatory.py",
        "        self._callback = None\n        self.complete(None)\n",
        "        self._callback = None\n",
        (FETCHED, PRODUCED),
    ),
    Mutant(
        "a completed pending keeps what it waits on",
        "core_broker/purgatory.py",
        "        if cleanup is not None:\n            cleanup()\n",
        "",
        (FETCHED, PRODUCED),
    ),
    Mutant(
        "a closed purgatory keeps its timer",
        "core_broker/purgatory.py",
        "            self._timer.cancel()\n            self._timer = None\n        heap",
        "            self._timer = None\n        heap",
        (STOPPED,),
    ),
    Mutant(
        "the answers that were due stay when a client goes",
        f"{SERVER}due.py",
        "            if due.pending is not None:\n                due.pending.abandon()",
        "            if due.pending is None:\n                due.pending.abandon()",
        (FETCHED, PRODUCED),
    ),
    Mutant(
        "a fetch that ends goes on waiting for data",
        f"{SERVER}apis/fetch.py",
        "        for wanted in self._wanted.values():\n            stop_waiting(wanted)\n",
        "",
        (FETCHED,),
    ),
    Mutant(
        "a fetch that has ended waits again",
        f"{SERVER}apis/fetch.py",
        "        woken, self._woken = self._woken, []\n        if self._pending.done:\n            return\n",
        "        woken, self._woken = self._woken, []\n",
        (WOKEN,),
    ),
    Mutant(
        "what waits for a high watermark goes on waiting",
        "core_broker/replication/waiting.py",
        "        for cancel in cancels:\n            cancel()\n",
        "        pass\n",
        (PRODUCED,),
    ),
    Mutant(
        "a produce that was prepared waits for nobody",
        f"{SERVER}apis/produce.py",
        "    elif waits and not pending.done:",
        "    elif waits:",
        (PREPARED,),
    ),
    Mutant(
        "a produce that was prepared waits on when its client goes",
        f"{SERVER}apis/produce.py",
        "    for each in begun:\n        each.abandon()",
        "    begun.clear()",
        (PREPARED,),
    ),
    Mutant(
        "a search goes on when its client has gone",
        f"{SERVER}apis/list_offsets.py",
        "        if pending.done:\n",
        "        if pending is None:\n",
        (SEARCHED,),
    ),
    Mutant(
        "a stopped broker looks for idle connections",
        f"{SERVER}listener.py",
        "            self._timer.cancel()\n            self._timer = None\n        self.closings",
        "            self._timer = None\n        self.closings",
        (STOPPED,),
    ),
    Mutant(
        "a stopped broker loads modules",
        "core_broker/broker.py",
        "        self._loading.stop()\n",
        "",
        (STOPPED,),
    ),
    Mutant(
        "a stopped broker keeps the timers of its groups",
        "core_broker/coordinators/timers.py",
        "            self._handle.cancel()\n            self._handle = None\n",
        "            self._handle = None\n",
        (STOPPED,),
    ),
)
