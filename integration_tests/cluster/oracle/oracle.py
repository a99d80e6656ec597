"""Kafka's own controller classes in a JVM, asked what they would decide (Oracle.java). Records are compared as values.

Needs the JDK and the broker's classpath of `integration_tests/peers`.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from integration_tests.peers.peers import classpath as peers_classpath
from integration_tests.peers.peers import java_command
from isthmus.protocol.messages import metadata_records as r

SOURCE = Path(__file__).with_name("Oracle.java")


class Refused(Exception):
    """Kafka's controller refused a command: its error's code and message."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class Oracle:
    """One JVM. `new` starts with an empty cluster; folder: for the compiled class."""

    def __init__(self, folder: Path) -> None:
        jars = peers_classpath("broker")
        compiler = ["javac", "-nowarn", "-cp", jars, "-d", str(folder), str(SOURCE)]
        subprocess.run(compiler, check=True, capture_output=True)
        command = java_command("org.apache.kafka.controller.Oracle", profile="broker", log="OFF")
        at = command.index("-cp") + 1
        command[at] = f"{folder}:{command[at]}"
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)

    def ask(self, do: str, **fields: Any) -> Any:
        """The records and the answer of a command. Raises Refused."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, **fields}, default=bytes.hex) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if "failure" in answer:
            raise AssertionError(f"{do} {fields}: {answer['failure']}")
        if "error" in answer:
            raise Refused(answer["error"], answer["message"])
        records = [r.decode(bytes.fromhex(each)) for each in answer.get("records", ())]
        return records, answer.get("answer")

    def apply(self, records: Sequence[Any], offset: int) -> None:
        """Apply records, the first of which is at `offset`."""
        self.ask("apply", offset=offset, records=[r.encode(each) for each in records])
