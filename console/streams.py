"""`isthmus streams`: stream apps from outside: what they are made of, how far they are behind, a new start."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from ..client import Admin, Client, TopicPartition
from ..client.raw import READ_UNCOMMITTED
from ..deploy.errors import DeployError
from ..runtime import system
from . import output
from .apps import AppId, as_id
from .connect import DEFAULT_BOOTSTRAP, Bootstrap, connected
from .output import JsonFlag, time_text
from .starts import WAYS, places, start_of

app = typer.Typer(no_args_is_help=True)

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
FORMATS = ("text", "mermaid", "svg", "json")

T = TypeVar("T")


def _asked(bootstrap: str, ask: Callable[[Client], Awaitable[T]]) -> T:
    """What is asked of a cluster, with the stream layer's errors as those of a command."""
    from ..streams.errors import StreamsError

    async def run() -> T:
        async with connected(bootstrap) as client:
            try:
                return await ask(client)
            except StreamsError as error:
                raise DeployError(str(error)) from error

    return asyncio.run(run())


@app.command()
def topology(
    name: Annotated[str, typer.Argument(metavar="APP", help="path/to/file.py:app or module:app.")],
    format: Annotated[str, typer.Option("--format", help=f"{', '.join(FORMATS)}.")] = "text",
) -> None:
    """What an app reads, does and writes, and what belongs together in a task. Its code is loaded, and no cluster is
    asked."""
    from ..streams import drawing
    from ..streams.errors import StreamsError
    from ..streams.runtime.loader import find

    if format not in FORMATS:
        raise DeployError(f"--format is {format}, but must be one of {', '.join(FORMATS)}")
    try:
        drawn = drawing.of(find(name))
    except StreamsError as error:
        raise DeployError(str(error)) from error
    if format == "json":
        print(json.dumps(drawn.as_json(), indent=2))
    else:
        print({"text": drawn.text, "mermaid": drawn.mermaid, "svg": drawn.svg}[format]())


@app.command()
def diff(
    name: Annotated[str, typer.Argument(metavar="APP", help="path/to/file.py:app or module:app.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: JsonFlag = False,
) -> None:
    """What is different between an app's code and the state that it has: what goes on, what is migrated, and what would
    be refused. Exit code 0: nothing; 1: all of it goes on; 2: a worker with this code would not start."""
    from ..streams.engine.changes import REFUSED
    from ..streams.errors import StreamsError
    from ..streams.runtime.loader import find
    from ..streams.runtime.written import diff

    async def run() -> list[Any]:
        async with connected(bootstrap) as client:
            try:
                return await diff(client, find(name))
            except StreamsError as error:
                raise DeployError(str(error)) from error

    changes = asyncio.run(run())
    rows = [
        {"effect": each.effect, "what": each.what, "change": each.said, "ways": list(each.ways)} for each in changes
    ]
    if as_json:
        print(json.dumps(rows, indent=2))
    else:
        for each in changes:
            print(f"{each.effect}: {each.what} {each.said}")
            for way in each.ways:
                print(f"    {way}")
        if not changes:
            print("nothing has changed")
    raise typer.Exit(2 if any(each.effect == REFUSED for each in changes) else 1 if changes else 0)


@app.command()
def forget(
    app_id: AppId,
    table: Annotated[str, typer.Argument(metavar="TABLE", help="Its name.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: JsonFlag = False,
) -> None:
    """Delete a table's rows: its changelog. Where the code has the table, it begins empty. No worker may run."""
    from ..streams import admin
    from ..streams.errors import StreamsError

    async def run(dry_run: bool) -> str:
        async with connected(bootstrap) as client:
            try:
                return await admin.forget(client, app_id, table, dry_run=dry_run)
            except StreamsError as error:
                raise DeployError(str(error)) from error

    topic = asyncio.run(run(True))
    if not yes and not typer.confirm(f"Delete topic {topic}, with all rows of table {table}?"):
        raise DeployError("nothing was deleted")
    asyncio.run(run(False))
    output.done(f"deleted {topic}", {"app": app_id, "table": table, "topic": topic}, as_json)


@app.command()
def lag(app_id: AppId, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: JsonFlag = False) -> None:
    """How far an app is behind, in its inputs and in the topics between its steps.

    The watermark is up to which event time its pipelines have a partition: a window closes when all partitions of one
    number have come to its end. One that rests has nothing to read for its idle_after, and is not waited for; nor is
    one that is excluded, since its datacenter is stalled (`isthmus mirror status` says why).
    """
    from ..streams import admin

    found = _asked(bootstrap, lambda client: admin.lags(client, app_id))
    columns = ("topic", "partition", "kind", "committed", "end", "lag", "watermark")
    rows = [{**each._asdict(), "lag": each.lag} for each in found]
    if not as_json:
        rows = [{**row, "watermark": _watermark(each)} for row, each in zip(rows, found, strict=True)]
    output.show(rows, columns, as_json, f"app {app_id} reads nothing")


def _watermark(lag: Any) -> str:
    if lag.watermark_ms is None:
        return ""
    return "rests" if lag.rests else time_text(lag.watermark_ms) + (" (excluded)" if lag.is_excluded else "")


@app.command()
def savepoint(
    app_id: AppId,
    out: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="Where it goes: new, or empty.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: JsonFlag = False,
) -> None:
    """Save an app's state into a folder: tables, and the positions in its inputs that they include. The app may run,
    unless it has topics between its steps."""
    from ..streams.savepoints import taking

    told = _told(as_json)
    saved = _asked(bootstrap, lambda client: taking.take(client, app_id, out, told)).manifest
    facts = {
        "app": app_id,
        "folder": str(out),
        "tables": {name: topic.partitions for name, topic in saved.tables.items()},
        "rows": saved.rows,
        "bytes": saved.bytes,
    }
    output.done(f"saved app {app_id} in {out}: {_tables(len(saved.tables))}, {saved.bytes:,} bytes", facts, as_json)


@app.command()
def restore(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Of a savepoint.")],
    under: Annotated[
        str | None,
        typer.Option("--as", metavar="ID", help="Restore under another id: a copy of the app.", parser=as_id),
    ] = None,
    positions: Annotated[
        list[str],
        typer.Option(
            "--positions",
            metavar="[TOPIC=]WAY",
            help="Where inputs go on that are not the topics, by their ids, that the app has read: keep (offsets mean "
            "the same, as in a mirror's copy), time, earliest or latest; may be repeated.",
        ),
    ] = [],  # noqa: B006
    force: Annotated[bool, typer.Option("--force", help="Replace the state that the app has here.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check, and say what would be done.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: JsonFlag = False,
) -> None:
    """Give an app the state of a savepoint, in this cluster or another one. No worker of it may run. One that is not
    finished is seen by workers, which do not start, and is run again."""
    from ..streams.savepoints import plan, restoring
    from ..streams.savepoints import positions as ways
    from ..streams.savepoints.format import Savepoint

    told = _told(as_json)

    async def run(client: Client) -> tuple[str, int]:
        saved = Savepoint.open(folder)
        name = under or saved.manifest.app
        await restoring.check(client, name, force)
        where = await ways.resolve(client, saved.manifest.inputs, ways.parse(positions))
        saved.check()
        told(f"{folder} is whole: {_tables(len(saved.manifest.tables))} of app {saved.manifest.app}")
        if dry_run:
            return name, sum(part.records for topic in saved.manifest.topics for part in topic.parts)
        made = plan.as_it_was(saved, where, name)
        return name, await restoring.restore(client, saved, made, force=force, told=told)

    name, count = _asked(bootstrap, run)
    facts = {"app": name, "folder": str(folder), "records": count, "restored": not dry_run}
    said = "would restore" if dry_run else "restored"
    output.done(f"{said} app {name} from {folder}: {count:,} rows and records", facts, as_json)


@app.command()
def rescale(
    name: Annotated[str, typer.Argument(metavar="APP", help="path/to/file.py:app or module:app.")],
    partitions: Annotated[int, typer.Option("--partitions", "-n", min=1, help="That its tables get.")],
    out: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FOLDER", help="Where its state is saved before; APP-savepoint."),
    ] = None,
    table: Annotated[
        list[str],
        typer.Option("--table", metavar="TABLE", help="Only this, and what shares a task with it; may be repeated."),
    ] = [],  # noqa: B006
    partitioner: Annotated[
        str | None,
        typer.Option(
            "--partitioner", help="Of those who write inputs declared without one, by librdkafka's names; the app's."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Save, check, and only say what would be done.")] = False,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: JsonFlag = False,
) -> None:
    """Give an app's tables another number of partitions, and so the app as many tasks. No worker of it may run; its
    inputs may be written to.

    The state is saved, and restored with each row where its key belongs. The folder is also the way back: isthmus
    streams restore FOLDER --force. If it was interrupted, the same command goes on."""
    from ..streams import admin
    from ..streams.engine import topic_names
    from ..streams.engine.origin import Origins
    from ..streams.errors import StreamsError
    from ..streams.runtime.loader import find
    from ..streams.runtime.origins import OriginsFollower
    from ..streams.savepoints import positions, rescaling, restoring, taking

    try:
        app = find(name)
        rescaling.check(app, partitions, table, partitioner)
    except StreamsError as error:
        raise DeployError(str(error)) from error
    told = _told(as_json)

    async def run(client: Client) -> tuple[Path, rescaling.Rescaled]:
        await admin.check_stopped(client, app.id)
        saved = await rescaling.begun(client, app.id)
        if saved is not None:
            told(f"an earlier change was not finished: going on with the state that is in {saved.folder}")
        else:
            saved = await taking.take(client, app.id, out or _free(f"{app.id}-savepoint"), told)
            told(f"saved in {saved.folder}")
        saved.check()
        where = await positions.resolve(client, saved.manifest.inputs, {})
        topics = [each for each in app.input_topics() if topic_names.kind_of(app.id, each) not in topic_names.BETWEEN]
        await client.refresh_metadata(topics)
        counts = {topic: len(client.partitions(topic)) for topic in topics}
        if missing := [topic for topic, count in counts.items() if not count]:
            raise StreamsError(f"app {app.id} reads topic {missing[0]}, which is not there")
        origins = Origins(app.datacenter)
        if app.needs_origins:
            follower = OriginsFollower(app.id, client, origins)
            try:
                await follower.learn(topics)
            finally:
                await follower.close()
        found = rescaling.rescale(app, saved, counts, where, partitions, table, partitioner, origins)
        for note in found.notes:
            output.note(note)
        for each, (before, after) in found.counts.items():
            told(f"table {each}: {before} -> {after} partitions")
        for each, size in found.bridges.items():
            told(f"a bridge is needed: {each}, with {size} partitions")
        if not dry_run:
            if not yes and not typer.confirm(f"Give app {app.id} these partitions?"):
                raise StreamsError(f"nothing was changed; the savepoint stays in {saved.folder}")
            await restoring.restore(client, saved, found.plan, force=True, told=told)
        return saved.folder, found

    folder, found = _asked(bootstrap, run)
    facts = {
        "app": app.id,
        "folder": str(folder),
        "tables": {each: after for each, (_, after) in found.counts.items()},
        "bridges": dict(found.bridges),
        "rescaled": not dry_run,
    }
    said = "would have" if dry_run else "has"
    output.done(f"app {app.id} {said} {_tables(len(found.counts))} with {partitions} partitions", facts, as_json)


def _told(as_json: bool) -> Callable[[str], None]:
    """Says what is done, to people."""
    return (lambda words: None) if as_json else output.out.print


def _free(name: str) -> Path:
    """A folder that is not there yet."""
    return next(path for number in count(1) if not (path := Path(name if number == 1 else f"{name}-{number}")).exists())


def _tables(number: int) -> str:
    return f"{number} table{'' if number == 1 else 's'}"


@app.command()
def reset(
    app_id: AppId,
    to: Annotated[
        str, typer.Option("--to", help=f"Where its inputs are read then: {WAYS}. Default: as a new app reads them.")
    ] = "",
    shift: Annotated[int, typer.Option("--shift", help="So many records on from where it is, or back: -100.")] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: JsonFlag = False,
) -> None:
    """Remove an app's offsets, tables and own topics, so that it begins anew. No worker of it may run. Its inputs,
    outputs and dead letters stay."""
    from ..streams import admin

    if to and shift:
        raise DeployError("say --to or --shift, not both")
    start = start_of("--to", to, system().wall_ms()) if to else None

    def run(dry_run: bool) -> admin.Reset:
        async def asked(client: Client) -> admin.Reset:
            async def where(committed: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
                tps = [TopicPartition(*tp) for tp in sorted(committed)]
                found = await places(Admin(client), tps, committed, start, shift, READ_UNCOMMITTED)
                return {tp: at.new for tp, at in found.items()}

            return await admin.reset(client, app_id, dry_run=dry_run, where=where if start or shift else None)

        return _asked(bootstrap, asked)

    found = run(True)
    what = [*(["the offsets of its group"] if found.group else []), *(f"topic {topic}" for topic in found.topics)]
    said = ", ".join(what) or "what an interrupted change has left"
    if not as_json and found.offsets:
        rows = [{**tp._asdict(), "new": offset} for tp, offset in found.offsets.items()]
        output.show(rows, ("topic", "partition", "new"), False, "")
    facts: dict[str, Any] = {
        "app": app_id,
        "group": found.group,
        "topics": list(found.topics),
        "offsets": [{**tp._asdict(), "offset": offset} for tp, offset in found.offsets.items()],
    }
    if dry_run:
        output.done(f"would remove of app {app_id}: {said}", {**facts, "removed": False}, as_json)
        return
    if not yes and not typer.confirm(f"Remove of app {app_id}: {said}?"):
        raise DeployError("nothing was removed")
    run(False)
    output.done(f"removed of app {app_id}: {said}", {**facts, "removed": True}, as_json)
