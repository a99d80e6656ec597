"""A stream app beside a real mirror: by its heartbeats it knows an idle datacenter from one whose link is cut."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import orjson

from isthmus.client import Admin, Client, TopicPartition
from isthmus.client.admin import NewTopic
from isthmus.client.raw import append_raw
from isthmus.protocol.records import build_batch
from isthmus.streams import App, ByDatacenter, Origin
from isthmus.streams.runtime.worker import StreamWorker
from tests.running import run_by

from .mirroring import LINK, WorkerHost
from .product import BrokerHost
from .runner import Simulation, run_checked
from .workload import values_in

MIRRORED, OWN, RESULTS = "src.events", "own", "results"
BOUND_S, AFTER_S = 1.0, 5.0
STEP_S = 0.5


def simulated(scenario: Any) -> None:
    run_checked(scenario)


def an_app(origins: list[Origin | None]) -> App:
    app = App("app", watermarks=ByDatacenter("exclude", after=AFTER_S), datacenter="hub", broker_commit_interval=0.2)
    topics = [app.topic(name, watermark_delay=BOUND_S) for name in (MIRRORED, OWN)]
    source = app.stream(*topics)
    source.tumbling(1.0, retention=600).count(name="counts").final(revise=True).to(RESULTS)

    @app.agent(source, name="see")
    async def see(stream: Any) -> None:
        async for event in stream.events():
            origins.append(event.origin)

    return app


@run_by(simulated)
async def test_an_idle_link_holds_nothing_up_and_one_that_is_cut_is_excluded_until_it_is_back(
    sim: Simulation, /
) -> None:
    source, target = BrokerHost(sim, "src"), BrokerHost(sim, "dst")
    await source.up()
    await target.up()
    origins: list[Origin | None] = []
    written: dict[str, Counter[int]] = {OWN: Counter(), "events": Counter()}  # by window

    async def main() -> None:
        origin, copy = (Client(host.address, runtime=process.runtime) for host in (source, target))
        for client in (origin, copy):
            await client.start()
        await Admin(origin).create_topics([NewTopic("events", 1, 1)])
        await Admin(copy).create_topics([NewTopic(OWN, 1, 1), NewTopic(RESULTS, 1, 1)])
        mirror = WorkerHost(sim, "mirror", source, target)
        worker = StreamWorker(an_app(origins), copy, process.runtime)
        await worker.start()
        running = asyncio.ensure_future(worker.run())

        async def write(client: Client, topic: str) -> None:
            now_ms = process.runtime.wall_ms()
            written[topic][now_ms // 1000 * 1000] += 1
            batch = build_batch([(now_ms, b"k", b"1", ())])
            await append_raw(client, TopicPartition(topic, 0), batch)

        async def write_own_for(seconds: float, also: Client | None = None) -> None:
            for _ in range(int(seconds / STEP_S)):
                await write(copy, OWN)
                if also is not None:
                    await write(also, "events")
                await asyncio.sleep(STEP_S)
                if running.done():
                    running.result()

        def results() -> list[dict[str, Any]]:
            return [orjson.loads(each.value) for each in values_in(target.partition(RESULTS), 0)]

        await write(origin, "events")
        await write_own_for(10.0)
        idle = results()
        assert len(idle) >= 6 and all(said["missing"] == [] for said in idle), "src had nothing, and all was complete"

        mirror.enabled = False
        mirror.machine.kill()
        await write_own_for(12.0, also=origin)
        cut = results()[len(idle) :]
        assert any(said["missing"] == ["src"] for said in cut), "it was waited for in vain, and then no more"
        assert all(said["revision"] == 0 for said in cut)

        mirror.enabled = True
        await write_own_for(15.0)
        back = results()[len(idle) + len(cut) :]
        assert any(said["revision"] > 0 for said in back)
        assert back[-1]["missing"] == []
        lacked = {said["start_ms"] for said in cut if said["missing"]}
        last = {said["start_ms"]: said["value"] for said in results()}
        first = {said["start_ms"]: said["value"] for said in cut}
        assert {start: first[start] for start in lacked} == {start: written[OWN][start] for start in lacked}
        assert last == {start: written[OWN][start] + written["events"][start] for start in last}
        seen = [each for each in origins if each is not None and each.datacenter == "src"]
        assert seen == [Origin("src", "events", 0, offset) for offset in range(len(seen))] and len(seen) == 25
        await worker.stop()
        await running
        await worker.close()

    process = sim.machine("app").start()
    await process.outcome(main())
    assert LINK.source_alias == "src"
