"""The local supervisor: what it takes for ready, for alive and for dead, what a process leaves behind; and what it does
to processes when the topology's file has changed."""

from __future__ import annotations

from tests.mutants import Mutant

SUPERVISOR = "deploy/supervisor.py"
LEFTOVERS = "deploy/leftovers.py"
PLAN = "deploy/plan.py"
READINESS = "isthmus/readiness.py"
TESTS = "tests/deploy/test_supervisor.py::"
LEAVES = f"{TESTS}test_a_process_is_dead_when_it_is_and_what_it_leaves_is_ended"
SIGNS = f"{TESTS}test_one_that_gives_no_sign_of_life_is_silent_until_it_does"
SIGNS_AT_ONCE = f"{TESTS}test_a_sign_of_life_that_comes_with_the_word_that_it_is_ready_counts"
AGAIN = f"{TESTS}test_what_fails_again_and_again_is_shown_as_failed_with_its_last_lines_and_goes_on_being_tried"
PLANS = "tests/deploy/test_plan.py::"
NEXT = f"{TESTS}test_what_a_killed_supervisor_left_is_ended_by_the_next"

MUTANTS: tuple[Mutant, ...] = (
    # Readiness
    Mutant(
        "a printed line makes a process ready",
        SUPERVISOR,
        "        self._last(line)\n        if self.on_stdout_line:",
        '        self._last(line)\n        if line.startswith("ready"):\n            self._set(State.READY)\n'
        "        if self.on_stdout_line:",
        (f"{TESTS}test_what_a_process_prints_does_not_make_it_ready",),
    ),
    Mutant(
        "a child inherits the way to tell readiness",
        READINESS,
        'os.environ.pop(VARIABLE, "")',
        'os.environ.get(VARIABLE, "")',
        (f"{TESTS}test_a_child_of_a_process_does_not_speak_for_it",),
    ),
    Mutant(
        "a file of an earlier process counts",
        READINESS,
        "if path and stat.S_ISREG(os.stat(path).st_mode):",
        "if path and stat.S_ISDIR(os.stat(path).st_mode):",
        ("tests/test_readiness.py::test_a_plain_file_is_there_once_it_is_told",),
    ),
    Mutant(
        "telling waits until somebody listens",
        READINESS,
        "os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK",
        "os.O_RDWR | os.O_CREAT | os.O_EXCL",
        ("tests/test_readiness.py::test_who_waits_at_a_fifo_is_told",),
    ),
    # Life
    Mutant(
        "a process that gives no sign of life is ready for ever",
        SUPERVISOR,
        "call_later(SILENT_AFTER_S, self._is_silent)",
        "call_later(SILENT_AFTER_S, int)",
        (SIGNS,),
    ),
    Mutant(
        "what was silent once stays so",
        SUPERVISOR,
        "        if self.status.state is State.SILENT:\n            self._works()\n",
        "",
        (SIGNS,),
    ),
    Mutant(
        "a sign of life that comes with the word that it is ready is lost",
        SUPERVISOR,
        '(self._is_ready and not text) or more != b""',
        "self._is_ready and not text",
        (SIGNS_AT_ONCE,),
    ),
    Mutant(
        "a hanging process is waited for as long as it needs to stop",
        SUPERVISOR,
        "if more_s > 0 and self.status.state is not State.SILENT:",
        "if more_s > 0:",
        (f"{TESTS}test_a_hanging_one_is_killed_without_the_time_that_it_needs_to_stop",),
    ),
    # Failing
    Mutant(
        "what crashes again and again is never shown as failed",
        SUPERVISOR,
        "state = State.FAILED if self._crashes >= FAILED_CRASHES else State.BACKOFF",
        "state = State.BACKOFF",
        (AGAIN,),
    ),
    Mutant(
        "why it crashed is forgotten when it is ready",
        SUPERVISOR,
        "        if not self._crashes:\n            self.status.last_lines = []\n",
        "        self._crashes = 0\n        self.status.last_lines = []\n",
        (AGAIN,),
    ),
    Mutant(
        "pauses are as long for every process",
        SUPERVISOR,
        "(self._crashes - 1, 30), self.spec.backoff_max_s)",
        "(self._crashes - 1, 30), BACKOFF_MAX_S)",
        (f"{TESTS}test_pauses_grow_up_to_what_the_process_allows",),
    ),
    Mutant(
        "a pause goes on when it is stopped",
        SUPERVISOR,
        "            self._pause.set_result(None)",
        "            pass",
        (f"{TESTS}test_a_failed_one_that_waits_is_stopped_at_once",),
    ),
    # Plans
    Mutant(
        "brokers are restarted for what they read at their next start",
        PLAN,
        "if each[0] not in FOR_THE_NEXT_START",
        "if each",
        (f"{PLANS}test_a_cluster_that_is_made_is_told_at_the_next_start",),
    ),
    Mutant(
        "an app's file is not looked at",
        PLAN,
        "    if DIGEST in spec.facts:",
        "    if False:",
        (f"{PLANS}test_an_app_whose_file_has_changed_is_restarted",),
    ),
    Mutant(
        "a datacenter that runs may listen elsewhere",
        PLAN,
        'case "--listen":',
        'case "--listens":',
        (f"{PLANS}test_where_a_datacenter_listens_and_what_a_link_reads_stay",),
    ),
    Mutant(
        "what ends does so in the order in which it began",
        PLAN,
        "reversed(list(running.items()))",
        "list(running.items())",
        (f"{PLANS}test_what_ends_ends_in_the_other_order_than_it_began",),
    ),
    # Death
    Mutant(
        "a process runs as long as its stdout is held open",
        SUPERVISOR,
        "            code = await self.child.wait()\n",
        "            code = await self.child.wait()\n"
        "            while outputs[0]._read() != b'':\n"
        "                await asyncio.sleep(0.01)\n",
        (LEAVES,),
    ),
    Mutant(
        "children outlive a killed supervisor",
        SUPERVISOR,
        "                    preexec_fn=_die_with_parent,\n",
        "",
        (f"{TESTS}test_children_die_with_a_killed_supervisor",),
    ),
    # Leftovers
    Mutant(
        "nothing that a process leaves is ended",
        SUPERVISOR,
        "            await leftovers.end(lambda: leftovers.of_process(pid, self._mark))\n",
        "",
        (LEAVES,),
    ),
    Mutant(
        "only its process group is ended",
        SUPERVISOR,
        "            await leftovers.end(lambda: leftovers.of_process(pid, self._mark))\n",
        "            self._kill_group()\n",
        (LEAVES,),
    ),
    Mutant(
        "what made a session of its own is not ended",
        LEFTOVERS,
        "lambda session, environment: session == pid or wanted in environment",
        "lambda session, environment: session == pid",
        (LEAVES,),
    ),
    Mutant(
        "what put away its environment is not ended",
        LEFTOVERS,
        "lambda session, environment: session == pid or wanted in environment",
        "lambda session, environment: wanted in environment",
        (LEAVES,),
    ),
    Mutant(
        "what a killed supervisor left stays",
        SUPERVISOR,
        "        leftovers.kill(leftovers.of_folder(folder))  # of one that was killed\n",
        "",
        (NEXT,),
    ),
    Mutant(
        "processes of other folders are ended",
        LEFTOVERS,
        "wanted = f\"\\0{VARIABLE}={mark(folder, '')}\".encode()",
        'wanted = f"\\0{VARIABLE}=".encode()',
        (NEXT,),
    ),
)
