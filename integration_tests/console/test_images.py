"""`isthmus image build` where it cannot: one line, exit code 1. Where it can: integration_tests/containers."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from integration_tests.console.commands import error, isthmus


def version(number: str) -> str:
    """What `docker version` says of a client and an engine of this version."""
    server = {"Version": number, "ApiVersion": "1.41", "Os": "linux", "Arch": "amd64"}
    return json.dumps({"Client": {"Version": number}, "Server": server})


@pytest.fixture
def bare_path(tmp_path: Path) -> Path:
    """A PATH with a shell and nothing of Docker's."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "id"):
        (folder / name).symlink_to(str(shutil.which(name)))
    return folder


@pytest.mark.parametrize(
    ("docker", "named"),
    [
        ("", ("no `docker` command", "apt install docker.io")),
        ("echo 'Cannot connect to the Docker daemon at unix:///x.' >&2; exit 1", ("no Docker engine runs", "start it")),
        ("echo 'permission denied while trying to connect' >&2; exit 1", ("no rights", "usermod -aG docker")),
        (
            f"echo '{version('19.03.1')}'",
            ("19.03.1, too old", "20.10 or later"),
        ),
    ],
)
def test_what_keeps_an_image_from_being_built_is_one_line(
    docker: str, named: tuple[str, ...], bare_path: Path, tmp_path: Path
) -> None:
    if docker:
        (bare_path / "docker").write_text(f"#!/bin/sh\n{docker}\n")
        (bare_path / "docker").chmod(0o755)
    environment = {"PATH": str(bare_path), "HOME": str(tmp_path), "DOCKER_HOST": ""}
    for command in (("image", "build"), ("image", "build", "--debootstrap", "--json")):
        text = error(isthmus(*command, folder=tmp_path, env=environment))
        assert len(text.splitlines()) == 1
        assert all(part in text for part in named), text


def test_a_base_that_cannot_be_had_is_one_line(bare_path: Path, tmp_path: Path) -> None:
    answers = f"version) echo '{version('28.0')}' ;; pull) echo 'dial tcp: no such host' >&2; exit 1 ;;"
    (bare_path / "docker").write_text(f"#!/bin/sh\ncase $1 in {answers} esac\n")
    (bare_path / "docker").chmod(0o755)
    environment = {"PATH": f"{bare_path}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    done = isthmus("image", "build", "--base", "mine:1", folder=tmp_path, env=environment)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "error: mine:1 is not here and cannot be pulled (docker pull: dial tcp: no such host); "
        "give bases that are here by --base and --build-base"
    )
