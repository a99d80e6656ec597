"""Options of a topology's brokers and topics, looked at before anything is started.

The broker knows them, and is reached by its command line only; the topology file knows where they stand.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping

from .addresses import EVERYWHERE, counted_up, overlap
from .errors import DeployError
from .launch import python
from .nodes import METRICS, SET_FOR_SEVERAL, plain
from .topology import Option, Topology, mistakes

SET_BY_TOPOLOGY = {
    "listeners": "`listen` of the datacenter says this: leave it out",
    "log.dirs": "where data goes is said to the command that starts the topology: leave it out",
}
ONE_ADDRESS = "several brokers are told to clients one by one: write an address or a name of this machine"


def check_options(topology: Topology, text: str, path: str, set_here: Mapping[str, str] = SET_BY_TOPOLOGY) -> None:
    """TopologyError lists the options that brokers would refuse, with their lines in `text`, which is called `path`.

    set_here: broker options that nobody may give, because whoever starts the brokers does; and what to do instead.
    """
    found: list[tuple[tuple[str, ...], str]] = []
    asked: list[tuple[str, dict[str, str]]] = []
    places: list[tuple[str, ...]] = []
    is_local = "listeners" in set_here and "advertised.listeners" not in set_here
    for name, datacenter in topology.datacenters.items():
        place = ("datacenters", name)
        not_for_people = dict(set_here) if datacenter.brokers == 1 else SET_FOR_SEVERAL | dict(set_here)
        kept: dict[str, Option] = {key: value for key, value in datacenter.options.items() if key not in not_for_people}
        found += [((*place, "options", each), not_for_people[each]) for each in datacenter.options if each not in kept]
        is_everywhere = datacenter.listen.rpartition(":")[0].strip("[]") in EVERYWHERE
        if is_local and is_everywhere and datacenter.brokers > 1:
            found.append(((*place, "listen"), ONE_ADDRESS))
        elif is_local and (kept or is_everywhere):
            kept["listeners"] = f"PLAINTEXT://{datacenter.listen}"
        parts: list[tuple[str, tuple[str, ...], Mapping[str, Option]]] = [("broker", place, kept)]
        parts += [("topic", (*place, "topics", topic), each.options) for topic, each in datacenter.topics.items()]
        for kind, where, options in parts:
            if options:
                asked.append((kind, {option: plain(value) for option, value in options.items()}))
                places.append((*where, "options"))
    if is_local:
        found += _used_twice(topology)
    for index, option, reason in _refused(asked) if asked else ():
        found.append(((*places[index], option) if option else places[index], reason))
    if found:
        raise mistakes(text, path, found)


def _used_twice(topology: Topology) -> Iterator[tuple[tuple[str, ...], str]]:
    """Addresses of metrics that are another's on this machine; those of `listen` are compared with the file."""
    taken = {
        each: f"{name} (listen)" for name, datacenter in topology.datacenters.items() for each in datacenter.listens
    }
    for name, datacenter in topology.datacenters.items():
        if METRICS in datacenter.options:
            said = str(datacenter.options[METRICS])
            for address in [counted_up(said, i) for i in range(datacenter.brokers)]:
                if other := next((taken[each] for each in taken if overlap(each, address)), ""):
                    yield ("datacenters", name, "options", METRICS), f"{address} is the address of {other} already"
                    break
                taken[address] = f"{name} ({METRICS})"


def _refused(asked: list[tuple[str, dict[str, str]]]) -> list[tuple[int, str, str]]:
    done = subprocess.run(
        [*python("core_broker"), "options"], input=json.dumps(asked), capture_output=True, text=True, check=False
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"it exited with {done.returncode}"]
        raise DeployError(f"the broker could not be asked about options: {last[0]}")
    return [(index, option, reason) for index, option, reason in json.loads(done.stdout)]
