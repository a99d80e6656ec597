"""TopicCommand, ConfigCommand, GetOffsetShell, DeleteRecordsCommand, LogDirsCommand: run unchanged, as with Kafka."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from isthmus.core_broker.config import TOPIC_OPTIONS

from .conftest import Both
from .tools import Side, Tools

FAILED = 1


def create(both: Both, topic: str, partitions: int = 1, *options: str) -> None:
    done = both("TopicCommand", "--create", "--topic", topic, "--partitions", str(partitions), *options)
    assert (done.exit, done.out) == (0, f"Created topic {topic}.")


def produce(both: Both, topic: str, records: int) -> None:
    text = "".join(f"key {n}\tvalue {n}\n" for n in range(records))
    done = both("ConsoleProducer", "--topic", topic, "--reader-property", "parse.key=true", stdin=text)
    assert done.exit == 0


def test_topics_are_created_listed_described_changed_and_deleted(both: Both) -> None:
    create(both, "one", 3, "--config", "retention.ms=86400000", "--config", "cleanup.policy=compact")
    create(both, "other")
    assert both("TopicCommand", "--create", "--topic", "one", "--if-not-exists", "--partitions", "1").exit == 0
    assert "one" in both("TopicCommand", "--list").out.splitlines()
    both("TopicCommand", "--list", "--exclude-internal")
    described = both("TopicCommand", "--describe", "--topic", "one").out.splitlines()
    assert len(described) == 4
    assert "retention.ms=86400000" in described[0]
    both("TopicCommand", "--describe", "--topic", "o.*", ordered=False)
    for which in ("--under-replicated-partitions", "--unavailable-partitions", "--under-min-isr-partitions",
                  "--at-min-isr-partitions"):  # fmt: skip
        both("TopicCommand", "--describe", which)
    assert both("TopicCommand", "--alter", "--topic", "other", "--partitions", "4").exit == 0
    assert "PartitionCount: 4" in both("TopicCommand", "--describe", "--topic", "other").out
    assert both("TopicCommand", "--delete", "--topic", "other").exit == 0
    assert "other" not in both("TopicCommand", "--list").out.splitlines()


@pytest.mark.soak
@pytest.mark.parametrize(
    "arguments",
    [
        ("--create", "--topic", "twice", "--partitions", "1"),
        ("--create", "--topic", "wrong/name", "--partitions", "1"),
        ("--create", "--topic", "wide", "--partitions", "1", "--replication-factor", "3"),
        ("--create", "--topic", "odd", "--partitions", "1", "--config", "retention.ms=soon"),
        ("--create", "--topic", "odd", "--partitions", "1", "--config", "no.such.option=1"),
        ("--create", "--topic", "odd", "--replica-assignment", "7"),
        ("--alter", "--topic", "twice", "--partitions", "1"),
        ("--alter", "--topic", "none", "--partitions", "9"),
        ("--describe", "--topic", "none"),
        ("--delete", "--topic", "none"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_done_with_topics(both: Both, arguments: tuple[str, ...]) -> None:
    both("TopicCommand", "--create", "--topic", "twice", "--partitions", "2", "--if-not-exists")
    done = both("TopicCommand", *arguments)
    assert done.exit == FAILED
    assert "Error while executing topic command" in done.out + done.err


@pytest.mark.soak
def test_options_of_topics(both: Both) -> None:
    create(both, "set")
    topic = ("--entity-type", "topics", "--entity-name", "set")
    alter = ("ConfigCommand", *topic, "--alter")
    assert both(*alter, "--add-config", "retention.ms=5000,cleanup.policy=[compact,delete]").exit == 0
    assert "retention.ms=5000" in both("ConfigCommand", *topic, "--describe").out
    assert both(*alter, "--delete-config", "retention.ms").exit == 0
    assert "retention.ms" not in both("ConfigCommand", *topic, "--describe").out
    for wrong in ("retention.ms=soon", "no.such.option=1", "segment.bytes=1"):
        assert both(*alter, "--add-config", wrong).exit == FAILED
    both(*alter, "--delete-config", "no.such.option")
    both("ConfigCommand", "--entity-type", "topics", "--entity-name", "none", "--describe")
    both("ConfigCommand", "--entity-type", "topics", "--describe", ordered=False)


@pytest.mark.soak
def test_all_options_of_a_topic_are_told_as_kafkas(tools: Tools, ours: Side, stock: Side, both: Both) -> None:
    """What is ours alone is added; sources and synonyms of the rest are compared in the differential tests."""
    create(both, "all", 1, "--config", "retention.ms=5000")
    told = []
    for side in (ours, stock):
        done = tools.run(
            "ConfigCommand", "--bootstrap-server", side.bootstrap, "--entity-type", "topics", "--entity-name", "all",
            "--describe", "--all",
        )  # fmt: skip
        assert done.exit == 0
        lines = (line.split()[0].partition("=") for line in done.out.splitlines() if "=" in line)
        told.append({name: value for name, _, value in lines})
    assert told[0].keys() - told[1].keys() == {option.name for option in TOPIC_OPTIONS if option.own}
    assert told[1].keys() <= told[0].keys()
    assert {name: value for name, value in told[0].items() if name in told[1]} == told[1]


@pytest.mark.soak
def test_options_of_brokers_while_they_run(both: Both) -> None:
    one, every = ("--entity-type", "brokers", "--entity-name", "1"), ("--entity-type", "brokers", "--entity-default")
    for entity in (one, every):
        assert both("ConfigCommand", *entity, "--alter", "--add-config", "log.cleaner.backoff.ms=20000").exit == 0
        assert "log.cleaner.backoff.ms=20000" in both("ConfigCommand", *entity, "--describe").out
        assert both("ConfigCommand", *entity, "--alter", "--delete-config", "log.cleaner.backoff.ms").exit == 0
        assert "log.cleaner.backoff.ms" not in both("ConfigCommand", *entity, "--describe").out
    assert both("ConfigCommand", *one, "--alter", "--add-config", "node.id=7").exit == FAILED
    assert both("ConfigCommand", *every, "--alter", "--add-config", "num.partitions=9").exit == FAILED


@pytest.mark.soak
def test_levels_of_the_brokers_log(both: Both, tools: Tools, ours: Side) -> None:
    loggers = ("--entity-type", "broker-loggers", "--entity-name", "1")
    assert both("ConfigCommand", *loggers, "--alter", "--add-config", "root=INFO").exit == 0
    for wrong in ("root=LOUD", "no.such.logger=INFO"):
        assert both("ConfigCommand", *loggers, "--alter", "--add-config", wrong).exit == FAILED
    assert both("ConfigCommand", *loggers, "--alter", "--delete-config", "root").exit == FAILED
    done = tools.run("ConfigCommand", "--bootstrap-server", ours.bootstrap, *loggers, "--describe")
    assert "isthmus.core_broker.storage=INFO" in done.out
    assert "root=INFO" in done.out


@pytest.mark.soak
def test_offsets(both: Both) -> None:
    create(both, "offsets", 2)
    produce(both, "offsets", 20)
    for time in (
        "-1", "latest", "-2", "earliest", "-4", "earliest-local", "-5", "latest-tiered", "-6",
        "earliest-pending-upload", "0", "9999999999999",
    ):  # fmt: skip
        done = both("GetOffsetShell", "--topic", "offsets", "--time", time)
        assert done.exit == 0
    create(both, "newest")
    for _ in range(2):  # each by a producer of its own, and so later than the one before
        produce(both, "newest", 1)
    for time in ("-3", "max-timestamp"):
        assert both("GetOffsetShell", "--topic", "newest", "--time", time).out == "newest:0:1"
    found = both("GetOffsetShell", "--topic", "offsets").out.splitlines()
    assert sum(int(line.rpartition(":")[2]) for line in found) == 20
    both("GetOffsetShell", "--topic-partitions", "offsets:1,off.*:0-1")
    both("GetOffsetShell", "--exclude-internal-topics", "--topic", "off.*", "--partitions", "0")
    assert both("GetOffsetShell", "--topic", "none").exit == FAILED


@pytest.mark.soak
def test_records_are_deleted(both: Both, tmp_path: Path) -> None:
    create(both, "short")
    produce(both, "short", 10)

    def delete(*wanted: tuple[str, int, int]) -> str:
        path = tmp_path / "offsets.json"
        rows = [{"topic": topic, "partition": index, "offset": offset} for topic, index, offset in wanted]
        path.write_text(json.dumps({"version": 1, "partitions": rows}))
        return both("DeleteRecordsCommand", "--offset-json-file", str(path)).out

    assert "low_watermark: 4" in delete(("short", 0, 4))
    assert both("GetOffsetShell", "--topic", "short", "--time", "-2").out == "short:0:4"
    assert "low_watermark: 4" in delete(("short", 0, 2))
    assert "OffsetOutOfRangeException" in delete(("short", 0, 99))
    assert "low_watermark: 10" in delete(("short", 0, -1))
    both("TopicCommand", "--create", "--topic", "kept", "--partitions", "1", "--config", "cleanup.policy=compact")
    assert "PolicyViolationException" in delete(("kept", 0, 0))


@pytest.mark.soak
def test_log_directories(both: Both, tools: Tools, ours: Side, stock: Side) -> None:
    create(both, "sized", 2)
    produce(both, "sized", 100)
    told = []
    for side in (ours, stock):
        done = tools.run(
            "LogDirsCommand", "--bootstrap-server", side.bootstrap, "--describe", "--topic-list", "sized,none"
        )  # fmt: skip
        assert done.exit == 0
        head, _, rest = done.out.partition("{")
        told.append((head, json.loads("{" + rest.splitlines()[0])))
    assert told[0][0] == told[1][0]
    [ours_told], [kafkas] = told[0][1]["brokers"], told[1][1]["brokers"]
    assert ours_told["broker"] == kafkas["broker"] == 1
    [mine], [theirs] = ours_told["logDirs"], kafkas["logDirs"]
    assert mine["logDir"] == ours.data
    assert mine.keys() == theirs.keys()
    sizes = {each["partition"]: each.pop("size") for each in mine["partitions"]}
    for each in theirs["partitions"]:
        assert each.pop("size") > 0
    by_name = sorted(mine["partitions"], key=lambda each: each["partition"])
    assert by_name == sorted(theirs["partitions"], key=lambda each: each["partition"])
    assert sizes == {
        f"sized-{n}": sum(path.stat().st_size for path in Path(ours.data, f"sized-{n}").glob("*.log")) for n in range(2)
    }
    both("LogDirsCommand", "--describe", "--broker-list", "1,9", "--topic-list", "none")
