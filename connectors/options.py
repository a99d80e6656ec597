"""Options of `format("isthmus")`: the names and meanings of Spark's own Kafka source, checked in one place.

Reference: Spark's "Structured Streaming + Kafka Integration Guide". Differences: `subscribePattern` must match the
whole name, an option that would do nothing is an error, small ranges of offsets share a Spark task, and
`kafka.isolation.level` is read_committed unless it is set.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..client.raw import ISOLATIONS, READ_COMMITTED
from ..protocol.records import DECODE_BYTES_MAX
from .errors import SourceError

EARLIEST, LATEST = -2, -1
SPECIAL = {"earliest": EARLIEST, "latest": LATEST}

# name -> doc; the reference page is made of this table
OPTIONS: dict[str, str] = {
    "kafka.bootstrap.servers": "HOST:PORT,… of the cluster; `bootstrap.servers` is the same. Required.",
    "assign": 'JSON of topics and partitions, such as {"orders": [0, 1]}.',
    "subscribe": "Topics, with commas between.",
    "subscribePattern": "Regular expression that matches whole topic names.",
    "startingOffsets": "earliest, latest, or JSON of offsets, -2 earliest and -1 latest. Default: earliest in a batch, "
    "latest in a stream. A stream that has a checkpoint goes on from that.",
    "startingTimestamp": "Begin at the first record with this timestamp (ms) or a later one; before startingOffsets.",
    "startingOffsetsByTimestamp": 'The same for each partition, as JSON: {"orders": {"0": 1357000000000}}.',
    "startingOffsetsByTimestampStrategy": "error (default) or latest: what to do where no record is so late.",
    "endingOffsets": "latest (default) or JSON of offsets, -1 latest. Batch only.",
    "endingTimestamp": "End before the first record with this timestamp (ms) or a later one. Batch only.",
    "endingOffsetsByTimestamp": "The same for each partition, as JSON. Batch only.",
    "maxOffsetsPerTrigger": "Most offsets of one micro-batch, shared out by backlog. Default: no limit.",
    "minPartitions": "At least so many Spark tasks: ranges of offsets are split. Default: no least number.",
    "maxRecordsPerPartition": "Most offsets of one Spark task. Default: no limit.",
    "minRecordsPerPartition": "Ranges with fewer offsets share a Spark task, since starting a task costs about as much "
    "as reading so many records; 1 gives each topic partition a task of its own. Default: 25000.",
    "includeHeaders": "true adds a column of record headers. Default: false.",
    "failOnDataLoss": "true (default) fails where offsets are gone that should have been read, or their topic is gone, "
    "or another one by the same name; false goes on.",
    "fetchMaxBytes": "Most bytes of one fetch. Default: 8388608.",
    "decodeMaxBytes": "Most bytes of one record of a compressed batch, at most 1073741824. A batch is decompressed in "
    "pieces, so that a larger batch needs no more memory; a larger record is an error. Default: 67108864.",
    "kafkaConsumer.pollTimeoutMs": "Fail when nothing comes, or no broker answers, for so long; errors that pass are "
    "tried again until then. Time in which Spark takes rows does not count. Default: 120000.",
    "kafka.isolation.level": "read_committed (default) leaves out records of aborted transactions, and ends, or in a "
    "stream waits, before the first transaction that is open. read_uncommitted, the default of Spark's own source, "
    "reads all records.",
    "kafka.client.id": "How brokers name this client in their logs. Default: isthmus-spark.",
}
ALIASES = {"bootstrap.servers": "kafka.bootstrap.servers"}
REFUSED = {
    "kafka.auto.offset.reset": "use startingOffsets",
    "kafka.key.deserializer": "keys are bytes: decode them with DataFrame operations",
    "kafka.value.deserializer": "values are bytes: decode them with DataFrame operations",
    "kafka.enable.auto.commit": "the query's checkpoint keeps the offsets",
    "kafka.interceptor.classes": "there is no Java consumer here",
    "kafka.group.id": "no consumer group is used: the query's checkpoint keeps the offsets",
    "groupIdPrefix": "no consumer group is used: the query's checkpoint keeps the offsets",
    "kafka.security.protocol": "only PLAINTEXT, the default, is there yet",
    "minOffsetsPerTrigger": "it is not there yet; a trigger interval batches records too",
    "maxTriggerDelay": "it is not there yet; a trigger interval batches records too",
}
HARMLESS = {"kafka.security.protocol": "PLAINTEXT"}
DECODE_BYTES_LIMIT = 1 << 30  # Arrow's columns hold 2 GiB, a record and a piece beside it
BATCH_ONLY = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")


@dataclass(frozen=True)
class Bound:
    """Where to begin or end. kind: offset, timestamp. everywhere: for all partitions; each: for these."""

    kind: str = "offset"
    everywhere: int | None = None
    each: tuple[tuple[str, int, int], ...] = ()  # (topic, partition, offset or ms)


@dataclass(frozen=True)
class SourceOptions:
    """All options, checked."""

    bootstrap: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[tuple[str, int], ...] = ()
    starting: Bound = Bound(everywhere=EARLIEST)
    ending: Bound = Bound(everywhere=LATEST)
    no_match_is_latest: bool = False
    max_offsets_per_trigger: int | None = None
    min_partitions: int | None = None
    max_task_records: int | None = None
    min_task_records: int = 25_000
    include_headers: bool = False
    fail_on_data_loss: bool = True
    fetch_max_bytes: int = 8 << 20
    decode_max_bytes: int = DECODE_BYTES_MAX
    stall_ms: int = 120_000
    client_id: str = "isthmus-spark"
    isolation: int = READ_COMMITTED


def parse(given: Mapping[str, str], streaming: bool) -> SourceOptions:
    """Check options as Spark hands them over (names in any case). Raises SourceError naming the option."""
    options = _named(given)
    if not options.get("kafka.bootstrap.servers", "").strip(", "):
        raise SourceError("option kafka.bootstrap.servers is missing: set it to HOST:PORT of a broker")
    which = [name for name in ("assign", "subscribe", "subscribePattern") if name in options]
    if len(which) != 1:
        said = f"got {' and '.join(which)}" if which else "got none"
        raise SourceError(f"set one of assign, subscribe and subscribePattern ({said})")
    if streaming and (wrong := [name for name in BATCH_ONLY if name in options]):
        raise SourceError(f"option {wrong[0]} is for batch queries only: a stream has no end")
    strategy = options.get("startingOffsetsByTimestampStrategy", "error")
    if strategy not in ("error", "latest"):
        raise SourceError(f"startingOffsetsByTimestampStrategy is '{strategy}', but can be error or latest")
    if (pattern := options.get("subscribePattern")) is not None:
        if not pattern.strip():
            raise SourceError(f"option subscribePattern is '{pattern}': the pattern to subscribe is empty")
        try:
            re.compile(pattern)
        except re.error as error:
            raise SourceError(f"subscribePattern '{pattern}' is no regular expression: {error}") from None
    default_start = LATEST if streaming else EARLIEST
    starting = _bound(options, "starting", default_start)
    ending = _bound(options, "ending", LATEST)
    if ending.everywhere == EARLIEST or EARLIEST in [offset for *_, offset in ending.each if ending.kind == "offset"]:
        raise SourceError("endingOffsets cannot be earliest: nothing would be read")
    if not streaming and starting.kind == "offset" and LATEST in (starting.everywhere, *(o for *_, o in starting.each)):
        raise SourceError("startingOffsets cannot be latest in a batch query: nothing would be read")
    return SourceOptions(
        bootstrap=options["kafka.bootstrap.servers"],
        topics=_topics(options["subscribe"]) if "subscribe" in options else (),
        pattern=pattern,
        assigned=_assigned(options["assign"]) if "assign" in options else (),
        starting=starting,
        ending=ending,
        no_match_is_latest=strategy == "latest",
        max_offsets_per_trigger=_number(options, "maxOffsetsPerTrigger"),
        min_partitions=_number(options, "minPartitions"),
        max_task_records=_number(options, "maxRecordsPerPartition"),
        min_task_records=_number(options, "minRecordsPerPartition") or SourceOptions.min_task_records,
        include_headers=_flag(options, "includeHeaders", False),
        fail_on_data_loss=_flag(options, "failOnDataLoss", True),
        fetch_max_bytes=_number(options, "fetchMaxBytes") or SourceOptions.fetch_max_bytes,
        decode_max_bytes=_number(options, "decodeMaxBytes", most=DECODE_BYTES_LIMIT) or SourceOptions.decode_max_bytes,
        stall_ms=_number(options, "kafkaConsumer.pollTimeoutMs") or SourceOptions.stall_ms,
        client_id=options.get("kafka.client.id", SourceOptions.client_id),
        isolation=_isolation(options),
    )


def _named(given: Mapping[str, str]) -> dict[str, str]:
    """The options by the names of the table."""
    names = {name.lower(): name for name in (*OPTIONS, *ALIASES)}
    refused = {name.lower(): why for name, why in REFUSED.items()}
    options: dict[str, str] = {}
    for name, value in given.items():
        low = name.lower()
        if low in HARMLESS and HARMLESS[low].lower() == value.lower():
            continue
        if low in refused:
            raise SourceError(f"option {name} is not supported: {refused[low]}")
        if low not in names:
            close = difflib.get_close_matches(low, names, 1)
            hint = f"; did you mean {names[close[0]]}?" if close else ""
            raise SourceError(f"option {name} is unknown{hint}")
        found = names[low]
        options[ALIASES.get(found, found)] = value
    return options


def _isolation(options: Mapping[str, str]) -> int:
    said = options.get("kafka.isolation.level", "read_committed").lower()
    if said not in ISOLATIONS:
        raise SourceError(f"kafka.isolation.level is '{said}', but can be {' or '.join(ISOLATIONS)}")
    return ISOLATIONS[said]


def _bound(options: Mapping[str, str], which: str, default: int) -> Bound:
    """Spark's order: <which>Timestamp, then <which>OffsetsByTimestamp, then <which>Offsets."""
    if (name := f"{which}Timestamp") in options:
        return Bound("timestamp", _number(options, name, 0))
    if (name := f"{which}OffsetsByTimestamp") in options:
        return Bound("timestamp", each=_offsets_of(name, options[name]))
    name = f"{which}Offsets"
    if name not in options:
        return Bound(everywhere=default)
    said = options[name].strip()
    if said.lower() in SPECIAL:
        return Bound(everywhere=SPECIAL[said.lower()])
    return Bound(each=_offsets_of(name, said))


def _json(name: str, text: str) -> Any:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise SourceError(f"option {name} is not JSON ({error}): {text[:100]}") from None
    if not isinstance(found, dict):
        raise SourceError(f"option {name} is not a JSON object of topics: {text[:100]}")
    return found


def _offsets_of(name: str, text: str) -> tuple[tuple[str, int, int], ...]:
    given = _json(name, text)
    try:
        found = tuple(
            (topic, int(partition), _whole(offset))
            for topic, each in sorted(given.items())
            for partition, offset in sorted(each.items())
        )
    except (AttributeError, TypeError, ValueError):
        raise SourceError(f'option {name} must look like {{"topic": {{"0": 23}}}}, not {text[:100]}') from None
    if not given or not all(given.values()):
        raise SourceError(f"option {name} is '{text[:100]}': {_nothing_of(given)}")
    least = 0 if name.endswith("Timestamp") else EARLIEST
    for topic, partition, value in found:
        if value < least:
            raise SourceError(f"option {name}: {value} of {topic}-{partition} is neither an offset, nor -1 or -2")
    return found


def _topics(text: str) -> tuple[str, ...]:
    found = tuple(name.strip() for name in text.split(",") if name.strip())
    if not found:
        raise SourceError(f"option subscribe is '{text}': there are no topics to subscribe to")
    return found


def _assigned(text: str) -> tuple[tuple[str, int], ...]:
    given = _json("assign", text)
    if any(not isinstance(each, list) for each in given.values()):
        raise SourceError(f'option assign must look like {{"topic": [0, 1]}}, not {text[:100]}')
    try:
        found = tuple((topic, _whole(p)) for topic, each in sorted(given.items()) for p in sorted(each))
    except (TypeError, ValueError):
        raise SourceError(f'option assign must look like {{"topic": [0, 1]}}, not {text[:100]}') from None
    if not given or not all(given.values()):
        raise SourceError(f"option assign is '{text[:100]}': {_nothing_of(given)}")
    return found


def _nothing_of(given: Mapping[str, Any]) -> str:
    bare = next((topic for topic, each in given.items() if not each), None)
    return "it names no topic partitions" if bare is None else f"it names no partition of {bare}"


def _whole(value: object) -> int:
    """A number of JSON, or its digits in quotes. Raises TypeError, ValueError."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise TypeError(value)
    return int(value)


def _number(options: Mapping[str, str], name: str, least: int = 1, most: int | None = None) -> int | None:
    if name not in options:
        return None
    try:
        number = int(options[name])
    except ValueError:
        number = least - 1
    if number < least or (most is not None and number > most):
        limits = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise SourceError(f"option {name} is '{options[name]}', but must be a whole number {limits}")
    return number


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    said = options.get(name, str(default)).lower()
    if said not in ("true", "false"):
        raise SourceError(f"option {name} is '{options[name]}', but can be true or false")
    return said == "true"
