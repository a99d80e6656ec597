"""`make env` and what looks for the tools outside Python: each failure is one clear line that names the thing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from integration_tests.test_packaging import ROOT, USE, checkout

ENSURE = ROOT / ".ci/ensure"


def ensure(*tools: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(ENSURE), *tools], env={**os.environ, **environment}, capture_output=True, text=True)


def fake_java(folder: Path, version: str) -> Path:
    """A JAVA_HOME whose java and javac say that they are of this version."""
    (folder / "bin").mkdir(parents=True)
    for name, said in (("java", f'openjdk version "{version}"'), ("javac", f"javac {version}")):
        command = folder / "bin" / name
        command.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
        command.chmod(0o755)
    return folder


@pytest.fixture
def bare_path(tmp_path: Path) -> str:
    """A PATH with what the script itself needs and no apt, Java, Maven or kcat."""
    folder = tmp_path / "bare"
    folder.mkdir()
    for name in ("bash", "env", "head", "id", "mktemp", "rm"):
        (folder / name).symlink_to(str(shutil.which(name)))
    return str(folder)


@pytest.mark.parametrize("tool", ["java", "jdk"])
@pytest.mark.parametrize(
    ("version", "enough"), [("11.0.2", False), ("1.8.0_392", False), ("17.0.1", True), ("25", True)]
)
def test_java_must_be_new_enough(tool: str, version: str, enough: bool, tmp_path: Path) -> None:
    home = fake_java(tmp_path / "java", version)
    done = ensure(tool, JAVA_HOME=str(home))
    assert (done.returncode == 0) is enough
    if not enough:
        [line] = done.stderr.splitlines()
        assert all(part in line for part in ("17 or later", f"JAVA_HOME={home}", version))
    else:
        assert done.stdout + done.stderr == ""


@pytest.mark.parametrize(
    ("tool", "named"), [("java", "Java 17"), ("jdk", "a JDK of 17"), ("maven", "Maven"), ("kcat", "kcat")]
)
def test_a_missing_tool_that_may_not_be_installed_is_one_line(tool: str, named: str, bare_path: str) -> None:
    done = ensure(tool, PATH=bare_path, JAVA_HOME="")
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert named in line and "apt install" in line


def environment_like_ours(folder: Path) -> None:
    """A .venv in a copy of the checkout that has our packages, but not our editable install."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / ".venv")], check=True)
    [site] = (folder / ".venv/lib").glob("python*/site-packages")
    (site / "ours.pth").write_text(sysconfig.get_path("purelib") + "\n")  # its own .pth files are not read from here
    (folder / ".venv/dependencies").touch()


@pytest.mark.parametrize(("compiler", "warnings"), [("/bin/false", 1), ("", 0)])
def test_make_env_falls_back_with_one_warning(compiler: str, warnings: int, tmp_path: Path) -> None:
    if not compiler and not shutil.which("cc") and not shutil.which("gcc"):
        pytest.skip("no C compiler on this machine")
    copy = checkout(tmp_path)
    environment_like_ours(copy)
    environment = {k: v for k, v in os.environ.items() if k not in ("CC", "PYTHONPATH")} | (
        {"CC": compiler} if compiler else {}
    )
    done = subprocess.run(["make", "env"], cwd=copy, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert [line for line in lines if "no working C compiler" in line] == lines
    assert len(lines) == warnings
    used = subprocess.run(
        [str(copy / ".venv/bin/python"), "-c", USE], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert used.returncode == 0, used.stderr
    loaded = Path(used.stdout.strip()).resolve()
    assert loaded.is_relative_to(copy.resolve())
    assert loaded.suffix == (".py" if compiler else ".so")
