"""`isthmus transaction`: what coordinators know of transactions, and those that hang."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from ..client import Admin, Client, TopicPartition
from ..client.open_transactions import OpenTransaction, TransactionDescription
from ..deploy.errors import DeployError
from ..protocol.errors import ErrorCode, KafkaError
from ..runtime import system
from . import output
from .connect import DEFAULT_BOOTSTRAP, Bootstrap, connected
from .output import JsonFlag

app = typer.Typer(no_args_is_help=True)

LONGEST_TIMEOUT_MIN = 15  # of a transaction, by the default of transaction.max.timeout.ms
STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
MS_A_MINUTE = 60_000


@app.command("list")
def list_(
    state: Annotated[list[str], typer.Option(help="Only those in this state; may be repeated.")] = [],  # noqa: B006
    producer: Annotated[list[int], typer.Option(help="Only those of this producer id; may be repeated.")] = [],  # noqa: B006
    longer_than: Annotated[int, typer.Option(help="Only those that began more than so many ms ago.")] = -1,
    pattern: Annotated[str | None, typer.Option(help="Only ids that match this regular expression (RE2).")] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: JsonFlag = False,
) -> None:
    """Transactional ids, their coordinators, producers and states."""
    if unknown := [each for each in state if each not in STATES]:
        raise DeployError(f"there is no state {unknown[0]} of transactions: they are {', '.join(STATES)}")

    async def run() -> list[dict[str, Any]]:
        async with connected(bootstrap) as client:
            found = await Admin(client).list_transactions(state, producer, longer_than, pattern)
            return [
                {
                    "transactional_id": each.transactional_id,
                    "coordinator": each.coordinator,
                    "producer_id": each.producer_id,
                    "state": each.state,
                }
                for each in found
            ]

    columns = ("transactional_id", "coordinator", "producer_id", "state")
    output.show(asyncio.run(run()), columns, as_json, "no transactions")


@app.command()
def describe(
    transactional_id: Annotated[str, typer.Argument(help="Its id.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: JsonFlag = False,
) -> None:
    """Coordinator, producer, state, age and partitions of one transactional id."""

    async def run() -> TransactionDescription:
        async with connected(bootstrap) as client:
            try:
                return await Admin(client).describe_transaction(transactional_id)
            except KafkaError as error:
                if error.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    raise
                told = (
                    f"there is no transactional id {transactional_id}: `isthmus transaction list` shows those there are"
                )
                raise DeployError(told) from None

    facts = facts_of(asyncio.run(run()), system().wall_ms())
    if as_json:
        print(json.dumps(facts, indent=2))
    else:
        show(facts)


@app.command("find-hanging")
def find_hanging(
    topic: Annotated[list[str], typer.Option(help="Look in this topic; may be repeated. Else in all.")] = [],  # noqa: B006
    broker: Annotated[int | None, typer.Option(help="Only in partitions that this broker leads.")] = None,
    minutes: Annotated[
        int, typer.Option(help="The longest timeout of transactions: younger ones may only be under way.")
    ] = LONGEST_TIMEOUT_MIN,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: JsonFlag = False,
) -> None:
    """Open transactions that no coordinator will end: readers of committed records wait for them for ever."""

    async def run() -> list[OpenTransaction]:
        async with connected(bootstrap) as client:
            before_ms = system().wall_ms() - minutes * MS_A_MINUTE
            partitions = await _partitions(client, topic, broker)
            return await Admin(client).find_hanging_transactions(partitions, before_ms)

    now_ms = system().wall_ms()
    rows = [
        {
            "topic": each.partition.topic,
            "partition": each.partition.partition,
            "start_offset": each.producer.transaction_start,
            "producer_id": each.producer.producer_id,
            "producer_epoch": each.producer.epoch,
            "coordinator_epoch": each.producer.coordinator_epoch,
            "last_timestamp_ms": each.producer.last_timestamp_ms,
            "minutes": (now_ms - each.producer.last_timestamp_ms) // MS_A_MINUTE,
        }
        for each in asyncio.run(run())
    ]
    columns = ("topic", "partition", "start_offset", "producer_id", "producer_epoch", "coordinator_epoch", "minutes")
    output.show(rows, columns, as_json, "no hanging transactions")


async def _partitions(client: Client, topics: Sequence[str], broker: int | None) -> list[TopicPartition]:
    if topics:
        await Admin(client).describe_topics(topics)
    names = list(topics) or await Admin(client).list_topics()
    await client.refresh_metadata(names)
    found = [TopicPartition(name, index) for name in names for index in client.partitions(name)]
    return [tp for tp in found if broker is None or client.leader(tp) == broker]


@app.command()
def abort(
    topic: Annotated[str, typer.Argument(help="The topic.")],
    partition: Annotated[int, typer.Argument(help="The partition that holds it open.")],
    start_offset: Annotated[int, typer.Argument(help="Offset of its first record, as find-hanging shows it.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: JsonFlag = False,
) -> None:
    """Abort a hanging transaction in one partition. Of one that is not hanging, it takes records away."""

    async def run() -> int:
        async with connected(bootstrap) as client:
            tp = TopicPartition(topic, partition)
            return (await Admin(client).abort_transaction(tp, start_offset)).producer_id

    producer_id = asyncio.run(run())
    facts = {"aborted": start_offset, "topic": topic, "partition": partition, "producer_id": producer_id}
    output.done(
        f"aborted the transaction of producer {producer_id} at offset {start_offset} of {topic}-{partition}",
        facts,
        as_json,
    )


def facts_of(said: TransactionDescription, now_ms: int) -> dict[str, Any]:
    """A transaction for programs. duration_ms: of the one that is under way, None if there is none."""
    partitions: dict[str, list[int]] = {}
    for tp in said.partitions:
        partitions.setdefault(tp.topic, []).append(tp.partition)
    is_under_way = said.state in ("Ongoing", "PrepareCommit", "PrepareAbort")
    return {
        "transactional_id": said.transactional_id,
        "coordinator": said.coordinator,
        "producer_id": said.producer_id,
        "producer_epoch": said.producer_epoch,
        "state": said.state,
        "timeout_ms": said.timeout_ms,
        "start_ms": said.start_ms,
        "duration_ms": now_ms - said.start_ms if is_under_way else None,
        "partitions": partitions,
    }


def show(facts: Mapping[str, Any]) -> None:
    output.out.print(f"[bold]{facts['transactional_id']}[/bold]  {facts['state']}  coordinator {facts['coordinator']}")
    output.out.print(f"  producer {facts['producer_id']}, epoch {facts['producer_epoch']}")
    duration_ms = facts["duration_ms"]
    age = "" if duration_ms is None else f", under way for {duration_ms / 1000:.1f} s"
    output.out.print(f"  timeout {facts['timeout_ms'] / 1000:.0f} s{age}")
    rows = [{"topic": topic, "partitions": ",".join(map(str, ids))} for topic, ids in facts["partitions"].items()]
    output.show(rows, ("topic", "partitions"), False, "  no partitions")
