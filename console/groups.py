"""`isthmus group`: consumer groups, their members and how far they are behind."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

import typer

from ..client import Admin
from ..deploy.errors import DeployError
from ..protocol.errors import DecodeError
from ..protocol.messages import consumer_protocol
from . import output
from .connect import DEFAULT_BOOTSTRAP, Bootstrap, connected
from .output import JsonFlag

app = typer.Typer(no_args_is_help=True)


@app.command("list")
def list_(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: JsonFlag = False) -> None:
    """Groups and their states."""

    async def run() -> list[dict[str, Any]]:
        async with connected(bootstrap) as client:
            groups = await Admin(client).list_groups()
            rows = [{"group": each.group_id, "state": each.group_state, "type": each.protocol_type} for each in groups]
            return sorted(rows, key=lambda row: row["group"])

    output.show(asyncio.run(run()), ("group", "state", "type"), as_json, "no groups")


@app.command()
def describe(
    group: Annotated[str, typer.Argument(help="Name of the group.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: JsonFlag = False,
) -> None:
    """State, members, and committed offset, end and lag of each partition."""
    facts = asyncio.run(_describe(group, bootstrap))
    if as_json:
        print(json.dumps(facts, indent=2))
        return
    output.out.print(f"[bold]{group}[/bold]  {facts['state']}  protocol {facts['protocol'] or '-'}")
    members = [{**each, "assigned": in_words(each["assigned"])} for each in facts["members"]]
    output.show(members, ("member", "client", "host", "assigned"), False, "no members")
    columns = ("topic", "partition", ("committed_offset", "committed"), ("end_offset", "end"), "lag")
    output.show(facts["offsets"], columns, False, "no committed offsets")


async def _describe(group: str, bootstrap: str) -> dict[str, Any]:
    async with connected(bootstrap) as client:
        admin = Admin(client)
        [said] = await admin.describe_groups([group])
        if said.group_state == "Dead":  # what Kafka answers for a group that it does not know
            raise DeployError(f"there is no group {group}: `isthmus group list` shows those there are")
        committed = await admin.group_offsets(group)
        ends = await admin.list_offsets(dict.fromkeys(committed, "latest")) if committed else {}
    offsets = []
    for tp, offset in sorted(committed.items()):
        end = ends[tp][0]
        row = {"topic": tp.topic, "partition": tp.partition, "committed_offset": offset}
        offsets.append({**row, "end_offset": end, "lag": end - offset})
    members = [
        {
            "member": each.member_id,
            "client": each.client_id,
            "host": each.client_host,
            "assigned": assigned(each.member_assignment) if said.protocol_type == "consumer" else {},
        }
        for each in said.members
    ]
    return {
        "group": group,
        "state": said.group_state,
        "protocol": said.protocol_data,
        "members": members,
        "offsets": offsets,
    }


def assigned(data: Any) -> dict[str, list[int]]:
    """topic -> partitions, of what a group's leader gave to a member; nothing where that cannot be read."""
    try:
        found = consumer_protocol.decode_assignment(data)
    except DecodeError:
        return {}
    return {each.topic: sorted(each.partitions) for each in sorted(found.assigned_partitions, key=lambda p: p.topic)}


def in_words(partitions: dict[str, list[int]]) -> str:
    return " ".join(f"{topic}:{','.join(map(str, indexes))}" for topic, indexes in partitions.items())
