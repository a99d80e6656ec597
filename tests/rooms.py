"""Which tests belong to a room: `python -m tests.rooms ROOM unit|simulation|integration` prints pytest's arguments.

`make test ROOM=mirror` runs a room's unit tests, its simulated scenarios and its integration tests. The table in
tests/README.md is made from here: `python -m tests.rooms table` prints it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KINDS = ("unit", "simulation", "integration")


@dataclass(frozen=True)
class Room:
    """Paths of unit tests, simulated scenarios by name, and paths of integration tests. `what`: for the table."""

    what: str
    unit: tuple[str, ...] = ()
    scenarios: tuple[str, ...] = ()
    integration: tuple[str, ...] = ()


def _unit(*names: str) -> tuple[str, ...]:
    return tuple(f"tests/{name}" for name in names)


def _integration(*names: str) -> tuple[str, ...]:
    return tuple(f"integration_tests/{name}" for name in names)


ROOMS: dict[str, Room] = {
    "protocol": Room(
        "protocol/: codec, records, compression",
        _unit("protocol"),
        (),
        _integration(
            "protocol", "clients/test_codec_matrix.py", "clients/test_framings.py", "cluster", "bad_input/test_java.py"
        ),
    ),
    "client": Room(
        "client/: connections, producer, consumer, groups, admin",
        _unit("client"),
        ("producers", "wire-producers", "groups"),
        _integration("client", "groups/test_assignors.py"),
    ),
    "storage": Room(
        "core_broker/storage/: log, disk, recovery, compaction, retention",
        _unit("core_broker/storage", "core_broker/checking", "core_broker/test_plain_form.py"),
        ("log", "compaction", "retention", "data-directory", "disk-faults"),
        _integration("storage", "bad_input", "test_disks.py"),
    ),
    "replication": Room(
        "core_broker/replication/: partitions, states, high watermark",
        _unit("core_broker/replication", "core_broker/server"),
        ("producers", "disk-faults", "fetch-sessions", "cluster"),
        _integration("storage", "broker", "histories"),
    ),
    "cluster": Room(
        "core_broker/cluster/: metadata, controller",
        _unit("core_broker/cluster"),
        ("broker-start", "data-directory", "quorum", "cluster"),
        _integration("cluster", "broker", "histories"),
    ),
    "coordinators": Room(
        "core_broker/coordinators/: groups, offsets",
        _unit("core_broker/coordinators"),
        ("consumer-groups", "groups", "offset-expiry", "transactions"),
        _integration("groups", "differential/test_group_limits.py"),
    ),
    "server": Room(
        "core_broker/server/ and the rest of the broker: requests, connections, options, metrics",
        _unit("core_broker/server", "core_broker/test_plain_form.py"),
        ("fetch-sessions", "cold-fetches", "wire-producers"),
        _integration("broker", "differential", "hostile", "metrics", "test_broker_process.py"),
    ),
    "mirror": Room(
        "mirror/",
        _unit("mirror", "core_broker/server/apis"),
        ("mirror", "wire-mirror", "diverged"),
        _integration("mirror"),
    ),
    "streams": Room(
        "streams/",
        _unit("streams"),
        ("streams", "stream-cluster", "stream-growth", "stream-pipelines", "zombies"),
        _integration("streams"),
    ),
    "connectors": Room("connectors/, pyspark_isthmus/", _unit("connectors"), (), _integration("connectors")),
    "deploy": Room(
        "deploy/: topology, supervisor, images",
        _unit("deploy"),
        (),
        _integration("console/test_topologies.py", "console/test_operating.py", "test_setup.py"),
    ),
    "console": Room("console/: the command", _unit("console"), (), _integration("console", "tools")),
    "testing": Room("testing/: the pytest fixtures for users", _unit("testing"), (), _integration("testing")),
    "examples": Room("examples/: the demo", _unit("examples"), (), _integration("demo")),
    "simulator": Room("tests/simulation/: the simulator itself", (), ("echo", "cuts"), ()),
}


def scenarios() -> tuple[str, ...]:
    from tests.simulation.scenarios import SCENARIOS

    return SCENARIOS


def arguments(room: str, kind: str) -> list[str]:
    """What pytest is given; nothing where the room has no tests of the kind."""
    chosen = ROOMS[room]
    if kind != "simulation":
        return list(chosen.unit if kind == "unit" else chosen.integration)
    if not chosen.scenarios:
        return []
    from tests.simulation.test_scenarios import FOUND_BY

    file = "tests/simulation/test_scenarios.py"
    plants = [plant for plant, scenario in FOUND_BY.items() if scenario in chosen.scenarios]
    return [
        *(f"{file}::test_every_seed_holds_and_its_faults_happened[{name}]" for name in chosen.scenarios),
        *(f"{file}::test_a_planted_bug_is_found[{plant}]" for plant in plants),
    ]


def table() -> list[str]:
    """The table of tests/README.md."""
    lines = ["| you change | run | unit tests | simulated scenarios | integration tests |", "|---|---|---|---|---|"]
    for name, room in ROOMS.items():
        unit = ", ".join(f"`{each}`" for each in room.unit)
        integration = ", ".join(f"`{each.removeprefix('integration_tests/')}`" for each in room.integration)
        lines.append(
            f"| {room.what} | `make test ROOM={name}` | {unit} | {', '.join(room.scenarios)} | {integration} |"
        )
    return lines


def main() -> int:
    if sys.argv[1:] == ["table"]:
        print("\n".join(table()))
        return 0
    if len(sys.argv) != 3 or sys.argv[2] not in KINDS:
        print("usage: python -m tests.rooms ROOM unit|simulation|integration", file=sys.stderr)
        return 2
    if sys.argv[1] not in ROOMS:
        print(f"there is no room {sys.argv[1]!r}: {', '.join(ROOMS)}", file=sys.stderr)
        return 2
    print("\n".join(arguments(*sys.argv[1:])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
