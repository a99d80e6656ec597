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


def test_options_of_a_group(kafka, members, described, tmp_path):
    create_topics(kafka, ["described-options"], 1)
    alter = ("group", "alter", "options", "-b", kafka)
    assert said(isthmus(*alter, "--set", f"{OPTION}=7000", folder=tmp_path)) == "changed options\n"
    members("options", "described-options", "consumer")
    assert described("options")["options"] == {OPTION: "7000"}
    said(isthmus(*alter, "--unset", OPTION, folder=tmp_path))
    assert described("options")["options"] == {}
    assert "no.such" in error(isthmus(*alter, "--set", "no.such=1", folder=tmp_path))
