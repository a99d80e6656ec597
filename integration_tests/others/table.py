"""`python -m integration_tests.others.table`: docs/reference/clients.md, made by running every client it names."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from integration_tests.brokers import ROOT, running_broker

from .clients import CLIENTS, Client, smoke

PAGE = ROOT / "docs" / "reference" / "clients.md"
RECORDS = 100
HEAD = """\
<!-- made by `python -m integration_tests.others.table`: do not edit -->
# Clients that are run against the broker

Other people's clients, unmodified, each in the version named: it creates a topic and lists it, produces with every
codec it has, reads all of it in a consumer group, and commits. The same run against Apache Kafka 4.4 must come to the
same (`make soak`). The Python clients (confluent-kafka, aiokafka, kafka-python), kcat and Kafka's console tools are run
in `make test`, each as producer and as consumer of all others' records.

| client | language | version | codecs | consumer group |
|---|---|---|---|---|
"""
TAIL = """\

Besides, in the same way: a word count of faust-streaming, Kafka Streams' word count, Kafka's own command line tools,
and kafka-python's own integration tests.
"""


def row(client: Client, seen: dict[str, Any]) -> str:
    group = "joined, committed" if client.groups else "the library has none"
    return f"| {client.name} | {client.language} | {client.version} | {', '.join(seen['codecs'])} | {group} |\n"


def page(rows: Iterable[str]) -> str:
    return HEAD + "".join(rows) + TAIL


def main() -> int:
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with running_broker(folder / "broker") as broker:
            for number, client in enumerate(CLIENTS):
                seen = smoke(client.build(folder), broker.bootstrap, f"smoke-{number}", RECORDS)
                rows.append(row(client, seen))
                print(rows[-1], end="", flush=True)
    PAGE.write_text(page(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
