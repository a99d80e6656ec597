"""`isthmus up`, `down`, `status`, `broker`, `worker`, `demo`: whatever starts, stops or shows processes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..client.connection import close_all, connect
from ..client.errors import ClientError
from ..deploy.control import ask
from ..deploy.errors import DeployError, SupervisorError
from ..deploy.launch import FAILURE, NOTE, last_words, python, told
from ..deploy.nodes import KIND
from ..deploy.supervisor import SavedState, State, Status, read_state, start_ticks
from . import output
from .connect import HOME, resolve
from .members import unregister_app
from .output import JsonFlag
from .partitions import drain_app

if TYPE_CHECKING:
    from ..deploy.topology import Topology

File = Annotated[Path, typer.Option("--file", "-f", help="The topology file.")]
Data = Annotated[Path | None, typer.Option("--data", help="Folder of data and logs; default .isthmus/<name>.")]
DEFAULT_FILE = Path("topology.yaml")
COLUMNS = ("process", "state", ("node_id", "node"), "pid", "restarts", "address", "reason")  # a name says the kind
ANSWER_TIMEOUT_MS = 2_000  # for a broker to tell its versions
SUPERVISOR_TIMEOUT_S = 5.0  # for it to say that it lives
EXIT_FAILED = 1
POLL_S = 0.1
UP_TIMEOUT_S = 120.0
BROKER_COMMANDS = ("check", "drain", "to-kafka", "unregister")  # else it is one to run
DOWN_TIMEOUT_S = 150.0  # brokers may take a minute to put on disk what is not, and what is before them some seconds


def add(app: typer.Typer) -> None:
    passing = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
    app.command()(up)
    app.command()(down)
    app.command()(status)
    app.command(context_settings=passing, add_help_option=False)(broker)
    app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(worker)
    app.command(context_settings=passing, add_help_option=False)(demo)


def up(file: File = DEFAULT_FILE, data: Data = None, as_json: JsonFlag = False) -> None:
    """Start a topology in the background and return once all of it is ready.

    A mirror or worker that does not start leaves all else at work: it is named, with exit code 1."""
    from ..deploy.options import check_options

    topology, folder = located(file, data)
    check_options(topology, file.read_text(), str(file))
    if (state := read_state(folder)) and state.running:
        raise SupervisorError(
            f"{topology.name} is up already: see `isthmus status -f {file}`; `isthmus apply -f {file}` makes it as the "
            "file says now"
        )
    folder.mkdir(parents=True, exist_ok=True)
    command = (*python("deploy"), "-f", str(file.resolve()), "--data", str(folder.resolve()))
    log = folder / "logs" / "supervisor.log"
    log.parent.mkdir(exist_ok=True)
    with open(log, "wb") as sink:
        supervisor = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True
        )
    started = time.monotonic()
    try:
        with Live(console=output.err, transient=True, refresh_per_second=10) as live:
            while b"\nready\n" not in b"\n" + log.read_bytes():
                if supervisor.poll() is not None:
                    raise DeployError(last_words(log))
                if time.monotonic() - started > UP_TIMEOUT_S:
                    raise DeployError(f"{topology.name} is not ready after {UP_TIMEOUT_S:.0f} s; see {log.parent}")
                if state := read_state(folder):
                    live.update(table(state))
                time.sleep(POLL_S)
    except BaseException:
        if supervisor.poll() is None:
            supervisor.send_signal(signal.SIGTERM)
            supervisor.wait()
        raise
    state = read_state(folder)
    assert state
    output.show(rows(state), COLUMNS, as_json, "nothing to run")
    for note in told(log, NOTE):
        output.note(note)
    if failures := told(log, FAILURE):
        for line in failures:
            output.fail(line)
        if not as_json:
            _show_all_last_lines(state)
        output.err.print(
            f"all else of {topology.name} is up: mend what failed, then `isthmus restart NAME`, or `isthmus apply -f "
            f"{file}` where the file was wrong; stop all with: isthmus down -f {file}"
        )
        raise typer.Exit(EXIT_FAILED)
    if not as_json:
        output.out.print(
            f"up in {time.monotonic() - started:.1f} s; logs in {log.parent}; stop with: isthmus down -f {file}"
        )


def down(file: File = DEFAULT_FILE, data: Data = None, as_json: JsonFlag = False) -> None:
    """Stop a topology; its data stays. With --data its file is not needed."""
    name, folder = ran(file, data)
    state = read_state(folder)
    if not state or not state.running:
        raise SupervisorError(f"{name} is not up (nothing runs in {folder}){others()}")
    started = start_ticks(state.pid)
    os.kill(state.pid, signal.SIGTERM)
    deadline = time.monotonic() + DOWN_TIMEOUT_S
    while started and start_ticks(state.pid) == started:
        if time.monotonic() > deadline:
            raise SupervisorError(
                f"process {state.pid} still stops after {DOWN_TIMEOUT_S:.0f} s; see {folder / 'logs'}"
            )
        time.sleep(POLL_S)
    output.done(f"{name} is down; its data is in {folder}", {"down": name}, as_json)


def status(file: File = DEFAULT_FILE, data: Data = None, as_json: JsonFlag = False) -> None:
    """Each process of a topology: its state, address, restarts and why. With --data its file is not needed.

    Brokers are asked: one that runs and does not answer within 2 s is silent. So is any process that has given no sign
    of life for 6 s. Of one that has failed the last lines that it printed are shown."""
    name, folder = ran(file, data)
    state = read_state(folder)
    if not state:
        raise SupervisorError(f"{name} is not up: start it with `isthmus up -f {file}`{others()}")
    shown = rows(state)
    asyncio.run(ask_brokers(shown))
    output.show(shown, COLUMNS, as_json, "no processes")
    if not state.running:
        raise SupervisorError(f"the supervisor is gone (it was process {state.pid}), and its processes with it")
    if not as_json:
        _show_all_last_lines(state)
    ask(folder, {"do": "ping"}, quiet_s=SUPERVISOR_TIMEOUT_S)  # one that hangs writes nothing anew


def _show_all_last_lines(state: SavedState) -> None:
    for each in state.processes:
        if each.state is not State.STOPPED:
            show_last_lines(asdict(each))


def show_last_lines(status: Mapping[str, Any]) -> None:
    """What a process printed last before it died, unless that is the reason that is shown already; of one that hangs,
    where it does."""
    if len(status["last_lines"]) > 1:
        what = "is here" if status["state"] == State.SILENT else "printed last"
        output.err.print(Text.assemble((status["name"], "bold"), f" {what} (all is in {status['log']}):"))
        for line in status["last_lines"]:
            output.err.print(Text(f"  {line}"))


def broker(context: typer.Context) -> None:
    """Run one broker in the foreground: --data DIR --listen HOST:PORT [--set name=value …].

    --config FILE takes options from a server.properties of Kafka's; the command line counts before the file.

    Or `isthmus broker check DIR [--repair] [--json]`: find, and mend, what is wrong with a stopped broker's data;
    `isthmus broker to-kafka DIR`: make it what Apache Kafka starts from.

    Or `isthmus broker drain ID...`: move all replicas off brokers of a running cluster; `isthmus broker unregister ID`:
    remove one that has stopped from it."""
    first = context.args[0] if context.args else "-"
    if first == "drain":
        drain_app(context.args[1:], prog_name="isthmus broker drain")
    if first == "unregister":
        unregister_app(context.args[1:], prog_name="isthmus broker unregister")
    if first not in BROKER_COMMANDS:
        if not first.startswith("-"):
            raise DeployError(
                f"isthmus broker knows no '{first}': it has {', '.join(BROKER_COMMANDS)}, else options of a broker "
                "to run, each as --set NAME=VALUE, or a file of them as --config FILE"
            )
        if not any(
            word.partition("=")[0] in ("--config", "--data", "-h", "--help") or "log.dirs=" in word
            for word in context.args
        ):
            raise DeployError("say where its data goes: isthmus broker --data DIR --listen 127.0.0.1:9092")
    command = (*python("core_broker"), *context.args)
    os.execv(command[0], command)


def worker(
    context: typer.Context,
    app: Annotated[str, typer.Argument(help="path/to/file.py:app or module:app")],
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap",
            "-b",
            envvar="ISTHMUS_BOOTSTRAP",
            help="HOST:PORT[,HOST:PORT…] of a cluster, or the name of a datacenter of a topology that was started "
            "here, instead of the brokers that the app names.",
        ),
    ] = None,
) -> None:
    """Run a stream app in the foreground.

    It takes more options, such as --web-port, --loglevel and --reload: `python -m isthmus.streams -A module:app worker
    --help` shows them."""
    brokers = () if bootstrap is None else ("--bootstrap", resolve(bootstrap))
    command = (*python("streams"), app, *brokers, *context.args)
    os.execv(command[0], command)


def demo(context: typer.Context) -> None:
    """Three airports, one aggregate, answers from Spark: the flights of 2013, end to end and checked."""
    from ..examples.flights.demo import main

    raise typer.Exit(main(context.args))


def located(file: Path, data: Path | None) -> tuple[Topology, Path]:
    from ..deploy.topology import load

    topology = load(file)
    return topology, data or HOME / topology.name


def ran(file: Path, data: Path | None) -> tuple[str, Path]:
    """Name and folder of a topology that was started. Its file may be gone, broken or called otherwise by now, which
    must not keep it from being stopped."""
    from ..deploy.errors import TopologyError

    if data:
        return data.resolve().name, data
    try:
        topology, folder = located(file, data)
    except TopologyError as error:
        raise TopologyError(f"{error}{others()}") from None
    return topology.name, folder


def others() -> str:
    """What runs here, for a message about something that does not."""
    running = [each.parent for each in sorted(HOME.glob("*/supervisor.json")) if runs(each.parent)]
    return f"; what runs here is looked at and stopped by --data {' or '.join(map(str, running))}" if running else ""


def runs(folder: Path) -> bool:
    try:
        state = read_state(folder)
    except SupervisorError:
        return False
    return state is not None and state.running


def rows(state: SavedState) -> list[dict[str, Any]]:
    return [_row(each, state.running) for each in state.processes]


async def ask_brokers(rows: list[dict[str, Any]]) -> None:
    """Change the rows of brokers that are ready and do not answer: to silent, with the reason."""
    ready = [row for row in rows if row["kind"] == KIND and row["state"] == State.READY]
    reasons = await asyncio.gather(*(_why_silent(row["address"]) for row in ready))
    for row, reason in zip(ready, reasons, strict=True):
        if reason:
            row["state"], row["reason"] = str(State.SILENT), reason


async def _why_silent(address: str) -> str:
    """Empty for a broker that answers."""
    try:
        connection = await connect(address, "isthmus-cli", ANSWER_TIMEOUT_MS)
    except ClientError as error:
        return f"{error} (if it stays so, kill -9 its pid: the supervisor starts it again)"
    await close_all([connection])
    return ""


def _row(each: Status, running: bool) -> dict[str, Any]:
    return {
        "process": each.name,
        "kind": each.kind,
        "datacenter": each.facts.get("datacenter"),
        "node_id": each.facts.get("node_id"),
        "state": str(each.state) if running else "gone",
        "pid": each.pid if running else None,
        "address": each.address.rpartition(": ")[2],  # mirrors and workers say their name first
        "restarts": each.restarts,
        "reason": each.reason,
        "since_ms": each.since_ms,
        "log": each.log,
        "last_lines": each.last_lines,
    }


def table(state: SavedState) -> Table:
    shown = Table(box=None, show_header=False, pad_edge=False)
    for each in state.processes:
        style = output.STATE_STYLES.get(str(each.state), "")
        shown.add_row(each.name, f"[{style}]{each.state}[/]" if style else str(each.state), each.address or each.reason)
    return shown
