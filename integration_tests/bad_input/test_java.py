"""Spark without a Java that it can run on: said before anything is started, with what to install."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from integration_tests.console.commands import environment, error, isthmus, left_behind
from integration_tests.test_setup import fake_java

WAY_OUT = ("Java 17 or later", "apt install openjdk-17-jre-headless", "JAVA_HOME")


@pytest.fixture(params=["home", "path", "none", "empty home"])
def java(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[dict[str, str], str]:
    """An environment with a Java that is too old, or none; and what the message must name."""
    home = fake_java(tmp_path / "java", "11.0.2")
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "sh").symlink_to(str(shutil.which("sh")))
    match request.param:
        case "home":
            return {"JAVA_HOME": str(home)}, f'{home}/bin/java is openjdk version "11.0.2"'
        case "path":
            return {"JAVA_HOME": "", "PATH": f"{home}/bin:{bare}"}, f'{home}/bin/java is openjdk version "11.0.2"'
        case "none":
            return {"JAVA_HOME": "", "PATH": str(bare)}, "none on the PATH"
        case _:
            return {"JAVA_HOME": str(tmp_path / "gone")}, f"JAVA_HOME={tmp_path / 'gone'} has none"


def test_the_demo_says_what_to_install_before_it_starts_anything(java: tuple[dict[str, str], str], tmp_path: Path):
    env, named = java
    done = isthmus("demo", "--flights", "100", "--data", str(tmp_path / "data"), folder=tmp_path, env=env)
    text = error(done)
    assert all(part in text for part in (*WAY_OUT, named, "--no-spark")), text
    assert done.stdout == ""
    assert not (tmp_path / "data").exists()
    assert left_behind(tmp_path) == []


def test_the_queries_say_what_to_install(java: tuple[dict[str, str], str], tmp_path: Path):
    env, named = java
    command = [sys.executable, "-m", "isthmus.examples.flights.queries", "--bootstrap", "127.0.0.1:1"]
    command += ["--delta", str(tmp_path / "delta"), "--out", str(tmp_path / "out.json")]
    done = subprocess.run(command, env=environment(env), capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert all(part in line for part in (*WAY_OUT, named)), line


def test_the_check_itself_lets_a_new_java_pass(tmp_path: Path):
    """The control: with a Java of 17 the same command goes on to what it asks of the cluster."""
    from isthmus.connectors.session import check_java

    home = fake_java(tmp_path / "java", "17.0.1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", str(home))
        check_java()
