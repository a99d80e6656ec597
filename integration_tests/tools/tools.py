"""Kafka's own command line tools, run unchanged: many in one JVM, whose start is most of what each costs."""

from __future__ import annotations

import json
import re
import select
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from integration_tests.peers.peers import java_command

RUNNER = Path(__file__).with_name("Runner.java")
TIMEOUT_S = 60.0  # of one command, the JVM's start included
JVM = ("-XX:TieredStopAtLevel=1", "-Xshare:auto")
PACKAGE = "org.apache.kafka.tools."
CLASSES = {
    "ConfigCommand": "kafka.admin.ConfigCommand",
    "ConsoleConsumer": f"{PACKAGE}consumer.ConsoleConsumer",
    "ConsumerGroupCommand": f"{PACKAGE}consumer.group.ConsumerGroupCommand",
}


@dataclass(frozen=True)
class Done:
    """What a tool did."""

    exit: int
    out: str
    err: str


class Tools:
    """The JVM that runs them. Made by `running_tools`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, tool: str, *arguments: str, stdin: str = "") -> Done:
        """A tool by its class, such as TopicCommand, to its end."""
        command = {"main": CLASSES.get(tool, f"{PACKAGE}{tool}"), "args": arguments, "stdin": stdin}
        process = self._process
        assert process.stdin and process.stdout
        process.stdin.write(json.dumps(command) + "\n")
        process.stdin.flush()
        if not select.select([process.stdout], [], [], TIMEOUT_S)[0]:
            process.kill()  # the next command would be given the answer of this one
            raise AssertionError(f"{tool} {' '.join(arguments)} is not through after {TIMEOUT_S:.0f} s")
        line = process.stdout.readline()
        assert line, f"the JVM of the tools ended with {tool} {' '.join(arguments)}"
        return Done(**json.loads(line))


def alone(tool: str, *arguments: str) -> Done:
    """A tool in a JVM of its own: for those that add hooks to the JVM's end without Kafka's own way to."""
    command = java_command(CLASSES.get(tool, f"{PACKAGE}{tool}"), *arguments, jvm=JVM)
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    return Done(done.returncode, done.stdout, done.stderr)


@contextmanager
def running_tools(log: Path) -> Iterator[Tools]:
    """A JVM for as long as it is used; log: where it writes what belongs to no command."""
    command = java_command(str(RUNNER), heap="512m", jvm=JVM)  # a source file, compiled as it is started
    with (
        open(log, "wb") as sink,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sink, text=True) as process,
    ):
        try:
            yield Tools(process)
        finally:
            process.kill()


@dataclass(frozen=True)
class Side:
    """A broker that the tools are run against, and what of its answers is its own."""

    name: str
    bootstrap: str
    data: str

    @property
    def port(self) -> str:
        return self.bootstrap.rpartition(":")[2]

    def plain(self, text: str) -> str:
        """A tool's output without what must differ between two brokers, or two runs: a line each, blanks as one."""
        text = re.sub(r"(?m)^\[\d{4}-[^]]*\] ", "", text)  # when it was logged
        text = re.sub(r"(?m)^\s+at .*\n", "", text)  # stack traces
        # The wording of errors is for people; that it is the same error is compared.
        text = re.sub(r"(\w+\.errors\.\w+): .*", r"\1", text)
        text = re.sub(r"(?m)^(Error while executing [\w ]+?) ?: .*", r"\1", text)
        text = text.replace(self.bootstrap, "BROKER").replace(self.port, "PORT").replace(self.data, "DATA")
        # Formatting Kafka's storage sets one option for all brokers, for who may be elected (KIP-966).
        text = re.sub(r"(?m)\bmin\.insync\.replicas=1(,|$| .*DYNAMIC_DEFAULT_BROKER_CONFIG.*)", "", text)
        text = re.sub(r"TopicId: \S{22}", "TopicId: ID", text)
        text = re.sub(r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "-UUID", text)  # ends of member ids
        text = re.sub(r"\b1[67]\d{11}\b", "MS", text)
        lines = (" ".join(line.split()) for line in text.splitlines())
        return "\n".join(line for line in lines if line)
