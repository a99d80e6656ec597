"""`isthmus group`: consumer groups, their members and how far they are behind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from ..client import Admin, Client, TopicPartition
from ..client.admin import GROUP
from ..client.errors import check_topic_name
from ..client.groups import CLASSIC, GroupDescription, GroupMember
from ..client.raw import READ_UNCOMMITTED
from ..deploy.errors import DeployError
from ..protocol.errors import ErrorCode, KafkaError
from ..runtime import system
from . import output
from .connect import DEFAULT_BOOTSTRAP, Bootstrap, connected
from .output import JsonFlag
from .starts import WAYS, Start, places, start_of
from .topics import offsets_told, pair

app = typer.Typer(no_args_is_help=True)

Group = Annotated[str, typer.Argument(help="Name of the group.")]
OF_THE_GROUP = 8  # source of an option's value
CHANGELOG = "-changelog"  # how the names of the topics end that hold a stream app's state
NAMED = 5  # members or partitions in one message
NOT_EMPTY = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
RESET_COLUMNS = (
    "topic", "partition", ("committed_offset", "committed"), ("new_offset", "new"), ("end_offset", "end"), "lag",
)  # fmt: skip


@app.command("list")
def list_(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: JsonFlag = False) -> None:
    """Groups, their states and types: `consumer` where the coordinator gives out partitions, `classic` where a member
    does."""

    async def run() -> list[dict[str, Any]]:
        async with connected(bootstrap) as client:
            groups = await Admin(client).list_groups()
            rows = [
                {
                    "group": each.group_id,
                    "state": each.group_state,
                    "type": each.group_type.lower() or CLASSIC,
                    "protocol": each.protocol_type,
                }
                for each in groups
            ]
            return sorted(rows, key=lambda row: row["group"])

    output.show(asyncio.run(run()), ("group", "state", "type", "protocol"), as_json, "no groups")


@app.command()
def describe(group: Group, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: JsonFlag = False) -> None:
    """State, members, options that were set, and committed offset, end and lag of each partition of the topics that it
    reads; nothing is committed where there is no offset."""
    facts = asyncio.run(_describe(group, bootstrap))
    if as_json:
        print(json.dumps(facts, indent=2))
    else:
        show(facts)


@app.command()
def alter(
    group: Group,
    option: Annotated[
        list[str],
        typer.Option("--set", help="Option of the group, such as consumer.session.timeout.ms=60000; may be repeated."),
    ] = [],  # noqa: B006
    unset: Annotated[list[str], typer.Option("--unset", help="Back to the cluster's default; may be repeated.")] = [],  # noqa: B006
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: JsonFlag = False,
) -> None:
    """Set options of a group; its coordinator goes by them at once. The group need not exist yet."""
    changes: dict[str, str | None] = {**dict(map(pair, option)), **dict.fromkeys(unset)}
    if not changes:
        raise DeployError("nothing to change: say --set name=value or --unset name")

    async def run() -> None:
        async with connected(bootstrap) as client:
            await Admin(client).alter_group_configs(group, changes)

    asyncio.run(run())
    output.done(f"changed {group}", {"changed": group}, as_json)


@app.command()
def reset(
    group: Group,
    topic: Annotated[
        list[str],
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC[:P,P]",
            help="This topic, or these partitions of it, also where the group has committed nothing; may be repeated. "
            "Default: all that it has committed.",
        ),
    ] = [],  # noqa: B006
    to: Annotated[str, typer.Option("--to", help=f"Where to go on: {WAYS}.")] = "",
    shift: Annotated[int, typer.Option("--shift", help="So many records on from where it is, or back: -100.")] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be changed.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: JsonFlag = False,
) -> None:
    """Have a group go on reading from elsewhere.

    Offsets before the first record there is, or past the end, are moved to it. A group with members is refused: they
    would go on from where they are. One that does not exist is made."""
    if bool(to) == bool(shift):
        raise DeployError("say where to go on: --to earliest, latest, OFFSET or TIME; or --shift N, not 0")
    start = start_of("--to", to, system().wall_ms()) if to else None
    rows, changelogs = asyncio.run(_reset(group, topic, start, shift, dry_run, bootstrap))
    if changelogs:
        output.note(f"{changelogs[0]} is the state of a stream app, which says by itself where it goes on")
    if as_json:
        print(json.dumps({"group": group, "dry_run": dry_run, "offsets": rows}, indent=2))
        return
    columns = (*RESET_COLUMNS, "note") if any(row["note"] for row in rows) else RESET_COLUMNS
    output.show(rows, columns, False, f"nothing to reset: {group} has committed nothing; say what by --topic")
    if rows:
        output.out.print("nothing was changed (--dry-run)" if dry_run else f"{group} goes on from there")


async def _reset(
    group: str, topics: Sequence[str], start: Start | None, shift: int, dry_run: bool, bootstrap: str
) -> tuple[list[dict[str, Any]], list[str]]:
    """What is changed, by partition; and topics that look as if the group were a stream app."""
    async with connected(bootstrap) as client:
        admin = Admin(client)
        if said := await _described(admin, group):
            refuse_members(said)
        committed = await admin.group_offsets(group) if said else {}
        there = await admin.list_topics()
        changelogs = [each for each in there if each.startswith(f"{group}-") and each.endswith(CHANGELOG)]
        tps = [tp for each in topics for tp in await _named(client, each)]
        if not topics:
            tps = [tp for tp in sorted(committed) if tp.topic in there]
        if not tps:
            return [], changelogs
        if start is None and (unread := [tp for tp in tps if tp not in committed]):
            where = ", ".join(f"{tp.topic}-{tp.partition}" for tp in unread[:NAMED])
            raise DeployError(f"--shift: {group} has committed nothing for {where}: use --to")
        rows, new = [], {}
        for tp, at in (await places(admin, tps, committed, start, shift, READ_UNCOMMITTED)).items():
            new[tp] = at.new
            row = {"topic": tp.topic, "partition": tp.partition, "committed_offset": committed.get(tp)}
            rows.append({**row, "new_offset": at.new, "end_offset": at.end, "lag": at.end - at.new, "note": at.note})
        if not dry_run:
            try:
                await admin.alter_group_offsets(group, new)
            except KafkaError as error:
                if error.code not in NOT_EMPTY:
                    raise
                raise DeployError(has_members(group)) from None
    return rows, changelogs


async def _named(client: Client, text: str) -> list[TopicPartition]:
    """Partitions as they are given to --topic. DeployError: there are none such."""
    topic, mark, indexes = text.partition(":")
    check_topic_name(topic)
    await client.refresh_metadata([topic])
    known = client.partitions(topic)
    if not known:
        raise DeployError(f"there is no topic {topic}: `isthmus topic list` shows those there are")
    if not mark:
        return [TopicPartition(topic, each) for each in known]
    words = indexes.split(",")
    if not all(each.isascii() and each.isdigit() for each in words):
        raise DeployError(f"--topic {text}: write TOPIC, or TOPIC:0,1 for some of its partitions")
    if beyond := [each for each in words if int(each) not in known]:
        raise DeployError(f"topic {topic} has no partition {beyond[0]}: it has {len(known)}, from 0")
    return [TopicPartition(topic, each) for each in sorted(set(map(int, words)))]


@app.command()
def delete(
    group: Group,
    topic: Annotated[
        list[str],
        typer.Option(
            "--topic", "-t", metavar="TOPIC", help="Only what it has committed for this topic; may be repeated."
        ),
    ] = [],  # noqa: B006
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: JsonFlag = False,
) -> None:
    """Delete a group and its offsets. One with members is refused; of topics that they do not read, it may be told to
    forget the offsets."""

    async def run() -> None:
        async with connected(bootstrap) as client:
            admin = Admin(client)
            said = await _described(admin, group)
            if said is None:
                raise no_group(group)
            try:
                if not topic:
                    refuse_members(said)
                    await admin.delete_groups([group])
                    return
                committed = await admin.group_offsets(group)
                for each in topic:
                    tps = [tp for tp in committed if tp.topic == each]
                    if not tps:
                        raise DeployError(f"{group} has committed nothing for topic {each}")
                    await admin.delete_group_offsets(group, tps)
            except KafkaError as error:
                if error.code not in NOT_EMPTY:
                    raise
                raise DeployError(has_members(group)) from None

    asyncio.run(run())
    what = f"offsets of {', '.join(topic)} in {group}" if topic else group
    output.done(f"deleted {what}", {"deleted": group, "topics": topic}, as_json)


def refuse_members(said: GroupDescription) -> None:
    """DeployError: the group has members."""
    if said.members:
        names = sorted(dict.fromkeys(f"{each.client_id} ({each.host.lstrip('/')})" for each in said.members))
        raise DeployError(has_members(said.group_id, f": {', '.join(names[:NAMED])}" + ", …" * (len(names) > NAMED)))


def has_members(group: str, names: str = "") -> str:
    return f"group {group} has members{names}: stop them first; one that was killed is out after its session timeout"


def no_group(group: str) -> DeployError:
    return DeployError(f"there is no group {group}: `isthmus group list` shows those there are")


async def _described(admin: Admin, group: str) -> GroupDescription | None:
    """None: there is no such group."""
    try:
        [said] = await admin.describe_consumer_groups([group])
    except KafkaError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return None
    return said


async def _describe(group: str, bootstrap: str) -> dict[str, Any]:
    async with connected(bootstrap) as client:
        admin = Admin(client)
        said = await _described(admin, group)
        if said is None:
            raise no_group(group)
        options = await _options(admin, group)
        committed = await admin.group_offsets(group)
        there = set(await admin.list_topics())
        read = sorted({*(tp.topic for tp in committed), *read_topics(said)} & there)
        await client.refresh_metadata(read)
        tps = [TopicPartition(topic, each) for topic in read for each in client.partitions(topic)]
        known, notes = await offsets_told(client, tps)
    offsets = [offset_row(tp, committed.get(tp), known.get(tp, (None, None))[1]) for tp in sorted({*tps, *committed})]
    gone = sorted({tp.topic for tp in committed} - there)
    notes += [f"there is no topic {each} any more" for each in gone]
    return {**facts_of(said), "options": options, "notes": notes, "offsets": offsets}


def read_topics(said: GroupDescription) -> list[str]:
    """Topics that members subscribe to, or read now."""
    return sorted({topic for each in said.members for topic in (*(each.topics or ()), *each.assigned)})


def offset_row(tp: TopicPartition, committed: int | None, end: int | None) -> dict[str, Any]:
    """committed: None where the group has committed nothing yet. end: None where nobody tells, such as of a topic that
    is gone."""
    lag = None if committed is None or end is None else end - committed
    return {
        "topic": tp.topic, "partition": tp.partition, "committed_offset": committed, "end_offset": end, "lag": lag
    }  # fmt: skip


async def _options(admin: Admin, group: str) -> dict[str, str | None]:
    """Those that were set for the group; none where the cluster has none for groups."""
    try:
        told = (await admin.describe_configs([group], GROUP))[group]
    except KafkaError as error:
        if error.code != ErrorCode.INVALID_REQUEST:
            raise
        return {}
    return {each.name: each.value for each in told if each.config_source == OF_THE_GROUP}


def facts_of(said: GroupDescription) -> dict[str, Any]:
    """A group for programs."""
    return {
        "group": said.group_id,
        "state": said.state,
        "type": said.type,
        "protocol": said.assignor,
        "epoch": said.epoch,
        "assignment_epoch": said.assignment_epoch,
        "members": list(map(_member, said.members)),
    }


def _member(member: GroupMember) -> dict[str, Any]:
    return {
        "member": member.member_id,
        "instance": member.instance_id,
        "client": member.client_id,
        "host": member.host,
        "rack": member.rack_id,
        "epoch": member.epoch,
        "protocol": "classic" if member.is_classic else "consumer",
        "topics": member.topics,
        "pattern": member.pattern,
        "assigned": _lists(member.assigned),
        "target": None if member.target is None else _lists(member.target),
    }


def _lists(partitions: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
    return {topic: list(indexes) for topic, indexes in partitions.items()}


# --- For people -------------------------------------------------------------------------------------------------------


def show(facts: Mapping[str, Any]) -> None:
    output.out.print(f"[bold]{facts['group']}[/bold]  {facts['state']}  {_kind(facts)}")
    for option, value in facts["options"].items():
        output.out.print(f"  {option} = {value}")
    for note in facts["notes"]:
        output.out.print(f"  [yellow]note:[/yellow] {note}")
    rows = [_row(each) for each in facts["members"]]
    of_members = ("member", *_told(rows, ("instance", "protocol", "rack", "epoch", "reads")), "client", "host")
    output.show(rows, (*of_members, "assigned", *_told(rows, ("target",))), False, "no members")
    columns = ("topic", "partition", ("committed_offset", "committed"), ("end_offset", "end"), "lag")
    output.show(facts["offsets"], columns, False, "no committed offsets")


def _kind(facts: Mapping[str, Any]) -> str:
    if facts["type"] == CLASSIC:
        return f"classic  protocol {facts['protocol'] or '-'}"
    behind = "" if facts["assignment_epoch"] == facts["epoch"] else f", assigned up to {facts['assignment_epoch']}"
    return f"{facts['type']}  assignor {facts['protocol']}  epoch {facts['epoch']}{behind}"


def _row(member: Mapping[str, Any]) -> dict[str, Any]:
    """A member in words. Of what all members have alike, or what goes without saying, nothing is said."""
    in_two_types = member["epoch"] is not None and member["protocol"] == "classic"
    reads = [*(member["topics"] or ()), *([f"/{member['pattern']}/"] if member["pattern"] else ())]
    target = member["target"]
    return {
        **member,
        "protocol": "classic" if in_two_types else "",
        "reads": " ".join(reads),
        "assigned": in_words(member["assigned"]),
        "target": "" if target is None or target == member["assigned"] else in_words(target) or "none",
    }


def _told(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> list[str]:
    """Columns in which any row has something."""
    return [column for column in columns if any(row[column] not in (None, "") for row in rows)]


def in_words(partitions: Mapping[str, Sequence[int]]) -> str:
    return " ".join(f"{topic}:{','.join(map(str, indexes))}" for topic, indexes in partitions.items())
