"""What a user gets wrong, or a machine lacks: one line that names the thing and the way out."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration_tests.brokers import ROOT
from isthmus.deploy.errors import TopologyError
from isthmus.testing import Backend, IsthmusContainer, IsthmusTestingError, IsthmusTopology

from .suites import SHOPS

RUN = "from isthmus.testing import IsthmusContainer, IsthmusTopology\nIsthmus{}.start()"
TWO_LINES = "name: x\ndatacenters: {a: {}}"


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISTHMUS_TESTING", "local")


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that something else listens on."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


def refusal(topology: IsthmusTopology | IsthmusContainer) -> str:
    with pytest.raises(IsthmusTestingError) as caught:
        topology.start()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.usefixtures("local")
def test_a_port_that_is_taken(taken: int) -> None:
    words = f"port {taken} of 127.0.0.1 is taken: stop what listens there (`ss -ltnp`), or name no port and a free one"
    assert words in refusal(IsthmusContainer(port=taken))
    text = SHOPS.replace("north: {}", f'north: {{listen: "127.0.0.1:{taken}"}}')
    assert f"datacenter north: {words}" in refusal(IsthmusTopology(text, fixed_ports=True))
    with IsthmusTopology(text) as topology:  # the control: without fixed_ports the file's port is not wanted
        assert topology.bootstrap("north") != f"127.0.0.1:{taken}"


@pytest.mark.usefixtures("local")
def test_an_option_that_is_none() -> None:
    assert "no.such.option" in refusal(IsthmusContainer(options={"no.such.option": 1}))


@pytest.mark.usefixtures("local")
def test_an_option_of_a_file_that_is_none_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "t.yaml"
    file.write_text("name: x\ndatacenters:\n  a:\n    options: {no.such.option: 1}\n")
    with pytest.raises(TopologyError) as caught:
        IsthmusTopology(file).start()
    assert str(caught.value).startswith(
        f"{file}:4: datacenters.a.options.no.such.option: unknown option no.such.option"
    )


@pytest.mark.usefixtures("local")
def test_an_option_that_tests_set_themselves() -> None:
    words = "datacenters.isthmus.options.listeners: tests set this themselves: leave it out"
    assert words in refusal(IsthmusContainer(options={"listeners": "PLAINTEXT://:9092"}))


@pytest.mark.usefixtures("local")
def test_a_worker_that_cannot_start() -> None:
    text = "name: x\ndatacenters: {a: {}}\nworkers: [{name: w, app: 'nothing.py:app', datacenter: a}]\n"
    assert "nothing.py" in refusal(IsthmusTopology(text))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "name: x\ndatacenters: {a: {brokers: 2}}",
            "the topology's text:2: datacenters.a.brokers: 2 brokers can lose no more of them than 1 can",
        ),
        ("name: x\ndatacenters: [", "the topology's text:2: is not YAML"),
        (Path("no/such/file.yaml"), "no/such/file.yaml: cannot be read: No such file or directory"),
        ("no-such-file.yaml", "no-such-file.yaml: cannot be read: No such file or directory"),
    ],
)
def test_a_topology_that_is_none(text: str | Path, words: str) -> None:
    with pytest.raises(TopologyError) as caught:
        IsthmusTopology(text)
    assert words in str(caught.value)


def test_names_that_are_none() -> None:
    topology = IsthmusTopology(SHOPS, backend=Backend.LOCAL)
    with pytest.raises(IsthmusTestingError, match="the topology shops is not started: use it in a `with`"):
        topology.cut_wan()
    with topology:
        with pytest.raises(
            IsthmusTestingError, match="no datacenter of shops is called 'ofice': there are north, south"
        ):
            topology.bootstrap("ofice")
        with pytest.raises(IsthmusTestingError, match="no mirror is called 'northoffice': did you mean 'north-office'"):
            topology.cut_wan("northoffice")
        with pytest.raises(IsthmusTestingError, match="no part of shops is called 'nrth': did you mean 'north'"):
            topology.kill("nrth")
        with pytest.raises(IsthmusTestingError, match="the topology shops is started already"):
            topology.start()


def test_a_package_that_is_missing() -> None:
    """The core of Isthmus installs neither the topology file's packages nor testcontainers."""
    code = "import sys; sys.modules['pydantic'] = None\nfrom isthmus.testing import IsthmusTopology"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    line = "ImportError: isthmus.testing needs the package pydantic: pip install 'isthmus[testing]'"
    assert done.stderr.strip().splitlines()[-1] == line


# --- Docker ---------------------------------------------------------------------------------------------------------

ENGINE = '#!/bin/sh\necho "{}" >&2\nexit 1\n'
NO_RIGHTS = (
    "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock: Get "
    "http://%2Fvar%2Frun%2Fdocker.sock/v1.24/version: dial unix /var/run/docker.sock: connect: permission denied"
)


def said(what: str, path: Path, variable: str | None) -> str:
    """The last line of a program that starts something where `path` is all that can be called."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ISTHMUS")}
    environment |= {"PATH": str(path), "PYTHONPATH": str(ROOT / "src")} | (
        {"ISTHMUS_TESTING": variable} if variable else {}
    )
    done = subprocess.run(
        [sys.executable, "-c", RUN.format(what)], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1, done.stderr
    return done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize("what", ["Container()", f"Topology({TWO_LINES!r})"])
def test_docker_that_is_not_there_and_docker_without_rights(what: str, tmp_path: Path) -> None:
    error = "isthmus.testing.errors.IsthmusTestingError: "
    line = said(what, tmp_path, "docker")
    assert line.startswith(f"{error}there is no `docker` command: install it, ")
    assert line.endswith("; or set ISTHMUS_TESTING=local, which needs no Docker")
    (tmp_path / "docker").write_text(ENGINE.format(NO_RIGHTS))
    (tmp_path / "docker").chmod(0o755)
    line = said(what, tmp_path, "docker")
    assert line.startswith(f"{error}no rights to Docker's engine (")
    assert line.endswith("; or set ISTHMUS_TESTING=local, which needs no Docker")


@pytest.mark.parametrize("what", ["Container()", f"Topology({TWO_LINES!r})"])
def test_a_variable_that_says_neither(what: str, tmp_path: Path) -> None:
    assert "ISTHMUS_TESTING=podman is neither docker nor local: set one of them" in said(what, tmp_path, "podman")
