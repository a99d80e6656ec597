"""What is chosen once for a topology and kept in its folder: its datacenters' addresses, and the ids of clusters.

`addresses.json` has where clients find each datacenter; `clusters.json` what the brokers of one with several of them
must know alike. Ports are looked for among those that nothing is given by itself.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import socket
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import DeployError, counted
from .nodes import changing_voters, cluster_id, fixed_voters
from .whole import write_whole

if TYPE_CHECKING:
    from .topology import Datacenter, Topology

KEPT = "addresses.json"
CLUSTERS = "clusters.json"
META = "meta.properties"  # in a broker's data, from its first start on
LOOPBACK = "127.0.0.1"
# Where free ports are looked for: below those that Linux gives to outgoing connections (32768 and up), of which one may
# be taken between the choice and the broker's start, or for good while the topology is down.
FREE_PORTS = range(20_000, 30_000)


@dataclass(frozen=True)
class Cluster:
    """What the brokers of a datacenter with several of them must know alike. controllers: HOST:PORT by their ids.

    directories: the ids of the first voters' directories, by their ids; none in a cluster of an earlier version, whose
    voters stay those of its options. is_made: all of its brokers have served."""

    id: str
    controllers: list[str]
    directories: list[str] = field(default_factory=list)
    is_made: bool = False

    @property
    def quorum(self) -> dict[str, str]:
        """The options that say who votes."""
        if not self.directories:
            return fixed_voters(self.controllers)
        return changing_voters(self.controllers, [] if self.is_made else self.directories)


def choose(topology: Topology, folder: Path, held: Collection[str] = ()) -> tuple[dict[str, str], dict[str, Cluster]]:
    """The addresses of each datacenter, HOST:PORT with commas between, and the clusters of those with several brokers.

    What was chosen before stays, and a folder that was removed is likely to have the same again. held: addresses that
    the topology's own brokers listen on now. Nothing is written: `keep` does that. DeployError."""
    kept, clusters = kept_addresses(folder), kept_clusters(folder)
    for name, datacenter in topology.datacenters.items():
        _check_size(folder / "data" / name, name, datacenter, clusters.get(name))
    known = [each for addresses in kept.values() for each in addresses.split(",")]
    known += [each for cluster in clusters.values() for each in cluster.controllers]
    known += [each for datacenter in topology.datacenters.values() for each in datacenter.listens]
    taken = {int(each.rpartition(":")[2]) for each in known}
    shuffled = random.Random(str(folder.resolve())).sample(FREE_PORTS, len(FREE_PORTS))
    ports = (port for port in shuffled if port not in taken)  # one iterator: none is chosen twice
    addresses = {name: ",".join(_addresses(name, dc, kept, ports, held)) for name, dc in topology.datacenters.items()}
    found = {
        name: _cluster(name, dc, folder / "data" / name, clusters.get(name), ports, held)
        for name, dc in topology.datacenters.items()
        if dc.brokers > 1
    }
    return addresses, found


def keep(folder: Path, addresses: Mapping[str, str], clusters: Mapping[str, Cluster]) -> None:
    """For the next time: an id is kept as long as there may be data that has it, whatever the file names now."""
    folder.mkdir(parents=True, exist_ok=True)
    keep_addresses(folder, addresses)
    if clusters:
        _keep_clusters(folder, kept_clusters(folder) | dict(clusters))


def note_made(folder: Path, clusters: Mapping[str, Cluster]) -> dict[str, Cluster]:
    """These clusters are made: all of their brokers have served."""
    made = {name: replace(each, is_made=True) for name, each in clusters.items()}
    if made != clusters:
        _keep_clusters(folder, kept_clusters(folder) | made)
    return made


def _keep_clusters(folder: Path, clusters: Mapping[str, Cluster]) -> None:
    write_whole(folder / CLUSTERS, json.dumps({name: asdict(each) for name, each in clusters.items()}, indent=1))


def kept_addresses(folder: Path) -> dict[str, str]:
    """What was chosen for a topology's datacenters when it ran, HOST:PORT each; DeployError: the file is damaged."""
    file = folder / KEPT
    try:
        kept = json.loads(file.read_text())
        for each in kept.values():
            int(each.rpartition(":")[2])
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError) as error:
        raise DeployError(f"{file} cannot be read ({error}): remove it, and `isthmus up` chooses anew") from None
    return dict(kept)


def kept_clusters(folder: Path) -> dict[str, Cluster]:
    """What was chosen for datacenters with several brokers; DeployError: the file is damaged."""
    file = folder / CLUSTERS
    try:
        kept = json.loads(file.read_text())
        return {
            name: Cluster(
                str(each["id"]),
                [str(address) for address in each["controllers"]],
                [str(directory) for directory in each.get("directories", [])],
                bool(each.get("is_made", False)),
            )
            for name, each in kept.items()
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError, KeyError, TypeError) as error:
        raise DeployError(
            f"{file} cannot be read ({error}): write it again, each datacenter with its `id`, which is cluster.id in "
            f"data/NAME/1/meta.properties, and `controllers`, a free HOST:PORT of this machine for each broker"
        ) from None


def _check_size(data: Path, name: str, datacenter: Datacenter, cluster: Cluster | None) -> None:
    """DeployError: there is data of another number of brokers, which would be another cluster without it."""
    count = 1 if (data / META).exists() else 0
    if cluster and _has_data(data, len(cluster.controllers)):
        count = len(cluster.controllers)
        if cluster.directories and cluster.is_made and count < datacenter.brokers:
            return  # the new ones join
    if count not in (0, datacenter.brokers):
        raise DeployError(
            f"datacenter {name} has the data of {counted(count, 'broker')}, and the file says "
            f"{counted(datacenter.brokers, 'broker')}: set brokers: {count}, or remove {data}, with all records, and "
            "begin anew"
        )


def _has_data(data: Path, count: int) -> bool:
    """Whether one of so many brokers has. data: the folder of theirs."""
    return any((data / str(i) / META).exists() for i in range(1, count + 1))


def keep_addresses(folder: Path, addresses: Mapping[str, str]) -> None:
    write_whole(folder / KEPT, json.dumps(addresses, indent=1))


def _addresses(
    name: str, datacenter: Datacenter, kept: Mapping[str, str], ports: Iterator[int], held: Collection[str]
) -> Iterator[str]:
    """Where each broker of a datacenter listens; ports: to choose from where it leaves that open. DeployError: one
    cannot listen."""
    before = kept.get(name, "").split(",")
    for i, listen in enumerate(datacenter.listens):
        yield _address(name, listen, before[i] if i < len(before) else "", ports, held)


def _address(name: str, listen: str, before: str, ports: Iterator[int], held: Collection[str]) -> str:
    host, _, port = listen.rpartition(":")
    if port != "0":
        return listen
    if before.rpartition(":")[0] == host:
        if before in held:
            return before
        try:
            bindable(host, int(before.rpartition(":")[2]))
        except OSError as error:
            raise DeployError(
                f"datacenter {name}: {before}, the address that was chosen for it, cannot be had again "
                f"({error.strerror}): stop what listens there (`ss -ltnp`), or remove {name} from {KEPT} in the "
                "topology's folder and have another chosen"
            ) from None
        return before
    try:
        return _free(host, ports)
    except OSError as error:
        raise DeployError(f"datacenter {name}: nothing can listen on {host}: {error.strerror}") from None


def _free(host: str, ports: Iterator[int]) -> str:
    """HOST:PORT that can be listened on. OSError: nothing can on that host; DeployError: no port is free."""
    for each in ports:
        try:
            bindable(host, each)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            return f"{host}:{each}"
    raise DeployError(f"every port of {host} from {FREE_PORTS[0]} to {FREE_PORTS[-1]} is in use")


def _cluster(
    name: str, datacenter: Datacenter, data: Path, kept: Cluster | None, ports: Iterator[int], held: Collection[str]
) -> Cluster:
    """Its id stays. A controller's address that is taken meanwhile is chosen anew: brokers alone know it. Where the log
    has the voters' addresses, a majority of them must be right. data: the brokers' folders. DeployError."""
    before = kept.controllers if kept else []
    is_old = kept is not None and _has_data(data, len(before))
    controllers, taken = [], []
    for i in range(datacenter.brokers):
        if i < len(before):
            if before[i] in held:
                controllers.append(before[i])
                continue
            host, _, port = before[i].rpartition(":")
            with contextlib.suppress(OSError):
                bindable(host, int(port))
                controllers.append(before[i])
                continue
            taken.append(before[i])
        controllers.append(_free(LOOPBACK, ports))
    if kept is None:
        return Cluster(cluster_id(os.urandom(16)), controllers, _directories(datacenter))
    if not is_old:
        directories = kept.directories if len(kept.directories) == datacenter.brokers else _directories(datacenter)
        return Cluster(kept.id, controllers, directories)
    if kept.directories and 2 * len(taken) >= len(before):
        raise DeployError(
            f"datacenter {name}: {' and '.join(taken)}, where its controllers were, cannot be had again: without them "
            "no majority of them finds each other; stop what listens there (`ss -ltnp`)"
        )
    return replace(kept, controllers=controllers)


def _directories(datacenter: Datacenter) -> list[str]:
    """Ids as Kafka makes them, of a new directory for each broker."""
    return [cluster_id(os.urandom(16)) for _ in range(datacenter.brokers)]


def bindable(host: str, port: int) -> None:
    """OSError: nothing can listen on that port of `host` now."""
    with socket.socket(socket.AF_INET6 if host.startswith("[") else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as what ended there lately is no matter
        probe.bind((host.strip("[]"), port))
