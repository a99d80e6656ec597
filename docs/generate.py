"""Writes the reference pages that are made from the code: `make docs`, or `python -m docs.generate --check`.

Every option stands in one table (`core_broker/config.py`, `connectors/options.py`) and every command in one tree
(`console/main.py`); the tables hold nothing else, so they cannot disagree with what runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import typer

from docs.public_names import MADE, cell, streams_api
from isthmus.connectors.options import HARMLESS, OPTIONS, REFUSED
from isthmus.core_broker.config import OUR_BROKER_OPTIONS, TOPIC_OPTIONS, Option
from isthmus.core_broker.group_options import GROUP_OPTIONS
from isthmus.core_broker.kafka_only import INSTEAD
from isthmus.core_broker.kafka_only import REFUSED as REFUSED_OF_KAFKA
from isthmus.streams.api import settings as stream_settings
from isthmus.streams.api.absent import ABSENT, MODULES, OF_KAFKA_STREAMS, OF_SERVICES, SERVICES
from isthmus.streams.runtime.status import METRICS as STREAM_METRICS

REFERENCE = Path(__file__).with_name("reference")
LIMITS = {2**31 - 1: "2^31-1", 2**63 - 1: "2^63-1"}


# --- Options --------------------------------------------------------------------------------------------------------


def configuration() -> str:
    """Every broker, topic and group option."""
    return "\n".join(
        [
            MADE,
            "# Configuration",
            "",
            "Options have Kafka's names and meanings. A broker takes its own by `--set name=value` on the command",
            "line, in the topology file, or from a `server.properties` of Kafka's by `--config FILE`; a topic by",
            "`isthmus topic create --set name=value` or any Kafka tool.",
            "",
            "*own*: Kafka has no such option. *dynamic*: can be changed while the broker runs, for one broker or for",
            "all, by any Kafka tool. *no effect*: an option of Kafka's that is taken, kept and described as Kafka",
            "does, and changes nothing here; `isthmus topic describe` and the broker's log say so. *default only*:",
            "another value is refused (`INVALID_CONFIG`), because to ignore it would break a promise.",
            "",
            "## Topics",
            "",
            "An option that a topic does not set has the value of the broker option in the last column.",
            "",
            *_table(TOPIC_OPTIONS, by_broker=True),
            "",
            "## Groups",
            "",
            "A consumer group's own options, set by `kafka-configs --entity-type groups`. What a group does not set is",
            "the broker option in the last column, whose `min` and `max` bound what a group may set. Options of share",
            "groups and streams groups are taken, kept and described, and change nothing: there are no such groups.",
            "",
            *_table([each for each in GROUP_OPTIONS if not each.inert], by_broker=True),
            "",
            "## Brokers",
            "",
            *_table(OUR_BROKER_OPTIONS, by_broker=False),
            "",
            "## Kafka's other broker options",
            "",
            "A broker starts on them and describes them, and at its start prints a table of those that were given.",
            "Names that neither Kafka nor Isthmus has are refused by `--set` and in a topology file. In a file of",
            "Kafka's they are taken, since they may belong to a plugin, unless the name is nearly one above.",
            "",
            *KAFKA_HEAD,
            *_kafka_rows(),
            "",
        ]
    )


def _table(options: Iterable[Option], by_broker: bool) -> Iterator[str]:
    last = " broker option |" if by_broker else ""
    yield f"| option | type | default | values | what it does |{last}"
    yield "|---|---|---|---|---|" + ("---|" if by_broker else "")
    for option in options:
        marks = [mark for mark, holds in (("own", option.own), ("dynamic", option.dynamic)) if holds]
        marks += ["set at creation only"] if option.sealed else []
        marks += [f"no effect: {option.inert}"] if option.inert else []
        marks += [f"default only: {option.refused}"] if option.refused else []
        doc = option.doc + (f" (*{', '.join(marks)}*)" if marks else "")
        cells = [f"`{option.name}`", option.type.name.lower(), _default(option), _values(option), cell(doc)]
        yield f"| {' | '.join(cells)} |" + ((f" `{option.broker}` |" if option.broker else " |") if by_broker else "")


KAFKA_HEAD = ("| options | taken | why |", "|---|---|---|")


def _kafka_rows() -> Iterator[str]:
    for table, taken in ((INSTEAD, "no effect"), (REFUSED_OF_KAFKA, "default only")):
        reasons = dict.fromkeys(why for _, why in table)
        for why in reasons:
            patterns = ", ".join(f"`{pattern}`" for pattern, each in table if each == why)
            yield f"| {patterns} | {taken} | {cell(why)} |"


def _default(option: Option) -> str:
    if option.default is None:
        return "not set"
    if option.default == "":
        return "empty"
    if option.default.isdigit() and int(option.default) in LIMITS:
        return LIMITS[int(option.default)]
    return f"`{option.default}`"


def _values(option: Option) -> str:
    if option.choices:
        return ", ".join(f"`{choice}`" for choice in option.choices)
    low = "" if option.low is None else f"from {_number(option.low)}"
    high = "" if option.high is None else f"to {_number(option.high)}"
    return f"{low} {high}".strip()


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)


# --- Spark ----------------------------------------------------------------------------------------------------------


def spark() -> str:
    """Every option of the Spark data source."""
    rows = [f"| `{name}` | {cell(doc)} |" for name, doc in OPTIONS.items()]
    refused = [
        f"| `{name}` | {cell(why)}" + (f"; `{HARMLESS[name]}` is taken |" if name in HARMLESS else " |")
        for name, why in REFUSED.items()
    ]
    return "\n".join(
        [MADE, SPARK.strip(), "", *OPTION_HEAD, *rows, "", "Refused, with a reason:", "", *REFUSED_HEAD, *refused, ""]
    )


OPTION_HEAD = ("| option | what it does |", "|---|---|")
REFUSED_HEAD = ("| option | why |", "|---|---|")
SPARK = """
# The Spark data source

`format("isthmus")` reads topics of any Kafka cluster, in batch and streaming queries, without a jar. Columns and
options are those of Spark's own Kafka source: `key`, `value` (binary), `topic`, `partition`, `offset`, `timestamp`,
`timestampType` (0 the producer's, 1 the broker's), and `headers` where `includeHeaders` asks for them.

```python
from isthmus.connectors.delta import DeltaWriter
from isthmus.connectors.session import local_session

spark = local_session("flights", "spark-work")
stream = (
    spark.readStream.format("isthmus")
    .option("kafka.bootstrap.servers", "127.0.0.1:9092")
    .option("subscribe", "ewr.flights")
    .option("startingOffsets", "earliest")
    .option("maxOffsetsPerTrigger", 100_000)
    .load()
)
writing = stream.writeStream.foreachBatch(DeltaWriter("tables/flights", app_id="flights"))
writing.option("checkpointLocation", "tables/flights-checkpoint").trigger(availableNow=True).start().awaitTermination()
```

`DeltaWriter` puts each micro-batch into a Delta table once, also when the driver is killed in between: Delta's log
remembers the batches. It raises an error where table and checkpoint do not belong together, and where a column's type
does not hold every value of the batch's, as where a BIGINT column would get a DOUBLE. `merge_schema=True`, Delta's
`mergeSchema`, adds columns that the table lacks. A batch passes through the driver's memory, so bound it.

Spark finds the source by itself where the Python that it starts has Isthmus installed. In a session of your own set
`PYSPARK_PYTHON` to that Python, or register it: `spark.dataSource.register(IsthmusDataSource)`, from
`isthmus.connectors.source`. `local_session` does it for you, and keeps Spark quiet and its memory bounded. Do not use
`CREATE TABLE … USING isthmus OPTIONS (…)`: Spark loses the options there; `CREATE TEMPORARY VIEW` keeps them.

Where this source differs from Spark's: `subscribePattern` must match the whole name of a topic, small ranges of offsets
share a task (`minRecordsPerPartition`), an option that would do nothing is an error, and a task whose rows do not add
up to what the batches' headers claim fails instead of losing some. A stream's offsets hold the topics' ids, too
(`"topic ids"`), so that a topic deleted and made anew is an error, however much is in the new one; with
`failOnDataLoss=false` that is read from its beginning. Not there yet: writing into topics, `read_committed`, TLS and
SASL.

## Options
"""


# --- Commands -------------------------------------------------------------------------------------------------------


def commands() -> str:
    """Every command of `isthmus`, with its arguments and options."""
    from isthmus.console.main import app
    from isthmus.console.members import unregister_app
    from isthmus.console.partitions import drain_app

    lines = [MADE, "# The isthmus command", "", "Every command answers `--help`.", ""]
    behind = {"isthmus broker": {"drain": drain_app, "unregister": unregister_app}}  # in no tree: see `broker`
    return "\n".join([*lines, *_command(typer.main.get_command(app), "isthmus", behind)])


def _command(command: Any, name: str, behind: Mapping[str, Mapping[str, typer.Typer]]) -> Iterator[str]:
    """`command` is a node of typer's tree, a group or a command of click's kind. behind: commands that a command runs
    by their names, by the name of that."""
    context = command.make_context(name, [], resilient_parsing=True)
    rows = list(_parameters(command, context))
    if isinstance(command, typer.core.TyperGroup):
        if command.invoke_without_command:  # it is a command, too
            yield from (f"## {name}", "")
        if rows:
            yield from (*_paragraphs(command.help), "", *rows, "")
        for each in sorted(command.list_commands(context)):
            found = command.get_command(context, each)
            if found and not found.hidden:
                yield from _command(found, f"{name} {each}", behind)
    else:
        usage = " ".join(command.collect_usage_pieces(context))
        yield from (f"## {name}", "", *_paragraphs(command.help), "", "```text", f"{name} {usage}", "```", "")
        yield from ([*rows, ""] if rows else [])
        for each, app in behind.get(name, {}).items():
            yield from _command(typer.main.get_command(app), f"{name} {each}", {})


def _paragraphs(text: str | None) -> list[str]:
    return [" ".join(part.split()) for part in (text or "").replace("\b", "").split("\n\n")]


def _parameters(command: Any, context: Any) -> Iterator[str]:
    records = [each.get_help_record(context) for each in command.params]
    rows = [row for row in records if row and "--help" not in row[0]]
    if rows:
        yield from ("| | |", "|---|---|")
    for names, text in rows:
        yield f"| `{cell(names)}` | {cell(text)} |"


# --- Metrics --------------------------------------------------------------------------------------------------------


def metrics() -> str:
    """Every metric of a broker."""
    from isthmus.core_broker.metrics.table import METRICS

    rows = [
        f"| `{each.family.name}` | {each.family.type} | {', '.join(f'`{label}`' for label in each.family.labels)} "
        f"| {cell(each.family.help)} | {f'`{each.mbean}`' if each.mbean else ''} |"
        for each in METRICS
    ]
    return "\n".join([MADE, METRICS_PAGE.strip(), "", *METRIC_HEAD, *rows, ""])


METRIC_HEAD = ("| metric | type | labels | what it tells | Kafka's MBean |", "|---|---|---|---|---|")
METRICS_PAGE = """
# Metrics and health of a broker

`isthmus broker --metrics 127.0.0.1:9100` (or the option `metrics.listener`, also in a topology file) serves over HTTP:

| path | answer |
|---|---|
| `/metrics` | the metrics below, in Prometheus' text format |
| `/health/live` | 200 as long as the broker's loop turns |
| `/health/ready` | 200 while it serves; 503 and the reason in a line while it starts, with logs to recover, or stops |

There is no password: listen where only those who may know can reach it. Where Kafka has the same metric, the name is
what Prometheus' JMX exporter makes of Kafka's MBean, so that dashboards and alerts made for Kafka go on working.
Metrics of `BrokerTopicMetrics` come without the label `topic` for all topics together, and with it for each, as the
exporter tells them. Percentiles are of the last one to two minutes, by buckets at most a third apart; where several
brokers are looked at together, use `isthmus_request_seconds`. Times of requests are taken only where
`metrics.listener` is set; all else is counted anyway, and read when somebody asks.
"""


# --- The topology file ----------------------------------------------------------------------------------------------


def topology() -> str:
    """Every key of a topology file."""
    from isthmus.deploy.topology import PARTS, Topology

    lines = [MADE, *TOPOLOGY_PAGE.strip().split("\n"), ""]
    for name, part in {"The file": Topology, **PARTS}.items():
        title = name if part is Topology else f"Each of `{name}`"
        lines += [f"## {title}", "", " ".join((part.__doc__ or "").split()), "", *KEY_HEAD]
        for key, field in part.model_fields.items():
            default = "required" if field.is_required() else f"`{field.default}`"
            lines.append(f"| `{key}` | {default} | {cell(field.description or '')} |")
        lines.append("")
    return "\n".join(lines)


KEY_HEAD = ("| key | default | what it says |", "|---|---|---|")
TOPOLOGY_EXAMPLE = """
name: shops

datacenters:
  north:
    listen: "127.0.0.1:9092"
    options: {num.partitions: 3, durability: fsync}
    topics:
      orders: {partitions: 3, options: {retention.ms: 86400000}}
  office: {brokers: 3}

mirrors:
  - {name: north-office, source: north, target: office, topics: ["orders.*"], rename: "{source}.{topic}"}

workers:
  - {name: totals, app: "totals.py:app", datacenter: office}
"""
TOPOLOGY_PAGE = f"""
# The topology file

Datacenters, the mirrors between them and the stream apps that work on them, in YAML (1.2):

```yaml
{TOPOLOGY_EXAMPLE.strip()}
```

`isthmus up -f FILE` starts a process for each broker, mirror and worker on this machine, `isthmus compose -f FILE`
makes the [compose file](../how-to/containers.md#run-a-topology) of it. What is wrong in it is named with its line, all
at once, before anything is started. Names are lower-case letters, digits and `-`, 63 at most, the first no `-`; topics
are called what Kafka lets them be called.

To change a topology that runs: edit the file, then `isthmus apply -f FILE`, which shows what is different and
[does that alone](../how-to/change-a-running-topology.md). What was taken out of the file is stopped; its data stays in
`.isthmus/NAME/data`, and topics in the target of a mirror that is no more stay the mirror's. At `isthmus up`, a topic
that is there is left as it is, with a line that tells in what it differs from the file: `isthmus apply` changes it, or
`isthmus topic replicas` its replicas. `isthmus status` and `isthmus down` do not need the file when told the folder,
`--data .isthmus/NAME`. Several brokers a datacenter are a [cluster](../how-to/run-a-cluster.md).
"""


# --- Differences from Kafka -----------------------------------------------------------------------------------------


def differences() -> str:
    """What a client or an operator can notice that stock Kafka does otherwise."""
    from isthmus.core_broker.server.dispatch import DIFFERENCES

    rows = [f"| {key} | {cell(text)} |" for key, text in DIFFERENCES.items()]
    return "\n".join([MADE, DIFFERENCES_PAGE.strip(), "", *DIFFERENCE_HEAD, *rows, ""])


DIFFERENCE_HEAD = ("| key | what differs |", "|---|---|")
DIFFERENCES_PAGE = """
# What differs from Apache Kafka

## Disk errors

At the first error of any kind Kafka takes a log directory offline, with all of its partitions, and ends if it has no
other. Here only the partition of the file is affected; its clients get KAFKA_STORAGE_ERROR:

* EIO and similar errors at any call: the partition is offline until the next start.
* No space (ENOSPC, EDQUOT, EMFILE) for an append: the append is refused. `isthmus_partition_offline` and the log
  report the partition, and reads are served. It takes appends again as soon as there is space.
* No space to create or open it: it is offline, and comes back by itself when there is space.
* No space for a sync: it is offline, and comes back by itself when there is space, after everything that may not be
  on disk was read again, checked and written as a copy. If something that was served is lost, it waits for a start.

While a partition is offline, metadata names no leader (LEADER_NOT_AVAILABLE), as Kafka's does: clients ask again
until there is one, and Java's producers do not choose the partition. A partition that only takes no appends has its
leader. The leader epoch does not change, because no other broker has the records and they may come back: ElectLeaders
has nothing to do (ELECTION_NOT_NEEDED), where Kafka answers PREFERRED_LEADER_NOT_AVAILABLE or
ELIGIBLE_LEADERS_NOT_AVAILABLE. DescribeLogDirs returns KAFKA_STORAGE_ERROR for Kafka's directory, but the sizes of
all partitions for ours.

`OfflineLogDirectoryCount` is 1 while any partition is offline. [More](../how-to/operate-a-broker.md).

## Requests, by their keys

Versions are Kafka's throughout, and so are answers but for these. Beside them the wording of messages is ours, some
errors have one where Kafka's have none, and where Kafka lists in the order of a hash table, ours is another one.
"""


# --- Pages ----------------------------------------------------------------------------------------------------------


def _owner(of: str) -> str:
    return "the package" if of == "package" else f"`isthmus.streams.{of}`" if of in MODULES else f"`{of}`"


def streams() -> str:
    """Settings of stream apps, and names of Faust's that are not there."""
    return "\n".join(
        [
            MADE,
            "# Stream apps: settings, and what is not there",
            "",
            "`App(id, name=value, …)` takes settings; `app.conf` has them, and they can be changed until the worker",
            "starts. Names and defaults are Faust's (faust-streaming 0.15.3). An environment variable counts before",
            "what the program says. Durations are seconds, or timedeltas. *own*: Faust has no such setting.",
            "",
            "| setting | default | what it does | environment |",
            "|---|---|---|---|",
            *(_setting(name, row) for name, row in stream_settings.table().items()),
            "",
            "## Metrics of a worker",
            "",
            "At `/metrics`. Labels: `app`, and some of `task`, `topic`, `partition`, `table`, `state`.",
            "",
            "| metric | type | what |",
            "|---|---|---|",
            *(f"| `{name}` | {kind} | {about} |" for name, (kind, about) in STREAM_METRICS.items()),
            "",
            "## Taken, without effect",
            "",
            "A worker says at its start which of these were given.",
            "",
            "| setting of Faust's | what is instead |",
            "|---|---|",
            *(f"| `{name}` | {cell(instead)} |" for name, instead in sorted(stream_settings.IGNORED.items())),
            "",
            "## Refused",
            "",
            "To ignore these would break a promise, or hide that a part of the program is not run.",
            "",
            "| setting of Faust's | use instead |",
            "|---|---|",
            *(f"| `{name}` | {cell(instead)} |" for name, instead in sorted(stream_settings.REFUSED.items())),
            "",
            "## Names of Faust's that are not there",
            "",
            "An error says the same.",
            "",
            "| of | name | use instead |",
            "|---|---|---|",
            *(
                f"| {_owner(of)} | `{name}` | {cell(instead)} |"
                for of, names in ABSENT.items()
                for name, instead in sorted(names.items())
            ),
            *(
                f"| any of {', '.join(SERVICES)} | `{name}` | {cell(OF_SERVICES[name])} |"
                for name in sorted(OF_SERVICES)
            ),
            "",
            "## What Kafka Streams calls otherwise",
            "",
            "Names of its DSL, in its spelling or in Python's: an error says the same.",
            "",
            "| of | name | use instead |",
            "|---|---|---|",
            *(
                f"| `{of}` | `{name}` | {cell(instead)} |"
                for of, names in OF_KAFKA_STREAMS.items()
                for name, instead in sorted(names.items())
            ),
            "",
        ]
    )


def _setting(name: str, row: Any) -> str:
    conf = stream_settings.Settings("ID", {}, {})
    value = getattr(conf, name)
    if name == "web_host":
        value = "web_bind, or the host's name where that is every address"
    elif name == "canonical_url":
        value = "http://web_host:web_port"
    elif isinstance(value, bool):
        value = str(value).lower()
    elif isinstance(value, list):
        value = ", ".join(map(str, value))
    default = "" if value in (None, "", {}) else f"`{value}`"
    kind = " *own*" if row.is_ours else f" (Faust: {row.faust})" if row.faust else ""
    return f"| `{name}` | {default}{kind} | {cell(row.doc)} | {f'`{row.env}`' if row.env else ''} |"


PAGES: dict[str, Callable[[], str]] = {
    "configuration.md": configuration,
    "commands.md": commands,
    "differences.md": differences,
    "metrics.md": metrics,
    "spark.md": spark,
    "streams.md": streams,
    "streams-api.md": streams_api,
    "topology.md": topology,
}


def main() -> int:
    stale = [name for name, make in PAGES.items() if _text(REFERENCE / name) != make()]
    if "--check" in sys.argv[1:]:
        for name in stale:
            print(f"docs/reference/{name} is not what the code says: run `make docs`", file=sys.stderr)
        return 1 if stale else 0
    for name in stale:
        (REFERENCE / name).write_text(PAGES[name]())
        print(f"wrote docs/reference/{name}")
    return 0


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
