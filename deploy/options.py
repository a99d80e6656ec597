"""Options of a topology's brokers and topics, looked at before anything is started.

The broker knows them, and is reached by its command line only; the topology file knows where they stand.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping

from .errors import DeployError
from .launch import plain, python
from .topology import EVERYWHERE, Option, Topology, mistakes, overlap

METRICS = "metrics.listener"
SET_BY_TOPOLOGY = {
    "listeners": "`listen` of the datacenter says this: leave it out",
    "log.dirs": "where data goes is said to the command that starts the topology: leave it out",
}


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
        kept: dict[str, Option] = {key: value for key, value in datacenter.options.items() if key not in set_here}
        found += [((*place, "options", each), set_here[each]) for each in datacenter.options if each in set_here]
        if is_local and (kept or datacenter.listen.rpartition(":")[0].strip("[]") in EVERYWHERE):
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
    taken = {f"{name} (listen)": datacenter.listen for name, datacenter in topology.datacenters.items()}
    for name, datacenter in topology.datacenters.items():
        if METRICS in datacenter.options:
            address = str(datacenter.options[METRICS])
            if other := next((each for each in taken if overlap(taken[each], address)), ""):
                yield ("datacenters", name, "options", METRICS), f"{address} is the address of {other} already"
            taken[f"{name} ({METRICS})"] = address


def _refused(asked: list[tuple[str, dict[str, str]]]) -> list[tuple[int, str, str]]:
    done = subprocess.run(
        [*python("core_broker"), "options"], input=json.dumps(asked), capture_output=True, text=True, check=False
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"it exited with {done.returncode}"]
        raise DeployError(f"the broker could not be asked about options: {last[0]}")
    return [(index, option, reason) for index, option, reason in json.loads(done.stdout)]
