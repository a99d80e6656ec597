"""The local supervisor: what it takes for ready, what it takes for dead, and what a process leaves behind."""

from __future__ import annotations

from tests.mutants import Mutant

SUPERVISOR = "deploy/supervisor.py"
LEFTOVERS = "deploy/leftovers.py"
READINESS = "isthmus/readiness.py"
TESTS = "tests/deploy/test_supervisor.py::"
LEAVES = f"{TESTS}test_a_process_is_dead_when_it_is_and_what_it_leaves_is_ended"
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
