"""`python -m integration_tests.histories --seed 7 --seconds 60 --peer ours`: histories of real processes under faults.

Starts three nodes in namespaces of their own (no rights are needed where the machine allows user namespaces) and runs
`--count` histories with consecutive seeds on them, of plain producers and groups, or with `--workload transactions` of
transactional ones. Of each it prints one line, a JSON object: counts, faults, anomalies, and how long acknowledgements
failed to come. Exit code 1: there are anomalies; then, or with --keep, DIR has the histories and the nodes' logs. None
follows after one that is unfinished. `--check FILE` checks one that was kept.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from integration_tests.histories import clusters, network, topics, transactional_checker, transactional_run, workers
from integration_tests.histories.checker import anomalies
from integration_tests.histories.clusters import Cluster
from integration_tests.histories.figures import summary, transactional_summary
from integration_tests.histories.history import History
from integration_tests.histories.libraries import NAMES
from integration_tests.histories.nemesis import Nemesis, plan
from integration_tests.histories.workers import Run
from integration_tests.peers import peers
from integration_tests.waiting import until


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1, help="histories, with this seed and the next (default 1)")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--peer", choices=clusters.PEERS, default=clusters.OURS)
    parser.add_argument("--workload", choices=WORKLOADS, default="plain")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the histories and the nodes' logs there")
    parser.add_argument("--check", type=Path, metavar="FILE", help="check a history, and run nothing")
    options = parser.parse_args()
    if options.check:
        return report(History.read(options.check), {"history": str(options.check)})
    if options.peer == clusters.KAFKA or options.workload == "transactions":
        peers.classpath("broker")  # Maven needs the network that is outside
    network.enter("integration_tests.histories", sys.argv[1:])
    logging.disable(logging.ERROR)  # what clients tell of the faults
    folder = options.keep or Path(tempfile.mkdtemp(prefix="isthmus-histories-"))
    failed = False
    with clusters.running(folder, options.peer) as cluster:
        wait_until_ready(cluster)
        for seed in range(options.seed, options.seed + options.count):
            history = asyncio.run(WORKLOADS[options.workload](cluster, seed, options.seconds))
            history.write(folder / f"history-{seed}.jsonl")
            about = {"peer": options.peer, "workload": options.workload, "seed": seed, "seconds": options.seconds}
            failed |= bool(report(history, about))
            if history.unfinished:  # the next would begin on what is broken
                break
    if failed:
        print(f"the histories and the nodes' logs are in {folder}", file=sys.stderr)
    elif not options.keep:
        shutil.rmtree(folder, ignore_errors=True)
    return int(failed)


def report(history: History, about: dict[str, Any]) -> int:
    if history.transactions:
        found = transactional_checker.anomalies(history)
        told = transactional_summary(history, found)
    else:
        found = anomalies(history)
        told = summary(history, found)
    print(json.dumps({**about, **told}), flush=True)
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
    await asyncio.to_thread(topics.create, admin, topic)
    begun = time.monotonic()
    this = Run(cluster.bootstrap, topic, seed, history, lambda: time.monotonic() - begun)
    library = NAMES[seed % len(NAMES)]  # of the group
    producing = [asyncio.create_task(workers.Producing(this, each).run()) for each in NAMES]
    reading = [
        *(asyncio.create_task(workers.read(this, each)) for each in NAMES),
        *(asyncio.create_task(workers.belong(this, library, number)) for number in range(2)),
        asyncio.create_task(workers.watch(this, "librdkafka" if library == "isthmus" else "isthmus")),
    ]
    nemesis = Nemesis(cluster, [topic], seed, history, this.now_s)
    await nemesis.run(plan(seed, seconds))
    await asyncio.sleep(max(0.0, seconds - this.now_s()))
    if said := await topics.settled(admin, topic):
        history.unfinished.append(said)
    this.sending.set()
    await asyncio.gather(*producing)
    this.ends.update(await asyncio.to_thread(topics.ends, cluster.bootstrap, topic))
    this.reading.set()
    await asyncio.gather(*reading)
    await workers.final_read(this, NAMES[(seed + 1) % len(NAMES)])
    history.unfinished += await topics.differences(cluster, topic)
    return history


WORKLOADS = {"plain": run, "transactions": transactional_run.run}

if __name__ == "__main__":
    sys.exit(main())
