"""The demo's Spark job as the demo runs it: killed -9 in mid-run and started again, exact at the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka import Producer

from integration_tests.brokers import BrokerProcess
from isthmus.examples.flights import check
from isthmus.examples.flights.events import AIRPORTS, PARTITIONS, Flight, events_of, read_flights, weather_events
from isthmus.examples.flights.queries import CARRIED
from isthmus.examples.flights.watch import delta_events

from .conftest import Cluster

FLIGHTS = 3000


@pytest.fixture(scope="module")
def flights() -> list[Flight]:
    return read_flights(FLIGHTS)


@pytest.fixture(scope="module")
def aggregate(isthmus_broker: BrokerProcess, flights: list[Flight]) -> str:
    """A broker with the topics that the mirrors and the stream app fill in the demo."""
    cluster = Cluster(isthmus_broker.bootstrap)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "compression.type": "lz4", "linger.ms": 20})
    for origin in AIRPORTS:
        cluster.topic(PARTITIONS, f"{origin.lower()}.flights")
        cluster.topic(1, f"{origin.lower()}.weather")
        for event in events_of([flight for flight in flights if flight.origin == origin]):
            producer.produce(f"{origin.lower()}.flights", event.value, event.key, timestamp=event.timestamp_ms)
        for event in weather_events(origin)[:500]:
            producer.produce(f"{origin.lower()}.weather", event.value, event.key, timestamp=event.timestamp_ms)
        producer.flush()
    cluster.topic(PARTITIONS, CARRIED)
    for row, pair in check.expected_carried(flights).items():
        producer.produce(CARRIED, orjson.dumps({**pair, "dep_delay": -1}), str(row))  # taken back by the next
        producer.produce(CARRIED, orjson.dumps(pair), str(row))
        producer.produce(CARRIED, orjson.dumps(pair), f"{row}-gone")
        producer.produce(CARRIED, None, f"{row}-gone")
    assert producer.flush(30) == 0
    return cluster.bootstrap


Job = Callable[[Callable[[str], bool]], int]


@pytest.fixture
def job(aggregate: str, tmp_path: Path) -> Iterator[Job]:
    """Runs the job until it ends or `kill` says so of a line; its exit code."""
    (tmp_path / "go").touch()
    command = [sys.executable, "-m", "isthmus.examples.flights.queries", "--bootstrap", aggregate]
    command += ["--delta", f"{tmp_path}/delta/flights", "--out", f"{tmp_path}/out.json", "--go", f"{tmp_path}/go"]
    running: list[subprocess.Popen[str]] = []

    def run(kill: Callable[[str], bool]) -> int:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
        running.append(process)
        assert process.stdout
        for line in process.stdout:
            if kill(line):
                os.killpg(process.pid, signal.SIGKILL)  # the JVM too, as the supervisor does it
                break
        process.stdout.close()
        return process.wait(60)

    yield run
    for process in running:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize(
    "shares",
    [
        pytest.param((), id="never"),
        pytest.param((0.3,), id="once", marks=pytest.mark.soak),  # as the demo does, too
        pytest.param((0.2, 0.25, 0.3, 0.5, 0.55), id="often", marks=pytest.mark.soak),
    ],
)
def test_it_ends_exact_however_often_it_was_killed(
    job: Job, flights: list[Flight], tmp_path: Path, shares: tuple[float, ...]
) -> None:
    """A line `rows N` comes after the commit to Delta and before Spark's own: the batch will be replayed. A batch is a
    bit more than a quarter of all rows, so that the first two are killed again and again."""

    def killer(share: float) -> Callable[[str], bool]:
        def kill(line: str) -> bool:
            what, _, rows = line.partition(" ")
            reached = what == "rows" and int(rows) >= share * 2 * FLIGHTS
            assert not reached or 0.2 <= int(rows) / (2 * FLIGHTS) <= 0.8
            return reached

        return kill

    for share in shares:
        assert job(killer(share)) == -signal.SIGKILL
        assert not (tmp_path / "out.json").exists()
    assert job(lambda line: False) == 0
    verdict = check.check_events(
        "Delta table", check.expected_events(events_of(flights)), delta_events(str(tmp_path / "delta" / "flights"))
    )
    assert verdict.right, verdict.lines()
    compare({each["title"]: each["rows"] for each in json.loads((tmp_path / "out.json").read_text())}, flights)


def compare(answers: dict[str, list[list[Any]]], flights: list[Flight]) -> None:
    """Answers against plain counting of the CSV."""
    assert list(answers) == [
        "Flights per origin",
        "Mean departure delay per carrier",
        "Ten worst routes",
        "Delay against wind",
        "Delay carried between airports",
    ]
    departed = [flight for flight in flights if flight.dep_delay is not None]
    for origin, scheduled, left, cancelled, delay in answers["Flights per origin"]:
        assert scheduled == sum(flight.origin == origin for flight in flights)
        assert left == sum(flight.origin == origin for flight in departed) == scheduled - cancelled
        assert delay == mean(flight.dep_delay for flight in departed if flight.origin == origin)
    carriers = {row[0]: row[1:] for row in answers["Mean departure delay per carrier"]}
    assert carriers["JetBlue Airways"] == [
        sum(flight.carrier == "B6" for flight in departed),
        mean(flight.dep_delay for flight in departed if flight.carrier == "B6"),
    ]
    assert sum(count for count, _ in carriers.values()) == len(departed)
    routes: dict[str, list[int]] = defaultdict(list)
    for flight in departed:
        routes[f"{flight.origin} to {flight.dest}"].append(flight.dep_delay or 0)
    worst = answers["Ten worst routes"]
    assert len(worst) == 10
    assert all(delay == mean(routes[route]) and count == len(routes[route]) for route, count, delay in worst)
    assert worst[0][2] >= worst[-1][2]
    wind = answers["Delay against wind"]
    assert sum(count for _, count, _ in wind) == len(departed)
    pairs: dict[tuple[str, str], int] = defaultdict(int)
    for pair in check.expected_carried(flights).values():
        pairs[pair["previous_origin"], pair["origin"]] += 1
    assert {(row[0], row[1]): row[2] for row in answers["Delay carried between airports"]} == pairs


def mean(delays: Any) -> Any:
    found = list(delays)
    return pytest.approx(sum(found) / len(found), abs=0.051)


def test_a_wrong_java_is_one_line_and_no_restart(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "isthmus.examples.flights.queries", "--bootstrap", "127.0.0.1:1"]
    command += ["--delta", str(tmp_path / "d"), "--out", str(tmp_path / "o")]
    done = subprocess.run(command, env={**os.environ, "JAVA_HOME": str(tmp_path)}, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("error: Spark needs Java 17 or later, but JAVA_HOME=")
    assert done.stderr.count("\n") == 1
