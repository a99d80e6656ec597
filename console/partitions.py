"""`isthmus partition`, `isthmus broker drain`, `isthmus topic replicas`: replicas that move to other brokers.

The plans are those of `client/moves.py`, the moves Kafka's reassignments (KIP-455): they go on when the command ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any

import typer

from ..client import Admin, Client, TopicPartition, moves
from ..client.admin import BROKER
from ..client.balance import balanced
from ..client.errors import no_topic
from ..deploy.errors import DeployError, counted
from ..protocol.errors import ErrorCode, KafkaError
from . import output
from .clusters import factors, in_words, partitions_of
from .connect import DEFAULT_BOOTSTRAP, Bootstrap, connected
from .output import JsonFlag

app = typer.Typer(no_args_is_help=True)
drain_app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

POLL_S = 0.3
AT_ONCE = 50  # partitions of a drain or of a new factor that are copied at a time
CORDONED = "cordoned.log.dirs"
METADATA_VERSION, CORDONED_SINCE = "metadata.version", 30  # 4.3-IV0: before, Kafka refuses the option
COLUMNS = ("topic", "partition", "replicas", "adding", "removing", "throttle")

Partition = Annotated[str, typer.Argument(metavar="TOPIC-PARTITION", help="Such as orders-3.")]
Wait = Annotated[bool, typer.Option("--wait", help="Return once the copies are in sync, and the old ones gone.")]
AtOnce = Annotated[int, typer.Option("--at-once", min=1, help="How many partitions are copied at a time.")]
Throttle = Annotated[
    int,
    typer.Option("--throttle", min=0, help="Bytes/s that each broker may copy, lifted at the end; 0 for no limit."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be moved.")]


# --- Commands -------------------------------------------------------------------------------------------------------


@app.command()
def move(
    partition: Partition,
    to: Annotated[str, typer.Option("--to", help="Ids of brokers, such as 1,2,3: the preferred leader first.")] = "",
    cancel: Annotated[bool, typer.Option("--cancel", help="Take back the move that is under way.")] = False,
    wait: Wait = False,
    throttle: Throttle = 0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: JsonFlag = False,
) -> None:
    """Move a partition's replicas to these brokers. With a throttle, the command waits for the end, to lift it."""
    tp = parsed(partition)
    if cancel == bool(to):
        raise DeployError("say where to, --to 1,2,3, or take a move back by --cancel")
    nodes = None if cancel else node_ids(to)

    async def run() -> None:
        async with connected(bootstrap) as client:
            admin = Admin(client)
            if nodes:
                _check_alive(nodes, await _brokers(admin))
            if nodes and throttle:
                [topic] = await admin.describe_topics([tp.topic])
                placed = {each: moves.Placed(tuple(row.replica_nodes)) for each, row in partitions_of([topic])}
                if tp not in placed:
                    raise DeployError(f"{tp.topic} has no partition {tp.partition}")
                async with _throttled(admin, moves.throttled({tp: nodes}, placed), throttle):
                    await admin.alter_partition_reassignments({tp: nodes})
                    await _moved(admin, [tp], lambda left: f"{partition} is copied")
                return
            try:
                await admin.alter_partition_reassignments({tp: nodes})
            except KafkaError as error:
                if error.code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS:
                    raise KafkaError(error.code, f"{partition} is not on its way: nothing to take back") from error
                if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    await client.refresh_metadata([tp.topic])
                    raise client.why_no_leader(tp) or error from error
                raise
            if wait:
                await _moved(admin, [tp], lambda left: f"{partition} is copied")

    asyncio.run(run())
    if cancel:
        output.done(f"the move of {partition} is taken back", {"cancelled": partition}, as_json)
    else:
        done = wait or bool(throttle)
        how = "is at" if done else "moves to"
        output.done(f"{partition} {how} {to}", {"partition": partition, "replicas": nodes, "done": done}, as_json)


@app.command("list-moves")
def list_moves(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: JsonFlag = False) -> None:
    """Partitions on their way to other brokers, and the bytes/s at which they are copied at most."""
    rates: dict[int, int] = {}

    async def run() -> list[dict[str, Any]]:
        async with connected(bootstrap) as client:
            admin = Admin(client)
            found = await admin.list_partition_reassignments()
            rates.update(await _rates(admin))
            options = await admin.describe_configs(sorted({tp.topic for tp in found})) if rates and found else {}
        slowed = {name: _replicas_named(entries) for name, entries in options.items()}
        return [
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "replicas": list(each.replicas),
                "adding": list(each.adding),
                "removing": list(each.removing),
                "throttle": _rate_of(tp, each.replicas, slowed, rates),
            }
            for tp, each in sorted(found.items())
        ]

    rows = asyncio.run(run())
    nothing = "nothing is on its way"
    if rates:
        ids = ", ".join(map(str, sorted(rates)))
        nothing += f", but brokers {ids} are throttled still: `isthmus partition unthrottle` lifts that"
    if not as_json:
        rows = [in_words(row) for row in rows]
    output.show(rows, COLUMNS, as_json, nothing)


@app.command()
def unthrottle(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: JsonFlag = False) -> None:
    """Lift all throttles of copies, such as those of a command that was interrupted."""

    async def run() -> list[int]:
        async with connected(bootstrap) as client:
            admin = Admin(client)
            names = await admin.list_topics()
            topics = [name for name, each in (await admin.describe_configs(names)).items() if _replicas_named(each)]
            nodes = sorted(await _rates(admin))
            await _lift(admin, topics, nodes)
            return nodes

    nodes = asyncio.run(run())
    ids = ", ".join(map(str, nodes)) or "none"
    output.done(f"lifted; brokers that were throttled: {ids}", {"brokers": nodes}, as_json)


@drain_app.command()
def drain(
    brokers: Annotated[list[int], typer.Argument(metavar="ID...", help="Ids of the brokers.")],
    at_once: AtOnce = AT_ONCE,
    throttle: Throttle = 0,
    dry_run: DryRun = False,
    undo: Annotated[bool, typer.Option("--undo", help="Let the broker have new partitions again.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: JsonFlag = False,
) -> None:
    """Move all replicas off one or more brokers, spread by rack and load, and wait until they are gone.

    New partitions are not placed on them from then on, until --undo; in a cluster at a metadata.version older than that
    of Kafka 4.3 they may be.
    """

    async def run() -> tuple[moves.Plan, bool]:
        async with connected(bootstrap) as client:
            admin = Admin(client)
            there = await _brokers(admin)
            ids = {each.id for each in there}
            _check_alive([each for each in brokers if each not in ids], there)  # one that is down may be drained
            can_cordon = (await admin.features())[METADATA_VERSION].finalized >= CORDONED_SINCE
            if undo:
                for broker in brokers if can_cordon else ():
                    await admin.alter_broker_configs(broker, {CORDONED: None})
                return {}, can_cordon
            placed = await _placed(client, admin)
            plan = moves.drained(placed, there, brokers)
            if not dry_run:
                for each in there if can_cordon else ():
                    if each.id in brokers and each.is_alive:
                        await admin.alter_broker_configs(each.id, {CORDONED: "*"})
                placed = await _placed(client, admin)  # nothing comes from now on
                plan = moves.drained(placed, there, brokers)
                await _carry_out(admin, plan, placed, at_once, throttle)
            return plan, can_cordon

    plan, can_cordon = asyncio.run(run())
    named = f"broker {brokers[0]}" if len(brokers) == 1 else f"brokers {', '.join(map(str, brokers))}"
    if undo:
        output.done(f"{named}: given new partitions again", {"undone": brokers}, as_json)
        return
    undoing = f"isthmus broker drain {' '.join(map(str, brokers))} --undo"
    done = f"{named}: no partitions, and given none (`{undoing}` ends that)"
    if not can_cordon:
        done = f"{named}: no partitions, but new ones may come: the cluster's metadata.version is older than Kafka 4.3"
    _tell(plan, dry_run, done, {"drained": brokers}, as_json)


def balance(
    execute: Annotated[bool, typer.Option("--execute", help="Make the moves, and wait for them.")] = False,
    at_once: AtOnce = AT_ONCE,
    throttle: Throttle = 0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: JsonFlag = False,
) -> None:
    """Show by which moves brokers have as many replicas, and lead as many partitions, as each other; or make them.

    No partition gets into fewer racks. Brokers that are drained or down get nothing, and keep what they have.
    """

    async def run() -> moves.Plan:
        async with connected(bootstrap) as client:
            admin = Admin(client)
            placed = await _placed(client, admin)
            plan = balanced(placed, await _brokers(admin))
            if execute:
                await _carry_out(admin, plan, placed, at_once, throttle)
                able = [tp for tp, each in placed.items() if tp in plan or each.replicas[0] in each.isr]
                await admin.elect_leaders(able)  # an order of replicas takes nobody's leadership by itself
            return plan

    plan = asyncio.run(run())
    _tell(plan, not execute, "brokers are balanced", {}, as_json)


def replicas(
    name: Annotated[str, typer.Argument(help="Name of the topic.")] = "",
    factor: Annotated[
        int | None, typer.Option("--factor", min=1, help="On how many brokers each partition shall be.")
    ] = None,
    internal: Annotated[
        bool, typer.Option("--internal", help="All internal topics, as many replicas as the brokers are set to.")
    ] = False,
    at_once: AtOnce = AT_ONCE,
    throttle: Throttle = 0,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: JsonFlag = False,
) -> None:
    """Give a topic more or fewer replicas, spread by rack and load, and wait until they are in sync.

    When brokers were added, `--internal` gives the topics that brokers made themselves, such as __consumer_offsets, the
    replicas that they lack.
    """
    if internal == bool(name) or internal == (factor is not None):
        raise DeployError("say which topic and how many, such as `orders --factor 3`, or --internal alone")

    async def run() -> moves.Plan:
        async with connected(bootstrap) as client:
            admin = Admin(client)
            placed = await _placed(client, admin)
            if internal:
                said = await admin.cluster()
                wanted = await factors(admin, said.brokers, await admin.all_topics())
            else:
                wanted = {name: factor or 0}
            if not internal and name not in {tp.topic for tp in placed}:
                raise no_topic(name)
            chosen = {tp: wanted[tp.topic] for tp in sorted(placed) if tp.topic in wanted}
            if internal:  # they only grow
                chosen = {tp: count for tp, count in chosen.items() if len(placed[tp].replicas) < count}
            plan = moves.with_factors(chosen, placed, await _brokers(admin))
            if not dry_run:
                await _carry_out(admin, plan, placed, at_once, throttle)
            return plan

    plan = asyncio.run(run())
    if internal:
        _tell(plan, dry_run, "internal topics have the replicas that they shall have", {"internal": True}, as_json)
    else:
        facts = {"topic": name, "replication_factor": factor}
        _tell(plan, dry_run, f"{name} has {counted(factor or 0, 'replica')}", facts, as_json)


# --- Work -----------------------------------------------------------------------------------------------------------


async def _brokers(admin: Admin) -> list[moves.Broker]:
    brokers = []
    for each in (await admin.cluster()).brokers:
        options = {} if each.is_fenced else await _options(admin, each.broker_id)
        rack = each.rack or each.host  # a machine may have several brokers
        brokers.append(moves.Broker(each.broker_id, rack, not each.is_fenced, bool(options.get(CORDONED))))
    return brokers


def _check_alive(nodes: Sequence[int], brokers: Sequence[moves.Broker]) -> None:
    """Raises DeployError for a broker that no copy could reach."""
    known = {each.id: each for each in brokers}
    for node in nodes:
        if node not in known:
            raise DeployError(f"there is no broker {node}: there are {', '.join(map(str, sorted(known)))}")
        if not known[node].is_alive:
            raise DeployError(
                f"broker {node} is down or cut off, so that its copy would never be in sync: start it, or choose of "
                f"{', '.join(str(each.id) for each in brokers if each.is_alive)}"
            )


async def _options(admin: Admin, broker: int) -> dict[str, str | None]:
    [entries] = (await admin.describe_configs([str(broker)], BROKER)).values()
    return {each.name: each.value for each in entries}


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


@contextlib.asynccontextmanager
async def _throttled(admin: Admin, topics: Mapping[str, Mapping[str, str]], bytes_per_s: int) -> AsyncIterator[None]:
    """Copies of these topics' replicas are held back meanwhile, and longer if the command is interrupted: what began
    goes on. topics: see `moves.throttled`."""
    nodes = [each.id for each in await _brokers(admin) if each.is_alive] if bytes_per_s and topics else []
    try:
        for node in nodes:
            await admin.alter_broker_configs(node, dict.fromkeys(moves.RATES, str(bytes_per_s)))
        for topic in topics if nodes else ():
            await admin.alter_configs(topic, dict(topics[topic]))
        yield
    except Exception:
        await _lift(admin, topics if nodes else (), nodes)
        raise
    else:
        await _lift(admin, topics if nodes else (), nodes)


async def _lift(admin: Admin, topics: Iterable[str], nodes: Iterable[int]) -> None:
    for topic in topics:
        await admin.alter_configs(topic, {moves.LEADERS: None, moves.FOLLOWERS: None})
    for node in nodes:
        await admin.alter_broker_configs(node, dict.fromkeys(moves.RATES))


async def _rates(admin: Admin) -> dict[int, int]:
    """Bytes/s of the brokers that throttle copies."""
    rates: dict[int, int] = {}
    for broker in await _brokers(admin):
        if broker.is_alive:
            options = await _options(admin, broker.id)
            found = [int(rate) for name in moves.RATES if (rate := options.get(name))]
            if found:
                rates[broker.id] = min(found)
    return rates


def _replicas_named(entries: Iterable[Any]) -> list[str]:
    """PARTITION:BROKER, or *, of a topic's throttled replicas."""
    named = (each.value for each in entries if each.name in (moves.LEADERS, moves.FOLLOWERS) and each.value)
    return [part for value in named for part in value.split(",")]


def _rate_of(
    tp: TopicPartition, nodes: Sequence[int], slowed: Mapping[str, Sequence[str]], rates: Mapping[int, int]
) -> int | None:
    named = slowed.get(tp.topic, ())
    found = [rates[each] for each in nodes if each in rates and ("*" in named or f"{tp.partition}:{each}" in named)]
    return min(found, default=None)


async def _carry_out(
    admin: Admin, plan: moves.Plan, placed: Mapping[TopicPartition, moves.Placed], at_once: int, throttle: int
) -> None:
    """Make the moves, so many at a time, and wait for all. throttle: bytes/s of each broker; 0 for no limit."""
    async with _throttled(admin, moves.throttled(plan, placed), throttle):
        await _move_all(admin, plan, at_once)


async def _move_all(admin: Admin, plan: moves.Plan, at_once: int) -> None:
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
