"""The container engine: every refusal of Docker's is one line that names the thing and the way out.

Docker is a shell script on a PATH of the test's own, which says what the real ones say (20.10, 28, 29; compose 1, 2).
"""

from __future__ import annotations

import json
import os
import select
import threading
from pathlib import Path

import pytest

from isthmus.deploy import engine
from isthmus.deploy.engine import EngineError
from tests.deploy.conftest import Commands

VERSION = {
    "Client": {"Version": "28.2.2"},
    "Server": {"Version": "20.10.24+dfsg1", "ApiVersion": "1.41", "Os": "linux", "Arch": "amd64"},
}
NO_SERVER = json.dumps({"Client": {"Version": "28.2.2"}, "Server": None})


def refusal(call: object, *arguments: str) -> str:
    """The one line that a call raises."""
    assert callable(call)
    with pytest.raises(EngineError) as caught:
        call(*arguments)
    text = str(caught.value)
    assert len(text.splitlines()) == 1
    return text


def ended(pid: int) -> bool:
    """Whether a process ends, now or soon."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poll = select.poll()  # a number past 1,023 is none for `select`
        poll.register(process, select.POLLIN)
        return bool(poll.poll(30_000))
    finally:
        os.close(process)


def test_an_engine_that_answers_is_described(commands: Commands) -> None:
    commands.says("docker", json.dumps(VERSION))
    assert engine.require() == engine.EngineVersion("20.10.24+dfsg1", "28.2.2", "1.41", "linux", "amd64")


def test_no_docker_command(commands: Commands) -> None:
    assert "no `docker` command" in refusal(engine.require) and "apt install docker.io" in refusal(engine.require)
    assert "no `docker` command" in refusal(engine.docker, "ps")


@pytest.mark.parametrize(
    "said",
    [
        "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
        "failed to connect to the docker API at unix:///var/run/docker.sock; check if the path is correct and if the "
        "daemon is running: dial unix /var/run/docker.sock: connect: no such file or directory",
    ],
)
def test_no_engine_runs(said: str, commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    commands.says("docker", NO_SERVER, said, 1)
    for text in (refusal(engine.require), refusal(engine.docker, "ps")):
        assert "no Docker engine runs" in text and "start it" in text and "unix:///var/run/docker.sock" in text
    monkeypatch.setenv("DOCKER_HOST", "tcp://192.0.2.1:2375")
    assert "tcp://192.0.2.1:2375" in refusal(engine.require)


@pytest.mark.parametrize(
    "said",
    [
        'permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock: Get "htt'
        'p://%2Fvar%2Frun%2Fdocker.sock/v1.50/version": dial unix /var/run/docker.sock: connect: permission denied',
        "Got permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock",
        "permission denied while trying to connect to the docker API at unix:///var/run/docker.sock",
    ],
)
def test_no_rights_to_the_engine(said: str, commands: Commands) -> None:
    commands.says("docker", NO_SERVER, said, 1)
    for text in (refusal(engine.require), refusal(engine.docker, "ps")):
        assert "no rights" in text and "usermod -aG docker" in text


def test_an_old_engine_is_named(commands: Commands) -> None:
    old = {**VERSION, "Server": {**VERSION["Server"], "Version": "19.03.15"}}
    commands.says("docker", json.dumps(old))
    assert "19.03.15, too old: install 20.10" in refusal(engine.require)


def test_a_docker_command_that_is_something_else(commands: Commands) -> None:
    commands.says("docker", "Emulate Docker CLI using podman.")
    assert "not Docker's own command" in refusal(engine.require)


@pytest.mark.parametrize(
    "said",
    [
        "Unable to find image 'IMAGE' locally\ndocker: Error response from daemon: Get \"https://registry/v2/\": dial "
        "tcp: no such host.\nSee 'docker run --help'.",
        "docker: Error response from daemon: No such image: IMAGE\n\nRun 'docker run --help' for more information",
        "Error: No such image: IMAGE",
        "Error response from daemon: no such image: IMAGE: No such image: IMAGE",
        "Pulling ewr (IMAGE)...\nERROR: Get https://registry/v2/: dial tcp: no such host",
    ],
)
def test_a_missing_image_says_how_to_build_it(said: str, commands: Commands) -> None:
    commands.says("docker", "[]", said.replace("IMAGE", engine.IMAGE), 125)
    text = refusal(engine.docker, "run", engine.IMAGE)
    assert text == f"docker run: there is no image {engine.IMAGE}: build it with `isthmus image build`"
    commands.says("docker", "[]", said.replace("IMAGE", engine.SPARK_IMAGE), 125)
    assert "`isthmus image build --spark`" in refusal(engine.require_image, engine.SPARK_IMAGE)
    commands.says("docker", "", said.replace("IMAGE", "python:3.11-slim"), 125)
    text = refusal(engine.docker, "run", "python:3.11-slim")
    assert "no image python:3.11-slim" in text and "isthmus image build" not in text


@pytest.mark.parametrize(
    "said",
    [
        "docker: Error response from daemon: driver failed programming external connectivity on endpoint nice_name "
        "(0123): Bind for 127.0.0.1:19092 failed: port is already allocated.\nSee 'docker run --help'.",
        "Error response from daemon: driver failed programming external connectivity on endpoint a (0123): Error "
        "starting userland proxy: listen tcp4 127.0.0.1:19092: bind: address already in use",
        "docker: Error response from daemon: failed to set up container networking: driver failed programming external "
        "connectivity on endpoint a (01): failed to bind host port for 127.0.0.1:19092:172.17.0.2:9092/tcp: address "
        "already in use",
        "ERROR: for ewr  Cannot start service ewr: driver failed programming external connectivity on endpoint a (01): "
        "Bind for 127.0.0.1:19092 failed: port is already allocated\nERROR: Encountered errors while bringing up the "
        "project.",
    ],
)
def test_a_taken_port_is_named(said: str, commands: Commands) -> None:
    commands.says("docker", "", said, 125)
    text = refusal(engine.docker, "run", engine.IMAGE)
    assert "port 19092 of 127.0.0.1 is taken" in text and "choose another port" in text


@pytest.mark.parametrize(
    "said",
    [
        "ERROR: could not find an available, non-overlapping IPv4 address pool among the defaults to assign to the "
        "network",
        "Error response from daemon: all predefined address pools have been fully subnetted",
    ],
)
def test_an_engine_without_addresses_for_another_network(said: str, commands: Commands) -> None:
    commands.says("docker", "", said, 1)
    text = refusal(engine.docker, "network", "create", "x")
    assert text.startswith("docker network create: Docker has no addresses left") and "`docker network prune`" in text


def test_an_engine_whose_disk_is_full(commands: Commands) -> None:
    commands.says("docker", "", "Error response from daemon: write /var/lib/docker/tmp/x: no space left on device", 1)
    text = refusal(engine.docker, "import", "x")
    assert "write /var/lib/docker/tmp/x: no space left on device: free some space (`docker system df`" in text


def test_any_other_refusal_is_its_last_meaningful_line(commands: Commands) -> None:
    said = "docker: Error response from daemon: Conflict: the name is in use.\n\nSee 'docker run --help'."
    commands.says("docker", "", said, 125)
    assert refusal(engine.docker, "run", "x") == "docker run: Conflict: the name is in use."
    commands.says("docker", "", "", 3)
    assert refusal(engine.docker, "ps") == "docker ps: failed with exit code 3 and said nothing"
    commands.says("docker", "", "Error response from daemon: client version 1.22 is too old. Minimum is 1.44", 1)
    assert "too far apart" in refusal(engine.docker, "ps")


def test_what_a_command_says_is_given_back(commands: Commands) -> None:
    commands.says("docker", "abc", "a warning")
    assert engine.docker("ps") == "abc\n"
    assert engine.has_image("abc")
    lines: list[str] = []
    engine.run(("docker", "build"), on_line=lines.append)
    assert [line for line in lines if line] == ["abc", "a warning"]


@pytest.mark.parametrize("follow", [False, True])
def test_a_command_that_hangs_is_ended_and_named(follow: bool, commands: Commands, tmp_path: Path) -> None:
    """With what it started, as `docker compose` starts compose, which holds its output open."""
    commands.script("docker", f"(sleep 600; echo) & echo $! >'{tmp_path}/child'; wait")
    lines: list[str] = []
    before = set(threading.enumerate())  # another test's may end meanwhile
    with pytest.raises(EngineError, match="docker build was not done within 0 s"):
        engine.run(("docker", "build", "."), 0.3, lines.append if follow else None)
    assert not set(threading.enumerate()) - before
    assert ended(int((tmp_path / "child").read_text()))


def test_what_hears_a_line_may_break_the_command_off(commands: Commands, tmp_path: Path) -> None:
    commands.script("docker", f"(sleep 600; echo) & echo $! >'{tmp_path}/child'; echo line; wait")

    def heard(line: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.run(("docker", "build", "."), 600, heard)
    assert ended(int((tmp_path / "child").read_text()))


def test_a_followed_command_that_fails_is_explained(commands: Commands) -> None:
    commands.says("docker", "Step 1/2", "The command '/bin/sh -c x' returned a non-zero code: 1", 1)
    with pytest.raises(EngineError, match="docker build: The command '/bin/sh -c x' returned a non-zero code: 1"):
        engine.run(("docker", "build", "."), on_line=lambda line: None)


@pytest.mark.parametrize("said", ["2.24.6", "v2.27.1-desktop.1"])
def test_compose_2_is_preferred(said: str, commands: Commands) -> None:
    commands.says("docker", said)
    commands.says("docker-compose", "1.29.2")
    assert engine.compose_command() == ("docker", "compose")


def test_compose_1_29_will_do(commands: Commands) -> None:
    commands.says("docker", "", "docker: 'compose' is not a docker command.\nSee 'docker --help'", 1)
    commands.says("docker-compose", "1.29.2")
    assert engine.compose_command() == ("docker-compose",)


def test_an_old_compose_is_named(commands: Commands) -> None:
    commands.says("docker", "", "docker: unknown command: docker compose", 1)
    commands.says("docker-compose", "1.25.0")
    text = refusal(engine.compose_command)
    assert "1.25.0, too old: install 1.29 or compose 2" in text and "apt install" in text


def test_no_compose_and_a_broken_one(commands: Commands) -> None:
    commands.says("docker", "", "docker: unknown command: docker compose", 1)
    assert "no `docker compose` and no `docker-compose`" in refusal(engine.compose_command)
    commands.says("docker-compose", "", "Traceback (most recent call last):\nImportError: no module six", 1)
    assert "ImportError: no module six" in refusal(engine.compose_command)
