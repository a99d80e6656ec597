"""`isthmus mirror`: runs a worker, and shows what workers say of themselves in the target's `__mirror_status` topic."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Annotated, Any

import typer

from ..client import Admin, Client, Consumer, TopicPartition
from ..deploy.launch import python
from . import output
from .connect import DEFAULT_BOOTSTRAP, Bootstrap, connected
from .output import JsonFlag

app = typer.Typer(no_args_is_help=True)
STATUS_TOPIC = "__mirror_status"
POLL_MS = 500
COLUMNS = (
    "link", "topic", "partition", "state", ("next_offset", "offset"), ("source_high_watermark", "source end"),
    ("lag_records", "lag"), "reason",
)  # fmt: skip


@app.callback()
def group() -> None:
    pass


@app.command()
def status(
    link: Annotated[str | None, typer.Argument(help="Only this link.")] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: JsonFlag = False,
) -> None:
    """State, position and lag of each mirrored partition; --bootstrap is the mirrors' target."""

    async def run() -> list[dict[str, Any]]:
        async with connected(bootstrap) as client:
            return [row for row in await read_status(client) if link in (None, row["link"])]

    output.show(asyncio.run(run()), COLUMNS, as_json, "no mirror has written into this cluster yet")


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
def run(context: typer.Context) -> None:
    """Run a worker in the foreground: --link NAME --source-alias NAME --source ADDRESS --target ADDRESS --topics …"""
    command = (*python("mirror"), *context.args)
    os.execv(command[0], command)


async def read_status(client: Client) -> list[dict[str, Any]]:
    """The last status of each link, topic and partition, sorted by them."""
    if STATUS_TOPIC not in await Admin(client).list_topics():
        return []
    tp = TopicPartition(STATUS_TOPIC, 0)
    end = (await Admin(client).list_offsets({tp: "latest"}))[tp][0]
    consumer = Consumer(client, auto_offset_reset="earliest")
    consumer.assign({tp: None})
    latest: dict[tuple[str, str, int], dict[str, Any]] = {}
    try:
        while (consumer.position(tp) or 0) < end:
            for record in (await consumer.poll(POLL_MS, 10_000)).get(tp, ()):
                link, topic, partition = bytes(record.key or b"").decode().rsplit("/", 2)
                where = (link, topic, int(partition))
                latest.pop(where, None)
                if record.value is not None:
                    said = json.loads(bytes(record.value))
                    latest[where] = {"link": link, "topic": topic, "partition": int(partition), **said}
    finally:
        await consumer.close()
    return [latest[where] for where in sorted(latest)]
