"""`isthmus topic`: list, create, alter, describe, delete."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer

from ..client import Admin, Client, TopicPartition
from ..client.admin import NewTopic
from ..client.errors import ClientError
from ..deploy.errors import DeployError, counted
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.option_notes import NO_EFFECT
from . import output
from .connect import DEFAULT_BOOTSTRAP, Bootstrap, connected
from .output import JsonFlag

app = typer.Typer(no_args_is_help=True)
OF_THE_TOPIC = 1  # source of an option's value
NAMED = 20  # partitions in one note
OFFSETS_TIMEOUT_MS = 3_000  # for the leaders to tell where their logs begin and end; the rest is known without them
Name = Annotated[str, typer.Argument(help="Name of the topic.")]


@app.command("list")
def list_(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, internal: bool = False, as_json: JsonFlag = False) -> None:
    """Topics and their partitions; --internal shows those that begin with __ too."""

    async def run() -> list[dict[str, Any]]:
        async with connected(bootstrap) as client:
            names = await Admin(client).list_topics()
            shown = [name for name in sorted(names) if internal or not name.startswith("__")]
            await client.refresh_metadata(shown or None)
            return [{"topic": name, "partitions": len(client.partitions(name))} for name in shown]

    output.show(asyncio.run(run()), ("topic", "partitions"), as_json, "no topics")


@app.command()
def create(
    name: Name,
    partitions: Annotated[int, typer.Option("--partitions", "-p", help="-1: the cluster's num.partitions.")] = -1,
    replication_factor: Annotated[int, typer.Option(help="-1: the cluster's default.")] = -1,
    option: Annotated[list[str], typer.Option("--set", help="Topic option, as name=value; may be repeated.")] = [],  # noqa: B006
    if_missing: Annotated[bool, typer.Option("--if-missing", help="Leave a topic that is there as it is.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: JsonFlag = False,
) -> None:
    """Create a topic."""
    options = dict(pair(each) for each in option)

    async def run() -> bool:
        async with connected(bootstrap) as client:
            try:
                await Admin(client).create_topics([NewTopic(name, partitions, replication_factor, options)])
            except KafkaError as error:
                if not if_missing or error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise
                return False
            return True

    if asyncio.run(run()):
        output.done(f"created {name}", {"created": name}, as_json)
    else:
        output.done(f"{name} is there already", {"exists": name}, as_json)


@app.command()
def alter(
    name: Name,
    option: Annotated[
        list[str], typer.Option("--set", help="Topic option, such as retention.ms=-1; may be repeated.")
    ] = [],  # noqa: B006
    unset: Annotated[list[str], typer.Option("--unset", help="Back to the cluster's default; may be repeated.")] = [],  # noqa: B006
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, help="Grow it to so many partitions.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: JsonFlag = False,
) -> None:
    """Change the options of a topic, or grow it: all is checked before anything is changed.

    When a topic grows, a key's records may go to another partition from then on. Its replicas are changed by `isthmus
    topic replicas`."""
    changes: dict[str, str | None] = {**dict(map(pair, option)), **dict.fromkeys(unset)}
    if not changes and partitions is None:
        raise DeployError("nothing to change: say --set name=value, --unset name, or --partitions N")
    if both := sorted({pair(each)[0] for each in option} & set(unset)):
        raise DeployError(f"{both[0]} is both in --set and in --unset: use one of them")

    async def run() -> None:
        async with connected(bootstrap) as client:
            admin = Admin(client)
            [said] = await admin.describe_topics([name])
            if partitions is not None and partitions < len(said.partitions):
                raise DeployError(
                    f"topic {name} has {counted(len(said.partitions), 'partition')}, and none can be taken away: make "
                    "another topic, and copy what it is to keep"
                )
            grows = partitions is not None and partitions > len(said.partitions)
            for is_trial in (True, False):
                if changes:
                    await admin.alter_configs(name, changes, validate_only=is_trial)
                if partitions is not None and grows:
                    await admin.create_partitions(name, partitions, validate_only=is_trial)

    asyncio.run(run())
    output.done(f"changed {name}", {"changed": name}, as_json)


@app.command()
def delete(name: Name, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: JsonFlag = False) -> None:
    """Delete a topic and its data."""

    async def run() -> None:
        async with connected(bootstrap) as client:
            await Admin(client).delete_topics([name])

    asyncio.run(run())
    output.done(f"deleted {name}", {"deleted": name}, as_json)


@app.command()
def describe(name: Name, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: JsonFlag = False) -> None:
    """Partitions with leader, replicas and offsets, and the options that differ from the defaults."""
    facts, rows = asyncio.run(_describe(name, bootstrap))
    if as_json:
        import json

        print(json.dumps({**facts, "partitions": rows}, indent=2))
        return
    output.out.print(f"[bold]{name}[/bold]  id {facts['id']}")
    for option, value in facts["options"].items():
        output.out.print(f"  {option} = {value}")
    for note in facts["notes"]:
        output.out.print(f"  [yellow]note:[/yellow] {note}")
    offsets = (("start_offset", "start"), ("end_offset", "end"), "records")
    columns = ("partition", "leader", ("leader_epoch", "epoch"), "replicas", "isr", *offsets)
    output.show(rows, columns, False, "no partitions")


async def _describe(name: str, bootstrap: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    from ..protocol.primitives import uuid_to_str

    async with connected(bootstrap) as client:
        admin = Admin(client)
        [topic] = await admin.describe_topics([name])
        partitions = [TopicPartition(name, each.partition_index) for each in topic.partitions]
        offsets, troubles = await offsets_told(client, partitions)
        configs = await admin.describe_configs([name], documentation=True)
    own = [entry for entry in configs[name] if entry.config_source == OF_THE_TOPIC]
    changed = {entry.name: entry.value for entry in own}
    reasons = {entry.name: (entry.documentation or "").partition(NO_EFFECT)[2] for entry in own}
    notes = [f"{option} has no effect here: {why}" for option, why in reasons.items() if why]
    if link := changed.get("mirror.link"):
        notes.append(f"owned by mirror link {link}: clients can read it, only the mirror writes it")
    notes += troubles
    rows = []
    for tp, each in sorted(zip(partitions, topic.partitions, strict=True), key=lambda pair: pair[0].partition):
        start, end = offsets.get(tp, (None, None))
        rows.append(
            {
                "partition": tp.partition,
                "leader": each.leader_id,
                "leader_epoch": each.leader_epoch,
                "replicas": ",".join(map(str, each.replica_nodes)),
                "isr": ",".join(map(str, each.isr_nodes)),
                "start_offset": start,
                "end_offset": end,
                "records": None if start is None or end is None else end - start,
            }
        )
    return {"topic": name, "id": uuid_to_str(topic.topic_id), "options": changed, "notes": notes}, rows


async def offsets_told(
    client: Client, partitions: Iterable[TopicPartition]
) -> tuple[dict[TopicPartition, tuple[int, int]], list[str]]:
    """Where logs of partitions in the client's metadata begin and end; sentences on those of which nobody tells it.

    One leader may hang: all are asked at the same time, each with those that lead after it for OFFSETS_TIMEOUT_MS."""
    by_leader: dict[int, list[TopicPartition]] = {}
    leaderless = []
    for tp in partitions:
        if (leader := client.leader(tp)) is None:
            leaderless.append(tp)
        else:
            by_leader.setdefault(leader, []).append(tp)
    admin = Admin(client)
    addresses = dict(client.nodes)  # of one that is lost meanwhile, too

    async def ask(tps: list[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        async with client.operation("offsets", OFFSETS_TIMEOUT_MS):
            starts = await admin.list_offsets(dict.fromkeys(tps, "earliest"))
            ends = await admin.list_offsets(dict.fromkeys(tps, "latest"))
        return {tp: (starts[tp][0], ends[tp][0]) for tp in tps}

    answers = await asyncio.gather(*map(ask, by_leader.values()), return_exceptions=True)
    found: dict[TopicPartition, tuple[int, int]] = {}
    troubles = [f"{_numbered(leaderless)} without a leader: `isthmus cluster status` says why"] if leaderless else []
    for (leader, tps), answer in zip(by_leader.items(), answers, strict=True):
        if isinstance(answer, dict):
            found |= answer
        elif isinstance(answer, ClientError | KafkaError) and answer.retriable:
            troubles.append(
                f"broker {leader} ({addresses[leader]}) leads {_numbered(tps)}, whose offsets are not known: {answer}"
            )
        else:
            raise answer
    return found, troubles


def _numbered(partitions: Sequence[TopicPartition]) -> str:
    numbers = [str(tp.partition) for tp in sorted(partitions)]
    more = f" and {len(numbers) - NAMED} more" if len(numbers) > NAMED else ""
    return f"partition{'s' * (len(partitions) > 1)} {', '.join(numbers[:NAMED])}{more}"


def pair(text: str) -> tuple[str, str]:
    """An option as it is given to --set."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise DeployError(f"--set {text}: write it as name=value, such as --set retention.ms=-1")
    return name, value
