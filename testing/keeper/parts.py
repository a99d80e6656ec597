"""The parts of a topology by the names that people call them: a datacenter, a mirror, a worker."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...deploy.topology import unknown
from ..errors import IsthmusTestingError

if TYPE_CHECKING:
    from ...deploy.topology import Mirror, Topology


@dataclass(frozen=True)
class Part:
    """A process or container: its own name, which ends in its kind, and the name that the topology gives it."""

    process: str
    name: str
    kind: str


class Parts:
    """Finds what a test names. Errors list what there is."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.all = [Part(f"{name}-broker", name, "broker") for name in topology.datacenters]
        self.all += [Part(f"{each.name}-mirror", each.name, "mirror") for each in topology.mirrors]
        self.all += [Part(f"{each.name}-worker", each.name, "worker") for each in topology.workers]

    def find(self, name: str) -> Part:
        """By `ewr` or `ewr-broker`: the second is needed where a datacenter and a mirror share a name."""
        found = [part for part in self.all if name == part.process] or [p for p in self.all if name == p.name]
        if len(found) > 1:
            which = " or ".join(part.process for part in found)
            raise IsthmusTestingError(f"'{name}' is more than one part of {self.topology.name}: say {which}")
        if not found:
            raise IsthmusTestingError(_nothing(f"no part of {self.topology.name}", name, [p.name for p in self.all]))
        return found[0]

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
