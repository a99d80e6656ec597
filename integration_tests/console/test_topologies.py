"""`isthmus up`, `status`, `down`: the flights topology end to end, and every way not to come up."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration_tests.console.commands import ROOT, begun, error, isthmus, left_behind, said

FLIGHTS = str(ROOT / "examples/flights/topology.yaml")
PROCESSES = [
    "ewr-broker", "jfk-broker", "lga-broker", "aggregate-broker",
    "ewr-aggregate-mirror", "jfk-aggregate-mirror", "lga-aggregate-mirror", "delays-worker",
]  # fmt: skip
WAIT_S = 20.0


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in which the flights topology is up."""
    folder = tmp_path_factory.mktemp("flights")
    try:
        rows = json.loads(said(isthmus("up", "-f", FLIGHTS, "--json", folder=folder)))
        assert [row["process"] for row in rows] == PROCESSES
        yield folder
        assert "is down" in said(isthmus("down", "-f", FLIGHTS, folder=folder))
    finally:
        isthmus("down", "-f", FLIGHTS, folder=folder)
    assert left_behind(folder) == []


def status(folder: Path) -> dict[str, dict[str, object]]:
    rows = json.loads(said(isthmus("status", "-f", FLIGHTS, "--json", folder=folder)))
    return {row["process"]: row for row in rows}


def test_status_names_every_process(running: Path):
    rows = status(running)
    assert list(rows) == PROCESSES
    assert {row["state"] for row in rows.values()} == {"ready"}
    text = said(isthmus("status", "-f", FLIGHTS, folder=running))
    assert len(text.splitlines()) == 1 + len(PROCESSES)  # one line each where nobody's terminal is narrow
    assert len(left_behind(running)) == 1 + 4  # supervisor and brokers: the control of what `down` must stop


def test_up_twice_is_refused(running: Path):
    before = status(running)
    assert "flights is up already: see `isthmus status" in error(isthmus("up", "-f", FLIGHTS, folder=running))
    assert status(running) == before


def test_a_datacenter_is_found_by_its_name_and_its_topics_are_there(running: Path):
    topics = json.loads(said(isthmus("topic", "list", "-b", "ewr", "--json", folder=running)))
    assert topics == [{"topic": "flights", "partitions": 3}, {"topic": "weather", "partitions": 1}]
    text = error(isthmus("topic", "list", "-b", "ewer", folder=running))
    assert "datacenters known here: aggregate, ewr, jfk, lga" in text


def test_a_mirrored_topic_says_whose_it_is_and_is_carried(running: Path):
    said(isthmus("produce", "flights", "-b", "lga", "-p", "1", folder=running, stdin="here\n"))
    deadline = time.monotonic() + WAIT_S
    while "here" not in (
        said(isthmus("consume", "lga.flights", "-b", "aggregate", "-e", folder=running))
        if "lga.flights" in isthmus("topic", "list", "-b", "aggregate", folder=running).stdout
        else ""
    ):
        assert time.monotonic() < deadline
    text = said(isthmus("topic", "describe", "lga.flights", "-b", "aggregate", folder=running))
    assert "note: owned by mirror link lga-aggregate" in text
    rows = json.loads(said(isthmus("mirror", "status", "lga-aggregate", "-b", "aggregate", "--json", folder=running)))
    assert {row["link"] for row in rows} == {"lga-aggregate"}
    assert {(row["topic"], row["partition"]) for row in rows} == {("weather", 0)} | {("flights", n) for n in range(3)}
    text = error(isthmus("produce", "lga.flights", "-b", "aggregate", folder=running, stdin="no\n"))
    assert "POLICY_VIOLATION" in text and "lga-aggregate" in text


def test_the_lag_of_a_mirror_that_hangs_is_what_the_clusters_say(running: Path):
    """It cannot write its status any more; a mirror that its WAN is cut from cannot either."""
    at = ("mirror", "status", "jfk-aggregate", "-b", "aggregate")

    def lag(*more: str) -> int:
        rows = json.loads(said(isthmus(*at, *more, "--json", folder=running)))
        return sum(row["lag_records"] for row in rows if row["topic"] == "flights")

    def until_none() -> None:
        """By what the mirror has written, too: it may be behind what the clusters say."""
        deadline = time.monotonic() + WAIT_S
        while (lag(), lag("--source", "jfk")) != (0, 0):
            assert time.monotonic() < deadline

    said(isthmus("produce", "flights", "-b", "jfk", folder=running, stdin="one\n"))
    until_none()
    pid = int(str(status(running)["jfk-aggregate-mirror"]["pid"]))
    os.kill(pid, signal.SIGSTOP)
    try:
        said(isthmus("produce", "flights", "-b", "jfk", folder=running, stdin="a\n" * 5))
        assert (lag(), lag("--source", "jfk")) == (0, 5)
    finally:
        os.kill(pid, signal.SIGCONT)
    until_none()
    said(isthmus("topic", "delete", "weather", "-b", "jfk", folder=running))
    rows = json.loads(said(isthmus(*at, "--source", "jfk", "--json", folder=running)))
    assert [row["lag_records"] for row in rows] == [0, 0, 0, None]  # no topic, no lag
    text = error(isthmus(*at, "--source", "ewr", folder=running))
    assert text.startswith("--source is cluster ") and "jfk.flights is mirrored from cluster " in text
    text = error(isthmus("mirror", "status", "-b", "aggregate", "-s", "ewr", folder=running))
    assert text == "--source is that of one link: name it, one of ewr-aggregate, jfk-aggregate, lga-aggregate"


def test_what_is_killed_is_started_again(running: Path):
    row = status(running)["jfk-aggregate-mirror"]
    os.kill(int(str(row["pid"])), signal.SIGKILL)
    deadline = time.monotonic() + WAIT_S
    while (now := status(running)["jfk-aggregate-mirror"])["state"] != "ready" or now["pid"] == row["pid"]:
        assert time.monotonic() < deadline
    assert now["restarts"] == int(str(row["restarts"])) + 1


def test_down_of_what_is_not_up(tmp_path: Path):
    assert "flights is not up" in error(isthmus("down", "-f", FLIGHTS, folder=tmp_path))
    assert "start it with `isthmus up" in error(isthmus("status", "-f", FLIGHTS, folder=tmp_path))


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "t.yaml"
    file.write_text(f"name: small\n{text}")
    return file


ONE = "datacenters:\n  here: {}\n"


@pytest.mark.parametrize(
    ("text", "line", "way_out"),
    [
        (ONE + "mirors: []\n", 4, "is not a key of this part"),
        (ONE + "mirrors:\n  - {name: m, source: hree, target: here, topics: [a]}\n", 5, "did you mean 'here'?"),
        ("datacenters:\n  here: {brokers: 2}\n", 3, "set 3"),
        ("datacenters:\n  here: {\n", 4, "is not YAML"),
        ("datacenters:\n  here: {listen: 9092}\n", 3, ""),
        ("", 1, "is missing"),
    ],
)
@pytest.mark.parametrize("command", ["up", "status"])
def test_a_wrong_file_is_named_with_line_and_way_out(tmp_path: Path, text: str, line: int, way_out: str, command: str):
    file = written(tmp_path, text)
    found = error(isthmus(command, "-f", str(file), folder=tmp_path))
    assert found.startswith(f"{file}:{line}: "), found
    assert way_out in found
    assert not (tmp_path / ".isthmus").exists()


WRONG_OPTIONS = """\
datacenters:
  here:
    options:
      num.partitons: 3
      num.partitions: 3
      log.dirs: /tmp
      metrics.listener: nowhere
      delete.topic.enable: yes!
    topics:
      a: {options: {retention.ms: soon}}
      b:
        options:
          min.compaction.lag.ms: 2
          max.compaction.lag.ms: 1
"""
OPTIONS_SAID = """\
7: datacenters.here.options.log.dirs: where data goes is said to the command that starts the topology: leave it out
5: datacenters.here.options.num.partitons: unknown option num.partitons: did you mean num.partitions?
8: datacenters.here.options.metrics.listener: Invalid value nowhere for configuration metrics.listener: expected HOST:…
9: datacenters.here.options.delete.topic.enable: Invalid value yes! for configuration delete.topic.enable: Expected va…
11: datacenters.here.topics.a.options.retention.ms: Invalid value soon for configuration retention.ms: Not a number of …
13: datacenters.here.topics.b.options: conflict topic config setting min.compaction.lag.ms (2) > max.compaction.lag.ms…
"""


@pytest.mark.parametrize("command", ["up", "compose"])
def test_wrong_options_are_named_with_their_lines_all_at_once(tmp_path: Path, command: str):
    file = written(tmp_path, WRONG_OPTIONS)
    found = error(isthmus(command, "-f", str(file), folder=tmp_path)).splitlines()
    for line, wanted in zip(found, OPTIONS_SAID.splitlines(), strict=True):
        if command == "up" or ".log.dirs:" not in wanted:  # which a compose file says differently
            assert line.startswith(f"{file}:{wanted.removesuffix('…')}"), line
    assert not (tmp_path / ".isthmus").exists()


def test_a_missing_file(tmp_path: Path):
    assert error(isthmus("up", folder=tmp_path)) == "topology.yaml: cannot be read: No such file or directory"


@pytest.mark.parametrize("broken", ["", "import no_such_name\n"], ids=["no file", "no module"])
def test_a_worker_that_does_not_start_leaves_all_else_up_and_is_started_when_it_is_mended(tmp_path: Path, broken: str):
    """It tore the brokers down with it."""
    app = tmp_path / "w.py"
    if broken:
        app.write_text(broken)
    text = "datacenters:\n  here: {topics: {t: {}}}\nworkers:\n  - {name: w, app: 'w.py:app', datacenter: here}\n"
    file = written(tmp_path, text)
    try:
        done = isthmus("up", "-f", str(file), "--json", folder=tmp_path)
        found = error(done)
        assert "w-worker: " in found and ("no_such_name" if broken else "there is no file") in found
        assert "all else of small is up" in found and "isthmus restart NAME" in found
        assert [row["state"] for row in json.loads(done.stdout)] == ["ready", "failed"]
        assert said(isthmus("topic", "list", "-b", "here", folder=tmp_path))
        app.write_text(
            "from isthmus.streams import App\napp = App('w')\n"
            "@app.agent(app.topic('t'))\nasync def each(stream):\n    async for _ in stream: ...\n"
        )
        text = said(isthmus("restart", "w", "-f", str(file), folder=tmp_path))
        assert text.startswith("w-worker is ready (pid ")
    finally:
        isthmus("down", "-f", str(file), folder=tmp_path)
    assert left_behind(tmp_path / ".isthmus") == []


def test_a_port_in_use_names_datacenter_and_address(tmp_path: Path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        file = written(tmp_path, f'datacenters:\n  here: {{listen: "{address}"}}\n')
        found = error(isthmus("up", "-f", str(file), folder=tmp_path))
    assert "here-broker" in found and address in found and "Address already in use" in found
    assert left_behind(tmp_path / ".isthmus") == []
    try:
        said(isthmus("up", "-f", str(file), folder=tmp_path))  # the control: the port was all that was wrong
    finally:
        isthmus("down", "-f", str(file), folder=tmp_path)


def test_ctrl_c_while_it_comes_up_leaves_nothing(tmp_path: Path):
    with begun("up", "-f", FLIGHTS, cwd=tmp_path, text=True) as process:
        deadline = time.monotonic() + WAIT_S
        while not left_behind(tmp_path / ".isthmus/flights/data"):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_S) == 130
        assert process.stderr and "Traceback" not in process.stderr.read()
    assert left_behind(tmp_path / ".isthmus") == []


def test_a_topology_whose_folder_is_removed_ends(tmp_path: Path):
    """`isthmus down` could not find it any more."""
    file = written(tmp_path, ONE)
    said(isthmus("up", "-f", str(file), folder=tmp_path))
    assert len(left_behind(tmp_path)) == 2  # the control: supervisor and broker
    shutil.rmtree(tmp_path / ".isthmus")
    deadline = time.monotonic() + WAIT_S
    while left_behind(tmp_path):
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize("change", ["broken", "renamed", "gone"])
def test_a_topology_is_stopped_whatever_became_of_its_file(tmp_path: Path, change: str):
    """It ran on, and nothing but `kill` could end it."""
    file = written(tmp_path, ONE)
    said(isthmus("up", "-f", str(file), folder=tmp_path))
    try:
        if change == "broken":
            file.write_text("name: [\n")
        elif change == "renamed":
            file.write_text(f"name: other\n{ONE}")
        else:
            file.unlink()
        way_out = "; what runs here is looked at and stopped by --data .isthmus/small"
        for command in ("status", "down"):
            assert error(isthmus(command, "-f", str(file), folder=tmp_path)).endswith(way_out)
        assert "here-broker" in said(isthmus("status", "--data", ".isthmus/small", folder=tmp_path))
        assert "small is down" in said(isthmus("down", "--data", ".isthmus/small", folder=tmp_path))
    finally:
        isthmus("down", "--data", ".isthmus/small", folder=tmp_path)
    assert left_behind(tmp_path / ".isthmus") == []
    assert "nothing runs in .isthmus/small)" in error(isthmus("down", "--data", ".isthmus/small", folder=tmp_path))


def test_topics_that_were_made_otherwise_than_the_file_says_now_are_told_and_left(tmp_path: Path):
    topics = "  here: {{topics: {{plain: {{}}, changed: {{partitions: {0}, options: {{cleanup.policy: '{1}'}}}}}}}}\n"
    file = written(tmp_path, "datacenters:\n" + topics.format(2, "compact, delete"))
    try:
        for text, told in (
            (None, ""),
            (None, ""),  # as it is in the file: the control
            (
                topics.format(3, "delete"),
                "note: datacenter here: topic changed is left as it was made: it has 2 partitions, the file says 3; "
                "its cleanup.policy is compact,delete, the file says delete\n",
            ),
        ):
            if text:
                file = written(tmp_path, "datacenters:\n" + text)
            done = isthmus("up", "-f", str(file), folder=tmp_path)
            assert "here-broker" in said(done)
            assert done.stderr == told
            text = said(isthmus("topic", "describe", "changed", "-b", "here", folder=tmp_path))
            said(isthmus("down", "-f", str(file), folder=tmp_path))
            assert len([line for line in text.splitlines() if line.split()[0].isdigit()]) == 2
    finally:
        isthmus("down", "-f", str(file), folder=tmp_path)


def test_a_topology_on_ipv6_is_found_by_its_names(tmp_path: Path):
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            pass
    except OSError as refused:
        pytest.skip(f"this machine has no ::1: {refused}")
    datacenters = 'datacenters:\n  here: {listen: "[::1]:0", topics: {t: {}}}\n  there: {listen: "[::1]:0"}\n'
    link = "mirrors:\n  - {name: m, source: here, target: there, topics: [t]}\n"
    file = written(tmp_path, datacenters + link)
    try:
        rows = json.loads(said(isthmus("up", "-f", str(file), "--json", folder=tmp_path)))
        assert [row["address"].startswith("[::1]:") for row in rows] == [True] * 3
        for row in rows[:2]:  # as they are said, they are taken
            said(isthmus("topic", "list", "-b", row["address"], folder=tmp_path))
        said(isthmus("produce", "t", "-b", "here", folder=tmp_path, stdin="over\n"))
        deadline = time.monotonic() + WAIT_S
        while "here.t" not in said(isthmus("topic", "list", "-b", "there", folder=tmp_path)):
            assert time.monotonic() < deadline
        assert said(isthmus("consume", "here.t", "-b", "there", "-n", "1", folder=tmp_path)) == "over\n"
    finally:
        isthmus("down", "-f", str(file), folder=tmp_path)


def test_an_address_that_was_chosen_and_is_taken_now_is_named_with_the_way_out(tmp_path: Path):
    """It told to choose another by an option of the broker's, which a topology does not have."""
    file = written(tmp_path, ONE)
    kept = tmp_path / ".isthmus/small/addresses.json"
    try:
        said(isthmus("up", "-f", str(file), folder=tmp_path))
        said(isthmus("down", "-f", str(file), folder=tmp_path))
        address = json.loads(kept.read_text())["here"]
        host, _, port = address.rpartition(":")
        with socket.create_server((host, int(port))):
            found = error(isthmus("up", "-f", str(file), folder=tmp_path))
            assert found.startswith(
                f"datacenter here: {address}, the address that was chosen for it, cannot be had again"
            )
            assert "remove here from addresses.json" in found
            kept.write_text("{}")
            said(isthmus("up", "-f", str(file), folder=tmp_path))
            assert json.loads(kept.read_text())["here"] != address
    finally:
        isthmus("down", "-f", str(file), folder=tmp_path)
