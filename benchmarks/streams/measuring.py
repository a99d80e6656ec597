"""A run of a side's program over a topic: CPU-seconds of its process, seconds, memory, and if the result is right."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from benchmarks.workers import asked, committed_by, cpu_seconds
from integration_tests.brokers import die_with_parent
from integration_tests.peers.peers import rss_bytes
from isthmus.client import Client
from isthmus.client.admin import Admin, NewTopic
from isthmus.protocol.errors import KafkaError
from isthmus.streams.engine.checkpoint import MARKER

from .events import KEPT, PARTITIONS, Events, send
from .sides import MAP, PYTHONPATH, WINDOWS, Side

POLL_S = 0.02
STALL_S = 60.0  # without a commit
READ_S = 30.0
LOG_BYTES = 1500
_runs = itertools.count(os.getpid() * 1000)
Figures = dict[str, float]


class WrongResult(RuntimeError):
    """A side did not do what was measured."""


@contextlib.contextmanager
def program(side: Side, workload: str, address: str, names: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A side's process on the last core, in a folder that is gone afterwards; what it says on stderr is in `log`."""
    with tempfile.TemporaryDirectory(prefix="isthmus-bench-") as folder:
        given = {
            **os.environ,
            "PYTHONPATH": PYTHONPATH,
            "PYTHONUNBUFFERED": "1",
            "BENCH_BROKER": address,
            "BENCH_WORKLOAD": workload,
            "BENCH_STYLE": side.style,
            "BENCH_STORE": side.store,
            "BENCH_GUARANTEE": side.guarantee,
            "BENCH_COMMIT_S": str(side.commit_s),
            "BENCH_FOLDER": folder,
            **names,
        }
        with open(f"{folder}/log", "w") as log:
            process = subprocess.Popen(
                side.command(address), env=given, cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True,
                preexec_fn=_alone_on_a_core,
            )  # fmt: skip
        try:
            yield process
        except Exception as error:
            said = Path(folder, "log").read_text(errors="replace")[-LOG_BYTES:]
            raise RuntimeError(f"{side.name}, {workload}: {error}\n{said}") from error
        finally:
            process.kill()
            process.communicate()


def run(side: Side, workload: str, address: str, events: Events) -> Figures:
    """Raises RuntimeError where the side fails, WrongResult where it counts wrongly."""
    app = f"bench-{next(_runs)}"
    topic, out = f"{app}-in", f"{app}-out"
    names = {"BENCH_APP": app, "BENCH_TOPIC": topic, "BENCH_OUT": out, "BENCH_FROM": str(events.warm)}
    made = [NewTopic(each, PARTITIONS, 1, KEPT) for each in (topic, out)]
    asked(address, lambda client: Admin(client).create_topics(made))
    with contextlib.ExitStack() as after:
        log = ((workload == WINDOWS and side.windows_log) or side.changelog).format(app=app, topic=topic)
        topics = [topic, out, *([log] if log and workload != MAP else [])]
        after.callback(_delete, address, topics)
        send(address, topic, events.warming)
        if side.ends_by_itself:
            send(address, topic, events.counting)
        with program(side, workload, address, names) as process:
            measure = _by_its_word if side.ends_by_itself else _by_its_commits
            figures, counts = measure(process, address, app, topic, events)
        if workload == MAP:
            _check_map(address, out, events)
            return figures
        if counts is None:
            counts = _counts(address, log, side)
        expected = events.by_window if workload == WINDOWS else events.by_key
        if counts != expected:
            raise WrongResult(f"{side.name}, {workload}: {_difference(counts, expected)}")
    return figures


def _delete(address: str, topics: list[str]) -> None:
    with contextlib.suppress(KafkaError):  # of one that was not made
        asked(address, lambda client: Admin(client).delete_topics(topics))


def _alone_on_a_core() -> None:
    die_with_parent()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def _figures(events: int, cpu_s: float, wall_s: float, rss: float) -> Figures:
    return {"events_per_cpu_s": events / cpu_s, "events_per_s": events / wall_s, "rss_mib": rss / (1 << 20)}


def _by_its_commits(
    process: subprocess.Popen[str], address: str, app: str, topic: str, events: Events
) -> tuple[Figures, Counter[int] | None]:
    """From when its first events are committed, and the others are sent, until they are committed."""
    wait_for(process, address, app, events.warm)
    cpu_s, begun = cpu_seconds(process.pid), time.perf_counter()
    send(address, topic, events.counting)
    wait_for(process, address, app, events.warm + events.counted)
    cpu_s, wall_s = cpu_seconds(process.pid) - cpu_s, time.perf_counter() - begun
    return _figures(events.counted, cpu_s, wall_s, rss_bytes(process.pid)), None


def _by_its_word(
    process: subprocess.Popen[str], address: str, app: str, topic: str, events: Events
) -> tuple[Figures, Counter[int] | None]:
    """From the line that it prints on, until it ends."""
    assert process.stdout
    said = [json.loads(line) for line in process.stdout if line.startswith("{")]
    if len(said) != 2 or said[1]["taken"] != events.warm + events.counted:
        raise RuntimeError(f"it ended with {process.wait()} and said {str(said)[:200]}")
    start, end = said
    taken, cpu_s, wall_s = (end[each] - start[each] for each in ("taken", "cpu_s", "wall_s"))
    return _figures(taken, cpu_s, wall_s, end["rss"]), Counter(dict(end["counts"]))


def wait_for(process: subprocess.Popen[str], address: str, app: str, wanted: int) -> None:
    """Until an app has committed so many events. Raises RuntimeError where it ends before, or stands still."""

    async def wait(client: Client) -> None:
        since, seen = time.perf_counter(), -1
        while (found := await committed(client, app)) < wanted:
            if found > seen:
                since, seen = time.perf_counter(), found
            if process.poll() is not None:
                raise RuntimeError(f"it ended with {process.returncode} after {found} of {wanted} events")
            if time.perf_counter() - since > STALL_S:
                raise RuntimeError(f"{found} of {wanted} events are committed, and no more within {STALL_S:g} s")
            await asyncio.sleep(POLL_S)

    asked(address, wait)


async def committed(client: Client, app: str) -> int:
    """By its group; 0 while there is none."""
    try:
        return await committed_by(client, app)
    except KafkaError:
        return 0


def _read(address: str, topic: str) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Key and value of each record."""
    consumer = Consumer({
        "bootstrap.servers": address, "group.id": "bench-read", "enable.auto.commit": False,
        "isolation.level": "read_committed",
    })  # fmt: skip
    partitions = consumer.list_topics(topic, timeout=READ_S).topics[topic].partitions
    left = {}
    for each in partitions:
        left[each] = consumer.get_watermark_offsets(TopicPartition(topic, each), timeout=READ_S)[1]
    consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in partitions])
    try:
        while any(
            consumer.position([TopicPartition(topic, each)])[0].offset < end for each, end in left.items() if end
        ):
            got = consumer.consume(20_000, timeout=0.2)
            for message in got:
                if message.error() is None:
                    yield message.key(), message.value()
    finally:
        consumer.close()


def _check_map(address: str, topic: str, events: Events) -> None:
    by_key: Counter[bytes | None] = Counter()
    for key, value in _read(address, topic):
        if value is None or (b'"n":1' not in value and b'"n": 1' not in value):
            raise WrongResult(f"{topic} has {value!r}")
        by_key[key] += 1
    found = Counter(by_key.values())
    if found != events.by_key:
        raise WrongResult(f"{topic}: {_difference(found, events.by_key)}")


def _counts(address: str, topic: str, side: Side) -> Counter[int]:
    (
        """How often each count is in the rows of a changelog, of which some may have expired since.

    Neither Isthmus' markers nor times that Quix keeps are rows."""
        ""
    )
    rows: dict[bytes, bytes] = {}
    for key, value in _read(address, topic):
        if key is not None and value is not None and key != MARKER and b"|__" not in key:
            rows[key] = value
    return Counter(side.count_of(value) for value in rows.values())


def _difference(found: Counter[int], expected: Counter[int]) -> str:
    def said(counts: Counter[int]) -> str:
        return f"{sum(counts.values())} rows of {sum(count * rows for count, rows in counts.items())} events"

    return f"{said(found)}, not {said(expected)}; more: {dict((found - expected).most_common(3))}"
