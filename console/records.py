"""`isthmus produce` and `isthmus consume`: records from lines, and to lines."""

from __future__ import annotations

import asyncio
import json
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Annotated, Any

import typer

from ..client import Admin, Client, Consumer, Producer, TopicPartition
from ..client.errors import ClientError, check_topic_name
from ..client.operation import API_TIMEOUT_MS
from ..client.raw import ISOLATIONS
from ..deploy.errors import DeployError
from ..protocol.compression import NAMES
from ..protocol.errors import ErrorCode, KafkaError
from ..runtime import system
from .connect import DEFAULT_BOOTSTRAP, Bootstrap, connected
from .output import JsonFlag, done, err
from .starts import ENDS, WAYS, Start, offsets_at, start_of

Topic = Annotated[str, typer.Argument(help="Name of the topic.")]
POLL_MS, POLL_RECORDS = 500, 500
LAST_COMMIT_MS = 5_000  # that the end waits for the group to take what was printed last
HEADER_CHARACTERS = 400  # of a header that --long shows
ESCAPES = str.maketrans({"\n": "\\n", "\r": "\\r", "\t": "\\t"})
FIELDS = (
    "key", "key_base64", "value", "value_base64", "headers", "timestamp_ms", "partition", "topic", "offset",
)  # fmt: skip
ERRORS = "__streams.errors."  # what headers of dead letters begin with (KIP-1034)
LineOf = Callable[[TopicPartition, Any], str]
LOST_TO_A_REBALANCE = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)


def add(app: typer.Typer) -> None:
    app.command()(produce)
    app.command()(consume)


def produce(
    topic: Topic,
    key_separator: Annotated[str, typer.Option("--key", "-k", help="What parts key and value of a line.")] = "",
    header: Annotated[
        list[str], typer.Option("--header", "-H", metavar="NAME=VALUE", help="Of each record; may be repeated.")
    ] = [],  # noqa: B006
    null: Annotated[
        str | None,
        typer.Option(
            "--null",
            metavar="TEXT",
            help="A value that is this text is null: a tombstone, which deletes the key from a compacted topic.",
        ),
    ] = None,
    as_records: Annotated[
        bool,
        typer.Option(
            "--records",
            help="Each line is a record as `isthmus consume --json` prints it: key, value, "
            "headers, timestamp_ms and partition, each of which may be left out; bytes as key_base64.",
        ),
    ] = False,
    dead_letters: Annotated[
        bool,
        typer.Option(
            "--dead-letters",
            help="As --records, of a stream app's dead letters of this topic: each goes into the partition that it was "
            "in, without the headers that say why it failed.",
        ),
    ] = False,
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
            known: set[int] = {partition} if partition is not None else set()  # partitions that are there
            producer = Producer(client, compression=compression)
            await producer.start()
            count = 0
            try:
                while line := await asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.readline):
                    sent = lines.read(line.rstrip(b"\n"), count + 1)
                    where = sent.partition if partition is None else partition
                    if where is not None and where not in known:
                        await _must_exist(client, topic, where)
                        known.add(where)
                    await producer.wait_for_space()
                    future = producer.send(
                        topic, sent.value, sent.key, partition=where, timestamp_ms=sent.timestamp_ms,
                        headers=sent.headers,
                    )  # fmt: skip
                    future.add_done_callback(raise_later)
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
    if (as_records or dead_letters) and (key_separator or null is not None):
        raise DeployError("with --records a line says key and value itself: leave out --key and --null")
    headers = [header_of(each) for each in header]
    lines = Lines(as_records or dead_letters, key_separator, null, headers, topic if dead_letters else None)
    count = asyncio.run(run())
    if as_json or sys.stderr.isatty():
        done(f"{count} records", {"records": count}, as_json)


def consume(
    topic: Topic,
    start: Annotated[str, typer.Option("--from", "-o", help=f"{WAYS}.")] = "earliest",
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
    null: Annotated[str, typer.Option("--null", metavar="TEXT", help="What is printed for a value that is null.")] = "",
    is_long: Annotated[
        bool, typer.Option("--long", "-l", help="Partition, offset, time and headers, too, with tabs between.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: JsonFlag = False,
) -> None:
    """Print records, a line each: the value, after key and tab where there is a key; with --json all of a record.

    With --long: partition:offset, time, headers, key and value; headers are in one line, and no longer than 400
    characters each. Bytes that are no UTF-8 are escaped; with --json they are key_base64 and value_base64 instead of
    key and value.
    """
    check_topic_name(topic)
    if group and (partition or start not in ENDS):
        raise DeployError("with --group the group chooses partitions and offsets: leave out --partition and --from")
    if isolation not in ISOLATIONS:
        raise DeployError(f"--isolation {isolation}: write {' or '.join(ISOLATIONS)}")
    begin = start_of("--from", start, system().wall_ms())
    line_of = json_line if as_json else partial(long_line if is_long else short_line, null=null)

    async def run() -> int:
        async with connected(bootstrap) as client:
            await _must_exist(client, topic, *partition)
            tps = [TopicPartition(topic, p) for p in sorted(set(partition)) or client.partitions(topic)]
            admin = Admin(client)
            found = await admin.list_offsets(dict.fromkeys(tps, "latest"), ISOLATIONS[isolation])
            ends = {tp: at for tp, (at, *_) in found.items()}
            reset = "latest" if start == "latest" else "earliest"
            consumer = Consumer(client, group_id=group, auto_offset_reset=reset, isolation=isolation)
            printing = Printing(consumer, line_of, maximum)
            if group:
                await consumer.subscribe([topic], printing.assigned, printing.revoked)
            else:
                begins = await offsets_at(admin, begin, tps, ISOLATIONS[isolation])
                consumer.assign(positions(ends, begin, begins))
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


def positions(
    ends: Mapping[TopicPartition, int], start: Start, begins: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int | None]:
    """Where to begin in each partition: at `start`, which is at `begins`, and not past its end. None lets the consumer
    look it up by its reset policy."""
    if start.end:
        return dict.fromkeys(ends)
    furthest = max(ends, key=lambda tp: ends[tp])
    if start.offset is not None and start.offset > ends[furthest]:
        where = f"{furthest.topic}-{furthest.partition}"
        raise DeployError(f"--from {start.offset}: {where} ends at offset {ends[furthest]}")
    return {tp: min(begins[tp], end) for tp, end in ends.items()}


@dataclass(frozen=True)
class Sent:
    """A record to be sent."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True)
class Lines:
    """How lines become records: `as_records`, or with a key before `separator`. null: the text of a value that is.
    died_in: they are dead letters of this topic, and are sent to it again."""

    as_records: bool = False
    separator: str = ""
    null: str | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    died_in: str | None = None

    def read(self, line: bytes, number: int) -> Sent:
        """number: of the line, from 1, for the DeployError."""
        if self.as_records:
            try:
                return self._record(json.loads(line))
            except (ValueError, TypeError) as error:
                raise DeployError(
                    f"line {number} is no record as `isthmus consume --json` prints it: {error}"
                ) from None
        key: bytes | None = None
        value = line
        if self.separator:
            key, found, value = line.partition(self.separator.encode())
            if not found:
                raise DeployError(f"line {number} has no '{self.separator}' to part key and value")
        is_null = self.null is not None and value == self.null.encode()
        return Sent(None if is_null else value, key, self.headers)

    def _record(self, said: Any) -> Sent:
        if not isinstance(said, dict):
            raise TypeError("it is no JSON object")
        if unknown := [name for name in said if name not in FIELDS]:
            raise ValueError(f"there is no field {unknown[0]}, but {', '.join(FIELDS)}")
        headers = [_header(each) for each in said.get("headers", ())]
        numbers = [said.get("partition"), said.get("timestamp_ms")]
        if wrong := [each for each in numbers if each is not None and (not isinstance(each, int) or each < 0)]:
            raise ValueError(f"{wrong[0]} is neither a partition nor a time in ms")
        if self.died_in is not None:
            numbers[0] = _died_at(headers, self.died_in)
            headers = [each for each in headers if not each[0].startswith(ERRORS)]
        return Sent(_bytes(said, "value"), _bytes(said, "key"), [*headers, *self.headers], *numbers)


def _died_at(headers: Sequence[tuple[str, bytes | None]], topic: str) -> int:
    """The partition of `topic` that a dead letter was in. ValueError: it was not in this topic, or says nothing."""
    said = {
        name: (value or b"").decode() for name, value in headers if name.startswith(ERRORS)
    }  # the last death counts
    if (was_in := said.get(f"{ERRORS}topic")) != topic:
        if was_in is None:
            raise ValueError(f"it is no dead letter: it has no header {ERRORS}topic")
        raise ValueError(f"it is a dead letter of topic {was_in}, not of {topic}: send it there")
    return int(said[f"{ERRORS}partition"])


def header_of(text: str) -> tuple[str, bytes]:
    """A header as it is given to --header. DeployError."""
    name, mark, value = text.partition("=")
    if not mark or not name:
        raise DeployError(f"--header {text}: write it as name=value")
    return name, value.encode()


def _header(said: Any) -> tuple[str, bytes | None]:
    if not isinstance(said, dict) or not isinstance(said.get("name"), str):
        raise ValueError("a header is {name: text, value: text}")
    return said["name"], _bytes(said, "value")


def _bytes(said: Mapping[str, Any], name: str) -> bytes | None:
    """A field as `_field` tells it."""
    if (encoded := said.get(f"{name}_base64")) is not None:
        return b64decode(encoded, validate=True)
    text = said.get(name)
    if text is not None and not isinstance(text, str):
        raise ValueError(f"its {name} is not text")
    return None if text is None else text.encode()


class Printing:
    """Prints what a consumer gives. Of a group, what was printed is committed, on Ctrl-C and a closed pipe too."""

    def __init__(self, consumer: Consumer, line_of: LineOf, maximum: int) -> None:
        self.consumer = consumer
        self.line_of = line_of
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
                    print(self.line_of(tp, record))
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


def short_line(tp: TopicPartition, record: Any, null: str = "") -> str:
    """null: for a value that is none."""
    value = null if record.value is None else _text(record.value)
    return f"{value}" if record.key is None else f"{_text(record.key)}\t{value}"


def long_line(tp: TopicPartition, record: Any, null: str = "") -> str:
    at = datetime.fromtimestamp(max(0, record.timestamp_ms) / 1000).isoformat(" ", "milliseconds")
    headers = ",".join(f"{name}={_in_line(_text(value) or '')}" for name, value in record.headers)
    value = null if record.value is None else _text(record.value)
    return f"{tp.partition}:{record.offset}\t{at}\t{headers}\t{_text(record.key) or ''}\t{value}"


def _in_line(header: str) -> str:
    """A header's value on one line: with escapes for what would end it or be a column, and cut if it is long, as stack
    traces of dead letters are."""
    more = len(header) - HEADER_CHARACTERS
    shown = header if more <= 0 else f"{header[:HEADER_CHARACTERS]}… and {more:,} characters more"
    return shown.translate(ESCAPES)


def json_line(tp: TopicPartition, record: Any) -> str:
    """All of a record, as `isthmus produce --records` takes it."""
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
