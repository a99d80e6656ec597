"""`python -m integration_tests.histories --seed 7 --seconds 60 --peer ours`: histories of real processes under faults.

Starts three nodes in namespaces of their own (no rights are needed where the machine allows user namespaces) and runs
`--count` histories with consecutive seeds on them. Of each it prints one line, a JSON object: counts, faults,
anomalies, and how long acknowledgements failed to come. Exit code 1: there are anomalies; then, or with --keep, DIR has
the histories and the nodes' logs. None follows after one that is unfinished. `--check FILE` checks one that was kept.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from integration_tests.histories import clusters, network, workers
from integration_tests.histories.checker import anomalies
from integration_tests.histories.clusters import Cluster
from integration_tests.histories.figures import summary
from integration_tests.histories.history import History
from integration_tests.histories.libraries import NAMES
from integration_tests.histories.nemesis import Nemesis, plan
from integration_tests.histories.workers import PARTITIONS, SETTLE_S, Run
from integration_tests.peers import peers
from integration_tests.waiting import until


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1, help="histories, with this seed and the next (default 1)")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--peer", choices=clusters.PEERS, default=clusters.OURS)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the histories and the nodes' logs there")
    parser.add_argument("--check", type=Path, metavar="FILE", help="check a history, and run nothing")
    options = parser.parse_args()
    if options.check:
        return report(History.read(options.check), {"history": str(options.check)})
    if options.peer == clusters.KAFKA:
        peers.classpath("broker")  # Maven needs the network that is outside
    network.enter("integration_tests.histories", sys.argv[1:])
    logging.disable(logging.ERROR)  # what clients tell of the faults
    folder = options.keep or Path(tempfile.mkdtemp(prefix="isthmus-histories-"))
    failed = False
    with clusters.running(folder, options.peer) as cluster:
        wait_until_ready(cluster)
        for seed in range(options.seed, options.seed + options.count):
            history = asyncio.run(run(cluster, seed, options.seconds))
            history.write(folder / f"history-{seed}.jsonl")
            about = {"peer": options.peer, "seed": seed, "seconds": options.seconds}
            failed |= bool(report(history, about))
            if history.unfinished:  # the next would begin on what is broken
                break
    if failed:
        print(f"the histories and the nodes' logs are in {folder}", file=sys.stderr)
    elif not options.keep:
        shutil.rmtree(folder, ignore_errors=True)
    return int(failed)


def report(history: History, about: dict[str, Any]) -> int:
    found = anomalies(history)
    print(json.dumps({**about, **summary(history, found)}), flush=True)
    return int(bool(found))


def wait_until_ready(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})

    def ready() -> bool:
        try:
            return len(admin.list_topics(timeout=5).brokers) == len(clusters.NODES)
        except KafkaException:
            return False

    until(ready, "three brokers are there", clusters.START_TIMEOUT_S)


async def run(cluster: Cluster, seed: int, seconds: float) -> History:
    """One history, on a topic and with a group of its own."""
    history = History()
    topic = f"history-{seed}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "socket.timeout.ms": 5000, "log_level": 0})
    await asyncio.to_thread(create, admin, topic)
    begun = time.monotonic()
    this = Run(cluster.bootstrap, topic, seed, history, lambda: time.monotonic() - begun)
    library = NAMES[seed % len(NAMES)]  # of the group
    producing = [asyncio.create_task(workers.Producing(this, each).run()) for each in NAMES]
    reading = [
        *(asyncio.create_task(workers.read(this, each)) for each in NAMES),
        *(asyncio.create_task(workers.belong(this, library, number)) for number in range(2)),
        asyncio.create_task(workers.watch(this, "librdkafka" if library == "isthmus" else "isthmus")),
    ]
    nemesis = Nemesis(cluster, topic, seed, history, this.now_s)
    await nemesis.run(plan(seed, seconds))
    await asyncio.sleep(max(0.0, seconds - this.now_s()))
    if said := await settled(admin, topic):
        history.unfinished.append(said)
    this.sending.set()
    await asyncio.gather(*producing)
    this.ends.update(await asyncio.to_thread(ends, cluster.bootstrap, topic))
    this.reading.set()
    await asyncio.gather(*reading)
    await workers.final_read(this, NAMES[(seed + 1) % len(NAMES)])
    history.unfinished += await differences(cluster, topic)
    return history


def create(admin: AdminClient, topic: str) -> None:
    """Ask again where the answer is lost, as with a node that was just started again."""

    def created() -> bool:
        try:
            admin.create_topics([NewTopic(topic, PARTITIONS, 3)])[topic].result(30)
        except KafkaException as error:
            return bool(error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS)
        return True

    until(created, f"{topic} is created", SETTLE_S)


async def settled(admin: AdminClient, topic: str) -> str:
    """Wait until all replicas are in sync; what is not so after SETTLE_S, or ""."""
    deadline = time.monotonic() + SETTLE_S
    said = ""
    while time.monotonic() < deadline:
        try:
            told = await asyncio.to_thread(admin.list_topics, topic, 5)
        except KafkaException as error:
            said = str(error)
            continue
        partitions = told.topics[topic].partitions.values()
        behind = [f"partition {each.id}: leader {each.leader}, in sync {each.isrs}" for each in partitions
                  if each.leader < 0 or len(each.isrs) < 3]  # fmt: skip
        if not behind and partitions:
            return ""
        said = "; ".join(behind)
        await asyncio.sleep(0.2)
    return f"not all replicas are in sync after {SETTLE_S:g} s: {said}"


async def differences(cluster: Cluster, topic: str) -> list[str]:
    """Partitions whose replicas do not have the same bytes after SETTLE_S."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        found = []
        for partition in range(PARTITIONS):
            logs = {node: cluster.log(node, topic, partition) for node in clusters.NODES}
            if len(set(logs.values())) > 1:
                sizes = {node: len(log) for node, log in logs.items()}
                found.append(f"partition {partition}: replicas differ; their bytes by node are {sizes}")
        if not found or time.monotonic() > deadline:
            return found
        await asyncio.sleep(0.2)


def ends(bootstrap: str, topic: str) -> dict[int, int]:
    """The high watermarks. Asks again where a node does not know the leader yet."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "ends", "log_level": 0})
    found: dict[int, int] = {}

    def told() -> bool:
        with contextlib.suppress(KafkaException):
            for partition in range(PARTITIONS):
                found[partition] = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)[1]
            return True
        return False

    try:
        until(told, f"the ends of {topic} are told", SETTLE_S)
    finally:
        consumer.close()
    return found


if __name__ == "__main__":
    sys.exit(main())
