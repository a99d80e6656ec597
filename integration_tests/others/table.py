"""`python -m integration_tests.others.table`: docs/reference/clients.md, made by running all that it names."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from integration_tests.brokers import ROOT

from . import consumer_groups
from .apps import APPS, App
from .clients import CLIENTS, Client, smoke
from .processes import OURS, starting

PAGE = ROOT / "docs" / "reference" / "clients.md"
RECORDS = 100
HEAD = """\
<!-- made by `python -m integration_tests.others.table`: do not edit -->
# Clients that are run against the broker

Other people's clients, unmodified, each in the version named, on one broker and on three: it creates a topic and lists
it, produces with every codec it has, reads all of it in a consumer group, and commits; writes a topic and offsets of a
group in a transaction that it aborts and in one that it commits, and reads it under read_committed. Of three brokers,
each of which has all records, the one that coordinates the transactions is killed meanwhile and comes back; not with
KafkaJS, which leaves it to its users to try again where it cannot connect. Where the library has the protocol of
KIP-848, three of its consumers, and one of each such library together, share a topic; one is killed, then the broker
that coordinates them; one joins, one leaves: no record is lost, and none is read by two of which neither was killed. No
broker is killed where franz-go 1.19.5 is a member: in groups of KIP-848 it gives up its partitions without a commit
when a heartbeat is lost, and does not look for another coordinator when it is told NOT_COORDINATOR. The same run
against one broker of Apache Kafka 4.4 must come to the same (`make soak`; those that need no other language's tools, in
`make test`, and three brokers with librdkafka's groups). The Python clients, kcat and Kafka's console tools are run in
`make test`, each as producer and as consumer of all others' records.

| client | language | version | codecs | consumer group | KIP-848 | transactions |
|---|---|---|---|---|---|---|
"""
APPS_HEAD = """\

Applications, unmodified, run until what they leave in topics is what it must be, then stopped, given more and started
again, on one broker and on three; the same on one of Apache Kafka 4.4. Where a broker is killed, it is of three the one
that coordinates the transactions, and another one does until it is back:

| application | version | what it uses |
|---|---|---|
"""
TAIL = """\

Besides, compared with Apache Kafka 4.4 in the same way: Kafka's own command line tools, and kafka-python's own
integration tests. Those run what differs again: a consumer of kafka-python 3.0.12 that subscribes while its first
metadata is on the way forgets to ask for its topic and waits for five minutes (a TODO in its
`ClusterMetadata.set_topics`), which a broker that answers sooner meets more often;
`test_idempotent_producer_max_in_flight` is such a test.
"""


def row(client: Client, seen: dict[str, Any]) -> str:
    none = "the library has none"
    group, transactions = ("joined, committed", "aborted, committed") if client.groups else (none, none)
    group_848 = "joined, left, killed" if client.consumer_groups else none
    cells = (client.name, client.language, client.version, ", ".join(seen["codecs"]), group, group_848, transactions)
    return f"| {' | '.join(cells)} |\n"


def app_row(app: App) -> str:
    return f"| {app.name} | {app.version} | {app.what} |\n"


def page(rows: Iterable[str], app_rows: Iterable[str]) -> str:
    return HEAD + "".join(rows) + APPS_HEAD + "".join(app_rows) + TAIL


def client_rows(side: str, programs: Path, folder: Path) -> list[str]:
    rows = []
    with starting(side, folder / "clients") as brokers:
        bootstrap = brokers()
        for number, client in enumerate(CLIENTS):
            rows.append(
                row(client, smoke(client.build(programs), bootstrap, f"smoke-{number}", RECORDS, brokers.replicas))
            )
            print(side, rows[-1], end="", flush=True)
    with starting(side, folder / "groups", consumer_groups.SETTINGS) as brokers:
        bootstrap = brokers()
        for libraries in consumer_groups.GROUPS:
            consumer_groups.share(brokers, bootstrap, libraries, programs, folder)
            print(side, ", ".join(libraries), flush=True)
    return rows


def app_rows(side: str, programs: Path, folder: Path) -> list[str]:
    rows = []
    for number, app in enumerate(APPS):
        own = folder / f"app-{number}"
        own.mkdir()
        with starting(side, own) as brokers:
            app.run(brokers, programs, own)
        rows.append(app_row(app))
        print(side, rows[-1], end="", flush=True)
    return rows


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        programs = Path(name)
        for side in OURS:  # on three the rows are the same
            folder = programs / side
            folder.mkdir()
            text = page(client_rows(side, programs, folder), app_rows(side, programs, folder))
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
