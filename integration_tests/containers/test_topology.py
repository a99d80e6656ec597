"""docker-compose.multi-dc.yml as a person starts it: flights mirrored exactly, through a WAN that is cut, a broker that
is killed and a mirror that is paused; and nothing is left of it in the end.

Each fault test sees that its fault happened, and that records were on their way meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration_tests.console.commands import isthmus, said
from integration_tests.containers.airports import Airports
from integration_tests.mirror.workers import run, until
from isthmus.deploy.compose import compose_file, published
from isthmus.deploy.engine import EngineError, compose_command, docker
from isthmus.deploy.launch import PORT_BASE
from isthmus.deploy.project import ComposeProject, Container
from isthmus.deploy.supervisor import State
from isthmus.deploy.topology import load

ROOT = Path(__file__).parents[2]
COMPOSE_FILE = ROOT / "docker-compose.multi-dc.yml"
FLIGHTS = ROOT / "examples" / "flights" / "topology.yaml"
PROJECT = "isthmus-tests"
CUT_S = 20.0
COUNT = 2_000  # events an airport in each portion
RESTART_TIMEOUT_S = 60.0
TEST_TIMEOUT_S = 240.0


@pytest.fixture(scope="module")
def project(isthmus_image: str) -> Iterator[ComposeProject]:
    """The committed file, up; and gone without a trace at the end."""
    made = ComposeProject(COMPOSE_FILE, PROJECT)
    made.require(published(load(FLIGHTS), PORT_BASE))
    try:
        made.up()
        yield made
    except BaseException:
        for each in made.containers():
            print(f"--- {each}\n{docker('logs', '--tail', '20', made.container(each).id)}")
        raise
    finally:
        made.down()


@pytest.fixture(scope="module")
def airports(project: ComposeProject) -> Airports:
    return Airports(published(load(FLIGHTS), PORT_BASE))


def by_hand(*words: str) -> tuple[str, ...]:
    """A command of compose's on the committed file, as in its heading."""
    return (*compose_command(), "-f", str(COMPOSE_FILE), *words)


def execute(container: Container, *command: str) -> str:
    return docker("exec", container.id, *command)


# --- As it stands ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compose", ["docker-compose", "docker compose"])
def test_either_compose_takes_the_file(compose: str) -> None:
    command = compose.split()
    if not shutil.which(command[0]) or subprocess.run([*command, "version"], capture_output=True).returncode:
        pytest.skip(f"there is no `{compose}` here")
    done = subprocess.run([*command, "-f", COMPOSE_FILE, "config", "-q"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_up_starts_all_of_it(project: ComposeProject) -> None:
    """Topics' containers are done, brokers healthy, and no profile is on."""
    services = dict.fromkeys(load_services())
    expected = {name: State.FINISHED if name.endswith("-topics") else State.READY for name in services}

    async def as_expected() -> bool:
        found = await asyncio.to_thread(project.containers)
        assert {name: each.status.state for name, each in found.items()} == expected, found
        return True

    run(until(as_expected, "all runs"), TEST_TIMEOUT_S)


def load_services() -> list[str]:
    """Those without a profile."""
    done = subprocess.run(by_hand("config", "--services"), capture_output=True, text=True, check=True)
    return [name for name in done.stdout.split() if name != "spark"]  # which compose 1 lists all the same


def test_topics_are_as_the_topology_says(airports: Airports, tmp_path: Path) -> None:
    at = ("-b", airports.addresses["jfk"])
    topics = json.loads(said(isthmus("topic", "list", "--json", *at, folder=tmp_path)))
    assert topics == [{"topic": "flights", "partitions": 3}, {"topic": "weather", "partitions": 1}]
    facts = json.loads(said(isthmus("topic", "describe", "flights", "--json", *at, folder=tmp_path)))
    assert facts["options"] == {"retention.ms": "-1"}


def test_a_container_reaches_who_shares_a_network_with_it_and_nobody_else(project: ComposeProject) -> None:
    health = ("python", "-m", "isthmus.core_broker.health")
    mirror, broker = project.container("ewr-aggregate-mirror"), project.container("ewr-broker")
    for own in ("ewr-broker:9092", "aggregate-broker:9092"):
        assert execute(mirror, *health, own).startswith("ready ")
    for each, foreign in ((mirror, "jfk-broker:9092"), (broker, "jfk-broker:9092"), (broker, "aggregate-broker:9092")):
        with pytest.raises(EngineError, match="not ready"):
            execute(each, "sh", "-c", f"{' '.join(health)} {foreign} >&2")


def test_a_container_can_write_to_its_volume_and_tmp_alone(project: ComposeProject) -> None:
    broker = project.container("ewr-broker")
    assert execute(broker, "id", "-u").strip() != "0"
    execute(broker, "sh", "-c", "echo > /tmp/here && rm /tmp/here && test -w /data")
    for folder in ("/", "/etc", "/opt", "/var/tmp"):
        with pytest.raises(EngineError, match="Read-only file system"):
            execute(broker, "sh", "-c", f"echo > {folder}/here")


def test_ports_are_on_loopback_alone(project: ComposeProject) -> None:
    for name in ("ewr", "jfk", "lga", "aggregate"):
        said_of = json.loads(docker("inspect", project.container(f"{name}-broker").id))[0]
        bound = [each["HostIp"] for each in said_of["NetworkSettings"]["Ports"]["9093/tcp"]]
        assert bound == ["127.0.0.1"]


def test_flights_are_mirrored_exactly(airports: Airports) -> None:
    async def scenario() -> None:
        await airports.send_all(COUNT)
        await airports.exact()

    run(scenario(), TEST_TIMEOUT_S)


# --- Faults ---------------------------------------------------------------------------------------------------------


def test_a_wan_that_is_cut_for_20_s_shows_its_lag_and_heals_exactly(
    project: ComposeProject, airports: Airports, tmp_path: Path
) -> None:
    """The aggregate leaves the WAN: all mirrors lose it. What they last said of themselves grows old; what the clusters
    say, asked on both sides, is the lag."""
    aggregate, wan = project.container("aggregate-broker"), f"{PROJECT}_wan"

    async def scenario() -> None:
        await airports.exact()
        before = await airports.sample()
        docker("network", "disconnect", wan, aggregate.id)
        try:
            assert wan not in project.container("aggregate-broker").networks
            sending = asyncio.create_task(airports.send_all(COUNT, over_s=CUT_S))
            seen = [0]
            while not sending.done():
                lag = await asyncio.to_thread(airports.lag, "jfk", tmp_path)
                assert lag >= seen[-1], "the lag shrinks though nothing can get through"
                seen.append(lag)
            await sending
            assert await asyncio.to_thread(airports.lag, "jfk", tmp_path) == COUNT  # all of it is missing
            assert len(dict.fromkeys(seen)) > 2, f"the lag was not seen growing: {seen}"
            assert dict((await airports.sample()).mirrored) == dict(before.mirrored)  # the control: nothing got through
            print(f"lag of jfk while the WAN was cut: {seen}")
        finally:
            docker("network", "connect", "--alias", "aggregate-broker", wan, aggregate.id)
        await airports.exact()
        for name in airports.names:
            assert await asyncio.to_thread(airports.lag, name, tmp_path) == 0

        async def told() -> bool:  # the mirrors speak again, and say the same
            return not [name for name in airports.names if await asyncio.to_thread(airports.lag, name, tmp_path, False)]

        await until(told, "the mirrors say that nothing is missing")

    run(scenario(), TEST_TIMEOUT_S)


@pytest.mark.parametrize("service", ["jfk-broker", "aggregate-broker"])
def test_a_broker_container_that_is_killed_is_restarted_and_nothing_is_lost(
    service: str, project: ComposeProject, airports: Airports
) -> None:
    async def scenario() -> None:
        sending = asyncio.create_task(airports.send_all(COUNT, over_s=6.0))
        before = await asyncio.to_thread(project.container, service)

        async def under_way() -> bool:
            mirrored = sum((await airports.sample()).mirrored.values())
            return mirrored > sum(airports.sent.values()) - 3 * COUNT + COUNT // 2

        await until(under_way, "some of this portion is mirrored")
        await asyncio.to_thread(project.crash, service)
        assert not sending.done()  # the control: records were still to come

        async def restarted() -> Container:
            found = await asyncio.to_thread(project.container, service)
            assert found.status.state is State.READY and found.status.since_ms > before.status.since_ms, found
            return found

        after = await until(restarted, f"the restart policy starts {service} again", RESTART_TIMEOUT_S)
        assert (after.id, after.status.restarts) == (before.id, before.status.restarts + 1)
        await sending
        await airports.exact()

    run(scenario(), TEST_TIMEOUT_S)


def test_what_docker_kill_ends_stays_down_until_it_is_started(project: ComposeProject, airports: Airports) -> None:
    """Why the crash above comes from inside: Docker takes this for a stop by hand. Once started, the mirror goes on."""
    service = "lga-aggregate-mirror"
    container = project.container(service)
    docker("kill", container.id)
    try:

        async def scenario() -> None:
            await airports.send("lga", COUNT)
            assert (await airports.sample()).mirrored["lga"] == airports.sent["lga"] - COUNT
            found = await asyncio.to_thread(project.container, service)
            assert (found.status.state, found.exit_code, found.status.restarts) == (State.FAILED, 137, 0)

        run(scenario(), TEST_TIMEOUT_S)
    finally:
        docker("start", container.id)
    run(airports.exact(), TEST_TIMEOUT_S)


def test_a_mirror_container_that_is_paused_catches_up_exactly(
    project: ComposeProject, airports: Airports, tmp_path: Path
) -> None:
    mirror = project.container("ewr-aggregate-mirror")

    async def scenario() -> None:
        await airports.exact()
        docker("pause", mirror.id)
        try:
            await airports.send_all(COUNT)
            assert await asyncio.to_thread(airports.lag, "ewr", tmp_path) == COUNT  # the control: it stands still

            async def others() -> bool:
                mirrored = (await airports.sample()).mirrored
                return mirrored["jfk"] == airports.sent["jfk"] and mirrored["lga"] == airports.sent["lga"]

            await until(others, "the other mirrors go on")
            assert await asyncio.to_thread(airports.lag, "ewr", tmp_path) == COUNT
        finally:
            docker("unpause", mirror.id)
        await airports.exact()
        assert await asyncio.to_thread(airports.lag, "ewr", tmp_path) == 0

    run(scenario(), TEST_TIMEOUT_S)


# --- The end --------------------------------------------------------------------------------------------------------

SMALL = """\
name: small
datacenters:
  here: {topics: {words: {options: {retention.ms: -1}}}}
  there: {}
mirrors:
  - {name: here-there, source: here, target: there, topics: [words], rename: "{topic}"}
workers:
  - {name: letters, app: "apps/letters.py:app", datacenter: there}
"""
APP = """\
from isthmus.streams import App

app = App("letters")
words, lengths = app.topic("words", value_serializer="raw"), app.topic("lengths", value_serializer="raw")


@app.agent(words)
async def measure(stream):
    async for event in stream.events():
        await lengths.send(value=str(len(event.value)).encode())
"""
SMALL_BASE = 19_492


@pytest.fixture
def small(isthmus_image: str, tmp_path: Path) -> Iterator[ComposeProject]:
    """Two datacenters, a mirror and an app of the user's own; not up yet."""
    (tmp_path / "apps").mkdir()
    (tmp_path / "apps" / "letters.py").write_text(APP)
    (tmp_path / "topology.yaml").write_text(SMALL)
    file = tmp_path / "compose.yaml"
    file.write_text(compose_file(tmp_path / "topology.yaml", file, SMALL_BASE))
    made = ComposeProject(file, f"{PROJECT}-small")
    try:
        yield made
    finally:
        made.down()


def test_down_keeps_the_data_and_down_v_leaves_nothing(small: ComposeProject, tmp_path: Path) -> None:
    """An app that lies beside the topology is mounted, and does its work."""
    here, there = f"127.0.0.1:{SMALL_BASE}", f"127.0.0.1:{SMALL_BASE + 1}"
    words = (*small.command, "down", "-t", "10")

    def lengths() -> str:
        done = isthmus("consume", "lengths", "-b", there, "-e", folder=tmp_path)
        return done.stdout if done.returncode == 0 else ""

    async def measured(wanted: str) -> bool:
        return await asyncio.to_thread(lengths) == wanted

    small.up()
    said(isthmus("produce", "words", "-b", here, folder=tmp_path, stdin="one\nthree\n"))
    run(until(lambda: measured("3\n5\n"), "the app saw both words"), TEST_TIMEOUT_S)
    left = small.left()  # the control; compose 1 makes Spark's volume, too, which nobody uses
    assert [sum(each.startswith(f"{kind} ") for each in left) for kind in ("container", "network")] == [5, 3]
    assert {f"volume {small.name}_{name}-data" for name in ("here", "there")} <= set(left)
    subprocess.run(words, check=True, capture_output=True)
    assert {each.split()[0] for each in small.left()} == {"volume"}
    small.up()
    assert said(isthmus("consume", "words", "-b", there, "-e", folder=tmp_path)) == "one\nthree\n"
    said(isthmus("produce", "words", "-b", here, folder=tmp_path, stdin="seven77\n"))
    run(until(lambda: measured("3\n5\n7\n"), "the app goes on where it was"), TEST_TIMEOUT_S)
    small.down()
    assert small.left() == []


# --- What can be wrong ----------------------------------------------------------------------------------------------


def refused(*arguments: str, folder: Path, **environment: str) -> str:
    """The one line by which `isthmus demo --compose` refuses; and that it left nothing."""
    demo = ("demo", "--compose", "--no-spark", "--flights", "10", "--port-base", str(SMALL_BASE), *arguments)
    done = isthmus(*demo, folder=folder, env=environment)
    assert done.returncode == 1, done.stdout + done.stderr
    [line] = done.stderr.splitlines()
    assert line.startswith("error: "), line
    left = docker("ps", "--all", "--quiet", "--filter", f"label=com.docker.compose.project=isthmus-demo-{SMALL_BASE}")
    assert left == ""
    return line.removeprefix("error: ")


def test_a_port_that_is_taken(isthmus_image: str, small: ComposeProject, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", SMALL_BASE + 1)):
        line = refused(folder=tmp_path)
        assert line.startswith(f"port {SMALL_BASE + 1} of 127.0.0.1, which jfk is to have, cannot be had (Address al")
        with pytest.raises(EngineError, match=rf"port {SMALL_BASE + 1} of 127\.0\.0\.1 is taken: stop what listens"):
            small.up()  # the engine's own words, when it comes to that


def test_an_image_that_is_missing(isthmus_image: str, tmp_path: Path) -> None:
    line = refused(folder=tmp_path, ISTHMUS_IMAGE="isthmus:not-there")
    assert line.endswith("there is no image isthmus:not-there: build it with `isthmus image build`")


def test_no_engine(isthmus_image: str, tmp_path: Path) -> None:
    nowhere = f"unix://{tmp_path}/nobody.sock"
    line = refused(folder=tmp_path, DOCKER_HOST=nowhere)
    assert line.startswith(f"no Docker engine runs ({nowhere}): start it")


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 1.25.0", "docker-compose is 1.25.0, too old: install 1.29 or compose 2"),
        (None, "there is no `docker compose` and no `docker-compose`: on Debian"),
    ],
)
def test_no_compose_that_would_do(isthmus_image: str, tmp_path: Path, script: str | None, said: str) -> None:
    commands = tmp_path / "bin"
    commands.mkdir()
    (commands / "docker").write_text(f'#!/bin/sh\n[ "$1" = compose ] && exit 1\nexec {shutil.which("docker")} "$@"\n')
    if script:
        (commands / "docker-compose").write_text(f"#!/bin/sh\n{script}\n")
    for each in commands.iterdir():
        each.chmod(0o755)
    (commands / "sh").symlink_to(shutil.which("sh") or "/bin/sh")
    assert refused(folder=tmp_path, PATH=str(commands)).startswith(said)


def test_what_another_run_left(small: ComposeProject, tmp_path: Path) -> None:
    small.up()
    with pytest.raises(EngineError, match="has 5 containers of another run") as caught:
        small.require({})
    command = str(caught.value).split("`")[1]
    subprocess.run(command.split(), check=True, capture_output=True)
    assert small.left() == []
