"""Client libraries of other languages: a small program of each, as its users write them, made at test time.

Versions are pinned, with hashes, by each language's own lock file; nothing of the libraries is kept. A program takes a
bootstrap address, a topic to make, a number of records and one of replicas, and prints one JSON object of what it saw.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from integration_tests.peers.peers import POM, java_command

HERE = Path(__file__).parent
BUILD_TIMEOUT_S = 600.0
RUN_TIMEOUT_S = 90.0
JVM = ("-XX:TieredStopAtLevel=1",)  # a short life


def run(command: Sequence[str | Path], folder: Path, timeout_s: float = BUILD_TIMEOUT_S) -> str:
    """What a command prints; AssertionError with its complaints when it fails."""
    done = subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, text=True, timeout=timeout_s)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout[-2000:]}{done.stderr[-3000:]}"
    return done.stdout


def copied(name: str, folder: Path) -> Path:
    """The program's source where it may be built."""
    target = folder / name
    shutil.copytree(HERE / name, target, dirs_exist_ok=True)
    return target


def pinned(path: str, pattern: str) -> str:
    """A version as the lock file has it."""
    found = re.search(pattern, (HERE / path).read_text())
    assert found, f"{path}: {pattern}"
    return found[1]


def node(folder: Path) -> list[str]:
    source = copied("node", folder)
    run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], source)
    return ["node", str(source / "smoke.js")]


def go(program: str) -> Callable[[Path], list[str]]:
    def build(folder: Path) -> list[str]:
        source = copied("go", folder)
        run(["go", "build", "-mod=readonly", "-o", f"built/{program}", f"./{program}"], source)
        return [str(source / "built" / program)]

    return build


def rust(folder: Path) -> list[str]:
    """Cargo writes the name of its registry into each line of a lock: ours has none, and is given cargo's own."""
    source = copied("rust", folder)
    lock = source / "Cargo.lock"
    wanted = lock.read_text()
    lock.unlink()
    run(["cargo", "generate-lockfile", "--quiet"], source)
    registry = re.search(r"(?m)^source = .*\n", lock.read_text())
    assert registry
    lock.write_text(re.sub(r"(?m)^(?=checksum = )", lambda _: registry[0], wanted))
    run(["cargo", "build", "--quiet", "--locked"], source)
    return [str(source / "target" / "debug" / "smoke")]


def java(folder: Path) -> list[str]:
    return java_command(str(HERE / "java" / "Smoke.java"), profile="broker", log="ERROR", jvm=JVM)


def python(library: str) -> Callable[[Path], list[str]]:
    """It is there already, by the lock file of the tests."""
    return lambda _: [sys.executable, str(HERE / "python" / "smoke.py"), library]


@dataclass(frozen=True)
class Client:
    """needs: the command without which it cannot be made. groups: whether the library has consumer groups, and
    transactions; consumer_groups: those of KIP-848, and consumer_groups.py its program. tries_again: in a transaction,
    where it cannot connect; otherwise its users are to."""

    name: str
    language: str
    version: str
    needs: str
    build: Callable[[Path], list[str]]
    groups: bool = True
    consumer_groups: bool = False
    tries_again: bool = True


CLIENTS = (
    Client("Kafka's Java client", "Java", re.findall(r"<broker.version>(.*?)<", POM.read_text())[0], "java", java,
           consumer_groups=True),
    Client("librdkafka, by confluent-kafka", "Python", version("confluent-kafka"), sys.executable,
           python("librdkafka"), consumer_groups=True),
    Client("kafka-python", "Python", version("kafka-python"), sys.executable, python("kafka-python")),
    Client("aiokafka", "Python", version("aiokafka"), sys.executable, python("aiokafka")),
    Client("KafkaJS", "Node", pinned("node/package-lock.json", r'node_modules/kafkajs": \{\s+"version": "(.*?)"'),
           "npm", node, tries_again=False),
    Client("franz-go", "Go", pinned("go/go.mod", r"twmb/franz-go v(\S+)"), "go", go("franz"), consumer_groups=True),
    Client("Sarama", "Go", pinned("go/go.mod", r"IBM/sarama v(\S+)"), "go", go("sarama")),
    Client("rskafka", "Rust", pinned("rust/Cargo.lock", r'name = "rskafka"\nversion = "(.*?)"'), "cargo", rust,
           groups=False, tries_again=False),
)  # fmt: skip


def smoke(command: Sequence[str], bootstrap: str, topic: str, records: int, replicas: int) -> dict[str, Any]:
    """Run a program. codecs: all that the library has; values: of the records it read; committed: sum of offsets.

    transacted: what a reader sees of two transactions, of which one was aborted; transacted_offset: their group's."""
    out = run([*command, bootstrap, topic, str(records), str(replicas)], HERE, RUN_TIMEOUT_S)
    return json.loads(out.splitlines()[-1])
