"""The commands of an app: those that every app has, and its own."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import click
import uvloop

from ... import __version__
from ...client.errors import ClientError
from ...protocol.errors import KafkaError
from ...readiness import Readiness
from ..api import absent
from ..api.app import App
from ..api.commands import DeclaredCommand
from ..api.topics import Topic
from ..errors import AppError, StreamsError
from ..runtime.loader import find
from .context import AppCommand
from .models import list_models, show_model
from .reload import run_reloading, watched
from .worker import EXIT_CONFIG, EXIT_FAILED, LEVELS, banner, run_worker, set_up_logging

Run = Callable[[AppCommand, Callable[[], Any]], Any]
BUILT_IN = ("worker", "agents", "tables", "models", "model", "send", "reset")
LEVEL = click.Choice(LEVELS, case_sensitive=False)
HELP = {"help_option_names": ["--help"], "max_content_width": 110, "show_default": True}


def main(app: App | None = None, arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command line and exit. app: None: the one that `-A` names."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    start_in = Path.cwd()
    readiness = Readiness.take() if "--reload" not in given else Readiness("")  # before any code of the app runs
    try:
        if app is None:
            name = named(given)
            if "worker" in given and "--reload" in given:  # by a child alone: an app with a fault is waited for
                sys.exit(run_reloading(watched(name), start_in))
            app = find(name)
        app.finalize()
        group_of(app, readiness, start_in=start_in)(given, prog_name=_program())
    except AppError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(EXIT_CONFIG)
    except (StreamsError, KafkaError, ClientError, OSError) as error:
        if os.environ.get("ISTHMUS_DEBUG"):
            raise
        print(f"error: {error}", file=sys.stderr)
        sys.exit(EXIT_FAILED)
    sys.exit(0)


def named(arguments: Sequence[str]) -> str:
    """What `-A` or `--app` says. A folder that `-W` names is gone to before."""
    said = {"-A": "", "-W": ""}
    for long, short in (("--app", "-A"), ("--workdir", "-W")):
        for at, each in enumerate(arguments):
            if each in (short, long) and at + 1 < len(arguments):
                said[short] = arguments[at + 1]
            elif each.startswith(f"{long}="):
                said[short] = each.partition("=")[2]
    if said["-W"]:
        os.chdir(said["-W"])
    if not said["-A"]:
        raise AppError("say which app: -A module:app, or -A path/to/file.py:app")
    return said["-A"]


def _program() -> str:
    script = Path(sys.argv[0])
    return "python -m isthmus.streams" if script.name == "__main__.py" else script.name


def group_of(app: App, readiness: Readiness, run: Run | None = None, start_in: Path | None = None) -> click.Group:
    """The command line of an app. run: runs the app's own commands; None: each on a loop of its own. start_in: where it
    was given; None: here."""
    start_in = start_in or Path.cwd()

    @click.group(cls=_Group, context_settings=HELP, no_args_is_help=True)
    @click.option("-A", "--app", "name", metavar="MODULE:APP", help="The app, where it is not the script itself.")
    @click.option("-D", "--datadir", metavar="FOLDER", help="Folder of state on disk.")
    @click.option("-W", "--workdir", metavar="FOLDER", help="Folder to go to first.")
    @click.option("--json/--no-json", default=False, help="Print JSON.")
    @click.option("-q", "--quiet/--no-quiet", default=False, help="Print nothing.")
    @click.option("--debug/--no-debug", default=False, help="Print more, and log more.")
    @click.option("-L", "--loop", type=click.Choice(["uvloop"]), hidden=True)
    @click.option("-l", "--loglevel", type=LEVEL, help="Log level, of any command.")
    @click.option("-f", "--logfile", metavar="FILE", help="Log to a file instead of stderr.")
    @click.version_option(__version__, prog_name=app.conf.name)
    @click.pass_context
    def group(
        context: click.Context,
        name: str | None,
        datadir: str | None,
        workdir: str | None,
        json: bool,
        quiet: bool,
        debug: bool,
        loop: str | None,
        loglevel: str | None,
        logfile: str | None,
    ) -> None:
        if datadir:
            app.conf.datadir = Path(datadir)
        if workdir:
            os.chdir(start_in / workdir)  # `named` may have gone there
        context.obj = AppCommand(
            app, context.command_path, json, quiet, debug, workdir, datadir, "debug" if debug else loglevel, logfile
        )
        if debug:
            app.conf.debug = True

    group.help = f"Run the stream app {app.id}, and see what it has."
    group.add_command(_worker(app, readiness, start_in))
    for command in (_agents, _tables, list_models, show_model, _send, _reset):
        group.add_command(command)
    for each in (*_classes(AppCommand), *app.commands):
        group.add_command(_own(each, run or _run_alone))
    return group


class _Group(click.Group):
    """Says what to use instead of a command that Faust has."""

    def resolve_command(self, context: click.Context, args: list[str]) -> Any:
        if args and args[0] in absent.COMMANDS and self.get_command(context, args[0]) is None:
            raise click.UsageError(f"there is no command {args[0]}, which Faust has: {absent.COMMANDS[args[0]]}")
        return super().resolve_command(context, args)


# --- The worker -------------------------------------------------------------------------------------


def _worker(app: App, readiness: Readiness, start_in: Path) -> click.Command:
    conf = app.conf

    @click.command("worker", help="Start a worker: it runs the app's agents, timers and pages until Ctrl-C.")
    @click.option("-l", "--loglevel", type=LEVEL, help="Log level; info.")
    @click.option("-f", "--logfile", metavar="FILE", help="Log to a file instead of stderr.")
    @click.option("--bootstrap", metavar="HOST:PORT", help=f"Brokers, instead of {conf.bootstrap}.")
    @click.option("--name", help="A name that no other worker of the app has at a time, the same after a restart.")
    @click.option("--with-web/--without-web", default=conf.web_enabled, help="Run the web server.")
    @click.option("-p", "--web-port", type=click.IntRange(0, 65_535), help=f"Its port, instead of {conf.web_port}.")
    @click.option("-b", "--web-bind", metavar="ADDRESS", help=f"What it listens on, instead of {conf.web_bind}.")
    @click.option("-h", "--web-host", metavar="NAME", help=f"How others reach it, instead of {conf.web_host}.")
    @click.option("--reload", is_flag=True, help="Start again when a Python file has changed.")
    @click.pass_obj
    def worker(
        command: AppCommand,
        loglevel: str | None,
        logfile: str | None,
        bootstrap: str | None,
        name: str | None,
        with_web: bool,
        web_port: int | None,
        web_bind: str | None,
        web_host: str | None,
        reload: bool,
    ) -> None:
        if reload:
            raise click.exceptions.Exit(run_reloading(watched(), start_in))
        app.conf.web_enabled = with_web
        for setting, value in (("web_port", web_port), ("web_bind", web_bind), ("web_host", web_host)):
            if value is not None:
                app.conf.update({setting: value})
        if bootstrap is not None:
            app.conf.update({"broker": bootstrap})
        set_up_logging(app, loglevel or command.loglevel or "info", logfile or command.logfile)
        if sys.stdout.isatty():
            for what, said in banner(app, app.conf.bootstrap, __version__):
                command.say(f"  {click.style(f'{what:<10}', fg='cyan')} {said}")
        raise click.exceptions.Exit(run_worker(app, readiness, name=name, quiet=command.quiet))

    return worker


# --- What there is ----------------------------------------------------------------------------------


@click.command("agents")
@click.pass_obj
def _agents(command: AppCommand) -> None:
    """List agents, the topics that they read, and what they are for."""
    rows = [
        (
            f"@{each.name}",
            ", ".join(each.topic.names) if each.topic is not None else "a pipeline",
            _first_line(each.function),
        )
        for each in sorted(command.app.agents, key=lambda each: each.name)
    ]
    command.say(command.tabulate(rows, ("name", "topic", "help"), "Agents"))


def _first_line(function: Callable[..., Any]) -> str:
    return (function.__doc__ or "").strip().partition("\n")[0]


@click.command("tables")
@click.pass_obj
def _tables(command: AppCommand) -> None:
    """List tables, their changelogs, and what they are for."""
    rows = [
        (name, command.app.changelog_topic(name), table.spec.store, table.spec.help)
        for name, table in sorted(command.app.tables.items())
    ]
    command.say(command.tabulate(rows, ("name", "changelog", "store", "help"), "Tables"))


@click.command("reset")
@click.pass_obj
def _reset(command: AppCommand) -> None:
    """Delete the app's tables on this disk: the next worker fills them from their changelogs. Stop workers first."""
    folder = command.app.conf.tables_path
    if folder.is_dir():
        shutil.rmtree(folder)
        command.say(f"deleted {folder}")
    else:
        command.say(f"there is nothing on this disk: {folder} does not exist")


@click.command("send")
@click.argument("entity", metavar="TOPIC|@AGENT")
@click.argument("value", required=False)
@click.option("-k", "--key", help="The key.")
@click.option("--partition", type=int, help="A certain partition, rather than the key's.")
@click.option("-r", "--repeat", type=click.IntRange(1), default=1, help="Send it so many times.")
@click.pass_obj
def _send(
    command: AppCommand, entity: str, value: str | None, key: str | None, partition: int | None, repeat: int
) -> None:
    """Send a record to a topic or an agent. Its bytes are VALUE as it stands, such as '{"amount": 3}'; none: a
    tombstone."""
    app = command.app
    name = entity
    if entity.startswith("@"):
        name = _agent_topic(app, entity[1:]).get_topic_name()
    topic = app.topic(name, value_serializer="raw")

    async def send() -> None:
        for _ in range(repeat):
            sent = await topic.send(
                key=None if key is None else key.encode(),
                value=None if value is None else value.encode(),
                partition=partition,
            )
            command.say(command.dumps((await sent)._asdict()))

    run_async(app, send)


def _agent_topic(app: App, name: str) -> Topic:
    """The topic of the agent with this name, which may be without its module where one agent has it."""
    topics = {each.name: each.topic for each in app.agents if each.topic is not None}
    found = [each for each in topics if each == name] or [each for each in topics if each.rpartition(".")[2] == name]
    if len(found) == 1:
        return topics[found[0]]
    if found:
        raise click.UsageError(f"app {app.id} has several agents {name}: {', '.join(sorted(found))}")
    raise click.UsageError(f"app {app.id} has no agent {name}; it has {', '.join(sorted(topics))}")


# --- The app's own ----------------------------------------------------------------------------------


def _own(declared: DeclaredCommand, run: Run) -> click.Command:
    """A command that `@app.command` has declared."""

    @click.pass_obj
    def call(command: AppCommand, **options: Any) -> None:
        itself = (declared.base or AppCommand)(**{**vars(command), "kwargs": options})
        given = (itself,) if declared.takes_self else ()
        run(itself, lambda: declared.function(*given, **options))

    made: Any = call
    made.__name__ = declared.function.__name__
    for option in reversed(declared.options):  # as decorators: the first one that is written is the first one
        made = option(made)
    return click.command(declared.name, help=declared.function.__doc__)(made)


def _classes(base: type[AppCommand]) -> Iterator[DeclaredCommand]:
    """Subclasses that are commands."""
    for each in base.__subclasses__():
        if "run" in vars(each):
            yield DeclaredCommand(None, _run_of(each), tuple(each.options), each)
        yield from _classes(each)


def _run_of(command: type[AppCommand]) -> Callable[..., Any]:
    def function(itself: Any, **options: Any) -> Any:
        return itself.run(**options)

    function.__name__, function.__doc__ = command.__name__, command.__doc__
    return function


def _run_alone(command: AppCommand, begin: Callable[[], Any]) -> None:
    set_up_logging(command.app, command.loglevel or "warning", command.logfile)
    run_async(command.app, begin)


def run_async(app: App, begin: Callable[[], Any]) -> None:
    """Run it, and close what it has opened of the app."""

    async def run() -> None:
        try:
            await begin()
        finally:
            await app.stop()

    try:
        uvloop.run(run())
    except (KeyboardInterrupt, asyncio.CancelledError):
        logging.getLogger("isthmus.streams").info("interrupted")
        raise click.exceptions.Exit(130) from None
