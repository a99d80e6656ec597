"""Kafka's own classes of messages and records, asked by lines of JSON: see Messages.java."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from integration_tests.peers.peers import java_command
from isthmus.protocol.messages import group_records, metadata_records, transaction_records
from isthmus.protocol.schema import Codec

SOURCE = Path(__file__).with_name("Messages.java")
TIMEOUT_S = 120.0
JVM = ("-XX:TieredStopAtLevel=1",)  # a short life
_PACKAGES = {
    "org.apache.kafka.common.metadata": tuple(metadata_records.CODECS.values()),
    "org.apache.kafka.coordinator.group.generated": group_records.CODECS,
    "org.apache.kafka.coordinator.transaction.generated": transaction_records.CODECS,
}
_COMMON = "org.apache.kafka.common.message"


def class_of(codec: Codec) -> str:
    """The name of the class that Kafka generates for a message."""
    for package, codecs in _PACKAGES.items():
        if codec in codecs:
            return f"{package}.{codec.name}"
    return f"{_COMMON}.{codec.name}" + ("Data" if codec.name.endswith(("Request", "Response")) else "")


def ask(questions: Sequence[dict[str, Any]], source: Path = SOURCE) -> list[dict[str, Any]]:
    """The answers to questions, in order, of one JVM on the classpath of the broker. source: of its class."""
    lines = "\n".join(map(json.dumps, questions))
    command = java_command(str(source), profile="broker", jvm=JVM)  # a source file, compiled as it is started
    done = subprocess.run(command, input=lines, capture_output=True, encoding="utf-8", timeout=TIMEOUT_S)
    answers = [json.loads(line) for line in done.stdout.split("\n") if line]
    if done.returncode or len(answers) != len(questions):
        asked = questions[len(answers)] if len(answers) < len(questions) else None
        raise AssertionError(f"Kafka's classes failed at {asked}:\n{done.stderr[-2000:]}")
    return answers
