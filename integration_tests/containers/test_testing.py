"""`isthmus.testing` in Docker: the very files of the example, faults seen to happen, and nothing left behind."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

from integration_tests.testing.suites import SHOPS, Suite
from integration_tests.testing.test_examples import EXAMPLE
from integration_tests.testing.test_topology import COUNT, answers, is_same, kill_a_worker, produce, status_of
from integration_tests.waiting import until
from isthmus.deploy import engine
from isthmus.testing import (
    Backend,
    IsthmusContainer,
    IsthmusTestingError,
    IsthmusTopology,
    choice,
    docker_container,
    labels,
)
from isthmus.testing import __main__ as command
from isthmus.testing.docker_container import DockerBroker
from isthmus.testing.owner import Owner

pytestmark = pytest.mark.usefixtures("isthmus_image")
TIMEOUT_S = 90.0


@pytest.fixture(autouse=True)
def in_docker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISTHMUS_TESTING", "docker")


def left() -> list[str]:
    """Owners that have something in Docker and are gone, or are this process. Other runs here do not count."""
    owners = {name: Owner.parse(name) for name in labels.owners()}
    return [name for name, owner in owners.items() if owner and (owner.gone or owner.pid == os.getpid())]


def await_nothing_left() -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while found := left():
        assert time.monotonic() < deadline, f"left behind: {found}"
        time.sleep(0.2)


def things_of(suite: Suite) -> list[str]:
    """What the processes of a suite that runs have in Docker: ids of containers, networks and volumes."""
    pids = suite.processes()
    owners = [name for name in labels.owners() if (owner := Owner.parse(name)) and owner.pid in pids]
    return [each for owner in owners for each in labels.found(owner)]


def test_the_example_passes_in_docker_and_leaves_nothing(tmp_path: Path) -> None:
    suite = Suite(EXAMPLE, tmp_path, "docker")
    code, said = suite.run("-v")
    assert code == 0, said
    assert "isthmus: docker: ISTHMUS_TESTING=docker" in said
    assert re.search(r"\b8 passed in", said), said
    suite.await_nothing_left()
    await_nothing_left()


def test_docker_is_found_where_it_is_and_has_the_image(monkeypatch: pytest.MonkeyPatch) -> None:
    choice._found.cache_clear()
    monkeypatch.delenv("ISTHMUS_TESTING")
    found = choice.choose()
    choice._found.cache_clear()
    assert found.backend is Backend.DOCKER
    assert re.fullmatch(rf"docker: Docker \S+ answers and has {re.escape(engine.IMAGE)}", str(found))


# --- One broker -----------------------------------------------------------------------------------------------------


def test_a_container_is_one_of_testcontainers_and_has_its_faults() -> None:
    with IsthmusContainer(options={"num.partitions": 3}) as broker:
        assert isinstance(broker, DockerContainer)
        bootstrap = broker.bootstrap
        produce(bootstrap, "orders")
        broker.pause()
        assert not answers(bootstrap)
        with pytest.raises(IsthmusTestingError, match="the broker is not paused"):
            broker.unpause()
            broker.unpause()
        assert answers(bootstrap, 30)
        broker.kill()
        assert not answers(bootstrap)
        host, _, port = bootstrap.rpartition(":")
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind((host, int(port)))
        assert broker.changed
        broker.restart()
        assert broker.bootstrap == bootstrap
        described = broker.exec(["isthmus", "topic", "describe", "orders", "-b", "127.0.0.1:9092", "--json"])
        assert described.exit_code == 0
        assert described.output.count(b'"partition"') == 3
        assert broker.logs().count(" serves ") == 2
        assert not broker.changed
    await_nothing_left()


def test_other_containers_of_its_network_reach_it() -> None:
    with Network() as network:
        broker = IsthmusContainer()
        assert isinstance(broker, DockerContainer)
        broker.with_network(network).with_network_aliases("kafka")
        with broker:
            produce(broker.bootstrap, "orders")
            assert isinstance(broker, DockerBroker)
            inside = broker.network_bootstrap
            assert inside == "kafka:9092"
            said = engine.docker(
                *("run", "--rm", "--network", network.name, engine.IMAGE),
                *("consume", "orders", "-b", inside, "-e"),
            )
    assert said.count("value ") == COUNT
    await_nothing_left()


def test_an_image_that_is_missing_and_a_port_that_is_taken_and_an_option_that_is_none() -> None:
    with pytest.raises(IsthmusTestingError) as caught:
        IsthmusContainer("isthmus:none")
    assert str(caught.value).endswith(
        "there is no image isthmus:none: build it with `isthmus image build`; or set ISTHMUS_TESTING=local, which "
        "needs no Docker"
    )
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(IsthmusTestingError, match=f"port {port} of 127.0.0.1 is taken: stop what listens there"):
            IsthmusContainer(port=port).start()
        text = SHOPS.replace("north: {}", f'north: {{listen: "127.0.0.1:{port}"}}')
        with pytest.raises(IsthmusTestingError, match=f"datacenter north: port {port} of 127.0.0.1 is taken"):
            IsthmusTopology(text, fixed_ports=True).start()
    with pytest.raises(IsthmusTestingError, match=r"no\.such\.option"):
        IsthmusContainer(options={"no.such.option": 1}).start()
    await_nothing_left()


def test_what_is_not_there_is_told_as_on_this_machine() -> None:
    """Not started yet; removed by somebody else; and the keeper, killed, is missed by no later broker."""
    broker = IsthmusContainer()
    for call in (broker.pause, broker.restart, broker.logs, broker.wait_ready):
        with pytest.raises(IsthmusTestingError, match="the broker is not started: use it in a `with`, or call start"):
            call()
    with broker:
        engine.docker("rm", "--force", broker.get_container_id())  # type: ignore[attr-defined]
        with pytest.raises(IsthmusTestingError, match=r"^Docker: No such container: [0-9a-f]+$"):
            broker.restart()
    keeper = docker_container._reaper(os.getpid()).keeper
    os.kill(keeper.pid, signal.SIGKILL)
    os.waitid(os.P_PID, keeper.pid, os.WEXITED | os.WNOWAIT)
    with broker:
        produce(broker.bootstrap, "orders")
    assert docker_container._reaper(os.getpid()).keeper is not keeper
    await_nothing_left()


# --- A topology -----------------------------------------------------------------------------------------------------


def test_faults_of_a_topology_in_docker() -> None:
    """As on this machine: the line that is not cut is the clock and the control."""
    with IsthmusTopology(SHOPS) as shops:
        for shop in ("north", "south"):
            produce(shops.bootstrap(shop), "orders-cut")
        shops.wait_mirrored()
        assert is_same(shops, "north", "orders-cut")
        shops.cut_wan("north-office")
        for shop in ("north", "south"):
            produce(shops.bootstrap(shop), "orders-cut", begin=COUNT)
        shops.wait_mirrored("south-office")
        assert status_of(shops, "north-office", "orders-cut").target_end == COUNT
        assert status_of(shops, "north-office", "orders-cut").lag_records == COUNT
        shops.heal_wan()
        shops.wait_mirrored()
        assert is_same(shops, "north", "orders-cut")

        shops.pause("north")
        assert not answers(shops.bootstrap("north"))
        shops.unpause("north")
        assert answers(shops.bootstrap("north"), 30)
        bootstrap = shops.bootstrap("office")
        shops.kill("office")
        assert not answers(bootstrap)
        produce(shops.bootstrap("south"), "orders-cut", begin=2 * COUNT)
        shops.pause("south-office")
        shops.repair()
        assert shops.bootstrap("office") == bootstrap
        shops.wait_mirrored()
        assert is_same(shops, "south", "orders-cut")
        assert shops.logs("office").count(" serves ") == 2
    await_nothing_left()


def test_a_broker_is_cut_off_from_the_others_in_docker() -> None:
    with IsthmusTopology(SHOPS, brokers=3) as shops:
        bootstrap = shops.bootstrap("north")
        produce(bootstrap, "orders-cut")
        old = shops.leader("north", "orders-cut", 0)
        with pytest.raises(IsthmusTestingError, match="in Docker a broker is cut off both ways only"):
            shops.cut("north", broker=old, way="in")
        with shops.cut("north", broker=old):
            until(lambda: shops.leader("north", "orders-cut", 0) != old, "another leads", TIMEOUT_S)
            assert answers(shops.brokers("north")[old], 30)
            produce(bootstrap, "orders-cut", begin=COUNT)
            with pytest.raises(IsthmusTestingError, match="not in sync within"):
                shops.wait_in_sync("north", timeout_s=0.1)
        shops.wait_in_sync("north")
        shops.wait_mirrored()
        assert is_same(shops, "north", "orders-cut")
    await_nothing_left()


def test_two_topologies_of_one_file_are_apart() -> None:
    with IsthmusTopology(SHOPS) as one, IsthmusTopology(SHOPS) as other:
        assert not {one.bootstrap(each) for each in one.datacenters} & {
            other.bootstrap(each) for each in one.datacenters
        }
        produce(one.bootstrap("north"), "orders")
        one.wait_mirrored()
        assert other.mirror_status() == []
    await_nothing_left()


def test_a_worker_runs_the_users_app_in_docker(tmp_path: Path) -> None:
    kill_a_worker(tmp_path, Backend.DOCKER)
    await_nothing_left()


# --- Nothing is left behind -----------------------------------------------------------------------------------------

WAITS = f"""
import pathlib, time
import pytest

@pytest.mark.isthmus_topology({SHOPS!r})
def test_waits(isthmus_topology, isthmus_container):
    isthmus_topology.pause("south")
    isthmus_topology.cut_wan()
    pathlib.Path("started").touch()
    time.sleep(600)
"""


def started(suite: Suite) -> subprocess.Popen[str]:
    process = suite.write("pytest.ini", "[pytest]\n").write("test_x.py", WAITS).start()
    deadline = time.monotonic() + TIMEOUT_S
    while not (suite.folder / "started").exists():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return process


def test_a_run_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    suite = Suite(tmp_path / "suite", tmp_path / "temporary", "docker")
    process = started(suite)
    assert len(things_of(suite)) == 6 + 4 + 3  # containers, networks, volumes
    process.send_signal(signal.SIGKILL)
    process.communicate()
    suite.await_nothing_left()
    await_nothing_left()


def test_what_is_left_when_the_keepers_are_killed_too_is_found_and_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suite = Suite(tmp_path / "suite", tmp_path / "temporary", "docker")
    process = started(suite)
    made = things_of(suite)
    for pid, line in suite.processes().items():
        if "isthmus.testing.keeper" in line:
            os.kill(pid, signal.SIGKILL)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert command.main([]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert len(made) == 6 + 4 + 3
    assert [each for each in made if f"Docker {each}" not in listed] == []  # the control: they do stay
    labels.remove_left()
    await_nothing_left()
