"""`isthmus mirror`: runs a worker, and shows what workers say of themselves in the target's `__mirror_status` topic."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any

import typer

from ..client import Admin, Client, TopicPartition
from ..deploy.errors import DeployError
from ..deploy.launch import python
from ..mirror.link import SOURCE_CLUSTER_OPTION
from ..mirror.status import SILENT_AFTER_MS, UNSEEN_AFTER_MS, read_status
from ..runtime import system
from . import output
from .connect import DEFAULT_BOOTSTRAP, Bootstrap, connected
from .output import JsonFlag

app = typer.Typer(no_args_is_help=True)
COLUMNS = (
    "link", "topic", "partition", "state", "since", ("next_offset", "offset"), ("source_high_watermark", "source end"),
    ("lag_records", "lag"), "next_try", "reason",
)  # fmt: skip
NOT_SEEN = {"source_high_watermark": None, "lag_records": None, "lag_ms": None}


@app.callback()
def group() -> None:
    pass


@app.command()
def status(
    link: Annotated[str | None, typer.Argument(help="Only this link.")] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    source: Annotated[
        str | None, typer.Option("--source", "-s", help="The link's source, as --bootstrap: ask it where it ends now.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """State, position and lag of each mirrored partition; --bootstrap is the mirrors' target.

    It is what the mirrors wrote there last; a row without a partition is of the link as a whole. A mirror that is cut
    off from its target, or gone, writes nothing: after 15 s that is told, and no lag is shown; nor of a partition whose
    source has not answered for 6 s. With --source the two
    clusters are asked themselves, and the lag is what lies between their ends.
    """

    async def run() -> list[dict[str, Any]]:
        async with connected(bootstrap) as client:
            said = await read_status(client)
            rows = [row for row in said if link in (None, row["link"])]
            if said and not rows:
                links = ", ".join(sorted({row["link"] for row in said}))
                raise DeployError(f"no mirror of link {link} has written into this cluster; those of {links} have")
            ages_ms = ages(rows, system().wall_ms())
            rows = [{**row, "age_ms": ages_ms[row["link"]]} for row in rows]
            if source is None:
                return [unknown_as_none(row) for row in rows]
            partitions = [row for row in rows if row["topic"]]
            of_links = [unknown_as_none(row) for row in rows if not row["topic"]]
            async with connected(source) as there:
                return of_links + await measured(partitions, client, there)

    rows = asyncio.run(run())
    for name, age_ms in dict.fromkeys((row["link"], row["age_ms"]) for row in rows):
        if age_ms > SILENT_AFTER_MS and not as_json:
            output.note(
                f"link {name}: its mirror has written nothing for {age_ms // 1000} s: it is stopped, hangs, or is cut "
                "off from here, and what it said may be wrong by now; --source asks the clusters themselves"
            )
    if not as_json:
        rows = [
            {**row, "since": clock_time(row["since_ms"]), "next_try": clock_time(row.get("next_try_ms", -1))}
            for row in rows
        ]
    output.show(rows, COLUMNS, as_json, "no mirror has written into this cluster yet")


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
def run(context: typer.Context) -> None:
    """Run a worker in the foreground: --link NAME --source-alias NAME --source ADDRESS --target ADDRESS --topics …"""
    command = (*python("mirror"), *context.args)
    os.execv(command[0], command)


def clock_time(ms: int) -> str:
    """A time in ms as people read it, in their zone; empty for -1."""
    return "" if ms < 0 else datetime.fromtimestamp(ms / 1000).isoformat(" ", "seconds")


def unknown_as_none(row: dict[str, Any]) -> dict[str, Any]:
    """A lag would say how it is with a partition whose source is not seen, or not any more. A link has no offsets."""
    if not row["topic"]:
        return {**row, "partition": None, "next_offset": None, **NOT_SEEN}
    if row["unseen_ms"] > UNSEEN_AFTER_MS and not row["reason"]:
        place, silent_s = f"{row['source_topic']}-{row['partition']}", row["unseen_ms"] // 1000
        return {**row, **NOT_SEEN, "reason": f"{place}: the source has not answered for {silent_s} s"}
    is_seen = row["source_high_watermark"] >= 0 and row["age_ms"] <= SILENT_AFTER_MS
    return row if is_seen else {**row, **NOT_SEEN}


def ages(rows: Iterable[Mapping[str, Any]], now_ms: int) -> dict[str, int]:
    """For how many ms the mirror of each link has written nothing, as far as clocks agree."""
    newest: dict[str, int] = {}
    for row in rows:
        newest[row["link"]] = max(newest.get(row["link"], 0), row["updated_ms"])
    return {link: max(0, now_ms - at_ms) for link, at_ms in newest.items()}


async def measured(rows: list[dict[str, Any]], target: Client, source: Client) -> list[dict[str, Any]]:
    """Rows of one link's partitions, with both ends as the clusters have them now; offsets are the same in both. An end
    whose topic is gone is None, and so is the lag.

    Raises DeployError where `source` is not the cluster that the link's topics are mirrored from.
    """
    links = sorted({row["link"] for row in rows})
    if len(links) > 1:
        raise DeployError(f"--source is that of one link: name it, one of {', '.join(links)}")
    here = [TopicPartition(row["target_topic"], row["partition"]) for row in rows]
    there = [TopicPartition(row["source_topic"], row["partition"]) for row in rows]
    ends_here, ends_there = await _ends(target, here), await _ends(source, there)
    for topic, options in (await Admin(target).describe_configs(sorted({tp.topic for tp in ends_here}))).items():
        mirrored_from = next((each.value for each in options if each.name == SOURCE_CLUSTER_OPTION), None)
        if mirrored_from != source.cluster_id:
            raise DeployError(
                f"--source is cluster {source.cluster_id}, but {topic} is mirrored from cluster {mirrored_from}"
            )
    for row, here_tp, there_tp in zip(rows, here, there, strict=True):
        end_here, end_there = ends_here.get(here_tp), ends_there.get(there_tp)
        known = end_here is not None and end_there is not None
        lag = max(0, (end_there or 0) - (end_here or 0)) if known else None
        row |= {"next_offset": end_here, "source_high_watermark": end_there, "lag_records": lag}
    return rows


async def _ends(client: Client, wanted: list[TopicPartition]) -> dict[TopicPartition, int]:
    """End offsets; those of topics that are not there are left out."""
    admin = Admin(client)
    topics = dict.fromkeys(await admin.list_topics())
    found = await admin.list_offsets({tp: "latest" for tp in wanted if tp.topic in topics})
    return {tp: offset for tp, (offset, *_) in found.items()}
