"""faust-streaming's apps in the shapes of its own examples, each stopped and started with no files of its first run."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from integration_tests.clients.records import create_topics

from .clients import HERE
from .environments import python
from .processes import Brokers, last_values, produce, records, running, until

PARTITIONS = 4
RUNS = ("first", "second")
READY = "Worker ready"  # in its log


class Worker:
    """One of the apps on a broker; its tables are what its changelogs say."""

    def __init__(self, name: str, bootstrap: str, programs: Path, folder: Path) -> None:
        self.bootstrap = bootstrap
        self.folder = folder
        self.environment = {"BROKER": f"kafka://{bootstrap}", "PYTHONPATH": str(HERE / "faust")}
        self.command = [
            str(python("faust", programs)),
            "-m",
            "faust",
            "-A",
            name,
            "worker",
            "--without-web",
            "-l",
            "info",
        ]

    def run(self, state: str, send: Callable[[], None], left: Callable[[], Any], expected: Any) -> None:
        """Run it, in a folder of this run's own, until what it leaves is as expected; and so it stays when it stops.

        send: gives it its input once it is ready. Before that, after a restart, faust lets its partitions go on before
        it has looked up where they were committed, and may skip records or count them twice, on Kafka as well.
        """
        folder = self.folder / state
        folder.mkdir()
        with running(self.command, folder, "worker", self.environment) as log:
            until(lambda: READY in log.read_text(errors="replace"), lambda: log.read_text(errors="replace")[-3000:])
            send()
            until(
                lambda: left() == expected,
                lambda: f"{left()}\nis not\n{expected}\n{log.read_text(errors='replace')[-3000:]}",
            )
        assert left() == expected

    def table(self, changelog: str) -> dict[str, Any]:
        found = last_values(self.bootstrap, changelog)
        return {_key(key): json.loads(value) for key, value in found.items() if value is not None}


def _key(data: bytes | None) -> str:
    text = (data or b"").decode()
    return text if not text.startswith(('"', "[")) else json.dumps(json.loads(text)).strip('"')


def word_count(brokers: Brokers, programs: Path, folder: Path) -> None:
    bootstrap = brokers()
    create_topics(bootstrap, ["posts"], PARTITIONS)
    worker = Worker("word_count", bootstrap, programs, folder)
    posts = [f"the quick fox {n % 5} the end" for n in range(50)]
    counts: Counter[str] = Counter()

    def send() -> None:
        produce(bootstrap, "posts", [(None, post.encode()) for post in posts], "gzip")

    for state in RUNS:
        for post in posts:
            counts.update(post.split())
        worker.run(state, send, lambda: worker.table("words-counts-changelog"), counts)


def page_views(brokers: Brokers, programs: Path, folder: Path) -> None:
    bootstrap = brokers()
    create_topics(bootstrap, ["views"], PARTITIONS)
    worker = Worker("page_views", bootstrap, programs, folder)
    views = [{"page": f"/{n % 6}", "user": f"u{n}"} for n in range(60)]
    counts: Counter[str] = Counter()

    def send() -> None:
        produce(bootstrap, "views", [(view["user"], json.dumps(view).encode()) for view in views], "gzip")

    for state in RUNS:
        counts.update(view["page"] for view in views)
        worker.run(state, send, lambda: worker.table("pages-counts-changelog"), counts)


def windowed_table(brokers: Brokers, programs: Path, folder: Path) -> None:
    bootstrap = brokers()
    create_topics(bootstrap, ["readings", "sums"], PARTITIONS)
    worker = Worker("windowed", bootstrap, programs, folder)
    readings: list[dict[str, Any]] = [
        {"sensor": f"s{n % 3}", "value": n, "at": 1_700_000_000.0 + n * 10} for n in range(60)
    ]
    totals: Counter[str] = Counter()
    sums: defaultdict[str, list[int]] = defaultdict(list)  # of each sensor, in order: its window's, after each reading

    def left() -> tuple[dict[str, Any], dict[str, list[int]]]:
        sent = defaultdict(list)
        for _, key, value in records(bootstrap, "sums"):
            sent[_key(key)].append(json.loads(value or b"null"))
        return worker.table("windows-totals-changelog"), sent

    def send() -> None:
        produce(bootstrap, "readings", [(each["sensor"], json.dumps(each).encode()) for each in readings])

    for state in RUNS:
        for each in readings:
            start = each["at"] // 60 * 60
            window = json.dumps([each["sensor"], [start, start + 59.9]])
            totals[window] += each["value"]
            sums[each["sensor"]].append(totals[window])
        worker.run(state, send, left, (totals, sums))
