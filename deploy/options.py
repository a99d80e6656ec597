"""Options of a topology's brokers and topics, looked at before anything is started.

The broker knows them, and is reached by its command line only; the topology file knows where they stand.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping

from .errors import DeployError
from .launch import plain, python
from .topology import Option, Topology, mistakes

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
    for name, datacenter in topology.datacenters.items():
        place = ("datacenters", name)
        kept = {option: value for option, value in datacenter.options.items() if option not in set_here}
        found += [((*place, "options", each), set_here[each]) for each in datacenter.options if each in set_here]
        parts: list[tuple[str, tuple[str, ...], Mapping[str, Option]]] = [("broker", place, kept)]
        parts += [("topic", (*place, "topics", topic), each.options) for topic, each in datacenter.topics.items()]
        for kind, where, options in parts:
            if options:
                asked.append((kind, {option: plain(value) for option, value in options.items()}))
                places.append((*where, "options"))
    for index, option, reason in _refused(asked) if asked else ():
        found.append(((*places[index], option) if option else places[index], reason))
    if found:
        raise mistakes(text, path, found)


def _refused(asked: list[tuple[str, dict[str, str]]]) -> list[tuple[int, str, str]]:
    done = subprocess.run(
        [*python("core_broker"), "options"], input=json.dumps(asked), capture_output=True, text=True, check=False
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"it exited with {done.returncode}"]
        raise DeployError(f"the broker could not be asked about options: {last[0]}")
    return [(index, option, reason) for index, option, reason in json.loads(done.stdout)]
