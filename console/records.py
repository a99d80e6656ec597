"""`isthmus produce` and `isthmus consume`: records from lines, and to lines."""

from __future__ import annotations

import asyncio
import json
import sys
from base64 import b64encode
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from ..client import Admin, Client, Consumer, Producer, TopicPartition
from ..client.errors import ClientError, check_topic_name
from ..client.operation import API_TIMEOUT_MS
from ..client.raw import ISOLATIONS
from ..deploy.errors import DeployError
from ..protocol.compression import NAMES
from ..protocol.errors import ErrorCode, KafkaError
from .connect import DEFAULT_BOOTSTRAP, Bootstrap, connected
from .output import JsonFlag, done, err

Topic = Annotated[str, typer.Argument(help="Name of the topic.")]
POLL_MS, POLL_RECORDS = 500, 500
LAST_COMMIT_MS = 5_000  # that the end waits for the group to take what was printed last
RESETS = ("earliest", "latest")
LOST_TO_A_REBALANCE = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)


def add(app: typer.Typer) -> None:
    app.command()(produce)
    app.command()(consume)


def produce(
    topic: Topic,
    key_separator: Annotated[str, typer.Option("--key", "-k", help="What parts key and value of a line.")] = "",
    partition: Annotated[int | None, typer.Option("--partition", "-p", help="Default: by key.")] = None,
    compression: Annotated[str, typer.Option(help="none, gzip, snappy, lz4 or zstd.")] = "none",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: JsonFlag = False,
) -> None:
    """Send each line of stdin as a record."""
    failures: list[BaseException] = []

    def raise_later(future: asyncio.Future[Any]) -> None:
        if not future.cancelled() and (error := future.exception()):
            failures.append(error)

    async def run() -> int:
        async with connected(bootstrap) as client:
            if partition is not None:
                await _must_exist(client, topic, partition)
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
                    await producer.wait_for_space()
                    producer.send(topic, value, key, partition=partition).add_done_callback(raise_later)
                    count += 1
                    if failures:
                        break
                await producer.flush()
            finally:
                await producer.close()
            if failures:
                raise failures[0]
            return count

    check_topic_name(topic)  # or it would be said of the first line, which a person has yet to write
    if compression not in NAMES:
        raise DeployError(f"--compression {compression}: there are {', '.join(NAMES)}")
    count = asyncio.run(run())
    if as_json or sys.stderr.isatty():
        done(f"{count} records", {"records": count}, as_json)


def consume(
    topic: Topic,
    start: Annotated[str, typer.Option("--from", "-o", help="earliest, latest or an offset.")] = "earliest",
    partition: Annotated[list[int], typer.Option("--partition", "-p", help="Default: all.")] = [],  # noqa: B006
    maximum: Annotated[int, typer.Option("--max", "-n", min=0, help="Stop after so many records; 0: never.")] = 0,
    exit_at_end: Annotated[bool, typer.Option("--exit", "-e", help="Stop at the end of the partitions.")] = False,
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="As a member of this group, which keeps what was printed.")
    ] = None,
    isolation: Annotated[
        str,
        typer.Option(
            help="read_uncommitted, or read_committed: without what transactions aborted, up to the first that is open."
        ),
    ] = "read_uncommitted",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: JsonFlag = False,
) -> None:
    """Print records, a line each: the value, after key and tab where there is a key; with --json all of a record.

    Bytes that are no UTF-8 are escaped; with --json they are key_base64 and value_base64 instead of key and value.
    """
    check_topic_name(topic)
    if group and (partition or start not in RESETS):
        raise DeployError("with --group the group chooses partitions and offsets: leave out --partition and --from")
    if isolation not in ISOLATIONS:
        raise DeployError(f"--isolation {isolation}: write {' or '.join(ISOLATIONS)}")

    async def run() -> int:
        async with connected(bootstrap) as client:
            await _must_exist(client, topic, *partition)
            tps = [TopicPartition(topic, p) for p in sorted(set(partition)) or client.partitions(topic)]
            found = await Admin(client).list_offsets(dict.fromkeys(tps, "latest"), ISOLATIONS[isolation])
            ends = {tp: at for tp, (at, *_) in found.items()}
            reset = "latest" if start == "latest" else "earliest"
            consumer = Consumer(client, group_id=group, auto_offset_reset=reset, isolation=isolation)
            printing = Printing(consumer, as_json, maximum)
            if group:
                await consumer.subscribe([topic], printing.assigned, printing.revoked)
            else:
                consumer.assign(positions(ends, start))
                printing.joined = True
            try:
                await printing.run(ends if exit_at_end else None)
            finally:
                await printing.close()
            return printing.count

    count = asyncio.run(run())
    if sys.stderr.isatty() and not as_json:
        err.print(f"{count} records")


async def _must_exist(client: Client, topic: str, *partitions: int) -> None:
    await client.refresh_metadata([topic])
    known = client.partitions(topic)
    if not known:
        raise DeployError(f"there is no topic {topic}: `isthmus topic list` shows those there are")
    for each in partitions:
        if each not in known:
            raise DeployError(f"topic {topic} has no partition {each}: it has {len(known)}, from 0")


def positions(ends: Mapping[TopicPartition, int], start: str) -> dict[TopicPartition, int | None]:
    """Where to begin in each partition; None lets the consumer look it up by its reset policy."""
    if start in RESETS:
        return dict.fromkeys(ends)
    if not (start.isascii() and start.isdigit()):
        raise DeployError(f"--from {start}: write earliest, latest or an offset")
    if int(start) > max(ends.values()):
        furthest = max(ends, key=lambda tp: ends[tp])
        raise DeployError(f"--from {start}: {furthest.topic}-{furthest.partition} ends at offset {ends[furthest]}")
    return {tp: min(int(start), end) for tp, end in ends.items()}


class Printing:
    """Prints what a consumer gives. Of a group, what was printed is committed, on Ctrl-C and a closed pipe too."""

    def __init__(self, consumer: Consumer, as_json: bool, maximum: int) -> None:
        self.consumer = consumer
        self.as_json = as_json
        self.maximum = maximum
        self.count = 0
        self.joined = False  # whether it is known what to read: a group takes some polls to say so
        self.printed: dict[TopicPartition, int] = {}  # next offsets that are not committed yet

    async def run(self, ends: Mapping[TopicPartition, int] | None) -> None:
        """Until `ends`, where they are given, `maximum`, or for ever."""
        while True:
            left = self.maximum - self.count if self.maximum else POLL_RECORDS
            for tp, found in (await self.consumer.poll(POLL_MS, min(left, POLL_RECORDS))).items():
                for record in found:
                    print(line_of(tp, record, self.as_json))
                    self.count += 1
                sys.stdout.flush()
                self.printed[tp] = found[-1].offset + 1
            await self.commit()
            if (self.maximum and self.count >= self.maximum) or (ends is not None and self.at(ends)):
                return

    def assigned(self, tps: list[TopicPartition]) -> None:
        self.joined = True

    async def revoked(self, tps: list[TopicPartition]) -> None:
        self.joined = False
        await self.commit()
        self.printed.clear()  # the next owner's offsets count from now on

    def at(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Whether all partitions that this consumer reads were read to their ends."""
        reads = self.consumer.assignment()
        return self.joined and all((self.consumer.position(tp) or 0) >= end for tp, end in ends.items() if tp in reads)

    async def commit(self, again: bool = True, timeout_ms: float = API_TIMEOUT_MS) -> None:
        """again: what cannot be committed for now, such as without a coordinator, may be tried again later."""
        if not self.consumer.group_id or not self.printed:
            return
        try:
            await self.consumer.commit(self.printed, timeout_ms)
        except (ClientError, KafkaError) as error:
            # What was lost to a rebalance is printed again by its next owner.
            if not (isinstance(error, KafkaError) and error.code in LOST_TO_A_REBALANCE):
                if again and error.retriable:
                    return
                raise
        self.printed.clear()

    async def close(self) -> None:
        try:
            await self.commit(again=False, timeout_ms=LAST_COMMIT_MS)
        except (ClientError, KafkaError) as error:
            raise DeployError(f"{error}. The next member of the group prints again what was printed last") from error
        finally:
            await self.consumer.close()


def line_of(tp: TopicPartition, record: Any, as_json: bool) -> str:
    """What `isthmus consume` prints of a record."""
    if not as_json:
        value = _text(record.value) or ""
        return value if record.key is None else f"{_text(record.key)}\t{value}"
    return json.dumps(
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "offset": record.offset,
            "timestamp_ms": record.timestamp_ms,
            **_field("key", record.key),
            **_field("value", record.value),
            "headers": [{"name": name, **_field("value", value)} for name, value in record.headers],
        }
    )


def _text(data: bytes | memoryview | None) -> str | None:
    return None if data is None else bytes(data).decode(errors="backslashreplace")


def _field(name: str, data: bytes | memoryview | None) -> dict[str, str | None]:
    """A field under its name; bytes that are no text under NAME_base64 instead, so that nothing is lost of them."""
    if data is None:
        return {name: None}
    try:
        return {name: bytes(data).decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(data).decode()}
