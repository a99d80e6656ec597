"""`isthmus produce` and `isthmus consume`: records from lines, and to lines."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Annotated, Any

import typer

from ..client import Admin, Client, Consumer, Producer, TopicPartition
from ..deploy.errors import DeployError
from .connect import DEFAULT_BOOTSTRAP, Bootstrap, connected
from .output import JsonFlag, done, err

Topic = Annotated[str, typer.Argument(help="Name of the topic.")]
POLL_MS = 500


def add(app: typer.Typer) -> None:
    app.command()(produce)
    app.command()(consume)


def produce(
    topic: Topic,
    key_separator: Annotated[str, typer.Option("--key", "-k", help="What parts key and value of a line.")] = "",
    partition: Annotated[int | None, typer.Option("--partition", "-p")] = None,
    compression: Annotated[str, typer.Option(help="none, gzip, snappy, lz4 or zstd.")] = "none",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: JsonFlag = False,
) -> None:
    """Send each line of stdin as a record."""

    async def run() -> int:
        async with connected(bootstrap) as client:
            producer = Producer(client, compression=compression)
            await producer.start()
            count = 0
            try:
                while line := await asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.readline):
                    value: bytes = line.rstrip(b"\n")
                    key = None
                    if key_separator:
                        key, found, value = value.partition(key_separator.encode())
                        if not found:
                            raise DeployError(f"line {count + 1} has no '{key_separator}' to part key and value")
                    await producer.room()
                    producer.send(topic, value, key, partition=partition).add_done_callback(_raise_later)
                    count += 1
                await producer.flush()
            finally:
                await producer.close()
            if failures:
                raise failures[0]
            return count

    failures: list[BaseException] = []

    def _raise_later(future: asyncio.Future[Any]) -> None:
        if not future.cancelled() and (error := future.exception()):
            failures.append(error)

    count = asyncio.run(run())
    if as_json or sys.stderr.isatty():
        done(f"{count} records", {"records": count}, as_json)


def consume(
    topic: Topic,
    start: Annotated[str, typer.Option("--from", "-o", help="earliest, latest or an offset.")] = "earliest",
    partition: Annotated[list[int], typer.Option("--partition", "-p", help="Default: all.")] = [],  # noqa: B006
    maximum: Annotated[int, typer.Option("--max", "-n", help="Stop after so many records; 0: never.")] = 0,
    exit_at_end: Annotated[bool, typer.Option("--exit", "-e", help="Stop at the end of the partitions.")] = False,
    group: Annotated[str | None, typer.Option("--group", "-g", help="Consume as a member of this group.")] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: JsonFlag = False,
) -> None:
    """Print records, a line each: key, tab, value; with --json all there is to a record."""

    async def run() -> int:
        async with connected(bootstrap) as client:
            consumer = Consumer(client, group_id=group, auto_offset_reset="latest" if start == "latest" else "earliest")
            ends: dict[TopicPartition, int] = {}
            await client.refresh_metadata([topic])
            wanted = partition or client.partitions(topic)
            if group:
                await consumer.subscribe([topic])
            else:
                consumer.assign(await positions(client, topic, wanted, start))
            if exit_at_end:
                found = await Admin(client).list_offsets({TopicPartition(topic, p): "latest" for p in wanted})
                ends = {tp: offset for tp, (offset, *_) in found.items()}
            try:
                return await _print(consumer, ends if exit_at_end else None, maximum, as_json)
            finally:
                await consumer.close()

    count = asyncio.run(run())
    if sys.stderr.isatty() and not as_json:
        err.print(f"{count} records")


async def positions(client: Client, topic: str, partitions: list[int], start: str) -> dict[TopicPartition, int | None]:
    """Where to begin in each partition; None lets the consumer look it up by its reset policy."""
    if not partitions:
        raise DeployError(f"there is no topic {topic}: `isthmus topic list` shows those there are")
    if start in ("earliest", "latest"):
        return {TopicPartition(topic, p): None for p in partitions}
    if not start.lstrip("-").isdigit():
        raise DeployError(f"--from {start}: write earliest, latest or an offset")
    return {TopicPartition(topic, p): int(start) for p in partitions}


async def _print(consumer: Consumer, ends: dict[TopicPartition, int] | None, maximum: int, as_json: bool) -> int:
    count = 0
    while ends is None or any(_before(consumer, tp, end) for tp, end in ends.items()):
        for tp, found in (await consumer.poll(POLL_MS, maximum - count if maximum else 500)).items():
            for record in found:
                print(_line(tp, record, as_json))
                count += 1
                if count == maximum:
                    return count
        sys.stdout.flush()
    return count


def _before(consumer: Consumer, tp: TopicPartition, end: int) -> bool:
    position = consumer.position(tp)
    return end > 0 and (position is None or position < end)


def _line(tp: TopicPartition, record: Any, as_json: bool) -> str:
    if not as_json:
        return f"{_text(record.key) or ''}\t{_text(record.value) or ''}"
    return json.dumps(
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "offset": record.offset,
            "timestamp_ms": record.timestamp_ms,
            "key": _text(record.key),
            "value": _text(record.value),
            "headers": [[name, _text(value)] for name, value in record.headers],
        }
    )


def _text(data: bytes | memoryview | None) -> str | None:
    return None if data is None else bytes(data).decode(errors="backslashreplace")
