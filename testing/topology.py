"""`IsthmusTopology`: a whole topology for a test, in Docker or on this machine, whose faults a test makes and mends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from ..deploy.options import check_options
from ..deploy.topology import load, parse, with_brokers
from .choice import Backend, choose, image, require_docker
from .errors import IsthmusTestingError
from .process import Keeper
from .status import MirrorStatus

READY_TIMEOUT_S = 60.0
MIRRORED_TIMEOUT_S = 60.0


class IsthmusTopology:
    """Datacenters with their brokers, mirrors and stream workers, as a topology file names them.

        with IsthmusTopology("topology.yaml") as topology:
            produce(topology.bootstrap("ewr"))
            topology.cut_wan()

    topology: path of a file, or its text (which has more than one line). Data lives as long as the topology runs.
    brokers: so many of them in each datacenter, whatever the file says; None leaves it as it is.
    fixed_ports: take the ports that the file's `listen` names, instead of free ones. backend: None is what `choose`
    finds at the start. Methods take the names of the file; `ewr-broker` and `ewr-mirror` say which is meant where a
    datacenter and a mirror share a name. A datacenter's name is all of its brokers; broker=2, or `ewr-broker-2`, is one
    of several. Calls block; several threads may make them. TopologyError: the file is wrong;
    IsthmusTestingError: all else.
    """

    def __init__(
        self,
        topology: Path | str,
        *,
        brokers: int | None = None,
        fixed_ports: bool = False,
        backend: Backend | None = None,
    ) -> None:
        if isinstance(topology, str) and "\n" in topology:
            self._is_read = False
            self._text, self._file = topology, Path("topology.yaml").absolute()  # apps are relative to its folder
            self._topology = parse(topology, "the topology's text")
        else:
            self._is_read = True  # from a file, in which the user can look
            self._file = Path(topology).absolute()
            self._topology = load(self._file)
            self._text = self._file.read_text()
        if brokers is not None:
            self._topology = with_brokers(self._topology, brokers)
        self._brokers = brokers
        self.fixed_ports = fixed_ports
        self.backend = backend
        self.changed = False  # whether a fault was made and not yet undone by `repair`
        self._addresses: dict[str, str] = {}
        self._keeper: Keeper | None = None

    # --- Life ---------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Return once every broker, mirror and worker is ready. Whatever does not start ends all again."""
        if self._keeper:
            raise IsthmusTestingError(f"the topology {self.name} is started already")
        backend = self.backend or choose().backend
        if backend is Backend.DOCKER:
            require_docker(image())
        elif self._is_read:
            check_options(self._topology, self._text, str(self._file), set_here={})  # what tests set, they say later
        self._keeper = Keeper(
            {
                "keep": "topology", "backend": str(backend), "text": self._text, "file": str(self._file),
                "fixed_ports": self.fixed_ports, "brokers": self._brokers,
            }
        )  # fmt: skip
        try:
            self._addresses = self._keeper.call("start")
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End all of it and remove its data; nothing happens when it does not run."""
        keeper, self._keeper = self._keeper, None
        self._addresses = {}
        self.changed = False
        if keeper:
            keeper.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Return once everything that is neither paused nor killed is ready."""
        self._call("wait_ready", timeout_s=timeout_s)

    # --- What there is ------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self._topology.name

    @property
    def datacenters(self) -> list[str]:
        return list(self._topology.datacenters)

    @property
    def mirrors(self) -> list[str]:
        return [each.name for each in self._topology.mirrors]

    @property
    def workers(self) -> list[str]:
        return [each.name for each in self._topology.workers]

    def bootstrap(self, datacenter: str) -> str:
        """HOST:PORT for any Kafka client on this machine, of several brokers with commas between. It stays over pauses,
        kills and restarts."""
        self._running()
        if datacenter not in self._addresses:
            raise IsthmusTestingError(
                f"no datacenter of {self.name} is called '{datacenter}': there are {', '.join(self.datacenters)}"
            )
        return self._addresses[datacenter]

    def brokers(self, datacenter: str) -> dict[int, str]:
        """HOST:PORT of each broker of a datacenter, by node id."""
        return {int(node_id): address for node_id, address in self._call("brokers", datacenter=datacenter).items()}

    def leader(self, datacenter: str, topic: str, partition: int) -> int:
        """Node id of the broker that leads a partition."""
        return int(self._call("leader", datacenter=datacenter, topic=topic, partition=partition))

    def controller(self, datacenter: str) -> int:
        """Node id of the broker that is the controller."""
        return int(self._call("controller", datacenter=datacenter))

    def wait_in_sync(self, datacenter: str, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Return once all replicas of a datacenter's partitions are in sync; IsthmusTestingError names those that are
        not."""
        self._call("wait_in_sync", datacenter=datacenter, timeout_s=timeout_s)

    def logs(self, name: str, *, broker: int | None = None) -> str:
        """What a broker, a mirror or a worker has written so far, over all its starts."""
        return str(self._call("log", name=name, broker=broker))

    def all_logs(self) -> dict[str, str]:
        """The logs of all parts, by `ewr-broker`, `ewr-aggregate-mirror` and so on."""
        return dict(self._call("logs"))

    # --- Faults -------------------------------------------------------------------------------------

    def pause(self, name: str, *, broker: int | None = None) -> None:
        """Freeze a datacenter's brokers, one of them, a mirror or a worker: its connections stay open and nothing
        answers, as a machine that hangs."""
        self._call("pause", name=name, broker=broker)
        self.changed = True

    def unpause(self, name: str, *, broker: int | None = None) -> None:
        """Let it go on where it stopped."""
        self._call("unpause", name=name, broker=broker)

    def kill(self, name: str, *, broker: int | None = None) -> None:
        """`kill -9`. It stays dead, and its address free, until `restart`."""
        self._call("kill", name=name, broker=broker)
        self.changed = True

    def restart(self, name: str, *, broker: int | None = None) -> None:
        """Stop it if it runs, start it on the same data and address, and return once it is ready."""
        self._call("restart", name=name, broker=broker)

    def kill_leader(self, datacenter: str, topic: str, partition: int) -> int:
        """`kill -9` of the broker that leads a partition; gives its node id, for `restart("ewr", broker=…)`."""
        self.changed = True
        return int(self._call("kill_leader", datacenter=datacenter, topic=topic, partition=partition))

    def kill_controller(self, datacenter: str) -> int:
        """`kill -9` of the broker that is the controller; gives its node id."""
        self.changed = True
        return int(self._call("kill_controller", datacenter=datacenter))

    def cut(
        self, name: str, *, broker: int | None = None, way: Literal["both", "in", "out"] = "both"
    ) -> AbstractContextManager[None]:
        """Cut a broker off from the other brokers of its cluster, its controller too, as a cable is cut: no byte comes
        through, and no connection is closed. Clients and mirrors reach it as before. way: "in", it hears nothing of the
        others, while they hear it; "out", the other way round.

        It is cut off when this returns, until `heal`, or the end of a `with`:

            with topology.cut("ewr", broker=topology.leader("ewr", "flights", 0)):
                ...
        """
        self.changed = True
        self._call("cut", name=name, broker=broker, way=way)
        return self._until_healed(name, broker)

    @contextmanager
    def _until_healed(self, name: str, broker: int | None) -> Iterator[None]:
        try:
            yield
        finally:
            self.heal(name, broker=broker)

    def heal(self, name: str, *, broker: int | None = None) -> None:
        """Join a broker to the others again, or all brokers of a datacenter that are cut off."""
        self._call("heal", name=name, broker=broker)

    def cut_wan(self, *mirrors: str) -> None:
        """Cut the line between these mirrors (all, where none is named) and their targets, as a cable is cut: no byte
        comes through, and no connection is closed."""
        self._call("cut_wan", mirrors=list(mirrors))
        self.changed = True

    def heal_wan(self, *mirrors: str) -> None:
        """Mend these lines, or all."""
        self._call("heal_wan", mirrors=list(mirrors))

    def repair(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Undo every fault, and return once everything is ready. Data stays."""
        self._call("repair", timeout_s=timeout_s)
        self.changed = False

    # --- Mirrors ------------------------------------------------------------------------------------

    def mirror_status(self, *mirrors: str) -> list[MirrorStatus]:
        """Every partition that these mirrors (all, where none is named) carry, sorted by mirror, topic, partition."""
        return [MirrorStatus(**each) for each in self._call("mirror_status", mirrors=list(mirrors))]

    def wait_mirrored(self, *mirrors: str, timeout_s: float = MIRRORED_TIMEOUT_S) -> None:
        """Return once the targets hold all that the sources hold now; IsthmusTestingError names what is missing."""
        self._call("wait_mirrored", mirrors=list(mirrors), timeout_s=timeout_s)

    def _call(self, call: str, /, **arguments: Any) -> Any:
        return self._running().call(call, **arguments)

    def _running(self) -> Keeper:
        if not self._keeper:
            raise IsthmusTestingError(f"the topology {self.name} is not started: use it in a `with`, or call start()")
        return self._keeper
