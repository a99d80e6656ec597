"""A history of transactions: producers of three libraries write to a topic, members of a group copy it to another in
transactions of their own, and consumers read both under read_committed. Then both are read to their ends, under
read_committed and under read_uncommitted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from confluent_kafka.admin import AdminClient

from integration_tests.histories import libraries, topics, transactional_workers, workers
from integration_tests.histories.clusters import Cluster
from integration_tests.histories.history import OK, READ_COMMITTED, READ_UNCOMMITTED, History, Send
from integration_tests.histories.java_library import Java
from integration_tests.histories.nemesis import Nemesis, plan
from integration_tests.histories.transactional import NAMES, Doomed, Later, Over
from integration_tests.histories.transactional_libraries import Libraries
from integration_tests.histories.workers import PARTITIONS, SETTLE_S, START_S, Run

END_S = SETTLE_S  # for workers that were told to end
THREADS = 32  # librdkafka's calls wait in them


async def run(cluster: Cluster, seed: int, seconds: float) -> History:
    """One history, on topics and with a group of its own."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS))
    java = Java()
    await java.start()
    try:
        return await _run(cluster, Libraries(java), seed, seconds)
    finally:
        await java.close()


async def _run(cluster: Cluster, made: Libraries, seed: int, seconds: float) -> History:
    history = History()
    names = [f"transactions-{seed}", f"copies-{seed}"]
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "socket.timeout.ms": 5000, "log_level": 0})
    for name in names:
        await asyncio.to_thread(topics.create, admin, name)
    await asyncio.gather(*(_warm_up(cluster, made, seed, each) for each in NAMES))
    begun = time.monotonic()
    sources = Run(cluster.bootstrap, names[0], seed, history, lambda: time.monotonic() - begun)
    sources.isolation, sources.reader = READ_COMMITTED, made.reader
    copies = replace(sources, topic=names[1], first=PARTITIONS, sending=asyncio.Event(), ends={})
    others = NAMES[seed % len(NAMES) :] + NAMES[: seed % len(NAMES)]
    writing = [asyncio.create_task(transactional_workers.Writing(sources, made, each).run()) for each in NAMES]
    copying = [asyncio.create_task(transactional_workers.copy(sources, copies, made, each)) for each in others[:2]]
    reading = [
        *(asyncio.create_task(workers.read(sources, each)) for each in NAMES),
        asyncio.create_task(workers.read(copies, others[2], "copies")),
        asyncio.create_task(workers.watch(sources, others[1])),
    ]
    nemesis = Nemesis(cluster, names, seed, history, sources.now_s)
    await nemesis.run(plan(seed, seconds))
    await asyncio.sleep(max(0.0, seconds - sources.now_s()))
    for name in names:
        if said := await topics.settled(admin, name):
            history.unfinished.append(f"{name}: {said}")
    sources.sending.set()
    await _ended(history, writing)
    await _end(sources)
    await transactional_workers.wait_until_copied(sources)
    copies.sending.set()
    await _ended(history, copying)
    await _end(copies)
    sources.reading.set()
    await _ended(history, reading)
    for each in (sources, copies):
        await workers.final_read(each, others[0])
        await workers.final_read(replace(each, isolation=READ_UNCOMMITTED), others[1])
        history.unfinished += await topics.differences(cluster, each.topic)
    return history


async def _ended(history: History, tasks: Sequence[asyncio.Task[None]]) -> None:
    """Wait for workers; give up those that do not end, which is noted."""
    _, pending = await asyncio.wait(tasks, timeout=END_S)
    for task in pending:
        history.unfinished.append(f"after {END_S:g} s a worker still is in {_where(task)}")
        task.cancel()
    for task in tasks:
        if task not in pending:
            task.result()


def _where(task: asyncio.Task[None]) -> str:
    """The functions that await each other, from the task's own on."""
    names = []
    at: Any = task.get_coro()
    while hasattr(at, "cr_await"):
        names.append(at.__qualname__)
        at = at.cr_await
    return " > ".join(names)


async def _warm_up(cluster: Cluster, made: Libraries, seed: int, library: str) -> None:
    """Until the library has had a transaction: the cluster makes the coordinators' topic then, and Java is compiled."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        writer = made.writer(library, cluster.bootstrap, f"warm-{library}", f"warm-{library}-{seed}")
        try:
            await writer.start()
            await writer.begin()
            await writer.commit()
            return
        except (Doomed, Later, Over):
            if time.monotonic() > deadline:
                raise
        finally:
            await writer.close()


async def _end(run: Run) -> None:
    """Write a last record to each partition, in no transaction. What ends with a marker cannot be seen to end."""
    name = f"end-{run.topic}"
    writer = libraries.writer("isthmus", run.bootstrap, run.topic, name)
    await asyncio.wait_for(writer.start(), START_S)
    for partition in range(PARTITIONS):
        send = Send(name, run.first + partition, partition, run.now_s())
        run.history.sends.append(send)
        send.offset = await asyncio.wait_for(await writer.send(partition, send.value), SETTLE_S)
        send.completed_s, send.outcome = run.now_s(), OK
        run.ends[partition] = send.offset + 1
    await workers.close(run, writer, name)
