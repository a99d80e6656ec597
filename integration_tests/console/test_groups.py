"""`isthmus group` on a cluster with groups of both types."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from integration_tests.clients.records import create_topics
from integration_tests.console.commands import TIMEOUT_S, error, isthmus, said

PARTITIONS = 4
OPTION = "consumer.heartbeat.interval.ms"


def member(bootstrap: str, group: str, topic: str, protocol: str, **settings: str) -> confluent_kafka.Consumer:
    settings |= {"bootstrap_servers": bootstrap, "group_id": group, "group_protocol": protocol}
    consumer = confluent_kafka.Consumer({key.replace("_", "."): value for key, value in settings.items()})
    consumer.subscribe([topic])
    return consumer


@pytest.fixture
def described(kafka: str, tmp_path: Path) -> Callable[[str], dict[str, Any]]:
    def describe(group: str) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads(
            said(isthmus("group", "describe", group, "--json", "-b", kafka, folder=tmp_path))
        )
        return facts  # fmt: skip

    return describe


@pytest.fixture
def members(kafka: str) -> Iterator[Callable[..., None]]:
    """Starts a member, and goes on when it has partitions."""
    with ExitStack() as held:
        running: list[confluent_kafka.Consumer] = []

        def start(group: str, topic: str, protocol: str, **settings: str) -> None:
            consumer = member(kafka, group, topic, protocol, **settings)
            held.callback(consumer.close)
            running.append(consumer)
            deadline = time.monotonic() + TIMEOUT_S
            while not consumer.assignment():
                assert time.monotonic() < deadline, f"no partitions for a member of {group}"
                for each in running:
                    each.poll(0.05)

        yield start


def test_members_of_a_consumer_group(kafka, members, described):
    create_topics(kafka, ["described-a", "described-b"], PARTITIONS)
    members("modern", "described-a", "consumer", client_rack="r1", client_id="one")
    members("modern", "^described-.*", "consumer", client_id="two", group_instance_id="i2")
    facts = described("modern")
    assert (facts["type"], facts["protocol"]) == ("consumer", "uniform") and facts["epoch"] >= facts["assignment_epoch"]
    one, two = sorted(facts["members"], key=lambda each: each["client"])
    assert (one["rack"], one["instance"], one["topics"], one["pattern"]) == ("r1", None, ["described-a"], None)
    assert (two["rack"], two["instance"], two["topics"]) == (None, "i2", []) and "described-.*" in two["pattern"]
    assert one["protocol"] == two["protocol"] == "consumer" and 0 < one["epoch"] <= facts["epoch"]
    wanted = [*one["target"].get("described-a", ()), *two["target"].get("described-a", ())]
    assert sorted(wanted) == list(range(PARTITIONS)) and two["target"]["described-b"] == list(range(PARTITIONS))
    assert set(two["assigned"]) <= set(two["target"])


def test_a_classic_group(kafka, members, described, tmp_path):
    create_topics(kafka, ["described-classic"], PARTITIONS)
    members("classic", "described-classic", "classic", client_id="one")
    facts = described("classic")
    assert (facts["type"], facts["protocol"], facts["epoch"]) == ("classic", "range", None)
    [one] = facts["members"]
    assert (one["protocol"], one["assigned"]) == ("classic", {"described-classic": list(range(PARTITIONS))})
    groups = json.loads(said(isthmus("group", "list", "--json", "-b", kafka, folder=tmp_path)))
    assert {"group": "classic", "state": "Stable", "type": "classic", "protocol": "consumer"} in groups


def test_partitions_without_a_commit_are_shown(kafka, members, described, tmp_path):
    create_topics(kafka, ["read-now", "gone-since"], PARTITIONS)
    said(isthmus("group", "reset", "reads", "-t", "read-now:1", "--to", "0", "-b", kafka, folder=tmp_path))
    members("reads", "read-now", "classic")
    rows = described("reads")["offsets"]
    assert [(row["partition"], row["committed_offset"], row["end_offset"], row["lag"]) for row in rows] == [
        (0, None, 0, None), (1, 0, 0, 0), (2, None, 0, None), (3, None, 0, None),
    ]  # fmt: skip
    text = said(isthmus("group", "describe", "reads", "-b", kafka, folder=tmp_path))
    assert len([line for line in text.splitlines() if line.startswith("read-now ")]) == PARTITIONS


def reset(kafka: str, tmp_path: Path, group: str, *arguments: str) -> dict[int, Any]:
    """New offsets by partition."""
    done = said(isthmus("group", "reset", group, *arguments, "--json", "-b", kafka, folder=tmp_path))
    return {row["partition"]: row["new_offset"] for row in json.loads(done)["offsets"]}


def committed(facts: dict[str, Any]) -> dict[int, Any]:
    return {row["partition"]: row["committed_offset"] for row in facts["offsets"]}


def test_a_group_without_members_goes_on_from_elsewhere(kafka, described, tmp_path):
    create_topics(kafka, ["again"], 2)
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka})
    for number in range(5):
        producer.produce("again", str(number), partition=0, timestamp=(1_000_000 + number) * 1000)
    producer.flush()
    at = ("-b", kafka)
    run = lambda *arguments: reset(kafka, tmp_path, "again", *arguments)  # noqa: E731
    assert run("-t", "again", "--to", "latest", "--dry-run") == {0: 5, 1: 0}
    assert "there is no group again" in error(isthmus("group", "describe", "again", *at, folder=tmp_path))
    assert run("-t", "again", "--to", "latest") == {0: 5, 1: 0} == committed(described("again"))
    for arguments, wanted in (
        (("--shift", "-2"), {0: 3, 1: 0}),
        (("--shift", "-9"), {0: 0, 1: 0}),
        (("--to", "1"), {0: 1, 1: 0}),
        (("--to", "1970-01-12T13:46:43Z"), {0: 3, 1: 0}),  # 1,000,003 s
        (("--to", "-1h"), {0: 5, 1: 0}),
        (("-t", "again:0", "--to", "earliest"), {0: 0}),
    ):
        assert run(*arguments) == wanted
        assert committed(described("again")).items() >= wanted.items()
    text = said(isthmus("group", "reset", "again", "--to", "99", "--dry-run", *at, folder=tmp_path))
    assert "99 is not between 0 and 5" in text and text.endswith("nothing was changed (--dry-run)\n")
    assert committed(described("again")) == {0: 0, 1: 0}


def test_a_group_with_members_is_neither_reset_nor_deleted(kafka, members, described, tmp_path):
    create_topics(kafka, ["busy", "not-read"], 1)
    at = ("-b", kafka)
    said(isthmus("group", "reset", "busy", "-t", "busy", "-t", "not-read", "--to", "0", *at, folder=tmp_path))
    members("busy", "busy", "classic", client_id="one")
    for arguments in (("reset", "busy", "--to", "earliest"), ("delete", "busy")):
        found = error(isthmus("group", *arguments, *at, folder=tmp_path))
        assert found.startswith("group busy has members: one (127.0.0.1): stop them first"), found
    assert "group busy has members" in error(isthmus("group", "delete", "busy", "-t", "busy", *at, folder=tmp_path))
    said(isthmus("group", "delete", "busy", "-t", "not-read", *at, folder=tmp_path))
    assert [row["topic"] for row in described("busy")["offsets"]] == ["busy"]


def test_a_group_without_members_is_deleted(kafka, tmp_path):
    create_topics(kafka, ["left"], 1)
    at = ("-b", kafka)
    said(isthmus("group", "reset", "left", "-t", "left", "--to", "0", *at, folder=tmp_path))
    assert said(isthmus("group", "delete", "left", *at, folder=tmp_path)) == "deleted left\n"
    for command in ("describe", "delete"):
        assert "there is no group left" in error(isthmus("group", command, "left", *at, folder=tmp_path))


def test_what_cannot_be_reset_is_told(kafka, tmp_path):
    create_topics(kafka, ["told"], 1)
    for arguments, told in (
        ((), "say where to go on"),
        (("--to", "0", "--shift", "1"), "say where to go on"),
        (("--to", "soon"), "--to soon: write earliest, latest, an offset, or a time"),
        (("-t", "no-such", "--to", "0"), "there is no topic no-such"),
        (("-t", "told:7", "--to", "0"), "topic told has no partition 7: it has 1, from 0"),
        (("-t", "told:x", "--to", "0"), "--topic told:x: write TOPIC, or TOPIC:0,1"),
        (("-t", "told", "--shift", "1"), "told has committed nothing for told-0: use --to"),
    ):
        assert told in error(isthmus("group", "reset", "told", *arguments, "-b", kafka, folder=tmp_path))


def test_options_of_a_group(kafka, members, described, tmp_path):
    create_topics(kafka, ["described-options"], 1)
    alter = ("group", "alter", "options", "-b", kafka)
    assert said(isthmus(*alter, "--set", f"{OPTION}=7000", folder=tmp_path)) == "changed options\n"
    members("options", "described-options", "consumer")
    assert described("options")["options"] == {OPTION: "7000"}
    said(isthmus(*alter, "--unset", OPTION, folder=tmp_path))
    assert described("options")["options"] == {}
    assert "no.such" in error(isthmus(*alter, "--set", "no.such=1", folder=tmp_path))
