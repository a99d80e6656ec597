"""`isthmus apply`, `restart`, `stop`, `start` on a topology that runs, and what `isthmus status` shows of what does not
work."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from integration_tests.clients.records import create_topics
from integration_tests.console.commands import error, isthmus, left_behind, said

WAIT_S = 30.0
APP = """\
from isthmus.streams import App

app = App("{id}")


@app.agent(app.topic("orders", value_serializer="raw"), on_error="stop")
async def count(stream):
    async for each in stream:
        {body}
"""
TOPOLOGY = """\
name: shops
datacenters:
  north: {options: {num.partitions: 2}, topics: {orders: {partitions: 2, options: {retention.ms: 1000000}}}}
  office: {}
mirrors:
  - {name: link, source: north, target: office, topics: [orders]}
workers:
  - {name: count, app: "count.py:app", datacenter: north}
"""
FOLDER = ("--data", ".isthmus/shops")
LIST = ("topic", "list", "--json")


class Shops:
    """A folder in which the topology is up."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "topology.yaml"
        self.write(TOPOLOGY)
        self.write_app("pass")

    def write(self, text: str) -> None:
        self.file.write_text(text)

    def change(self, old: str, new: str) -> None:
        assert old in self.file.read_text()
        self.write(self.file.read_text().replace(old, new))

    def write_app(self, body: str) -> None:
        (self.folder / "count.py").write_text(APP.format(id="count", body=body))

    def run(self, *arguments: str, stdin: str = "") -> Any:
        return isthmus(*arguments, folder=self.folder, stdin=stdin)

    def status(self) -> dict[str, dict[str, Any]]:
        return {row["process"]: row for row in json.loads(said(self.run("status", *FOLDER, "--json")))}

    def pids(self) -> dict[str, int]:
        return {name: row["pid"] for name, row in self.status().items()}

    def steps(self, *more: str) -> list[tuple[str, str, str]]:
        """What `apply` says it does, or with --dry-run would do."""
        answer = json.loads(said(self.run("apply", "--json", *more)))
        return [(each["do"], each["what"], each["details"]) for each in answer["steps"]]

    def until(self, holds: Callable[[dict[str, dict[str, Any]]], bool]) -> dict[str, dict[str, Any]]:
        deadline = time.monotonic() + WAIT_S
        while not holds(rows := self.status()):
            assert time.monotonic() < deadline, rows
        return rows


@pytest.fixture
def shops(tmp_path: Path) -> Iterator[Shops]:
    made = Shops(tmp_path)
    try:
        said(made.run("up"))
        yield made
    finally:
        said(made.run("down", *FOLDER))
    assert left_behind(tmp_path / ".isthmus") == []


def test_apply_changes_what_is_different_and_nothing_else(shops: Shops):
    before = shops.pids()
    assert shops.steps() == []  # the control
    assert shops.run("apply").stdout == "nothing to do: all is as the file says\n"
    shops.change("orders: {partitions: 2, options: {retention.ms: 1000000}}", "orders: {partitions: 3}, paid: {}")
    shops.change("topics: [orders]", "topics: [orders, paid]")
    shops.change("workers:\n", "workers:\n  - {name: other, app: 'other.py:app', datacenter: north}\n")
    (shops.folder / "other.py").write_text(APP.format(id="other", body="pass"))
    wanted = [
        (
            "change",
            "orders in north",
            "partitions 2 -> 3 (a key's records may go to another partition from then on); "
            "retention.ms 1000000 -> the default",
        ),
        ("create", "paid in north", "1 partition; 1 replica"),
        ("restart", "link-mirror", "topics orders -> orders,paid"),
        ("start", "other-worker", ""),
    ]
    assert shops.steps("--dry-run") == wanted
    assert shops.pids() == before and "paid" not in said(shops.run("topic", "list", "-b", "north"))
    assert shops.steps() == wanted
    assert shops.steps() == []
    after = shops.status()
    assert {row["state"] for row in after.values()} == {"ready"}
    unchanged = [name for name, pid in before.items() if after[name]["pid"] == pid]
    assert unchanged == ["north-broker", "office-broker", "count-worker"]
    topic = json.loads(said(shops.run("topic", "describe", "orders", "-b", "north", "--json")))
    assert (len(topic["partitions"]), topic["options"]) == (3, {})
    shops.write(TOPOLOGY.replace("partitions: 2, options: {retention.ms: 1000000}", "partitions: 3"))
    assert shops.steps() == [
        ("stop", "other-worker", "the tables and offsets of its app stay"),
        ("restart", "link-mirror", "topics orders,paid -> orders"),
        ("leave", "paid in north", "it keeps its records: `isthmus topic delete paid -b north` deletes it"),
    ]
    assert shops.steps() == []
    assert "other-worker" not in shops.status()
    assert "paid" in said(shops.run("topic", "list", "-b", "north"))  # what holds records stays


def test_apply_restarts_a_broker_for_its_options_and_puts_it_back_if_it_does_not_start(shops: Shops):
    before = shops.pids()
    shops.change("num.partitions: 2", "num.partitions: 5")
    assert shops.steps() == [("restart", "north-broker", "num.partitions 2 -> 5")]
    after = shops.pids()
    assert [name for name in before if before[name] != after[name]] == ["north-broker"]
    said(shops.run("topic", "create", "five", "-b", "north"))
    topics = json.loads(said(shops.run("topic", "list", "-b", "north", "--json")))
    assert {"topic": "five", "partitions": 5} in topics
    shops.change("num.partitions: 5", "num.partitions: 5, metrics.listener: '192.0.2.1:9100'")
    found = error(shops.run("apply"))
    assert "north-broker" in found and "192.0.2.1:9100" in found and "It runs again as before" in found
    shops.until(lambda rows: {row["state"] for row in rows.values()} == {"ready"})
    assert "five" in said(shops.run("topic", "list", "-b", "north"))


def test_brokers_of_a_cluster_are_restarted_and_added_while_it_serves(tmp_path: Path):
    shops = Shops(tmp_path)
    shops.write("name: shops\ndatacenters:\n  c: {brokers: 3, topics: {t: {partitions: 6}}}\n")
    try:
        addresses = ",".join(row["address"] for row in json.loads(said(shops.run("up", "--json"))))
        before = shops.pids()
        with Sending(addresses, "t") as sending:
            shops.change("brokers: 3", "brokers: 3, options: {num.partitions: 4}")
            names = [f"c-broker-{number}" for number in (1, 2, 3)]
            assert shops.steps() == [("restart", name, "num.partitions the default -> 4") for name in names]
            after = shops.pids()
            assert [name for name in before if before[name] == after[name]] == []
            shops.change("brokers: 3", "brokers: 5")
            assert shops.steps() == [("start", "c-broker-4", ""), ("start", "c-broker-5", "")]
            assert {name: shops.pids()[name] for name in names} == after
        assert sending.sent > 0 and sending.lost == []
        rows = json.loads(said(shops.run("cluster", "status", "-b", "c", "--json")))
        assert len(rows["brokers"]) == 5
        text = said(shops.run("consume", "t", "-e", "-b", "c"))
        assert sorted(map(int, text.split())) == list(range(sending.sent))
        pid = json.loads(said(shops.run("restart", "c-broker-2", "--json")))["pid"]
        told = Path(f"/proc/{pid}/cmdline").read_text()  # a cluster is made once
        assert "controller.quorum.bootstrap.servers" in told and "controller.quorum.initial.controllers" not in told
        shops.change("brokers: 5", "brokers: 3")
        assert "set brokers: 5" in error(shops.run("apply"))
    finally:
        shops.run("down", *FOLDER)
    assert left_behind(tmp_path / ".isthmus") == []


class Sending:
    """Sends numbers, in a thread, as long as it is entered."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.sent = 0
        self.lost: list[str] = []
        self._topic = topic
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "acks": "all"}
        self._producer = confluent_kafka.Producer(settings)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._send)

    def __enter__(self) -> Sending:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()
        assert self._producer.flush(WAIT_S) == 0

    def _send(self) -> None:
        while not self._ends.wait(0.01):
            self._producer.produce(self._topic, str(self.sent), callback=self._told)
            self.sent += 1
            self._producer.poll(0)

    def _told(self, failed: Any, _: Any) -> None:
        if failed:
            self.lost.append(str(failed))


def test_apply_adds_and_takes_away_a_datacenter(shops: Shops):
    shops.change("mirrors:\n", "  south: {topics: {orders: {}}}\nmirrors:\n")
    shops.change("workers:\n", "  - {name: south-link, source: south, target: office, topics: [orders]}\nworkers:\n")
    assert [step[:2] for step in shops.steps()] == [
        ("start", "south-broker"), ("create", "orders in south"), ("start", "south-link-mirror"),
    ]  # fmt: skip
    said(shops.run("produce", "orders", "-b", "south", stdin="one\n"))
    deadline = time.monotonic() + WAIT_S
    while "south.orders" not in said(shops.run("topic", "list", "-b", "office")):
        assert time.monotonic() < deadline
    assert said(shops.run("consume", "south.orders", "-b", "office", "-n", "1")) == "one\n"
    shops.write(TOPOLOGY)
    said(shops.run("stop", "north-broker", *FOLDER))  # which the file says nothing new of
    data = shops.folder / ".isthmus/shops/data/south"
    *steps, (do, what, why) = shops.steps()
    assert steps == [
        ("stop", "south-link-mirror", "what it has copied stays"),
        ("stop", "south-broker", f"its records stay in {data}"),
    ]
    assert (do, what) == ("skip", "all in north") and "no broker of" in why
    said(shops.run("start", "north-broker", *FOLDER))
    assert (shops.folder / ".isthmus/shops/data/south/orders-0").is_dir()
    shops.change("mirrors:\n", "  south: {topics: {orders: {partitions: 2}, more: {}}}\nmirrors:\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        shops.change("south: {topics", f"south: {{listen: '127.0.0.1:{port}', topics")
        assert "cannot listen" in (found := error(shops.run("apply"))) and "was not done: mend it" in found
    shops.change(f"listen: '127.0.0.1:{port}', ", "")
    assert shops.steps()[0][:2] == ("start", "south-broker")  # what was there is there again
    assert said(shops.run("consume", "orders", "-b", "south", "-n", "1")) == "one\n"
    assert [(row["topic"], row["partitions"]) for row in json.loads(said(shops.run(*LIST, "-b", "south")))] == [
        ("more", 1), ("orders", 2),
    ]  # fmt: skip
    assert shops.steps() == []


REFUSED = [
    ("partitions: 2,", "partitions: 1,", ["topic orders: it has 2 partitions", "write partitions: 2"]),
    ("office: {}", "office: {brokers: 3}", ["data of 1 broker", "set brokers: 1"]),
    ("office: {}", "office: {listen: '127.0.0.1:29999'}", ["office-broker: where", "`isthmus down`, then"]),
    ("source: north, target: office", "source: office, target: north", ["link-mirror: the source", "another name"]),
    ("count.py:app", "gone.py:app", ["worker count: there is no file", "gone.py"]),
    ("name: shops", "name: bars", ["bars is not up", "stopped by --data"]),
]


def test_what_cannot_be_changed_live_is_refused_before_anything_is_changed(shops: Shops):
    before = shops.pids()
    could_be = TOPOLOGY.replace("topics: {orders: {", "topics: {early: {}, orders: {")
    for old, new, ways_out in REFUSED:
        assert old in could_be
        shops.write(could_be.replace(old, new))
        for more in ((), ("--dry-run",)):
            found = error(shops.run("apply", *more))
            assert [part for part in ways_out if part not in found] == [], found
    shops.write(could_be.replace("name: shops", "name: bars"))
    assert "is the topology bars, and shops runs here" in error(shops.run("apply", *FOLDER))
    assert shops.pids() == before
    assert "early" not in said(shops.run("topic", "list", "-b", "north"))
    shops.write(could_be)
    assert [step[:2] for step in shops.steps()] == [("create", "early in north")]  # the control


def test_a_process_is_stopped_started_and_restarted_by_its_name(shops: Shops):
    before = shops.pids()
    assert said(shops.run("stop", "link")) == "link-mirror is stopped\n"
    rows = shops.status()
    assert (rows["link-mirror"]["state"], rows["link-mirror"]["pid"]) == ("stopped", None)
    assert error(shops.run("stop", "link-mirror")) == "link-mirror does not run: it is stopped"
    assert shops.steps() == []  # it stays so
    assert said(shops.run("start", "link")).startswith("link-mirror is ready (pid ")
    assert error(shops.run("start", "link")) == "link-mirror runs already: it is ready"
    answer = json.loads(said(shops.run("restart", "north", "--json")))
    assert (answer["process"], answer["state"], answer["pid"] != before["north-broker"]) == (
        "north-broker",
        "ready",
        True,
    )
    after = shops.pids()
    assert [name for name in before if before[name] == after[name]] == ["office-broker", "count-worker"]
    assert error(shops.run("restart", "nroth")) == (
        "no process is called 'nroth': there are north-broker, office-broker, link-mirror, count-worker"
    )


def test_an_app_that_fails_on_a_record_is_shown_and_takes_nothing_with_it(shops: Shops):
    shops.write_app("raise KeyError('amount')")
    before = shops.pids()
    assert shops.steps() == [("restart", "count-worker", "the app's file has changed")]
    said(shops.run("produce", "orders", "-b", "north", stdin="one\n"))
    rows = shops.until(lambda rows: rows["count-worker"]["state"] == "failed")
    row = rows["count-worker"]
    assert "KeyError: 'amount'" in row["reason"] and "starts again in" in row["reason"]
    assert any("KeyError: 'amount'" in line for line in row["last_lines"])
    others = [name for name in before if name != "count-worker"]
    assert [(rows[name]["state"], rows[name]["pid"]) for name in others] == [("ready", before[name]) for name in others]
    text = shops.run("status")
    assert "count-worker printed last" in text.stderr and "KeyError: 'amount'" in text.stderr
    assert "count-worker" in error(shops.run("apply"))  # it is as the file says, and does not work
    shops.write_app("pass")
    assert shops.steps() == [("restart", "count-worker", "the app's file has changed")]
    assert shops.status()["count-worker"]["state"] == "ready"


def test_a_process_that_hangs_is_shown_as_such_and_restarted(shops: Shops):
    pids = shops.pids()
    hanging = ["link-mirror", "count-worker"]
    for name in hanging:
        os.kill(pids[name], signal.SIGSTOP)
    rows = shops.until(lambda rows: all(rows[name]["state"] != "ready" for name in hanging))
    assert [name for name, row in rows.items() if row["state"] == "silent"] == hanging  # and the brokers: the control
    assert "`isthmus restart link-mirror` ends it" in rows["link-mirror"]["reason"]
    said(shops.run("restart", "link"))
    os.kill(pids["count-worker"], signal.SIGCONT)
    rows = shops.until(lambda rows: {row["state"] for row in rows.values()} == {"ready"})
    assert rows["count-worker"]["pid"] == pids["count-worker"]


def test_an_app_that_blocks_its_loop_is_shown_where(shops: Shops):
    shops.write_app("__import__('time').sleep(3600)")
    shops.steps()
    said(shops.run("produce", "orders", "-b", "north", stdin="one\n"))
    rows = shops.until(lambda rows: rows["count-worker"]["last_lines"] != [])
    assert [name for name, row in rows.items() if row["state"] == "silent"] == ["count-worker"]
    text = shops.run("status").stderr
    assert text.startswith("count-worker is here") and f'{shops.folder}/count.py", line 9 in count' in text
    shops.write_app("pass")
    assert shops.steps() == [("restart", "count-worker", "the app's file has changed")]


def test_no_stale_lag_stands_beside_a_mirror_whose_source_is_stopped(shops: Shops):
    def rows() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(said(shops.run("mirror", "status", "-b", "office", "--json")))
        return [row for row in found if row["topic"]]

    def until(state: str) -> list[dict[str, Any]]:
        deadline = time.monotonic() + WAIT_S
        while not (found := rows()) or {row["state"] for row in found} != {state}:
            assert time.monotonic() < deadline, found
        return found

    said(shops.run("produce", "orders", "-b", "north", stdin="one\ntwo\n"))
    assert {row["lag_records"] for row in until("MIRRORING")} == {0}  # the control
    said(shops.run("stop", "north"))
    for row in until("SOURCE_UNAVAILABLE"):
        assert (row["lag_records"], row["lag_ms"], row["source_high_watermark"]) == (None, None, None)
    said(shops.run("start", "north"))
    until("MIRRORING")
    assert shops.run("mirror", "status", "-b", "office").stderr == ""
    said(shops.run("stop", "link"))
    deadline = time.monotonic() + WAIT_S
    while "link link: its mirror has written nothing" not in shops.run("mirror", "status", "-b", "office").stderr:
        assert time.monotonic() < deadline
    assert {row["lag_records"] for row in rows()} == {None}


def test_a_supervisor_that_hangs_is_said_to(shops: Shops):
    pid = json.loads((shops.folder / ".isthmus/shops/supervisor.json").read_text())["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        assert "has said nothing for 5 s: it hangs, or is paused" in error(shops.run("status"))
    finally:
        os.kill(pid, signal.SIGCONT)
    said(shops.run("status"))


def test_apply_to_a_cluster_that_nobody_here_started(kafka: str, tmp_path: Path):
    create_topics(kafka, ["applied-there"], 3)
    file = tmp_path / "topology.yaml"
    topics = "{applied-new: {partitions: 2, options: {cleanup.policy: compact}}, applied-there: {partitions: %d}}"
    for partitions, wanted in ((4, ["create", "change"]), (4, [])):
        file.write_text(f"name: elsewhere\ndatacenters:\n  dc: {{topics: {topics % partitions}}}\n")
        answer = json.loads(said(isthmus("apply", "-b", kafka, "--json", folder=tmp_path)))
        assert [each["do"] for each in answer["steps"]] == wanted
    topic = json.loads(said(isthmus("topic", "describe", "applied-new", "-b", kafka, "--json", folder=tmp_path)))
    assert (topic["options"], len(topic["partitions"])) == ({"cleanup.policy": "compact"}, 2)
    file.write_text(f"name: elsewhere\ndatacenters:\n  dc: {{topics: {topics % 1}}}\n")
    assert "it has 4 partitions" in error(isthmus("apply", "-b", f"dc={kafka}", folder=tmp_path))
    assert "has no datacenter cd, but dc" in error(isthmus("apply", "-b", f"cd={kafka}", folder=tmp_path))
    found = error(isthmus("apply", folder=tmp_path))
    assert found.startswith("elsewhere is not up: start it with `isthmus up -f topology.yaml`") and "-b NAME=" in found
