"""`isthmus group`: consumer groups, their members and how far they are behind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from ..client import Admin
from ..client.admin import GROUP
from ..client.groups import CLASSIC, GroupDescription, GroupMember
from ..deploy.errors import DeployError
from ..protocol.errors import ErrorCode, KafkaError
from . import output
from .connect import DEFAULT_BOOTSTRAP, Bootstrap, connected
from .output import JsonFlag
from .topics import pair

app = typer.Typer(no_args_is_help=True)

Group = Annotated[str, typer.Argument(help="Name of the group.")]
OF_THE_GROUP = 8  # source of an option's value


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
    """State, members, options that were set, and committed offset, end and lag of each partition."""
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


async def _describe(group: str, bootstrap: str) -> dict[str, Any]:
    async with connected(bootstrap) as client:
        admin = Admin(client)
        try:
            [said] = await admin.describe_consumer_groups([group])
        except KafkaError as error:
            if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            raise DeployError(f"there is no group {group}: `isthmus group list` shows those there are") from None
        options = await _options(admin, group)
        committed = await admin.group_offsets(group)
        ends = await admin.list_offsets(dict.fromkeys(committed, "latest")) if committed else {}
    offsets = []
    for tp, offset in sorted(committed.items()):
        end = ends[tp][0]
        row = {"topic": tp.topic, "partition": tp.partition, "committed_offset": offset}
        offsets.append({**row, "end_offset": end, "lag": end - offset})
    return {**facts_of(said), "options": options, "offsets": offsets}


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
