"""`isthmus apply`, `restart`, `stop`, `start`: what is done to a topology while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..deploy.control import ask
from ..deploy.errors import DeployError, SupervisorError
from ..deploy.supervisor import State, read_state
from . import output
from .output import JsonFlag
from .processes import DEFAULT_FILE, Data, File, located, others, ran, show_last_lines

if TYPE_CHECKING:
    from ..deploy.topology import Topology

EXIT_FAILED = 1
COLUMNS = ("do", "kind", "what", "details")
Name = Annotated[
    str, typer.Argument(help="The process, as `isthmus status` has it; or the name of a mirror, worker or datacenter.")
]


def add(app: typer.Typer) -> None:
    for command in (apply, restart, stop, start):
        app.command()(command)


def apply(
    file: File = DEFAULT_FILE,
    data: Data = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    at: Annotated[
        list[str],
        typer.Option(
            "--bootstrap",
            "-b",
            metavar="[NAME=]HOST:PORT",
            help="Of a cluster that `isthmus up` has not started, such as stock Kafka: which datacenter of the file it "
            "is, and where; may be repeated. Its topics alone are applied.",
        ),
    ] = [],  # noqa: B006
    as_json: JsonFlag = False,
) -> None:
    """Make a topology that runs as its file says now: show what is different, and do it.

    Topics are made, grown and given other options; mirrors and workers are started, stopped, or restarted where they
    are told something else, or an app's file has changed; brokers whose options have changed are restarted, one after
    the other. All else goes on without a pause. What cannot be changed while it runs is refused with the way out,
    before anything is done. Nothing that holds records is removed: what the file names no more is left, and shown.
    """
    from ..deploy.options import SET_BY_TOPOLOGY, check_options

    topology, folder = located(file, data)
    text = file.read_text()
    check_options(topology, text, str(file), set_here={} if at else SET_BY_TOPOLOGY)
    if at:
        steps = asyncio.run(_apply_topics(topology, addresses(topology, at), dry_run, as_json))
        answer: dict[str, Any] = {"steps": steps, "failed": []}
    else:
        state = read_state(folder)
        if not state or not state.running:
            raise SupervisorError(
                f"{topology.name} is not up: start it with `isthmus up -f {file}`{others()}; of a cluster that "
                "something else started, the topics are applied by -b NAME=HOST:PORT"
            )
        request = {"do": "apply", "text": text, "file": str(file.resolve()), "is_trial": True}
        answer = ask(folder, request)
        _show_steps(answer["steps"], as_json)
        if answer["steps"] and not dry_run:
            try:
                answer = ask(folder, {**request, "is_trial": False}, _said(as_json))
            except KeyboardInterrupt:
                output.err.print(f"the supervisor goes on with it: see {folder / 'logs' / 'supervisor.log'}")
                raise
    if as_json:
        output.done("", {**answer, "dry_run": dry_run}, True)
    elif answer["steps"]:
        is_skipped = any(step["do"] == "skip" for step in answer["steps"])
        lacks = ["what was skipped"] * is_skipped + ["what fails"] * bool(answer["failed"])
        done = f"{topology.name} is as {file} says" + (f", but for {' and '.join(lacks)}" if lacks else "")
        output.out.print("nothing was done (--dry-run)" if dry_run else done)
    if answer["failed"] and not dry_run:
        for status in answer["failed"]:
            output.fail(f"{status['name']} is {status['state']}: {status['reason']}")
            show_last_lines(status)
        raise typer.Exit(EXIT_FAILED)


def restart(name: Name, file: File = DEFAULT_FILE, data: Data = None, as_json: JsonFlag = False) -> None:
    """Stop one process of a topology, and start it again, whatever it does; also one that has failed or hangs.

    An app's file is read anew. With --data the topology's file is not needed."""
    _act("restart", name, file, data, as_json)


def stop(name: Name, file: File = DEFAULT_FILE, data: Data = None, as_json: JsonFlag = False) -> None:
    """Stop one process of a topology, and leave it so until `isthmus start`. All others go on."""
    _act("stop", name, file, data, as_json)


def start(name: Name, file: File = DEFAULT_FILE, data: Data = None, as_json: JsonFlag = False) -> None:
    """Start one process of a topology that was stopped, or has failed for good."""
    _act("start", name, file, data, as_json)


def _act(what: str, name: str, file: Path, data: Path | None, as_json: bool) -> None:
    called, folder = ran(file, data)
    state = read_state(folder)
    if not state or not state.running:
        raise SupervisorError(f"{called} is not up: start it with `isthmus up -f {file}`{others()}")
    with output.err.status(f"{what} {name}") if output.err.is_terminal else output.nothing():
        status = ask(folder, {"do": what, "name": name})
    pid = f" (pid {status['pid']})" if status["pid"] else ""
    is_as_meant = status["state"] == (State.STOPPED if what == "stop" else State.READY)
    facts = {"process": status["name"], "state": status["state"], "pid": status["pid"], "reason": status["reason"]}
    if as_json or is_as_meant:
        output.done(f"{status['name']} is {status['state']}{pid}", facts, as_json)
    if not is_as_meant:
        output.fail(f"{status['name']} is {status['state']}: {status['reason']}")
        show_last_lines(status)
        raise typer.Exit(EXIT_FAILED)


def addresses(topology: Topology, at: list[str]) -> dict[str, str]:
    """HOST:PORT by datacenter, from what was said on the command line. DeployError."""
    known = list(topology.datacenters)
    found = {}
    for each in at:
        name, mark, address = each.partition("=")
        if not mark:
            if len(known) > 1:
                raise DeployError(f"-b {each}: the file has {', '.join(known)}: say which it is, as NAME={each}")
            name, address = known[0], each
        if name not in known:
            raise DeployError(f"-b {each}: the file has no datacenter {name}, but {', '.join(known)}")
        if ":" not in address:
            raise DeployError(f"-b {each}: '{address}' is not HOST:PORT")
        found[name] = address
    return found


async def _apply_topics(
    topology: Topology, found: Mapping[str, str], dry_run: bool, as_json: bool
) -> list[dict[str, Any]]:
    """All is looked at before anything is done."""
    from ..deploy.operator import do_topics, topic_row
    from ..deploy.topics import administered, plan_topics, wanted

    plans, refused = {}, []
    for name, address in found.items():
        async with administered(name, address) as admin:
            plans[name], problems, _ = await plan_topics(admin, name, wanted(topology.datacenters[name]), {})
        refused += problems
    if refused:
        raise DeployError("\n".join(refused))
    rows = [topic_row(step) for steps in plans.values() for step in steps]
    _show_steps(rows, as_json)
    for name, steps in plans.items():
        if steps and not dry_run:
            async with administered(name, found[name]) as admin:
                await do_topics(admin, steps, _said(as_json))
    return rows


def _show_steps(rows: list[dict[str, Any]], as_json: bool) -> None:
    if not as_json:
        output.show(rows, COLUMNS, False, "nothing to do: all is as the file says")


def _said(as_json: bool) -> Any:
    return (lambda text: None) if as_json else (lambda text: output.out.print(text))
