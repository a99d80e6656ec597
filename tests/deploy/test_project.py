"""A compose project, by a Docker that is a shell script: what it finds, what it refuses, and in which words."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from isthmus.deploy.engine import EngineError
from isthmus.deploy.project import ComposeProject
from isthmus.deploy.supervisor import State
from tests.deploy.conftest import container

NO_IMAGE = "Error: No such image: isthmus:0.1.0"


@pytest.fixture
def project(tmp_path: Path) -> ComposeProject:
    return ComposeProject(tmp_path / "compose.yaml", "p")


def refusal(call: Any, *arguments: Any) -> str:
    with pytest.raises(EngineError) as caught:
        call(*arguments)
    text = str(caught.value)
    assert len(text.splitlines()) == 1
    return text


def test_nothing_stands_in_the_way(docker, project):
    project.require({"ewr": "127.0.0.1:0"})


def test_a_port_that_is_taken_is_named_before_anything_is_made(docker, project):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        text = refusal(project.require, {"ewr": address})
    assert text.startswith(f"port {address.rpartition(':')[2]} of 127.0.0.1, which ewr is to have, cannot be had")
    assert "--port-base" in text
    assert docker.calls("docker-compose -p") == []
    project.require({"ewr": address})  # the control: the port was all that was wrong


def test_an_image_that_is_missing(docker, project, monkeypatch):
    docker.refuse("image inspect", NO_IMAGE)
    assert "there is no image isthmus:0.1.0: build it with `isthmus image build`" in refusal(project.require, {})
    monkeypatch.setenv("ISTHMUS_IMAGE", "mine:7")
    refusal(project.require, {})
    assert docker.calls("docker image inspect")[-1].endswith(" mine:7")


def test_what_another_run_left_is_named_with_the_command_that_ends_it(docker, project):
    docker.has(container("ewr-broker"))
    text = refusal(project.require, {})
    assert "project p has 1 containers of another run, such as ewr-broker" in text
    assert text.endswith("`docker-compose -p p -f /there/compose.yaml down -v`")


def test_an_old_compose(docker, project, commands):
    commands.says("docker-compose", "1.25.0")
    assert "docker-compose is 1.25.0, too old: install 1.29 or compose 2" in refusal(project.require, {})


@pytest.mark.parametrize(
    ("said", "state"),
    [
        (container("a-broker", health="starting"), State.STARTING),
        (container("a-broker", health="healthy"), State.READY),
        (container("a-broker", health="unhealthy"), State.STARTING),
        (container("a-mirror", "paused"), State.STARTING),
        (container("a-mirror"), State.READY),
        (container("a-mirror", "restarting", ExitCode=137, RestartCount=2), State.BACKOFF),
        (container("a-topics", "exited"), State.FINISHED),
        (container("a-topics", "exited", ExitCode=1), State.FAILED),
        (container("a-broker", "created"), State.STARTING),
    ],
)
def test_dockers_states_in_the_supervisors_words(docker, project, said, state):
    docker.has(said)
    [found] = project.containers().values()
    assert found.status.state is state
    assert found.status.since_ms == 1767323045678
    assert found.status.restarts == said["RestartCount"]
    assert found.networks == ("p_ewr", "p_wan")
    if state is State.BACKOFF:
        assert (found.status.reason, found.exit_code) == ("exit code 137", 137)
    if said["State"].get("Health", {}).get("Status") == "unhealthy":
        assert found.status.reason == "unhealthy: not ready: no controller"


def test_a_service_that_does_not_start_has_the_last_word(docker, project):
    docker.has(container("a-broker", health="healthy"), container("a-topics", "exited", ExitCode=1))
    docker.answer("logs --tail", "created x\nerror: topic y: INVALID_CONFIG: Unknown topic config name: retention.ns\n")
    docker.compose("echo 'ERROR: for m  Container \"1\" exited with code 1.' >&2; exit 1")
    assert refusal(project.up) == (
        "a-topics did not start: topic y: INVALID_CONFIG: Unknown topic config name: retention.ns"
    )


def test_what_the_engine_refuses_is_said_where_no_service_is_at_fault(docker, project):
    never = {"StartedAt": "0001-01-01T00:00:00Z", "ExitCode": 128}
    docker.has(container("a-broker", "created", **never), container("b-broker", health="starting"))
    docker.compose(
        "echo 'ERROR: for a-broker  driver failed programming external connectivity: Bind for 127.0.0.1:19092 failed: "
        "port is already allocated' >&2; exit 1"
    )
    assert "port 19092 of 127.0.0.1 is taken" in refusal(project.up)


def test_down_is_not_done_before_all_is_gone(docker, project, tmp_path):
    """An `up` that was broken off may still have made a network after `down` looked."""
    docker.answer("network ls", "p_ewr")
    text = refusal(project.down)
    assert "project p left network p_ewr" in text
    assert len(docker.calls("docker-compose -p p")) == 3
    docker.answer("network ls", "")
    project.down()
    [*_, last] = docker.calls("docker-compose -p p")
    assert last == f"docker-compose -p p -f {tmp_path}/compose.yaml down -v --remove-orphans -t 10"
    assert len(docker.calls("docker-compose -p p")) == 4


def test_a_crash_is_a_kill_from_inside(docker, project):
    docker.has(container("a-broker", health="healthy"))
    docker.answer("exec --detach", "")
    assert project.crash("a-broker").short_id == "a-broker-000"
    [call] = docker.calls("docker exec")
    assert call == f"docker exec --detach a-broker-{'0' * 64} sh -c kill -9 -1"
    assert "no container of b-broker: there are a-broker" in refusal(project.crash, "b-broker")
