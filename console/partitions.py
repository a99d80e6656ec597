"""`isthmus partition`, `isthmus broker drain`, `isthmus topic replicas`: replicas that move to other brokers.

The plans are those of `client/moves.py`, the moves Kafka's reassignments (KIP-455): they go on when the command ends.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import typer

from ..client import Admin, Client, TopicPartition, moves
from ..client.errors import no_topic
from ..deploy.errors import DeployError, counted
from . import output
from .clusters import in_words, partitions_of
from .connect import DEFAULT_BOOTSTRAP, Bootstrap, connected
from .output import JsonFlag

app = typer.Typer(no_args_is_help=True)
drain_app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

POLL_S = 0.3
AT_ONCE = 50  # partitions of a drain or of a new factor that are copied at a time
COLUMNS = ("topic", "partition", "replicas", "adding", "removing")

Partition = Annotated[str, typer.Argument(metavar="TOPIC-PARTITION", help="Such as orders-3.")]
Wait = Annotated[bool, typer.Option("--wait", help="Return once the copies are in sync, and the old ones gone.")]
AtOnce = Annotated[int, typer.Option("--at-once", min=1, help="How many partitions are copied at a time.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be moved.")]


# --- Commands -------------------------------------------------------------------------------------------------------


@app.command()
def move(
    partition: Partition,
    to: Annotated[str, typer.Option("--to", help="Ids of brokers, such as 1,2,3: the preferred leader first.")] = "",
    cancel: Annotated[bool, typer.Option("--cancel", help="Take back the move that is under way.")] = False,
    wait: Wait = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: JsonFlag = False,
) -> None:
    """Move a partition's replicas to these brokers."""
    tp = parsed(partition)
    if cancel == bool(to):
        raise DeployError("say where to, --to 1,2,3, or take a move back by --cancel")
    nodes = None if cancel else node_ids(to)

    async def run() -> None:
        async with connected(bootstrap) as client:
            admin = Admin(client)
            await admin.alter_partition_reassignments({tp: nodes})
            if wait:
                await _moved(admin, [tp], lambda left: f"{partition} is copied")

    asyncio.run(run())
    if cancel:
        output.done(f"the move of {partition} is taken back", {"cancelled": partition}, as_json)
    else:
        how = "is at" if wait else "moves to"
        output.done(f"{partition} {how} {to}", {"partition": partition, "replicas": nodes, "done": wait}, as_json)


@app.command("list-moves")
def list_moves(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: JsonFlag = False) -> None:
    """Partitions on their way to other brokers."""

    async def run() -> list[dict[str, Any]]:
        async with connected(bootstrap) as client:
            found = await Admin(client).list_partition_reassignments()
        return [
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "replicas": list(each.replicas),
                "adding": list(each.adding),
                "removing": list(each.removing),
            }
            for tp, each in sorted(found.items())
        ]

    rows = asyncio.run(run())
    if not as_json:
        rows = [in_words(row) for row in rows]
    output.show(rows, COLUMNS, as_json, "nothing is on its way")


@drain_app.command()
def drain(
    brokers: Annotated[list[int], typer.Argument(metavar="ID...", help="Ids of the brokers.")],
    at_once: AtOnce = AT_ONCE,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: JsonFlag = False,
) -> None:
    """Move all replicas off one or more brokers, spread by rack and load, and wait until they are gone.

    New partitions may still be placed on them: stop them, or make none meanwhile.
    """

    async def run() -> moves.Plan:
        async with connected(bootstrap) as client:
            admin = Admin(client)
            there = await _brokers(admin)
            for broker in brokers:
                if broker not in {each.id for each in there}:
                    ids = ", ".join(str(each.id) for each in there)
                    raise DeployError(f"there is no broker {broker}: there are {ids}")
            plan = moves.drained(await _placed(client, admin), there, brokers)
            if not dry_run:
                await _carry_out(admin, plan, at_once)
            return plan

    plan = asyncio.run(run())
    named = f"broker {brokers[0]} has" if len(brokers) == 1 else f"brokers {', '.join(map(str, brokers))} have"
    _tell(plan, dry_run, f"{named} no partitions", {"drained": brokers}, as_json)


def replicas(
    name: Annotated[str, typer.Argument(help="Name of the topic.")],
    factor: Annotated[int, typer.Option("--factor", min=1, help="On how many brokers each partition shall be.")],
    at_once: AtOnce = AT_ONCE,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: JsonFlag = False,
) -> None:
    """Give a topic more or fewer replicas, spread by rack and load, and wait until they are in sync."""

    async def run() -> moves.Plan:
        async with connected(bootstrap) as client:
            admin = Admin(client)
            placed = await _placed(client, admin)
            chosen = sorted(tp for tp in placed if tp.topic == name)
            if not chosen:
                raise no_topic(name)
            plan = moves.with_factor(chosen, placed, await _brokers(admin), factor)
            if not dry_run:
                await _carry_out(admin, plan, at_once)
            return plan

    plan = asyncio.run(run())
    _tell(
        plan,
        dry_run,
        f"{name} has {counted(factor, 'replica')}",
        {"topic": name, "replication_factor": factor},
        as_json,
    )


# --- Work -----------------------------------------------------------------------------------------------------------


async def _brokers(admin: Admin) -> list[moves.Broker]:
    said = await admin.cluster()
    return [moves.Broker(each.broker_id, each.rack, not each.is_fenced) for each in said.brokers]


async def _placed(client: Client, admin: Admin) -> dict[TopicPartition, moves.Placed]:
    """Every partition, with its size as the largest of its logs. Moves under way must end first: what is planned for
    such a partition would take the place of its move."""
    if under_way := sorted(await admin.list_partition_reassignments()):
        first = under_way[0]
        raise DeployError(
            f"{len(under_way)} partitions are on their way, such as {first.topic}-{first.partition}: let them arrive "
            "(`isthmus partition list-moves`), or take them back (`isthmus partition move … --cancel`)"
        )
    topics = await admin.all_topics()
    sizes: dict[TopicPartition, int] = {}
    for node in sorted(client.nodes):
        for tp, size in (await admin.log_sizes(node)).items():
            sizes[tp] = max(size, sizes.get(tp, 0))
    return {
        tp: moves.Placed(tuple(each.replica_nodes), tuple(each.isr_nodes), sizes.get(tp, 0))
        for tp, each in partitions_of(topics)
    }


async def _carry_out(admin: Admin, plan: moves.Plan, at_once: int) -> None:
    """Make the moves, so many at a time, and wait for all."""
    tps = list(plan)
    for begin in range(0, len(tps), at_once):
        some = tps[begin : begin + at_once]
        await admin.alter_partition_reassignments({tp: plan[tp] for tp in some})
        await _moved(admin, some, lambda left, begin=begin: f"{begin + left} of {len(tps)} partitions are moved")  # type: ignore[misc]


async def _moved(admin: Admin, tps: Sequence[TopicPartition], words: Callable[[int], str]) -> None:
    """Wait until none of these is on its way. words: what is shown, by how many have arrived."""
    began = time.monotonic()
    with output.err.status(words(0)) as shown:
        while True:
            under_way = await admin.list_partition_reassignments()
            left = [tp for tp in tps if tp in under_way]
            if not left:
                return
            shown.update(f"{words(len(tps) - len(left))}, {time.monotonic() - began:.0f} s")
            await asyncio.sleep(POLL_S)


def _tell(plan: moves.Plan, dry_run: bool, done: str, facts: Mapping[str, Any], as_json: bool) -> None:
    rows = [{"topic": tp.topic, "partition": tp.partition, "replicas": nodes} for tp, nodes in sorted(plan.items())]
    if as_json:
        print(json.dumps({**facts, "done": not dry_run, "moves": rows}, indent=2))
    elif dry_run:
        output.show(map(in_words, rows), ("topic", "partition", "replicas"), False, "nothing would be moved")
    else:
        output.out.print(f"{done}; {counted(len(plan), 'partition')} moved")


def parsed(text: str) -> TopicPartition:
    topic, dash, number = text.rpartition("-")
    if not dash or not topic or not (number.isascii() and number.isdigit()):
        raise DeployError(f"'{text}' is not TOPIC-PARTITION, such as orders-3")
    return TopicPartition(topic, int(number))


def node_ids(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise DeployError(f"--to {text}: write ids of brokers with commas between, such as 1,2,3")
    return [int(part) for part in parts]
