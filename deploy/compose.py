"""From a topology to a compose file: a network a datacenter, and a WAN that only mirrors and their targets join.

`document` is pure: it starts nothing and opens nothing. What it makes is read by docker-compose 1.29 and by docker
compose 2 alike, so it holds no `version`, no `name` and no option that either lacks. Services have the names that the
supervisor gives to processes. https://github.com/compose-spec/compose-spec/blob/main/spec.md
"""

from __future__ import annotations

import copy
import importlib.util
import io
import ipaddress
import os
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.scalarstring import DoubleQuotedScalarString, LiteralScalarString

from ..readiness import VARIABLE as READY_VARIABLE
from .addresses import MAX_PORT
from .engine import IMAGE, SPARK_IMAGE
from .errors import TopologyError
from .launch import PORT_BASE, broker_arguments, mirror_arguments, stop_grace_s, worker_arguments
from .nodes import CONTROLLER, Node, cluster_options, factor_of, fixed_voters, lasting_cluster_id, nodes, topic_options

if TYPE_CHECKING:
    from .topology import Datacenter, Mirror, Topology, Worker

INSIDE_PORT, OUTSIDE_PORT, CONTROLLER_PORT = 9092, 9093, 9094  # in every broker's container
WAN = "wan"
DATA = "/data"
APPS = "/apps"
LOOPBACK = "127.0.0.1"
# Broker options that a topology leaves to this file, and what is said of one that it does not.
SET_HERE = dict.fromkeys(
    ("advertised.listeners", "listener.security.protocol.map", "listeners", "log.dirs"),
    "the compose file sets this: leave it out, and give HOST:PORT for clients outside as `listen`",
)

# Limits of a container: memory, processors, processes and threads. One processor is all a machine may have.
BROKER = {"mem_limit": "1g", "cpus": 1.0, "pids_limit": 128}
MIRROR = {"mem_limit": "512m", "cpus": 1.0, "pids_limit": 64}
WORKER = {"mem_limit": "1g", "cpus": 1.0, "pids_limit": 128}
TOPICS = {"mem_limit": "256m", "cpus": 1.0, "pids_limit": 64}
SPARK = {"mem_limit": "4g", "cpus": 1.0, "pids_limit": 1024}

# What all containers have alike. With an init of its own, the process in it is not number 1, so that it can be killed
# from inside, as a crash that the restart policy answers; `docker kill` counts as stopped by hand.
SHARED: dict[str, Any] = {
    "image": f"${{ISTHMUS_IMAGE:-{IMAGE}}}",
    "init": True,
    "read_only": True,
    "tmpfs": ["/tmp:size=64m"],
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges:true"],
    "restart": "unless-stopped",
    "stop_grace_period": "30s",  # from SIGTERM to SIGKILL; a mirror or worker is done, or gives up, in less
    "logging": {"driver": "json-file", "options": {"max-size": "10m", "max-file": "3"}},
}
NO_HEALTHCHECK = {"disable": True}  # the image's asks a broker
# A mirror or worker has no listener to be asked at: it makes a file. /tmp is empty at each start.
READY_FILE = "/tmp/isthmus-ready"
READINESS: dict[str, Any] = {
    "environment": {READY_VARIABLE: READY_FILE},
    "healthcheck": {"test": ["CMD", "test", "-e", READY_FILE], "interval": "2s"},
}
WIDTH = 118


@dataclass(frozen=True)
class Place:
    """A worker's app as its container finds it. folder: on the host, mounted read-only; None: the image has the app."""

    app: str
    folder: str | None = None


def compose_file(file: Path, output: Path, port_base: int = PORT_BASE) -> str:
    """The text of the compose file `output` of a topology file; relative paths in it begin at its folder.
    TopologyError names what is wrong with the topology, or what a compose file cannot hold."""
    from .options import check_options
    from .topology import load

    topology, beside = load(file), output.parent
    check_options(topology, file.read_text(), str(file), SET_HERE)
    places = {worker.name: place(worker, file, beside) for worker in topology.workers}
    try:
        made = document(topology, places, port_base)
    except TopologyError as error:
        raise TopologyError(f"{file}: {error}") from None
    return heading(topology, relative(file, beside), output.name, port_base) + render(made)


def heading(topology: Topology, file: str, output: str, port_base: int) -> str:
    file = file.removeprefix("./")
    base = f" --port-base {port_base}" if port_base != PORT_BASE else ""
    ports = ", ".join(f"{name} {address}" for name, address in published(topology, port_base).items())
    return f"""\
# The topology {topology.name} in containers, for docker compose 2 and docker-compose 1.29. Do not edit: it is made of
# {file} by
#     isthmus compose -f {shlex.quote(file)} -o {shlex.quote(output)}{base}
# Start it, once `isthmus image build` has made the image, by
#     docker compose -f {shlex.quote(output)} up -d
# From outside: {ports}.
# Spark is a profile: docker compose -f {shlex.quote(output)} run --rm spark
"""


# --- Where things are -----------------------------------------------------------------------------------------------


def place(worker: Worker, file: Path, beside: Path) -> Place:
    """An app of this package is in the image; any other is mounted with the folder it lies in. TopologyError: the file
    is not there (where a folder is missing, compose would make an empty one of root's)."""
    path, _, name = worker.app.rpartition(":")
    if not path.endswith(".py"):
        return Place(worker.app)
    app = file.parent / path
    if not app.is_file():
        raise TopologyError(f"{file}: the app of worker {worker.name} is to be {app}: there is no such file")
    if module := packaged(app):
        return Place(f"{module}:{name}")
    return Place(f"{APPS}/{app.name}:{name}", relative(app.parent, beside))


def packaged(app: Path) -> str | None:
    """The import name of a file of this package."""
    folder = app.resolve().parent
    steps = [app.stem]
    while folder.parent != folder:
        steps.append(folder.name)
        folder = folder.parent
        name = ".".join(["isthmus", *reversed(steps)])
        if (folder / steps[-1] / "__init__.py").exists() and _is(name, app):
            return name
    return None


def _is(name: str, app: Path) -> bool:
    try:
        spec = importlib.util.find_spec(name)
    except ImportError:
        return False
    return bool(spec and spec.origin and Path(spec.origin).resolve() == app.resolve())


def relative(path: Path, beside: Path) -> str:
    """As compose reads it: from the folder of the compose file, and with a dot, without which it were a volume."""
    found = os.path.relpath(path.resolve(), beside.resolve())
    return found if found.startswith(".") else f"./{found}"


def published(topology: Topology, port_base: int) -> dict[str, str]:
    """Where clients on the host reach each datacenter: HOST:PORT of its brokers with commas between. It is what
    `listen` says, else the next after `port_base`."""
    addresses: dict[str, str] = {}
    owners: dict[int, str] = {}  # of ports
    number = 0
    for name, datacenter in topology.datacenters.items():
        found = []
        for listen in datacenter.listens:
            host, _, port = listen.rpartition(":")
            host = LOOPBACK if host == "localhost" else host
            try:
                ipaddress.IPv4Address(host)
            except ValueError:
                raise TopologyError(
                    f"datacenters.{name}.listen: '{host}' is not an IPv4 address, such as a published port needs: "
                    f"write {LOOPBACK}:{port}"
                ) from None
            chosen = int(port) or port_base + number
            number += 1
            if chosen > MAX_PORT:
                raise TopologyError(f"datacenters.{name}: there is no port {chosen}: choose a smaller --port-base")
            if chosen in owners:
                raise TopologyError(
                    f"datacenters.{name}: port {chosen} is {owners[chosen]}'s already: change `listen` or --port-base"
                )
            owners[chosen] = name
            found.append(f"{host}:{chosen}")
        addresses[name] = ",".join(found)
    return addresses


# --- The document ---------------------------------------------------------------------------------------------------


def document(
    topology: Topology,
    places: Mapping[str, Place],
    port_base: int = PORT_BASE,
    addresses: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The compose document. places: of the workers, by name. addresses: by which clients outside reach datacenters, as
    `published`, which finds them if they are not given. TopologyError names what a compose file cannot hold."""
    check(topology)
    addresses = published(topology, port_base) if addresses is None else addresses
    targets = list(dict.fromkeys(link.target for link in topology.mirrors))
    services: dict[str, Any] = {}
    for name, datacenter in topology.datacenters.items():
        for node, address in zip(nodes(name, datacenter), addresses[name].split(","), strict=True):
            services[node.process] = _broker(topology, node, address, name in targets)
        if datacenter.topics:
            services[f"{name}-topics"] = _topics(name, datacenter)
    for link in topology.mirrors:
        services[f"{link.name}-mirror"] = _mirror(link, topology)
    for worker in topology.workers:
        services[f"{worker.name}-worker"] = _worker(worker, places[worker.name], topology)
    services["spark"] = _spark(targets or list(topology.datacenters))
    networks: dict[str, Any] = {name: {} for name in topology.datacenters}
    if targets:
        networks[WAN] = {"internal": True}  # nothing goes from there to anywhere else
    volumes: dict[str, Any] = {
        volume(node): {} for name, datacenter in topology.datacenters.items() for node in nodes(name, datacenter)
    }
    volumes |= {tables_volume(worker): {} for worker in topology.workers}
    volumes["spark-data"] = {}
    return {"services": services, "networks": networks, "volumes": volumes}


def check(topology: Topology) -> None:
    for name, what in ((WAN, "the network between datacenters"), ("spark", "Spark's volume")):
        if name in topology.datacenters:
            raise TopologyError(f"datacenters.{name}: is the name of {what}: choose another")
    for name, datacenter in topology.datacenters.items():
        for option, said in SET_HERE.items():
            if option in datacenter.options:
                raise TopologyError(f"datacenters.{name}.options.{option}: {said}")


def _broker(topology: Topology, node: Node, address: str, target: bool) -> dict[str, Any]:
    """Clients in its networks are told the service's name, those outside the published address."""
    name, datacenter = node.datacenter, topology.datacenters[node.datacenter]
    host, _, port = address.rpartition(":")
    told = LOOPBACK if ipaddress.IPv4Address(host).is_unspecified else host
    advertised = [f"INSIDE://{node.process}:{INSIDE_PORT}", f"OUTSIDE://{told}:{port}"]
    listeners = [f"INSIDE://0.0.0.0:{INSIDE_PORT}", f"OUTSIDE://0.0.0.0:{OUTSIDE_PORT}"]
    options: dict[str, str] = {}
    if node.node_id is not None:
        advertised.append(f"{CONTROLLER}://{node.process}:{CONTROLLER_PORT}")
        listeners.append(f"{CONTROLLER}://0.0.0.0:{CONTROLLER_PORT}")
        controllers = [f"{each.process}:{CONTROLLER_PORT}" for each in nodes(name, datacenter)]
        options = cluster_options(datacenter, node, lasting_cluster_id(topology.name, name), fixed_voters(controllers))
    arguments = broker_arguments(datacenter, DATA, listeners, advertised, options)
    return {
        **_python("core_broker", arguments),
        **_contained(BROKER),
        "stop_grace_period": f"{stop_grace_s(datacenter)}s",
        "networks": [name, WAN] if target else [name],
        "ports": [f"{address}:{OUTSIDE_PORT}"],
        "volumes": [f"{volume(node)}:{DATA}"],
    }


def volume(node: Node) -> str:
    """Of a broker's data. No datacenter's name makes another's of it: those of single brokers end in no number."""
    return f"{node.datacenter}-data" + ("" if node.node_id is None else f"-{node.node_id}")


def _topics(name: str, datacenter: Datacenter) -> dict[str, Any]:
    """Makes what is not there yet, and ends."""
    lines = []
    for topic, each in datacenter.topics.items():
        options = ["--if-missing", f"--partitions={each.partitions}"]
        if datacenter.brokers > 1:
            options.append(f"--replication-factor={factor_of(datacenter, each)}")
        options += [f"--set={key}={value}" for key, value in topic_options(datacenter, each).items()]
        words = ["isthmus", "topic", "create"]
        words += [*options, "--", topic] if topic.startswith("-") else [topic, *options]
        lines.append(shlex.join(words))
    return {
        "entrypoint": ["sh", "-euc"],
        "command": [_escaped("\n".join(lines) + "\n")],
        "environment": {"ISTHMUS_BOOTSTRAP": inside(name, datacenter)},
        **_contained(TOPICS),
        "restart": "no",
        "networks": [name],
        "healthcheck": NO_HEALTHCHECK,
        "depends_on": _after(_healthy(name, datacenter)),
    }


def _mirror(link: Mirror, topology: Topology) -> dict[str, Any]:
    """Stands in its source's datacenter and reaches the target over the WAN."""
    source, target = (inside(name, topology.datacenters[name]) for name in (link.source, link.target))
    return {
        **_python("mirror", mirror_arguments(link, source, target)),
        **_contained(MIRROR),
        "networks": [link.source, WAN],
        **copy.deepcopy(READINESS),
        "depends_on": _after({**_ready(link.source, topology), **_ready(link.target, topology)}),
    }


def _worker(worker: Worker, where: Place, topology: Topology) -> dict[str, Any]:
    bootstrap = inside(worker.datacenter, topology.datacenters[worker.datacenter])
    mounted = [_escaped(f"{where.folder}:{APPS}:ro")] if where.folder else []
    port = worker.web_port
    # The others of its group ask it for rows at its container's name, whether or not the host has the port.
    arguments = (*worker_arguments(worker, where.app, bootstrap), "--web-bind=0.0.0.0")
    return {
        **_python("streams", arguments),
        **({"ports": [f"{LOOPBACK}:{port}:{port}"]} if port else {}),
        **_contained(WORKER),
        "networks": [worker.datacenter],
        "volumes": [f"{tables_volume(worker)}:{DATA}", *mounted],
        **copy.deepcopy(READINESS),
        "depends_on": _after(_ready(worker.datacenter, topology)),
    }


def tables_volume(worker: Worker) -> str:
    """Of what a worker keeps on disk, in the folder that it starts in. It ends as no broker's does."""
    return f"{worker.name}-tables"


def _spark(datacenters: list[str]) -> dict[str, Any]:
    """A PySpark shell beside the clusters that mirrors lead to; what Java loads from /tmp must be executable there."""
    return {
        **_contained(SPARK),
        "image": f"${{ISTHMUS_SPARK_IMAGE:-{SPARK_IMAGE}}}",
        "profiles": ["spark"],
        "entrypoint": ["env"],
        "command": ["pyspark"],
        "stdin_open": True,
        "tty": True,
        "tmpfs": ["/tmp:size=1g,exec"],
        "networks": datacenters,
        "volumes": [f"spark-data:{DATA}"],
        "healthcheck": NO_HEALTHCHECK,
    }


def inside(name: str, datacenter: Datacenter) -> str:
    """HOST:PORT of a datacenter's brokers, with commas between, for who shares a network with them."""
    return ",".join(f"{node.process}:{INSIDE_PORT}" for node in nodes(name, datacenter))


def _ready(name: str, topology: Topology) -> dict[str, str]:
    datacenter = topology.datacenters[name]
    if datacenter.topics:
        return {f"{name}-topics": "service_completed_successfully"}
    return _healthy(name, datacenter)


def _healthy(name: str, datacenter: Datacenter) -> dict[str, str]:
    return {node.process: "service_healthy" for node in nodes(name, datacenter)}


# --- Parts ----------------------------------------------------------------------------------------------------------


def _contained(limits: Mapping[str, Any]) -> dict[str, Any]:
    return {**copy.deepcopy(SHARED), **limits}


def _python(room: str, arguments: Iterable[str]) -> dict[str, Any]:
    command = [_escaped(each) for each in arguments]
    return {"entrypoint": ["python", "-m", f"isthmus.{room}"], "command": command}


def _after(conditions: Mapping[str, str]) -> dict[str, dict[str, str]]:
    return {name: {"condition": condition} for name, condition in conditions.items()}


def _escaped(text: str) -> str:
    """Compose takes a dollar for the beginning of a variable."""
    return text.replace("$", "$$")


# --- As text --------------------------------------------------------------------------------------------------------

ORDER = "image profiles entrypoint command environment restart networks ports volumes depends_on healthcheck".split()
IN_ONE_LINE = ("entrypoint environment healthcheck networks profiles tmpfs cap_drop security_opt logging").split()
# What YAML 1.1, which docker-compose reads, takes for something else than text, and YAML 1.2 does not.
NO_TEXT = re.compile(r"(y|n|yes|no|on|off|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?)", re.IGNORECASE)


def render(made: Mapping[str, Any]) -> str:
    """The document as YAML: what services share stands once, a line between services, short lists in one line."""
    parts = [f"x-service: &service\n{_indented(_yaml(SHARED), 2)}", "services:"]
    for name, service in made["services"].items():
        own = {key: value for key, value in service.items() if SHARED.get(key) != value}
        ordered = {key: own[key] for key in sorted(own, key=lambda key: (key not in ORDER, _rank(key)))}
        parts.append(f"  {name}:\n    <<: *service\n{_indented(_yaml(ordered), 4)}")
    for part in ("networks", "volumes"):
        parts.append(f"{part}:\n{_indented(_yaml(made[part]), 2)}")
    return "\n".join(parts).replace("services:\n\n", "services:\n")


def _rank(key: str) -> int:
    return ORDER.index(key) if key in ORDER else 0


def _yaml(values: Mapping[str, Any]) -> str:
    yaml = YAML()
    yaml.width = WIDTH
    yaml.indent(mapping=2, sequence=4, offset=2)
    text = io.StringIO()
    yaml.dump(_styled(values), text)
    return text.getvalue()


def _styled(value: Any, key: str = "", flow: bool = False) -> Any:
    if isinstance(value, Mapping):
        flow = flow or key in IN_ONE_LINE or "condition" in value
        made: Any = CommentedMap((_styled(k), _styled(v, k, flow)) for k, v in value.items())
    elif isinstance(value, list):
        flow = flow or key in IN_ONE_LINE
        made = CommentedSeq(_styled(each, flow=flow) for each in value)
    elif isinstance(value, str) and "\n" in value:
        return LiteralScalarString(value)
    else:
        return DoubleQuotedScalarString(value) if isinstance(value, str) and NO_TEXT.fullmatch(value) else value
    if flow:
        made.fa.set_flow_style()
    return made


def _indented(text: str, by: int) -> str:
    return "".join(f"{' ' * by}{line}" if line.strip() else line for line in text.splitlines(keepends=True))
