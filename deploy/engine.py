"""The one place that talks to Docker: its command line, run as a subprocess, and what its refusals mean.

Nothing else of the project starts `docker` or `docker-compose`, so that each way in which an engine can be missing or
say no is put into one line, with the way out, here. Knows nothing of topologies; holds no state.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import __version__
from .errors import DeployError

IMAGE = f"isthmus:{__version__}"  # broker, mirror, stream worker and console
SPARK_IMAGE = f"isthmus-spark:{__version__}"  # the same with Java and PySpark

MIN_ENGINE = (20, 10)
MIN_COMPOSE_1 = (1, 29)  # the last of the Python line, which Debian and Ubuntu package; any compose 2 will do
TIMEOUT_S = 60.0
REQUIRE_TIMEOUT_S = 10.0  # an engine that runs answers at once
SAID_MAX_LINES = 2_000  # of a command's output kept for its caller

INSTALL = "on Debian or Ubuntu `apt install docker.io`"
INSTALL_COMPOSE = "on Debian or Ubuntu `apt install docker-compose`, or Docker's own package docker-compose-plugin"

# Lines that say nothing of what went wrong.
_NOISE = re.compile(
    r"^(\s*|\[\]|null|(See|Run) '.*' for more information\.?|See '.*'\.?|Usage: .*|DEPRECATED: .*"
    r"|ERROR: Encountered errors while bringing up the project\.?|exit status \d+|Install the buildx component .*"
    r"|\s*https://docs\.docker\.com/\S+)$"
)
_PREFIXES = re.compile(r"^(docker: |ERROR: |Error response from daemon: |failed to solve: )+")
_NO_ENGINE = re.compile(r"Cannot connect to the Docker daemon|failed to connect to the docker API|error during connect")
_NO_RIGHTS = re.compile(r"permission denied while trying to connect|dial unix \S+ connect: permission denied")
_PORT = re.compile(r"port is already allocated|address already in use|ports are not available|failed to bind host port")
_ADDRESS = re.compile(r"((?:\d{1,3}\.){3}\d{1,3}|\[[0-9a-fA-F:.]*\]):(\d{1,5})(?!\d)")
_NO_IMAGE = (
    re.compile(r"[Nn]o such image: ([^\s,]+)"),
    re.compile(r"Unable to find image '([^']+)' locally"),
    re.compile(r"pull access denied for ([^\s,]+)"),
    re.compile(r"manifest for (\S+) not found"),
    re.compile(r"^Pulling \S+ \((\S+)\)\.\.\.$", re.MULTILINE),  # compose 1, before its error
)
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_NO_ADDRESSES = re.compile(r"non-overlapping IPv4 address pool|address pools have been fully subnetted")
_FULL = re.compile(r"no space left on device")
_API = re.compile(r"client version (\S+) is too (old|new)")


class EngineError(DeployError):
    """Docker is missing, may not be used, or refused; the text is one line with the way out."""


@dataclass(frozen=True)
class EngineVersion:
    """What answered: versions as Docker writes them, and the platform that images are built for."""

    engine: str
    client: str
    api: str
    os: str
    arch: str


def require() -> EngineVersion:
    """The engine that runs. Raises EngineError: no docker command, no engine, no rights to it, or one too old."""
    _, out, err = _call(("docker", "version", "--format", "{{json .}}"), REQUIRE_TIMEOUT_S)
    try:
        said = json.loads(out)
        server, client = said["Server"], said["Client"]
    except (ValueError, KeyError, TypeError):
        server, client = None, {}
    if not server:
        why = explain(err) if err.strip() else f"`docker` is not Docker's own command: install that, {INSTALL}"
        raise EngineError(why)
    version = EngineVersion(
        server["Version"], client.get("Version", "?"), server["ApiVersion"], server["Os"], server["Arch"]
    )
    if numbers(version.engine) < MIN_ENGINE:
        raise EngineError(
            f"Docker's engine is {version.engine}, too old: install {dotted(MIN_ENGINE)} or later, {INSTALL}"
        )
    return version


def docker(*arguments: str, timeout_s: float = TIMEOUT_S) -> str:
    """Run `docker` and give its stdout. Raises EngineError with what the engine said and the way out."""
    return run(("docker", *arguments), timeout_s)


def compose_command() -> tuple[str, ...]:
    """How compose is called here: compose 2, else docker-compose of 1.29 or later. Raises EngineError."""
    with contextlib.suppress(EngineError):
        code, out, _ = _call(("docker", "compose", "version", "--short"), REQUIRE_TIMEOUT_S)
        if code == 0 and numbers(out) >= (2,):
            return ("docker", "compose")
    if not shutil.which("docker-compose"):
        raise EngineError(f"there is no `docker compose` and no `docker-compose`: {INSTALL_COMPOSE}")
    code, out, err = _call(("docker-compose", "version", "--short"), REQUIRE_TIMEOUT_S)
    if code != 0:
        raise EngineError(f"docker-compose does not work: {last_line(err or out)}: {INSTALL_COMPOSE}")
    if numbers(out) < MIN_COMPOSE_1:
        raise EngineError(
            f"docker-compose is {out.strip()}, too old: install {dotted(MIN_COMPOSE_1)} or compose 2, {INSTALL_COMPOSE}"
        )
    return ("docker-compose",)


def require_image(image: str = IMAGE) -> None:
    """EngineError with the way out when the engine does not hold `image`."""
    docker("image", "inspect", "--format", "{{.Id}}", image)


def has_image(image: str) -> bool:
    """Whether the engine holds `image`; EngineError when there is no engine to ask."""
    return bool(docker("image", "ls", "--quiet", "--no-trunc", image).strip())


def run(
    command: Sequence[str],
    timeout_s: float = TIMEOUT_S,
    on_line: Callable[[str], None] | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run a command of Docker's and give its stdout; EngineError when it fails or is not done within timeout_s.

    `on_line` is told each line of stdout and stderr as it comes; both together are the result then, at most the last
    SAID_MAX_LINES of them. `environment` is added to this process's own.
    """
    if on_line:
        code, out = _follow(command, timeout_s, on_line, environment)
        err = out
    else:
        code, out, err = _call(command, timeout_s, environment)
    if code != 0:
        raise EngineError(f"{_name(command)}: {explain(err if err.strip() else out, code)}")
    return out


def explain(said: str, code: int = 1) -> str:
    """What a failed command's output means, in one line with the way out."""
    said = _COLOURS.sub("", said)
    line = last_line(said) or f"failed with exit code {code} and said nothing"
    if _NO_RIGHTS.search(said):
        user = os.environ.get("USER", "$USER")
        return (
            f"no rights to Docker's engine ({_socket()}): run as root, or `sudo usermod -aG docker {user}` "
            "and log in again"
        )
    if _NO_ENGINE.search(said):
        return (
            f"no Docker engine runs ({_socket()}): start it, `sudo systemctl start docker` or `sudo dockerd`, "
            f"or install it, {INSTALL}"
        )
    if found := _PORT.search(said):
        line = next((each for each in said.splitlines() if _PORT.search(each)), found.group())
        address = _ADDRESS.search(line)
        what = f"port {address.group(2)} of {address.group(1)}" if address else "a port"
        return f"{what} is taken: stop what listens there (`ss -ltnp`, `docker ps`), or choose another port"
    if _NO_ADDRESSES.search(said):  # some thirty networks, where nobody has said otherwise
        return (
            "Docker has no addresses left for one more network: remove those that nobody uses (`docker network prune`; "
            "`python -m isthmus.testing` shows what tests have left), or give it more (default-address-pools in "
            "/etc/docker/daemon.json)"
        )
    if _FULL.search(said):
        return (
            f"{line}: free some space (`docker system df` shows what is used, `docker system prune` removes leftovers)"
        )
    if _API.search(said):
        return f"{_PREFIXES.sub('', line)}: client and engine are too far apart, install matching versions"
    for pattern in _NO_IMAGE:
        if found := pattern.search(said):
            image = found.group(1).rstrip(":.")
            if image.partition(":")[0] in (IMAGE.partition(":")[0], SPARK_IMAGE.partition(":")[0]):
                spark = " --spark" if image.startswith(SPARK_IMAGE.partition(":")[0]) else ""
                return f"there is no image {image}: build it with `isthmus image build{spark}`"
            return f"there is no image {image} here, and it cannot be pulled: {line}"
    return line


def last_line(said: str) -> str:
    """The last line that says something, without the marks in front of it."""
    lines = [line.strip() for line in said.splitlines() if not _NOISE.match(line)]
    return _PREFIXES.sub("", lines[-1]) if lines else ""


def numbers(version: str) -> tuple[int, ...]:
    """The numbers that a version begins with: `v2.24.6-desktop.1` gives (2, 24, 6), what is none gives ()."""
    found = re.match(r"\s*v?(\d+(?:\.\d+)*)", version)
    return tuple(map(int, found.group(1).split("."))) if found else ()


def dotted(version: Sequence[int]) -> str:
    return ".".join(map(str, version))


def _call(
    command: Sequence[str], timeout_s: float, environment: Mapping[str, str] | None = None
) -> tuple[int, str, str]:
    with _started(command, environment, subprocess.PIPE) as process:
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise _too_slow(command, timeout_s) from None
    return process.returncode, out, err


def _follow(
    command: Sequence[str], timeout_s: float, on_line: Callable[[str], None], environment: Mapping[str, str] | None
) -> tuple[int, str]:
    said: list[str] = []
    late = threading.Event()
    with _started(command, environment, subprocess.STDOUT) as process:
        assert process.stdout

        def stop() -> None:
            late.set()
            _end(process)

        timer = threading.Timer(timeout_s, stop)
        timer.start()
        try:
            for line in process.stdout:
                said.append(line)
                del said[:-SAID_MAX_LINES]
                on_line(line.rstrip("\n"))
            process.wait()
        finally:
            timer.cancel()
    if late.is_set():
        raise _too_slow(command, timeout_s)
    return process.returncode, "".join(said)


@contextlib.contextmanager
def _started(
    command: Sequence[str], environment: Mapping[str, str] | None, stderr: int
) -> Iterator[subprocess.Popen[str]]:
    """A command at work; whatever is raised in here ends it. What keeps it from starting is an EngineError."""
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, text=True, errors="replace",
            env={**os.environ, **(environment or {})},
        )  # fmt: skip
    except FileNotFoundError:
        way = INSTALL if command[0] == "docker" else INSTALL_COMPOSE
        raise EngineError(f"there is no `{command[0]}` command: install it, {way}") from None
    except OSError as error:
        raise EngineError(f"`{command[0]}` cannot be run: {error.strerror}") from None
    with process:
        try:
            yield process
        except BaseException:
            _end(process)
            raise


def _end(process: subprocess.Popen[str]) -> None:
    """kill -9 of a command and of what it started: compose and buildx are processes of `docker`'s, which would go on
    without it, and hold its output open for who reads that. (A process group of its own would miss the terminal's
    Ctrl-C, by which a person ends all of it.)"""
    started = [process.pid]
    for pid in started:
        with contextlib.suppress(OSError):
            tasks = Path(f"/proc/{pid}/task").iterdir()
            started += [int(each) for task in tasks for each in (task / "children").read_text().split()]
    process.kill()
    for pid in started[1:]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _too_slow(command: Sequence[str], timeout_s: float) -> EngineError:
    return EngineError(f"{_name(command)} was not done within {timeout_s:.0f} s: is the engine ({_socket()}) at work?")


def _name(command: Sequence[str]) -> str:
    """The command and its subcommand, as a person would call it: `docker run`."""
    words = [command[0], *(word for word in command[1:] if re.fullmatch(r"[a-z]+", word))]
    return " ".join(words[: 3 if words[1:2] in (["compose"], ["image"], ["network"], ["volume"]) else 2])


def _socket() -> str:
    return os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
