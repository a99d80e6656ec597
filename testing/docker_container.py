"""One broker in a container of its own, as testcontainers runs it.

Ryuk, the image with which testcontainers ends what a crashed test left, is not needed and not pulled, whatever
TESTCONTAINERS_RYUK_DISABLED says (which goes on to mean what it means for other containers): a keeper does its work,
and what even that could not remove carries our label and is removed by the next run.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any, Self

import docker.errors
import requests  # which docker is made with
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer

from ..deploy import engine
from ..deploy.launch import listener_arguments
from ..deploy.nodes import plain
from .choice import Backend, require_docker
from .choice import image as own_image
from .container import IsthmusContainer, Option
from .errors import IsthmusTestingError
from .labels import LABEL, remove_left
from .owner import Owner
from .ports import Ports
from .process import Keeper
from .topology import READY_TIMEOUT_S

INSIDE_PORT, OUTSIDE_PORT = 9092, 9093  # in the container
LOOPBACK = "127.0.0.1"
POLL_S = 0.1
STOP_TIMEOUT_S = 10
NOT_STARTED = "the broker is not started: use it in a `with`, or call start()"


class DockerBroker(IsthmusContainer, DockerContainer):
    """A testcontainers DockerContainer: `with_kwargs`, `with_network`, `exec` and all else of it may be used."""

    backend = Backend.DOCKER

    def __init__(self, image: str | None = None, *, options: Mapping[str, Option] | None = None, port: int = 0) -> None:
        wanted = image or own_image()
        require_docker(wanted)
        with _plain_errors():
            DockerContainer.__init__(self, wanted)
        self._options = dict(options or {})
        self._fixed_port = port
        self._port = 0
        self._held = Ports()
        self._paused = self._killed = False

    @property
    def changed(self) -> bool:
        return self._paused or self._killed

    @property
    def bootstrap(self) -> str:
        if not self._port:
            raise IsthmusTestingError(NOT_STARTED)
        return f"{self._host}:{self._port}"

    @property
    def _running(self) -> Any:
        """The engine's own object of the container."""
        if self._container is None:
            raise IsthmusTestingError(NOT_STARTED)
        return self._container

    @property
    def _host(self) -> str:
        host = self.get_docker_client().host()
        return LOOPBACK if host in ("localhost", "::1") else host

    @property
    def network_bootstrap(self) -> str:
        """HOST:PORT for clients in other containers of the network that `with_network` named."""
        if self._network is None:
            raise IsthmusTestingError("the broker is in no network of containers: give it one by with_network()")
        return self._inside

    @property
    def _inside(self) -> str:
        """Where its first listener leads. Engines resolve aliases in networks of users, and localhost in any."""
        return f"{self._network_aliases[0] if self._network_aliases else 'localhost'}:{INSIDE_PORT}"

    def start(self) -> Self:
        if self._port:
            raise IsthmusTestingError("the broker is started already")
        if self._network is not None and not self._network_aliases:
            self.with_network_aliases(f"isthmus-{os.urandom(4).hex()}")
        remove_left()
        reaper = _reaper(os.getpid())
        local = self._host == LOOPBACK
        try:
            # Of an engine on another machine nobody here can tell what is free: a port of this one is a good guess.
            wanted = self._fixed_port if local else 0
            held = self._held.take(LOOPBACK if local else "0.0.0.0", wanted, "IsthmusContainer")
            self._port = self._fixed_port or held
            self.ports[f"{OUTSIDE_PORT}/tcp"] = (LOOPBACK if local else "", self._port)  # type: ignore[assignment]
            self.with_command(["broker", "--data=/data", *self._arguments()])
            self._kwargs = {**self._kwargs, "labels": {**self._kwargs.get("labels", {}), LABEL: reaper.owner}}
            with _plain_errors(), _without_ryuk():
                DockerContainer.start(self)
            self.wait_ready()
        except BaseException:
            with contextlib.suppress(IsthmusTestingError):  # why it did not start is what counts
                self.stop()
            raise
        return self

    def _arguments(self) -> list[str]:
        told = f"INSIDE://{self._inside}", f"OUTSIDE://{self.bootstrap}"
        listeners = f"INSIDE://0.0.0.0:{INSIDE_PORT}", f"OUTSIDE://0.0.0.0:{OUTSIDE_PORT}"
        options = [f"--set={name}={plain(value)}" for name, value in self._options.items()]
        return [*listener_arguments(listeners, told), *options]

    def stop(self, force: bool = True, delete_volume: bool = True) -> None:
        try:
            with _plain_errors(), contextlib.suppress(docker.errors.NotFound):
                DockerContainer.stop(self, force, delete_volume)
        finally:
            self._container = None
            self._held.release()
            self._port = 0
            self._paused = self._killed = False

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        reaper, container = _reaper(os.getpid()), self._running
        deadline = time.monotonic() + timeout_s
        while not reaper.keeper.call("serves", bootstrap=self.bootstrap):
            with _plain_errors():
                container.reload()
            if container.status not in ("created", "running", "restarting"):
                raise IsthmusTestingError(f"the broker is {container.status}: {_last_line(self.logs())}")
            if time.monotonic() > deadline:
                raise IsthmusTestingError(
                    f"the broker does not serve {self.bootstrap} after {timeout_s:g} s: {_last_line(self.logs())}"
                )
            time.sleep(POLL_S)

    def pause(self) -> None:
        if self._killed:
            raise IsthmusTestingError("the broker is killed: restart it first")
        with _plain_errors():
            self._running.pause()
        self._paused = True

    def unpause(self) -> None:
        if not self._paused:
            raise IsthmusTestingError("the broker is not paused")
        with _plain_errors():
            self._running.unpause()
        self._paused = False

    def kill(self) -> None:
        if self._killed:
            raise IsthmusTestingError("the broker is killed already: restart brings it back")
        with _plain_errors():
            self._running.kill()
            self._running.wait()
        self._paused, self._killed = False, True

    def restart(self) -> None:
        if self._paused:
            self.unpause()
        with _plain_errors():
            self._running.restart(timeout=STOP_TIMEOUT_S)
        self._killed = False
        self.wait_ready()

    def repair(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        if self._paused:
            self.unpause()
        if self._killed:
            self.restart()
        self.wait_ready(timeout_s)

    def logs(self) -> str:
        with _plain_errors():
            return str(self._running.logs().decode(errors="replace"))

    def __exit__(self, *error: Any) -> None:
        self.stop()


class _Reaper:
    """The keeper of a process's containers; it ends with the process, and they with it."""

    def __init__(self) -> None:
        self.owner = str(Owner.this_process())
        self._keeper = self._started()

    @property
    def keeper(self) -> Keeper:
        if not self._keeper.runs:  # somebody killed it; later containers need one, too
            self._keeper = self._started()
        return self._keeper

    def _started(self) -> Keeper:
        return Keeper({"keep": "containers", "owner": self.owner})


@functools.cache
def _reaper(pid: int) -> _Reaper:
    """One for each process: a fork needs one of its own, and must not end its parent's."""
    made = _Reaper()
    atexit.register(lambda: made.keeper.stop() if os.getpid() == pid else None)
    return made


@contextlib.contextmanager
def _without_ryuk() -> Iterator[None]:
    was = testcontainers_config.ryuk_disabled
    testcontainers_config.ryuk_disabled = True
    try:
        yield
    finally:
        testcontainers_config.ryuk_disabled = was


@contextlib.contextmanager
def _plain_errors() -> Iterator[None]:
    """What the engine refuses, in one line with the way out."""
    try:
        yield
    except docker.errors.DockerException as error:
        said = getattr(error, "explanation", None) or str(error)
        raise IsthmusTestingError(f"Docker: {engine.explain(str(said))}") from None
    except requests.RequestException:
        raise IsthmusTestingError(
            "Docker's engine does not answer any more: `docker info` says why; start it again"
        ) from None


def _last_line(log: str) -> str:
    lines = log.strip().splitlines()
    return lines[-1].removeprefix("isthmus broker: ") if lines else "it said nothing"
