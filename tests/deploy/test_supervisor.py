"""The supervisor on processes of this interpreter: ready, crash and back-off, wrong config, jobs, stop, orphans."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from isthmus.deploy.errors import SupervisorError
from isthmus.deploy.leftovers import VARIABLE, mark, of_folder
from isthmus.deploy.output import LINE_MAX_BYTES, Log, rotate_own
from isthmus.deploy.supervisor import ProcessSpec, State, Supervisor, read_state, start_ticks
from tests.running import run_by

TAKEN = "from isthmus.readiness import Readiness; readiness = Readiness.take()"
READY = f"{TAKEN}; readiness.tell('here')"
FOREVER = f"{READY}; import signal; signal.pause()"


def spec(code: str, name: str = "one", kind: str = "service") -> ProcessSpec:
    return ProcessSpec(name, (sys.executable, "-c", code), kind)


def supervised(scenario, tmp_path: Path):
    async def main():
        events = []
        supervisor = Supervisor(tmp_path, events.append)
        try:
            await scenario(supervisor, events)
        finally:
            await supervisor.stop()

    asyncio.run(main())


async def seen(supervisor, events, name, state, count=1):
    async with asyncio.timeout(20):
        while sum(1 for event in events if (event.process, event.state) == (name, state)) < count:
            await supervisor.processes[name].changed.wait()


def gone(pid, ticks):
    """Wait until a process is, which has been sent SIGKILL."""
    deadline = time.monotonic() + 10
    while start_ticks(pid) == ticks:
        assert time.monotonic() < deadline, f"process {pid} lives on"
        os.sched_yield()


@run_by(supervised)
async def test_a_killed_service_is_started_again_and_said_so(supervisor, events, /):
    process = supervisor.start(spec(FOREVER))
    first = (await supervisor.until("one", State.READY)).pid
    assert process.status.address == "here"
    os.kill(first, signal.SIGKILL)
    await seen(supervisor, events, "one", State.READY, 2)
    assert process.status.pid not in (first, None)
    assert process.status.restarts == 1
    [died] = [event for event in events if event.state is State.BACKOFF]
    assert "killed by SIGKILL; starts again in 0.2 s" in died.text


@run_by(supervised)
async def test_what_a_process_prints_does_not_make_it_ready(supervisor, events, /):
    """An app that greets its user so was taken for one that works."""
    wait = "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])"
    told = f"{wait}; print('ready or not', flush=True); signal.sigwait([signal.SIGUSR1])"
    said = []
    process = supervisor.start(spec(f"{told}; {FOREVER}"))
    process.on_stdout_line = lambda line: (said.append(line), process.signal(signal.SIGUSR1))
    await supervisor.until("one", State.READY)
    assert said == ["ready or not"]
    assert [event.state for event in events] == [State.STARTING, State.READY]
    assert process.status.address == "here"


def test_a_child_of_a_process_does_not_speak_for_it(tmp_path):
    child = "import os; print(os.environ.get('ISTHMUS_READY', 'nobody asks'), flush=True)"
    silent = f"import subprocess, sys; {TAKEN}; subprocess.run([sys.executable, '-c', {child!r}])"

    async def scenario(supervisor, events):
        said = []
        supervisor.start(spec(silent, kind="job")).on_stdout_line = said.append
        await supervisor.until("one", State.FINISHED)
        assert said == ["nobody asks"]
        assert State.READY not in [event.state for event in events]

    supervised(scenario, tmp_path)


# A child that keeps its parent's pipes open, and tells which process it is; `{way}` says how it parts from it.
KEEPS_THE_PIPES = """
import os, signal, sys
if os.fork() == 0:
    {way}
    print(f'child {{os.getpid()}}', flush=True)
    signal.pause()
{then}
"""
WAYS = ["pass", "os.setpgid(0, 0)", "os.setsid()", "os.setsid(); os.fork() and os._exit(0)"]
BARE = "import os, signal; print('child', os.getpid(), flush=True); signal.pause()"
WAYS += [f"os.execve(sys.executable, [sys.executable, '-c', {BARE!r}], {{}})"]


@pytest.mark.parametrize("way", WAYS, ids=["same group", "own group", "own session", "a daemon", "no environment"])
@pytest.mark.parametrize("end", ["killed", "exits", "killed for good"])
@run_by(supervised)
async def test_a_process_is_dead_when_it_is_and_what_it_leaves_is_ended(supervisor, events, /, way, end):
    """A child that held its stdout kept a dead worker running for the supervisor, and outlived it."""
    then = f"signal.signal(signal.SIGTERM, lambda *_: sys.exit(3)); {READY}; signal.pause()"
    said = []
    process = supervisor.start(spec(KEEPS_THE_PIPES.format(way=way, then=then)))
    process.on_stdout_line = said.append
    first = (await supervisor.until("one", State.READY)).pid
    await spoken(said, 1)
    if end == "killed for good":
        await process.kill()
    else:
        os.kill(first, signal.SIGKILL if end == "killed" else signal.SIGTERM)
        await seen(supervisor, events, "one", State.BACKOFF)
    children = [int(line.split()[1]) for line in said]
    assert children and [pid for pid in children if start_ticks(pid)] == []


async def spoken(said, count):
    async with asyncio.timeout(20):
        while len(said) < count:
            await asyncio.sleep(0.01)


def test_what_a_killed_supervisor_left_is_ended_by_the_next(tmp_path):
    orphan = KEEPS_THE_PIPES.format(way="os.setsid()", then="signal.pause()")
    marked = {**os.environ, VARIABLE: mark(tmp_path, "one")}
    with subprocess.Popen([sys.executable, "-c", orphan], stdout=subprocess.PIPE, text=True, env=marked) as parent:
        child = int(parent.stdout.readline().split()[1])
        parent.kill()
        parent.wait()
        ticks = start_ticks(child)
        assert (of_folder(tmp_path / "other"), of_folder(tmp_path)) == ([], [child])
        Supervisor(tmp_path)
        gone(child, ticks)


@run_by(supervised)
async def test_all_that_a_process_printed_before_it_died_is_in_its_log(supervisor, events, /):
    talk = "import sys, os; os.write(1, b'x' * 300_000 + b'\\nlast out'); os.write(2, b'why it died'); os._exit(3)"
    said = []
    process = supervisor.start(spec(talk))
    process.on_stdout_line = said.append
    await seen(supervisor, events, "one", State.BACKOFF)
    assert [len(line) for line in said] == [LINE_MAX_BYTES, len("last out")]
    assert process.log.stat().st_size == 300_000 + len("\nlast outwhy it died")
    assert process.status.reason.startswith("exited 3: ")


def test_logs_are_rotated_by_size(tmp_path, monkeypatch):
    monkeypatch.setattr("isthmus.deploy.output.LOG_MAX_BYTES", 10)
    log = Log(tmp_path / "one.log")
    for number in range(9):
        log.write(b"line %d\n" % number)
    names = ["one.log", "one.log.1", "one.log.2", "one.log.3"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert [(tmp_path / name).read_text() for name in names] == ["line 8\n", "line 7\n", "line 6\n", "line 5\n"]
    Log(tmp_path / "one.log").write(b"of the next start\n")  # which knows how large it is
    assert (tmp_path / "one.log.1").read_text() == "line 8\n"
    log.path = tmp_path / "none" / "one.log"
    log.write(b"lost\n")  # where the disk takes none


def test_the_supervisors_own_log_is_rotated_by_size(tmp_path, monkeypatch):
    monkeypatch.setattr("isthmus.deploy.output.LOG_MAX_BYTES", 10)
    with open(tmp_path / "own.log", "wb", buffering=0) as own:
        for number in range(3):
            own.write(b"event %d\n" % number)
            rotate_own(own.fileno())
    names = ["own.log", "own.log.1"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert [(tmp_path / name).read_text() for name in names] == ["event 2\n", "event 0\nevent 1\n"]


@run_by(supervised)
async def test_wrong_configuration_is_not_tried_again(supervisor, events, /):
    supervisor.start(spec("import sys; print('error: no such option foo', file=sys.stderr); sys.exit(2)"))
    with pytest.raises(SupervisorError, match="one: no such option foo"):
        await supervisor.until("one", State.READY)
    assert [event.state for event in events] == [State.STARTING, State.FAILED]


@run_by(supervised)
async def test_backoff_doubles(supervisor, events, /):
    supervisor.start(spec("import sys; sys.exit(3)"))
    await seen(supervisor, events, "one", State.BACKOFF, 3)
    waits = [event.text.rpartition("in ")[2] for event in events if event.state is State.BACKOFF]
    assert waits == ["0.2 s", "0.4 s", "0.8 s"]


@run_by(supervised)
async def test_what_fails_again_and_again_is_shown_as_failed_with_its_last_lines_and_goes_on_being_tried(
    supervisor, events, /, tmp_path, monkeypatch
):
    monkeypatch.setattr("isthmus.deploy.supervisor.BACKOFF_MIN_S", 0.01)
    mended = tmp_path / "mended"
    lines = "print('early', flush=True); print('\\n'.join(['Traceback', '  line 7', 'KeyError: x']), file=sys.stderr)"
    crash = f"import os, sys\nif not os.path.exists({str(mended)!r}):\n    {lines}\n    sys.exit(1)\n{FOREVER}"
    process = supervisor.start(spec(crash))
    other = supervisor.start(spec(FOREVER, "other"))
    await seen(supervisor, events, "one", State.FAILED, 2)
    assert [event.state for event in events if event.process == "one"][:8] == [State.STARTING, State.BACKOFF] * 3 + [
        State.STARTING,
        State.FAILED,
    ]
    assert process.status.reason.startswith("exited 1: KeyError: x; starts again in ")
    assert sorted(process.status.last_lines) == ["  line 7", "KeyError: x", "Traceback", "early"]
    assert read_state(tmp_path).processes[0].last_lines == process.status.last_lines
    with pytest.raises(SupervisorError, match="one: exited 1: KeyError: x"):
        await supervisor.until("one", State.READY)
    mended.touch()
    monkeypatch.setattr("isthmus.deploy.supervisor.STEADY_S", 0.05)
    await seen(supervisor, events, "one", State.READY)
    assert process.status.reason.startswith("crashed ") and process.status.last_lines  # it may do so again
    assert process.fails
    await seen(supervisor, events, "one", State.READY, 2)
    assert (process.status.reason, process.status.last_lines, process.fails) == ("", [], False)
    assert other.status.restarts == 0


@run_by(supervised)
async def test_pauses_grow_up_to_what_the_process_allows(supervisor, events, /, monkeypatch):
    monkeypatch.setattr("isthmus.deploy.supervisor.BACKOFF_MIN_S", 0.1)
    supervisor.start(ProcessSpec("one", (sys.executable, "-c", "import sys; sys.exit(3)"), backoff_max_s=0.2))
    await seen(supervisor, events, "one", State.FAILED, 1)
    waits = [event.text.rpartition("in ")[2] for event in events if event.text]
    assert waits == ["0.1 s", "0.2 s", "0.2 s", "0.2 s"]


@run_by(supervised)
async def test_a_failed_one_that_waits_is_stopped_at_once(supervisor, events, /, monkeypatch):
    monkeypatch.setattr("isthmus.deploy.supervisor.FAILED_CRASHES", 1)
    monkeypatch.setattr("isthmus.deploy.supervisor.BACKOFF_MIN_S", 30.0)
    process = supervisor.start(ProcessSpec("one", (sys.executable, "-c", "import sys; sys.exit(3)"), backoff_max_s=30))
    await seen(supervisor, events, "one", State.FAILED)
    async with asyncio.timeout(15):
        await process.stop()
    assert process.status.state is State.STOPPED


BEATS = (
    "import asyncio, isthmus.readiness; isthmus.readiness.BEAT_S = 0.05\n"
    f"{READY}\n"
    "async def main():\n    readiness.beat(asyncio.get_running_loop())\n    await asyncio.Event().wait()\n"
    "asyncio.run(main())"
)


@run_by(supervised)
async def test_one_that_gives_no_sign_of_life_is_silent_until_it_does(supervisor, events, /, monkeypatch):
    """It was ready for ever."""
    monkeypatch.setattr("isthmus.deploy.supervisor.SILENT_AFTER_S", 2.0)
    process = supervisor.start(spec(BEATS))
    for name, code in (("other", BEATS), ("of old", FOREVER)):  # controls: one that lives, one that gives no signs
        supervisor.start(spec(code, name))
        await supervisor.until(name, State.READY)
    os.kill((await supervisor.until("one", State.READY)).pid, signal.SIGSTOP)
    await seen(supervisor, events, "one", State.SILENT)
    assert process.status.reason.startswith("no sign of life for 2 s")
    process.signal(signal.SIGCONT)
    await seen(supervisor, events, "one", State.READY, 2)
    assert process.status.reason == ""
    assert [event.state for event in events if event.process != "one"] == [State.STARTING, State.READY] * 2


@run_by(supervised)
async def test_one_whose_loop_is_blocked_tells_where(supervisor, events, /, tmp_path, monkeypatch):
    monkeypatch.setattr("isthmus.deploy.supervisor.SILENT_AFTER_S", 1.0)
    monkeypatch.setattr("isthmus.deploy.supervisor.TELL_S", 0.0)
    (tmp_path / "app.py").write_text(
        f"import asyncio, signal\n{READY}\nreadiness.tell_where_asked()\n"
        "def blocks():\n    signal.sigwait([signal.SIGUSR1])\n"
        "async def main():\n    readiness.beat(asyncio.get_running_loop())\n    blocks()\nasyncio.run(main())\n"
    )
    process = supervisor.start(ProcessSpec("one", (sys.executable, str(tmp_path / "app.py")), tells_where=True))
    await seen(supervisor, events, "one", State.SILENT)
    async with asyncio.timeout(20):
        while not process._where:
            await asyncio.sleep(0.01)
    process._is_somewhere()
    assert "most recent call first" in process.status.last_lines[0]
    assert process.status.last_lines[2].endswith('app.py", line 5 in blocks')
    assert read_state(tmp_path).processes[0].last_lines == process.status.last_lines


@run_by(supervised)
async def test_a_sign_of_life_that_comes_with_the_word_that_it_is_ready_counts(supervisor, events, /, monkeypatch):
    monkeypatch.setattr("isthmus.deploy.supervisor.SILENT_AFTER_S", 0.2)
    at_once = f"{TAKEN}; import os, signal; file = os.open(readiness.path, os.O_WRONLY); os.write(file, b'here\\n\\n')"
    process = supervisor.start(spec(f"{at_once}; signal.pause()"))
    await seen(supervisor, events, "one", State.SILENT)
    assert process.status.address == "here"


@run_by(supervised)
async def test_a_hanging_one_is_killed_without_the_time_that_it_needs_to_stop(supervisor, events, /, monkeypatch):
    monkeypatch.setattr("isthmus.deploy.supervisor.SILENT_AFTER_S", 0.2)
    monkeypatch.setattr("isthmus.deploy.supervisor.STOP_TIMEOUT_S", 0.2)
    hangs = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\nimport asyncio\n{READY}\n"
    hangs += "readiness.beat(asyncio.new_event_loop())\nwhile True: signal.pause()"
    process = supervisor.start(ProcessSpec("one", (sys.executable, "-c", hangs), stop_timeout_s=30))
    await seen(supervisor, events, "one", State.SILENT)
    async with asyncio.timeout(15):
        await process.stop()


@run_by(supervised)
async def test_a_job_that_exits_0_is_finished_and_one_that_crashes_goes_on(supervisor, events, /, tmp_path):
    crash_once = (
        "import os, sys; path = sys.argv[0] if False else 'mark'\n"
        "if not os.path.exists(path): open(path, 'w').close(); os.kill(os.getpid(), 9)\n"
    )
    supervisor.start(ProcessSpec("job", (sys.executable, "-c", crash_once), "job", folder=str(tmp_path)))
    status = await supervisor.until("job", State.FINISHED)
    assert status.restarts == 1


@run_by(supervised)
async def test_stop_kills_what_ignores_sigterm(supervisor, events, /, tmp_path, monkeypatch):
    monkeypatch.setattr("isthmus.deploy.supervisor.STOP_TIMEOUT_S", 0.2)
    deaf = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {FOREVER}".replace(
        "signal.pause()", "[signal.pause() for _ in range(9)]"
    )
    supervisor.start(spec(deaf))
    pid = (await supervisor.until("one", State.READY)).pid
    await supervisor.stop()
    assert start_ticks(pid) == 0
    assert read_state(tmp_path) is None


@run_by(supervised)
async def test_what_needs_longer_to_stop_may_say_so(supervisor, events, /, monkeypatch):
    """A broker was killed in the middle of its controlled stop, and the next start looked through all its logs."""
    monkeypatch.setattr("isthmus.deploy.supervisor.STOP_TIMEOUT_S", 0.2)
    stop = "(time.sleep(0.6), print('done', flush=True), sys.exit())"
    slow = f"import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: {stop}); {FOREVER}"
    said = {"patient": [], "other": []}
    for name, stop_timeout_s in (("patient", 60.0), ("other", 0.0)):
        process = supervisor.start(ProcessSpec(name, (sys.executable, "-c", slow), stop_timeout_s=stop_timeout_s))
        process.on_stdout_line = said[name].append
        await supervisor.until(name, State.READY)
    await supervisor.stop()
    assert said == {"patient": ["done"], "other": []}  # the other is the control: it was killed


@run_by(supervised)
async def test_what_is_paused_is_stopped_in_its_own_way(supervisor, events, /):
    stop = "(print('done', flush=True), sys.exit())"
    obedient = f"import signal, sys; signal.signal(signal.SIGTERM, lambda *_: {stop}); {FOREVER}"
    said = []
    process = supervisor.start(spec(obedient))
    process.on_stdout_line = said.append
    os.kill((await supervisor.until("one", State.READY)).pid, signal.SIGSTOP)
    await supervisor.stop()
    assert said == ["done"]


@run_by(supervised)
async def test_what_is_killed_stays_dead_until_it_is_started_again(supervisor, events, /):
    process = supervisor.start(spec(FOREVER))
    first = (await supervisor.until("one", State.READY)).pid
    with pytest.raises(SupervisorError, match="two processes are called one"):
        supervisor.start(process.spec)
    await process.kill()
    assert start_ticks(first) == 0
    assert (process.status.state, process.status.reason, process.task.done()) == (State.STOPPED, "killed", True)
    again = supervisor.start(process.spec)
    assert (await supervisor.until("one", State.READY)).pid != first
    assert [event.state for event in events if event.state is State.BACKOFF] == []
    assert again.status.restarts == 0


@run_by(supervised)
async def test_one_killed_before_it_runs_and_one_killed_while_it_waits_are_gone(supervisor, events, /):
    early = supervisor.start(spec(FOREVER, "early"))
    await early.kill()
    crashing = supervisor.start(spec("import sys; sys.exit(3)", "crashing"))
    await seen(supervisor, events, "crashing", State.BACKOFF)
    await crashing.kill()
    assert [each.task.done() for each in (early, crashing)] == [True, True]
    assert State.READY not in [event.state for event in events]


@run_by(supervised)
async def test_state_is_readable_from_outside_and_a_second_supervisor_is_refused(supervisor, events, /, tmp_path):
    supervisor.start(spec(FOREVER))
    await supervisor.until("one", State.READY)
    saved = read_state(tmp_path)
    assert saved.running
    assert [(each.name, each.state) for each in saved.processes] == [("one", State.READY)]
    with pytest.raises(SupervisorError, match="is run by process"):
        Supervisor(tmp_path)


def test_children_die_with_a_killed_supervisor(tmp_path):
    program = (
        "import asyncio, sys; from pathlib import Path\n"
        "from isthmus.deploy.supervisor import *\n"
        "async def main():\n"
        f"    s = Supervisor(Path({str(tmp_path)!r}))\n"
        f"    s.start(ProcessSpec('one', (sys.executable, '-c', {FOREVER!r})))\n"
        "    print((await s.until('one', State.READY)).pid, flush=True); await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        pid = int(parent.stdout.readline())
        alive = start_ticks(pid)
        parent.kill()
    assert alive != 0  # the control: it did run
    gone(pid, alive)
