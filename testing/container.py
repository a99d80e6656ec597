"""`IsthmusContainer`: one broker for a test, in Docker or on this machine, that may be paused, killed and restarted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from .choice import Backend, choose, require_testcontainers
from .topology import READY_TIMEOUT_S, IsthmusTopology

Option = str | int | float | bool
NAME = "isthmus"


class IsthmusContainer:
    """A cluster of one broker, for any Kafka client.

        with IsthmusContainer(options={"num.partitions": 3}) as broker:
            produce(broker.bootstrap)

    options: any broker option. port: to be found at, on this machine; 0 is a free one. image: where it runs in Docker;
    None is this version's own. Data lives until `stop`. What is made is a DockerBroker, which is a DockerContainer of
    testcontainers too, or a LocalBroker, as `choose` finds at the call; this class is what both have alike. Calls
    block. IsthmusTestingError says what went wrong and the way out.
    """

    backend: Backend

    def __new__(cls, *arguments: Any, **named: Any) -> IsthmusContainer:
        if cls is IsthmusContainer:
            if choose().backend is Backend.DOCKER:
                require_testcontainers()
                from .docker_container import DockerBroker  # allowed: a subclass, made by this class

                return object.__new__(DockerBroker)
            return object.__new__(LocalBroker)
        return object.__new__(cls)

    def __init__(self, image: str | None = None, *, options: Mapping[str, Option] | None = None, port: int = 0) -> None:
        raise NotImplementedError

    @property
    def bootstrap(self) -> str:
        """HOST:PORT for clients on this machine. It stays over pauses, kills and restarts."""
        raise NotImplementedError

    @property
    def changed(self) -> bool:
        """Whether a fault was made and not yet undone by `repair`."""
        raise NotImplementedError

    def start(self) -> Self:
        """Return once it serves. What does not start leaves nothing behind."""
        raise NotImplementedError

    def stop(self) -> None:
        """End it and remove its data; nothing happens when it does not run."""
        raise NotImplementedError

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Return once it serves."""
        raise NotImplementedError

    def pause(self) -> None:
        """Freeze it: connections stay open and nothing answers, as a machine that hangs."""
        raise NotImplementedError

    def unpause(self) -> None:
        """Let it go on where it stopped."""
        raise NotImplementedError

    def kill(self) -> None:
        """`kill -9`. It stays dead until `restart`."""
        raise NotImplementedError

    def restart(self) -> None:
        """Stop it if it runs, start it on the same data and address, and return once it serves."""
        raise NotImplementedError

    def repair(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Undo every fault, and return once it serves. Data stays."""
        raise NotImplementedError

    def logs(self) -> str:
        """What it has written so far, over all its starts."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class LocalBroker(IsthmusContainer):
    """A process on this machine: a topology of one datacenter."""

    backend = Backend.LOCAL

    def __init__(self, image: str | None = None, *, options: Mapping[str, Option] | None = None, port: int = 0) -> None:
        datacenter = {"listen": f"127.0.0.1:{port}", "options": dict(options or {})}
        text = json.dumps({"name": "container", "datacenters": {NAME: datacenter}}, indent=1)  # JSON is YAML
        self._topology = IsthmusTopology(text, fixed_ports=port != 0, backend=Backend.LOCAL)

    @property
    def changed(self) -> bool:
        return self._topology.changed

    @property
    def bootstrap(self) -> str:
        return self._topology.bootstrap(NAME)

    def start(self) -> Self:
        self._topology.start()
        return self

    def stop(self) -> None:
        self._topology.stop()

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        self._topology.wait_ready(timeout_s)

    def pause(self) -> None:
        self._topology.pause(NAME)

    def unpause(self) -> None:
        self._topology.unpause(NAME)

    def kill(self) -> None:
        self._topology.kill(NAME)

    def restart(self) -> None:
        self._topology.restart(NAME)

    def repair(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        self._topology.repair(timeout_s)

    def logs(self) -> str:
        return self._topology.logs(NAME)
