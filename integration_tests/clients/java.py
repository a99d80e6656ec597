"""Kafka's own console tools as a writer and a reader. One JVM writes a topic, one JVM reads all of them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence

from integration_tests.peers.peers import java_command

from .records import Rec

JVM = ("-XX:TieredStopAtLevel=1",)  # a short life
TIMEOUT_S = 60.0
NULL = "<null>"
NO_HEADERS = b"NO_HEADERS"
FIELD, PAIR, NAME, RECORD = "<|>", "<,>", "<:>", "<end>\n"


def write(bootstrap: str, topic: str, codec: str, records: Sequence[Rec]) -> None:
    """By ConsoleProducer: a line is headers, key and value."""
    reader = {
        "parse.headers": "true", "parse.key": "true", "null.marker": NULL, "key.separator": FIELD,
        "headers.delimiter": FIELD, "headers.separator": PAIR, "headers.key.separator": NAME,
    }  # fmt: skip
    command = java_command(
        "ConsoleProducer", "--bootstrap-server", bootstrap, "--topic", topic, "--compression-codec", codec,
        "--batch-size", "900000", "--timeout", "500", "--request-timeout-ms", "20000",
        *(part for name, value in reader.items() for part in ("--reader-property", f"{name}={value}")), jvm=JVM,
    )  # fmt: skip
    lines = b"".join(_line(each) for each in records)
    done = subprocess.run(command, input=lines, capture_output=True, timeout=TIMEOUT_S)
    assert done.returncode == 0 and b"ERROR" not in done.stderr, done.stderr[-2000:].decode(errors="replace")


def _line(record: Rec) -> bytes:
    null, field, pair, name = NULL.encode(), FIELD.encode(), PAIR.encode(), NAME.encode()
    headers = pair.join(key.encode() + name + (null if value is None else value) for key, value in record.headers)
    parts = (headers or null, *(null if part is None else part for part in (record.key, record.value)))
    return field.join(parts) + b"\n"


def read(bootstrap: str, counts: Mapping[str, int]) -> dict[str, list[Rec]]:
    """By ConsoleConsumer, which prints no topics: each offset 0 begins one, and its record's header says which.

    That holds as a topic here is one partition that comes in one poll; offsets that say otherwise end it.
    """
    formatter = {
        "print.timestamp": "true", "print.offset": "true", "print.headers": "true", "print.key": "true",
        "key.separator": FIELD, "line.separator": RECORD, "headers.separator": PAIR, "null.literal": NULL,
    }  # fmt: skip
    command = java_command(
        "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", bootstrap,
        "--include", "|".join(map(re.escape, counts)), "--from-beginning",
        "--max-messages", str(sum(counts.values())), "--timeout-ms", "15000",
        "--command-property", "max.poll.records=1000000",
        *(part for name, value in formatter.items() for part in ("--formatter-property", f"{name}={value}")), jvm=JVM,
    )  # fmt: skip
    done = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S)
    assert b"ERROR" not in done.stderr, done.stderr[-2000:].decode(errors="replace")
    found: dict[str, list[Rec]] = {topic: [] for topic in counts}
    records: list[Rec] = []
    for line in done.stdout.split(RECORD.encode())[:-1]:
        offset, record = _record(line)
        if offset == 0:
            records = found[(dict(record.headers)["topic"] or b"").decode()]
        assert offset == len(records), f"offset {offset} where {len(records)} was due: {record}"
        records.append(record)
    return found


def _record(line: bytes) -> tuple[int, Rec]:
    timestamp, offset, headers, key, value = line.split(FIELD.encode())
    kind, _, timestamp_ms = timestamp.partition(b":")
    assert kind == b"CreateTime", timestamp
    pairs = [] if headers == NO_HEADERS else [pair.partition(b":") for pair in headers.split(PAIR.encode())]
    named = tuple((name.decode(), _nullable(value)) for name, _, value in pairs)
    return int(offset.removeprefix(b"Offset:")), Rec(_nullable(key), _nullable(value), named, int(timestamp_ms))


def _nullable(data: bytes) -> bytes | None:
    return None if data == NULL.encode() else data
