"""How each side's program is started, and where what it counted is to be found."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from integration_tests.brokers import ROOT
from integration_tests.others.environments import python
from integration_tests.peers.peers import CACHE, java_command

APPS = Path(__file__).with_name("apps")
MAP, COUNT, WINDOWS, TYPED = "map", "count", "windows", "typed"
WORKLOADS = {
    MAP: "a field more in each value, to a topic",
    COUNT: "count by key, with a changelog",
    WINDOWS: "count by key in tumbling windows of 10 s, with a changelog",
    TYPED: "count by key where a field of the value, a model, is not negative",
}
MEMORY, DISK = "memory://", "rocksdb://"
ON_DISK = (COUNT, WINDOWS)  # workloads that are measured there, too
Command = Callable[[str], list[str]]  # of the broker's address


@dataclass(frozen=True)
class Side:
    """changelog: of its table, with the app's id and the topic in it; empty: it has none. share: of the events of a
    run that it is given; warm: as many more of those come first, and do not count. count_of: of a row's bytes."""

    name: str
    command: Command
    changelog: str
    count_of: Callable[[bytes], int] = json.loads
    windows_log: str = ""  # where it is another one for windows
    style: str = ""
    store: str = MEMORY
    guarantee: str = "at_least_once"
    commit_s: float = 0.5
    codec: str = "lz4"  # of the events
    share: float = 1.0
    warm: float = 0.1
    ends_by_itself: bool = False


def _isthmus(address: str) -> list[str]:
    return [sys.executable, "-m", "isthmus.streams", f"{APPS / 'isthmus_app.py'}:app", "--bootstrap", address]


def _program(packages: str, *arguments: str) -> Command:
    return lambda _: [str(python(packages, CACHE)), *arguments]


def _kafka_streams(_: str) -> list[str]:
    return java_command(str(APPS / "StreamsApp.java"), profile="streams", heap="1g", log="ERROR")


def _first(row: bytes) -> int:
    """What a window of a pipeline or of Quix counts is the first of what its row says."""
    found = json.loads(row)
    return int(found[0] if isinstance(found, list) else found)


def _long(row: bytes) -> int:
    return int.from_bytes(row[-8:], "big")


ISTHMUS_LOG = "{app}-counts-changelog"
KAFKA_STREAMS_LOG = "{app}-counts-changelog"
SIDES = (
    Side("Isthmus, agent", _isthmus, ISTHMUS_LOG, style="agent"),
    Side("Isthmus, pipeline", _isthmus, ISTHMUS_LOG, count_of=_first, style="pipeline"),
    Side("Isthmus, agent, disk", _isthmus, ISTHMUS_LOG, style="agent", store=DISK),
    Side("Isthmus, pipeline, disk", _isthmus, ISTHMUS_LOG, count_of=_first, style="pipeline", store=DISK),
    Side(
        "Quix Streams",
        _program("quix", str(APPS / "quix_app.py")),
        "changelog__{app}--{topic}--default",
        count_of=_first,
        windows_log="changelog__{app}--{topic}--tumbling_window_10000_count",
        store=DISK,
    ),
    Side(
        "faust-streaming",
        _program("faust", "-m", "faust", "-A", "faust_app", "worker", "--without-web", "-l", "info"),
        "{app}-counts-changelog",
        codec="none",  # aiokafka has LZ4 with cramjam alone, which the lock file does not have
        share=0.05,
    ),
    Side("Bytewax", _program("bytewax", str(APPS / "bytewax_app.py")), "", ends_by_itself=True),
    Side("Kafka Streams", _kafka_streams, KAFKA_STREAMS_LOG, _long, warm=2.0),
    Side("Kafka Streams, disk", _kafka_streams, KAFKA_STREAMS_LOG, _long, store=DISK, warm=2.0),
)
PYTHONPATH = f"{ROOT / 'src'}:{APPS}"
