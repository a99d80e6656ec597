"""What `isthmus broker check --repair` leaves, Kafka's own DumpLogSegments finds nothing wrong with."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from integration_tests.brokers import ROOT
from integration_tests.peers.peers import PeerError
from integration_tests.storage.test_kafka_reads_our_files import dump
from tests.core_broker.checking.made import check, found, make

ISTHMUS = (sys.executable, "-m", "isthmus.console.main", "broker", "check")


def flip(pattern: str, position: int) -> Callable[[Path], None]:
    def damage(partition: Path) -> None:
        path = sorted(partition.glob(pattern))[1]
        data = bytearray(path.read_bytes())
        data[position] ^= 1
        path.write_bytes(data)

    return damage


def cut(pattern: str) -> Callable[[Path], None]:
    def damage(partition: Path) -> None:
        path = sorted(partition.glob(pattern))[1]
        path.write_bytes(path.read_bytes()[:-5])

    return damage


def remove(pattern: str) -> Callable[[Path], None]:
    return lambda partition: sorted(partition.glob(pattern))[1].unlink()


DAMAGES = {
    "a record": flip("*.log", 150),
    "a base offset": flip("*.log", 6),
    "a length": flip("*.log", 10),
    "a leader epoch": flip("*.log", 13),
    "a torn segment": cut("*.log"),
    "an offset index": flip("*.index", 3),
    "a time index": flip("*.timeindex", 6),
    "a short index": cut("*.index"),
    "no time index": remove("*.timeindex"),
    "a transaction index": flip("*.txnindex", 12),
    "a producer snapshot": flip("*.snapshot", 20),
}


def complains(paths: list[Path]) -> bool:
    """Whether Kafka's tool finds something; of some damages it dies."""
    try:
        text = dump(paths)
    except (PeerError, AssertionError):
        return True
    return "isvalid: false" in text


def test_kafkas_tool_agrees_with_a_repaired_directory(tmp_path: Path) -> None:
    made = make(tmp_path / "made")
    logs, indexes = [], []
    for name, damage in DAMAGES.items():
        directory = tmp_path / name.replace(" ", "-")
        shutil.copytree(made, directory)
        partition = directory / "plain-0"
        damage(partition)
        assert found(directory), name
        if name in ("a record", "an offset index"):
            assert complains(sorted(partition.glob(f"*{'.log' if 'record' in name else '.index'}"))), name
        assert check(directory, repair=True).still_wrong == 0, name
        assert not found(directory), name
        logs += sorted(partition.glob("*.log"))
        indexes += [*sorted(partition.glob("*index")), *sorted(partition.glob("*.snapshot"))]
    text = dump(logs, "--deep-iteration")
    assert text.count("isvalid: true") > 100
    assert "isvalid: false" not in text
    dump(indexes)


def test_the_command_says_it_by_exit_code_and_in_json(tmp_path: Path) -> None:
    directory = make(tmp_path / "data")
    DAMAGES["a record"](directory / "plain-0")
    codes = []
    for options in ((), ("--repair",), ()):
        done = subprocess.run([*ISTHMUS, str(directory), "--json", *options], capture_output=True, text=True, cwd=ROOT)
        assert not done.stderr
        codes.append((done.returncode, json.loads(done.stdout)["wrong"]))
    assert codes == [(1, 1), (0, 1), (0, 0)]
