"""Faults of a topology on this machine: they happen, they end, and nothing is lost or doubled by them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from integration_tests.mirror.workers import clients, log_bytes, run, same
from isthmus.deploy.supervisor import start_ticks
from isthmus.testing import Backend, IsthmusContainer, IsthmusTestingError, IsthmusTopology, MirrorStatus
from isthmus.testing.keeper.local import _state

from .suites import SHOPS, children

COUNT = 500


def produce(bootstrap: str, topic: str, count: int = COUNT, begin: int = 0) -> None:
    """Records whose number is key and value; all are acknowledged when this returns."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
    for number in range(begin, begin + count):
        producer.produce(topic, f"value {number}", f"key {number}", headers={"n": str(number)})
    assert producer.flush(60) == 0


def status_of(topology: IsthmusTopology, mirror: str, topic: str) -> MirrorStatus:
    [found] = [each for each in topology.mirror_status(mirror) if each.topic == topic]
    return found


def bytes_of(bootstrap: str, topic: str) -> bytes:
    async def read() -> Any:
        async with clients(bootstrap) as [client]:
            return await log_bytes(client, topic, 0)

    found = run(read())
    assert isinstance(found, bytes)
    return found


def is_same(topology: IsthmusTopology, source: str, topic: str) -> bool:
    """Whether the office's log of a topic is that shop's, byte for byte and offset for offset."""

    async def compare() -> bool:
        async with clients(topology.bootstrap(source), topology.bootstrap("office")) as (here, there):
            return await same(here, there, topic, [0], source)

    return bool(run(compare()))


# --- The WAN --------------------------------------------------------------------------------------------------------


def test_while_one_line_is_cut_nothing_of_it_arrives_and_the_lag_is_what_waits(shops: IsthmusTopology) -> None:
    """The other line is the clock, and the control: what was produced no earlier came through there."""
    for shop in ("north", "south"):
        produce(shops.bootstrap(shop), "orders-cut")
    shops.wait_mirrored()
    assert is_same(shops, "north", "orders-cut")
    before = bytes_of(shops.bootstrap("office"), "north.orders-cut")

    shops.cut_wan("north-office")
    for shop in ("north", "south"):
        produce(shops.bootstrap(shop), "orders-cut", begin=COUNT)
    shops.wait_mirrored("south-office")
    assert is_same(shops, "south", "orders-cut")
    assert bytes_of(shops.bootstrap("office"), "north.orders-cut") == before
    assert status_of(shops, "north-office", "orders-cut").lag_records == COUNT
    assert status_of(shops, "south-office", "orders-cut").lag_records == 0
    with pytest.raises(IsthmusTestingError, match=f"north-office: north.orders-cut-0 has {COUNT} of {2 * COUNT}"):
        shops.wait_mirrored("north-office", timeout_s=0.5)

    shops.heal_wan()
    shops.wait_mirrored()
    assert status_of(shops, "north-office", "orders-cut").lag_records == 0
    assert is_same(shops, "north", "orders-cut")


def test_every_record_arrives_once_through_a_line_that_is_cut_again_and_again(shops: IsthmusTopology) -> None:
    rounds = 4
    for number in range(rounds):
        shops.cut_wan()
        producing = threading.Thread(
            target=produce, args=(shops.bootstrap("north"), "orders-often", COUNT, number * COUNT)
        )
        producing.start()
        shops.heal_wan()
        producing.join()
    shops.wait_mirrored()
    assert status_of(shops, "north-office", "orders-often").target_end == rounds * COUNT
    assert is_same(shops, "north", "orders-often")


def test_a_topic_made_while_the_line_is_cut_comes_when_it_is_healed(shops: IsthmusTopology) -> None:
    shops.cut_wan()
    produce(shops.bootstrap("north"), "orders-new")
    assert status_of(shops, "north-office", "orders-new").target_end == 0
    shops.heal_wan()
    shops.wait_mirrored()
    assert is_same(shops, "north", "orders-new")


# --- Pause, kill, restart -------------------------------------------------------------------------------------------


def answers(bootstrap: str, timeout_s: float = 1.0) -> bool:
    async def ask() -> None:
        async with asyncio.timeout(timeout_s), clients(bootstrap):
            pass

    try:
        asyncio.run(ask())
    except (TimeoutError, OSError):
        return False
    return True


def test_a_paused_broker_takes_connections_and_answers_none_until_it_goes_on(shops: IsthmusTopology) -> None:
    produce(shops.bootstrap("north"), "orders-pause")
    shops.wait_mirrored()
    shops.pause("north")
    host, _, port = shops.bootstrap("north").rpartition(":")
    socket.create_connection((host, int(port)), timeout=5).close()  # the machine is there
    assert not answers(shops.bootstrap("north"))
    assert answers(shops.bootstrap("south"))
    assert status_of(shops, "north-office", "orders-pause").source_end is None
    shops.unpause("north")
    assert answers(shops.bootstrap("north"), 30)
    assert status_of(shops, "north-office", "orders-pause").source_end == COUNT


def test_a_source_that_hangs_is_not_taken_for_an_empty_one() -> None:
    """Before any mirror has said anything of its partitions: there is nothing to be seen but the silence."""
    with IsthmusTopology(SHOPS, backend=Backend.LOCAL) as fresh:
        fresh.wait_mirrored()  # the control: nothing is to be awaited while all answer
        fresh.pause("north")
        with pytest.raises(IsthmusTestingError, match="the source of north-office does not answer"):
            fresh.wait_mirrored()
        fresh.wait_mirrored("south-office")
        assert fresh._keeper
        [south] = [pid for pid, command in children(fresh._keeper.pid).items() if "data/south " in command]
        os.kill(south, signal.SIGSTOP)  # of which nobody has told the keeper
        with pytest.raises(IsthmusTestingError, match="the source of south-office does not answer"):
            fresh.wait_mirrored("south-office", timeout_s=1)


def test_a_killed_broker_stays_dead_keeps_its_port_and_comes_back_with_its_data(shops: IsthmusTopology) -> None:
    bootstrap = shops.bootstrap("north")
    host, _, port = bootstrap.rpartition(":")
    produce(bootstrap, "orders-kill")
    shops.kill("north")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=5)
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind((host, int(port)))
    with pytest.raises(IsthmusTestingError, match="the source of north-office does not answer"):
        shops.wait_mirrored("north-office")
    shops.restart("north")
    assert shops.bootstrap("north") == bootstrap
    shops.wait_mirrored()
    assert status_of(shops, "north-office", "orders-kill").source_end == COUNT
    assert is_same(shops, "north", "orders-kill")


def test_a_killed_target_and_a_killed_mirror_lose_and_double_nothing(shops: IsthmusTopology) -> None:
    produce(shops.bootstrap("south"), "orders-both")
    shops.kill("office")
    produce(shops.bootstrap("south"), "orders-both", begin=COUNT)
    shops.kill("south-office")
    shops.restart("office")
    shops.restart("south-office")
    shops.wait_mirrored()
    assert is_same(shops, "south", "orders-both")


def test_a_paused_part_can_be_killed_and_a_running_one_restarted(shops: IsthmusTopology) -> None:
    shops.pause("north-office")
    shops.kill("north-office")
    shops.restart("north-office")
    shops.restart("north-office")
    produce(shops.bootstrap("north"), "orders-restart")
    shops.wait_mirrored()
    assert is_same(shops, "north", "orders-restart")


def test_repair_mends_all_of_it(shops: IsthmusTopology) -> None:
    shops.cut_wan()
    shops.pause("south")
    shops.kill("north")
    assert shops.changed
    shops.repair()
    assert not shops.changed
    produce(shops.bootstrap("north"), "orders-repair")
    produce(shops.bootstrap("south"), "orders-repair")
    shops.wait_mirrored()


def test_while_one_thread_waits_another_may_call(shops: IsthmusTopology) -> None:
    shops.cut_wan("north-office")
    produce(shops.bootstrap("north"), "orders-threads")
    waiting = threading.Thread(target=shops.wait_mirrored)
    waiting.start()
    assert status_of(shops, "north-office", "orders-threads").lag_records == COUNT
    assert waiting.is_alive()
    shops.heal_wan()
    waiting.join(30)
    assert not waiting.is_alive()
    assert status_of(shops, "north-office", "orders-threads").lag_records == 0


def test_logs_are_those_of_the_part(shops: IsthmusTopology) -> None:
    assert "serves" in shops.logs("north")
    shops.kill("north")
    shops.restart("north")
    assert shops.logs("north").count(" serves ") >= 2
    assert list(shops.all_logs())[:3] == ["north-broker", "south-broker", "office-broker"]


# --- Stream workers -------------------------------------------------------------------------------------------------

APP = """
from isthmus.streams import App

app = App("totals", broker_commit_interval=0.2)
words = app.topic("words", value_serializer="json")
out = app.topic("out", value_serializer="json")


@app.agent(words)
async def pass_on(stream):
    async for event in stream.events():
        await out.send(key=event.key, value=event.value)
"""
WITH_APP = """\
name: streams
datacenters: {office: {topics: {words: {}, out: {}}}}
workers: [{name: totals, app: "apps/totals.py:app", datacenter: office}]
"""


def test_a_worker_of_the_file_runs_and_may_be_killed(tmp_path: Path) -> None:
    kill_a_worker(tmp_path, Backend.LOCAL)


def kill_a_worker(folder: Path, backend: Backend) -> None:
    """Its path is relative to the topology file. Outputs are at least once, so they are compared as a set."""
    (folder / "apps").mkdir(mode=0o755)
    (folder / "apps" / "totals.py").write_text(APP)
    (folder / "topology.yaml").write_text(WITH_APP)
    with IsthmusTopology(folder / "topology.yaml", backend=backend) as topology:
        assert topology.workers == ["totals"]
        send(topology.bootstrap("office"), range(50))
        assert received(topology.bootstrap("office"), 50) == set(range(50))
        topology.kill("totals")
        send(topology.bootstrap("office"), range(50, 100))
        topology.restart("totals")
        assert received(topology.bootstrap("office"), 100) == set(range(100))


def send(bootstrap: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in numbers:
        producer.produce("words", json.dumps(number))
    assert producer.flush(30) == 0


def received(bootstrap: str, count: int) -> set[int]:
    """The numbers in `out`, once there are so many different ones."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "test", "enable.auto.commit": False})
    consumer.assign([TopicPartition("out", 0, 0)])
    found: set[int] = set()
    while len(found) < count:
        records = consumer.consume(1, timeout=30)
        assert records, f"{len(found)} of {count} came"
        found |= {json.loads(record.value() or b"") for record in records}
    consumer.close()
    return found


# --- More than one --------------------------------------------------------------------------------------------------


def test_two_topologies_of_one_file_are_apart(shops: IsthmusTopology) -> None:
    with IsthmusTopology(SHOPS, backend=Backend.LOCAL) as other:
        ours, theirs = ({each.bootstrap(name) for name in each.datacenters} for each in (shops, other))
        assert not ours & theirs
        produce(shops.bootstrap("north"), "orders-apart")
        shops.wait_mirrored()
        other.wait_mirrored()
        assert [each for each in other.mirror_status() if each.topic == "orders-apart"] == []
        other.kill("north")
        assert answers(shops.bootstrap("north"), 30)


def test_nothing_of_it_runs_after_stop() -> None:
    topology = IsthmusTopology(SHOPS, backend=Backend.LOCAL).start()
    assert topology._keeper
    keeper = topology._keeper.pid
    bootstrap = topology.bootstrap("north")
    assert start_ticks(keeper)
    topology.stop()
    topology.stop()
    assert start_ticks(keeper) == 0
    assert not answers(bootstrap)
    with pytest.raises(IsthmusTestingError, match="the topology shops is not started"):
        topology.bootstrap("north")
    with topology:  # and may be started anew, with nothing of before
        assert topology.mirror_status() == []


def test_one_broker_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISTHMUS_TESTING", "local")
    with IsthmusContainer(options={"num.partitions": 3}) as broker:
        bootstrap = broker.bootstrap
        produce(bootstrap, "orders")

        async def partitions() -> int:
            async with clients(bootstrap) as [client]:
                await client.refresh_metadata(["orders"])
                return len(client.partitions("orders"))

        assert run(partitions()) == 3
        broker.pause()
        assert not answers(bootstrap)
        broker.unpause()
        broker.kill()
        assert broker.changed
        broker.restart()
        assert broker.bootstrap == bootstrap
        assert run(partitions()) == 3
        broker.repair()
        assert not broker.changed
        assert broker.logs().count(" serves ") == 2


def test_pause_returns_when_nothing_moves_any_more(shops: IsthmusTopology) -> None:
    """Read from the kernel: state T is stopped by a signal."""
    assert shops._keeper
    [pid] = [pid for pid, command in children(shops._keeper.pid).items() if "data/north " in command]
    assert _state(pid) in "SR"
    shops.pause("north")
    assert _state(pid) == "T"
    shops.unpause("north")
    assert _state(pid) != "T"
