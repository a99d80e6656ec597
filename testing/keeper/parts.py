"""The parts of a topology by the names that people call them: a datacenter, one broker of it, a mirror, a worker."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...deploy.nodes import KIND, id_of, nodes
from ...deploy.topology import unknown
from ..errors import IsthmusTestingError

if TYPE_CHECKING:
    from ...deploy.topology import Mirror, Topology


@dataclass(frozen=True)
class Part:
    """A process or container: its own name, and the one that the topology gives it. node_id: of a broker that has
    others beside it in its datacenter."""

    process: str
    name: str
    kind: str
    node_id: int | None = None


class Parts:
    """Finds what a test names. Errors list what there is."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        every = [node for name, datacenter in topology.datacenters.items() for node in nodes(name, datacenter)]
        self.all = [Part(node.process, node.datacenter, KIND, node.node_id) for node in every]
        self.all += [Part(f"{each.name}-mirror", each.name, "mirror") for each in topology.mirrors]
        self.all += [Part(f"{each.name}-worker", each.name, "worker") for each in topology.workers]

    def find(self, name: str, broker: int | None = None) -> list[Part]:
        """By `ewr` or `ewr-broker`: the second is needed where a datacenter and a mirror share a name. Either is all
        brokers of a datacenter, in which `ewr-broker-2`, or broker=2, is one."""
        if broker is not None:
            return [self.broker(name.removesuffix(f"-{KIND}"), broker)]
        found = [part for part in self.all if name == part.process]
        found = found or [part for part in self.all if part.kind == KIND and name == f"{part.name}-{KIND}"]
        found = found or [part for part in self.all if name == part.name]
        if len({part.kind for part in found}) > 1:
            which = " or ".join(dict.fromkeys(f"{part.name}-{part.kind}" for part in found))
            raise IsthmusTestingError(f"'{name}' is more than one part of {self.topology.name}: say {which}")
        if not found:
            known = list(dict.fromkeys((part.kind, part.name) for part in self.all))
            raise IsthmusTestingError(_nothing(f"no part of {self.topology.name}", name, [each for _, each in known]))
        return found

    def one(self, name: str, broker: int | None = None) -> Part:
        """The same, where it is one."""
        found = self.find(name, broker)
        if len(found) > 1:
            which = " or ".join(part.process for part in found)
            raise IsthmusTestingError(f"'{name}' is {len(found)} brokers: say {which}")
        return found[0]

    def brokers(self, datacenter: str) -> list[Part]:
        """By their ids."""
        name = self.datacenter(datacenter)
        return [part for part in self.all if part.kind == KIND and part.name == name]

    def broker_ids(self, name: str) -> list[int]:
        """The node ids of a datacenter's brokers."""
        datacenter = self.topology.datacenters[self.datacenter(name)]
        return [id_of(datacenter, node) for node in nodes(name, datacenter)]

    def broker(self, datacenter: str, node_id: int) -> Part:
        """A broker by its id; where it is the only one, by any."""
        found = self.brokers(datacenter)
        for part in found:
            if part.node_id in (None, node_id):
                return part
        ids = ", ".join(str(part.node_id) for part in found)
        raise IsthmusTestingError(f"datacenter {datacenter} has no broker {node_id}: there are {ids}")

    def mirrors(self, names: list[str]) -> list[Mirror]:
        """The mirrors of these names; all, where none is named."""
        links = {link.name: link for link in self.topology.mirrors}
        if not links:
            raise IsthmusTestingError(f"the topology {self.topology.name} has no mirrors")
        for name in names:
            if name not in links:
                raise IsthmusTestingError(_nothing("no mirror", name, list(links)))
        return [links[name] for name in names or links]

    def datacenter(self, name: str) -> str:
        if name not in self.topology.datacenters:
            raise IsthmusTestingError(unknown(name, list(self.topology.datacenters)))
        return name


def _nothing(what: str, name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean '{close[0]}'?" if close else f"there are {', '.join(known)}"
    return f"{what} is called '{name}': {hint}"
