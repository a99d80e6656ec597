"""`make env` and what looks for the tools outside Python: each failure is one clear line that names the thing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from integration_tests.test_packaging import FAST_TO_BUILD, ROOT, USE, checkout

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
    tools = "bash cat dirname env grep head id ldd mkdir mktemp rm setsid sleep tail tar"
    for name in tools.split():
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
    ("tool", "named"),
    [
        ("java", "Java 17"),
        ("jdk", "a JDK of 17"),
        ("maven", "Maven"),
        ("kcat", "kcat"),
        ("docker", "Docker's engine"),
        ("compose", "docker compose 2, or docker-compose 1.29"),
    ],
)
def test_a_missing_tool_that_may_not_be_installed_is_one_line(tool: str, named: str, bare_path: str) -> None:
    done = ensure(tool, PATH=bare_path, JAVA_HOME="")
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert named in line and "apt install" in line


# --- Docker's engine ------------------------------------------------------------------------------------------------


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    """A copy of .ci, so that what it notes does not lie in the checkout."""
    return Path(shutil.copytree(ROOT / ".ci", tmp_path / "checkout/.ci"))


def command(folder: str, name: str, body: str) -> None:
    path = Path(folder) / name
    reads = "[[ $1 != import ]] || exec cat >/dev/null\n" if name == "docker" else ""
    path.write_text(f"#!/bin/bash\n{reads}{body}\n")
    path.chmod(0o755)


def script(path: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name != "DOCKER_HOST"}
    return subprocess.run([str(path), *arguments], env={**kept, **environment}, capture_output=True, text=True)


NO_RIGHTS = "echo 'permission denied while trying to connect to the Docker daemon socket' >&2; exit 1"
NO_ENGINE = "echo 'Cannot connect to the Docker daemon. Is the docker daemon running?' >&2; exit 1"


def test_an_engine_that_runs_is_neither_started_nor_ended(scripts: Path, bare_path: str) -> None:
    command(bare_path, "docker", "exit 0")
    command(bare_path, "dockerd", "echo started twice >&2; exit 1")
    for call in ("start", "stop"):
        done = script(scripts / "engine", call, PATH=bare_path)
        assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.skipif(os.geteuid() != 0 or Path("/run/systemd/system").exists(), reason="only root without systemd")
def test_an_engine_that_was_started_is_ended_by_stop(scripts: Path, bare_path: str, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    command(bare_path, "docker", f"[[ -e {runs} ]] || {{ {NO_ENGINE}; }}")
    serve = f"import pathlib, signal; pathlib.Path('{runs}').touch(); signal.pause()"
    program = tmp_path / "program"
    program.mkdir()
    (program / "dockerd").symlink_to(sys.executable)  # the process must be called dockerd
    command(bare_path, "dockerd", f'exec {program}/dockerd -c "{serve}"')
    done = script(scripts / "ensure", "docker", PATH=bare_path)
    assert done.returncode == 0, done.stderr
    pid = int((scripts.parent / "build/engine.pid").read_text())
    assert Path(f"/proc/{pid}/comm").read_text().strip() == "dockerd"
    assert script(scripts / "engine", "stop", PATH=bare_path).returncode == 0
    assert not Path(f"/proc/{pid}").exists() and not (scripts.parent / "build/engine.pid").exists()


@pytest.mark.skipif(os.geteuid() != 0 or Path("/run/systemd/system").exists(), reason="only root without systemd")
def test_an_engine_that_cannot_run_says_why_in_its_own_words(scripts: Path, bare_path: str) -> None:
    command(bare_path, "docker", NO_ENGINE)
    why = "failed to start daemon: Devices cgroup isn't mounted"
    command(bare_path, "dockerd", f'echo "time=x level=info msg=hello"; echo "{why}"; exit 1')
    done = script(scripts / "ensure", "docker", PATH=bare_path)
    assert done.returncode == 1
    assert f"Docker's engine cannot run here: {why} (build/engine.log)" in done.stderr.splitlines()[-1]
    assert not (scripts.parent / "build/engine.pid").exists()


def test_an_engine_that_answers_but_runs_nothing_is_none(scripts: Path, bare_path: str) -> None:
    why = "failed to create shim task: mkdir /sys/fs/cgroup/cpuset: no such file or directory."
    refused = f"docker: Error response from daemon: {why}"
    command(bare_path, "docker", f'[[ $1 != run ]] || {{ echo "{refused}" >&2; echo See help. >&2; exit 125; }}')
    done = script(scripts / "ensure", "docker", PATH=bare_path)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [f"isthmus: Docker's engine runs no containers here: {why}"]


@pytest.mark.parametrize(
    ("docker", "environment", "named"),
    [
        (NO_RIGHTS, {}, "usermod -aG docker"),
        (NO_ENGINE, {"DOCKER_HOST": "tcp://192.0.2.1:1"}, "no Docker engine answers at DOCKER_HOST=tcp://192.0.2.1:1"),
    ],
)
def test_what_keeps_us_from_an_engine_is_one_line(
    docker: str, environment: dict[str, str], named: str, scripts: Path, bare_path: str
) -> None:
    command(bare_path, "docker", docker)
    command(bare_path, "dockerd", "exit 1")
    done = script(scripts / "ensure", "docker", PATH=bare_path, **environment)
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert named in line


@pytest.mark.parametrize("version", ["1.25.0", "1.29.2", "v2.24.6"])
def test_compose_must_be_new_enough(version: str, bare_path: str) -> None:
    command(bare_path, "docker", "exit 1")
    command(bare_path, "docker-compose", f"echo {version}")
    done = ensure("compose", PATH=bare_path)
    assert (done.returncode == 0) is (version != "1.25.0")
    assert ("docker-compose is 1.25.0" in done.stderr) is (version == "1.25.0")


@pytest.mark.parametrize("there", [False, True])
def test_the_checks_leave_containers_out_in_one_line_where_no_engine_runs(
    there: bool, scripts: Path, bare_path: str
) -> None:
    command(bare_path, "make", 'echo "make $*"')
    if there:
        command(bare_path, "docker", "exit 0")
    done = script(scripts / "run", PATH=bare_path)
    assert done.returncode == 0, done.stderr
    last = done.stdout.splitlines()[-1]
    if there:
        assert last == "make test-containers"
    else:
        assert last.startswith("isthmus: make test-containers is skipped: Docker's engine is missing: install it")
    assert done.stdout.splitlines()[0] == "make lint test demo"


# --- The compiled module --------------------------------------------------------------------------------------------


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
        {"CC": compiler} if compiler else {"CFLAGS": FAST_TO_BUILD}
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
