"""A compose file at work under a project name of its own: brought up, looked at, hurt and taken down again.

Every call blocks until Docker has done it. What Docker refuses is an EngineError with the service's own last words.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from . import engine
from .chosen import bindable
from .engine import EngineError
from .nodes import kind_of
from .supervisor import State, Status

UP_TIMEOUT_S = 180.0
DOWN_TIMEOUT_S = 120.0
DOWN_TRIES = 3  # a `down` beside an `up` that was just broken off may miss what that one still made
STOP_S = 10  # from SIGTERM to SIGKILL
PROJECT, SERVICE = "com.docker.compose.project", "com.docker.compose.service"  # labels, in both lines of compose
FILES = "com.docker.compose.project.config_files"
# Whoever kills all of a container from inside spares number 1, which is its init and ends with its child.
CRASH = ("sh", "-c", "kill -9 -1")


@dataclass(frozen=True)
class Container:
    """One container as `docker inspect` tells of it."""

    service: str
    id: str
    status: Status
    exit_code: int
    networks: tuple[str, ...]  # full names
    file: str  # the compose file it was made from

    @property
    def short_id(self) -> str:
        return self.id[:12]


class ComposeProject:
    """`name` keeps it apart from other projects of the same file."""

    def __init__(self, file: Path, name: str) -> None:
        self.file = file
        self.name = name

    @property
    def command(self) -> tuple[str, ...]:
        """How a person calls compose for this project; EngineError when there is none."""
        return (*engine.compose_command(), "-p", self.name, "-f", str(self.file))

    def require(self, addresses: Mapping[str, str]) -> None:
        """EngineError, before anything is made, when `up` could not do it. addresses: what it will publish."""
        engine.require()
        engine.compose_command()
        engine.require_image(os.environ.get("ISTHMUS_IMAGE") or engine.IMAGE)
        if left := list(self.containers().values()):
            down = " ".join([*engine.compose_command(), "-p", self.name, "-f", left[0].file, "down", "-v"])
            raise EngineError(
                f"project {self.name} has {len(left)} containers of another run, such as {left[0].service}: end that "
                f"first, `{down}`"
            )
        for name, address in ((name, each) for name, several in addresses.items() for each in several.split(",")):
            host, _, port = address.rpartition(":")
            try:
                bindable(host, int(port))
            except OSError as error:
                raise EngineError(
                    f"port {port} of {host}, which {name} is to have, cannot be had ({error.strerror}): stop what "
                    "listens there (`ss -ltnp`, `docker ps`), or choose other ports by --port-base"
                ) from None

    def up(self, on_line: Callable[[str], None] = lambda line: None) -> None:
        """Start all of it; done when brokers are healthy, topics made, mirrors and workers started."""
        try:
            engine.run((*self.command, "up", "-d"), UP_TIMEOUT_S, on_line)
        except EngineError as error:
            for container in self.containers().values():
                if container.status.since_ms and container.status.reason:  # it ran
                    last = engine.last_line(self.logs(container.service)) or container.status.reason
                    raise EngineError(f"{container.service} did not start: {last.removeprefix('error: ')}") from error
            raise

    def down(self) -> None:
        """Remove its containers, networks and volumes."""
        for attempt in range(1, DOWN_TRIES + 1):
            try:
                engine.run((*self.command, "down", "-v", "--remove-orphans", "-t", str(STOP_S)), DOWN_TIMEOUT_S)
                if not self.left():
                    return
            except EngineError:
                if attempt == DOWN_TRIES:
                    raise
        raise EngineError(f"project {self.name} left {', '.join(self.left())}: remove them by `docker rm -f`")

    def left(self) -> list[str]:
        """Containers, networks and volumes of the project that are there, `kind name` each."""
        found = []
        mine = ("--filter", f"label={PROJECT}={self.name}", "--format")
        for kind, listing, name in (
            ("container", ("ps", "--all"), "{{.Names}}"),
            ("network", ("network", "ls"), "{{.Name}}"),
            ("volume", ("volume", "ls"), "{{.Name}}"),
        ):
            found += [f"{kind} {each}" for each in engine.docker(*listing, *mine, name).split()]
        return sorted(found)

    def containers(self) -> dict[str, Container]:
        """All containers by service, the ended ones too."""
        ids = engine.docker("ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={PROJECT}={self.name}").split()
        if not ids:
            return {}
        found = [_container(each) for each in json.loads(engine.docker("inspect", "--type=container", *ids))]
        return {each.service: each for each in sorted(found, key=lambda each: each.service)}

    def container(self, service: str) -> Container:
        found = self.containers()
        if service not in found:
            raise EngineError(f"project {self.name} has no container of {service}: there are {', '.join(found)}")
        return found[service]

    def crash(self, service: str) -> Container:
        """kill -9 of the process in a service's container, as a crash: the restart policy starts it again. (What
        `docker kill` or `stop` ended counts as stopped by hand, and stays down.) Gives the container as it was."""
        container = self.container(service)
        engine.docker("exec", "--detach", container.id, *CRASH)
        return container

    def logs(self, service: str) -> str:
        """The end of what a service said."""
        return engine.docker("logs", "--tail", "50", self.container(service).id)


def _container(said: Mapping[str, Any]) -> Container:
    state, labels = said["State"], said["Config"]["Labels"]
    service = labels[SERVICE]
    status = Status(service, kind_of(service), _state(state), state["Pid"] or None)
    status.restarts = said["RestartCount"]
    status.since_ms = _ms(state["StartedAt"])
    exit_code = 0 if state["Status"] == "running" else state["ExitCode"]
    if exit_code:
        status.reason = f"exit code {exit_code}"
    elif (health := state.get("Health", {})).get("Status") == "unhealthy":
        status.reason = f"unhealthy: {health['Log'][-1]['Output'].strip()}" if health.get("Log") else "unhealthy"
    networks = tuple(sorted(said["NetworkSettings"]["Networks"]))
    return Container(service, said["Id"], status, exit_code, networks, labels.get(FILES, ""))


def _state(state: Mapping[str, Any]) -> State:
    """Docker's word in the supervisor's. What is paused or not healthy runs nevertheless, and is not ready."""
    match state["Status"]:
        case "running":
            return State.READY if state.get("Health", {}).get("Status", "healthy") == "healthy" else State.STARTING
        case "restarting":
            return State.BACKOFF
        case "exited" | "dead":
            return State.FINISHED if state["ExitCode"] == 0 else State.FAILED
    return State.STARTING


def _ms(text: str) -> int:
    """Docker writes nanoseconds, and the year 1 for never."""
    seconds, _, fraction = text.removesuffix("Z").partition(".")
    if seconds.startswith("0001"):
        return 0
    return int(datetime.fromisoformat(f"{seconds}+00:00").timestamp() * 1000) + int(fraction[:3].ljust(3, "0") or 0)
