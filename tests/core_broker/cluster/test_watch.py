"""On simulated time: brokers that are silent or lose their connection are fenced, preferred replicas lead again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from isthmus.core_broker.cluster.controller import Balanced, BalanceLeaders, BrokerHeartbeat
from isthmus.core_broker.cluster.controller.update_features import Activate
from isthmus.core_broker.cluster.controller.watch import Watch
from isthmus.core_broker.cluster.features import SUPPORTED
from isthmus.core_broker.cluster.image import BrokerInfo
from isthmus.protocol.errors import ErrorCode, KafkaError
from tests.running import run_by
from tests.simulation.runner import Simulation, run_checked

from .support import Cluster


class Watched(Cluster):
    """Three brokers, a topic of which each leads one partition, and a watch. Broker 1 is the controller.

    of_kafka: a broker that is not of ours. gone: brokers of which the process is gone, as a probe finds after 10 ms.
    """

    def __init__(self, of_kafka: int | None = None, **options: str) -> None:
        super().__init__(brokers=3, **options)
        if of_kafka is not None:
            self.start(of_kafka, features=SUPPORTED)
        self.assign("t", [1, 2, 3], [2, 3, 1], [3, 1, 2])
        self.gone: set[int] = set()
        self.watch = Watch(self.image, self.config, self._submit, self._is_gone)
        self.sessions = self.watch.sessions
        self.watch.start()

    async def _is_gone(self, broker: BrokerInfo) -> bool:
        await asyncio.sleep(0.01)
        return broker.id in self.gone

    def _submit(self, command: Any, callback: Callable[[Any], None]) -> None:
        self.now_ms = asyncio.get_running_loop().time() * 1000
        callback(self.run(command))

    def heartbeat(self, broker_id: int, via: object = None) -> Any:
        broker = self.image.brokers[broker_id]
        answers: list[Any] = []
        self.watch.heartbeat(BrokerHeartbeat(broker_id, broker.epoch, self.image.offset), answers.append, via)
        return answers[0]

    def fenced(self) -> list[int]:
        return [each.id for each in self.image.brokers.values() if each.fenced]

    def leaders(self) -> list[int]:
        return [partition.leader for partition in self.image.topics["t"].partitions.values()]


@run_by(run_checked)
async def test_brokers_must_find_a_new_controller_soon_and_have_whole_sessions_then(sim: Simulation, /) -> None:
    cluster = Watched()
    await asyncio.sleep(1.9)
    assert cluster.fenced() == []
    cluster.heartbeat(3)
    await asyncio.sleep(0.2)
    assert cluster.fenced() == [2] and cluster.leaders() == [1, 3, 3]
    await asyncio.sleep(3.7)
    assert cluster.fenced() == [2]
    await asyncio.sleep(0.2)
    assert cluster.fenced() == [2, 3] and cluster.leaders() == [1, 1, 1]
    cluster.heartbeat(2)
    assert cluster.fenced() == [3]
    cluster.watch.stop()


@run_by(run_checked)
async def test_brokers_of_kafka_have_whole_sessions(sim: Simulation, /) -> None:
    cluster = Watched(of_kafka=2)
    for broker_id in (2, 3):
        cluster.heartbeat(broker_id, via=broker_id)
        cluster.watch.connection_lost(broker_id)
    await asyncio.sleep(3.5)
    assert cluster.fenced() == [3]
    await asyncio.sleep(0.6)
    assert cluster.fenced() == [2, 3]
    cluster.watch.stop()


@run_by(run_checked)
async def test_a_closed_connection_fences_a_broker_soon_unless_it_is_heard_of_by_another(sim: Simulation, /) -> None:
    cluster = Watched()
    cluster.heartbeat(2, via="a")
    cluster.heartbeat(3, via="b")
    cluster.watch.connection_lost("a")
    cluster.watch.connection_lost("b")
    cluster.watch.connection_lost("a client's")
    await asyncio.sleep(0.25)
    cluster.heartbeat(3, via="c")
    cluster.watch.connection_lost("b")  # told late
    await asyncio.sleep(0.1)
    assert cluster.fenced() == [2]
    await asyncio.sleep(3.5)
    assert cluster.fenced() == [2]
    cluster.watch.stop()


@run_by(run_checked)
async def test_a_process_that_is_gone_is_fenced_at_once_whatever_took_its_connection(sim: Simulation, /) -> None:
    cluster = Watched(of_kafka=2)
    cluster.heartbeat(2, via="a")
    cluster.heartbeat(3, via="b")
    cluster.gone = {1, 2, 3}
    cluster.watch.connection_lost("a")
    await asyncio.sleep(0.02)
    assert cluster.fenced() == [2]
    cluster.watch.connection_lost("b")
    cluster.heartbeat(3, via="c")
    await asyncio.sleep(0.5)
    assert cluster.fenced() == [2]  # 3 lives: it has just said so
    cluster.watch.stop()


@run_by(run_checked)
async def test_a_new_controller_asks_who_died_with_the_last_one(sim: Simulation, /) -> None:
    cluster = Watched()
    cluster.gone = {2}
    await asyncio.sleep(0.02)
    assert cluster.fenced() == [2] and cluster.leaders() == [1, 3, 3]
    cluster.watch.stop()


@run_by(run_checked)
async def test_preferred_replicas_lead_again_after_a_while(sim: Simulation, /) -> None:
    cluster = Watched(leader_imbalance_check_interval_seconds="10")
    cluster.heartbeat(2)
    cluster.heartbeat(3)
    cluster.change(index=1, leader=1)
    for _ in range(4):
        await asyncio.sleep(3)
        cluster.heartbeat(2)
        cluster.heartbeat(3)
    assert cluster.leaders() == [1, 2, 3]
    cluster.watch.stop()


@run_by(run_checked)
async def test_without_the_option_leaders_stay(sim: Simulation, /) -> None:
    cluster = Watched(leader_imbalance_check_interval_seconds="1", auto_leader_rebalance_enable="false")
    cluster.heartbeat(2)
    cluster.heartbeat(3)
    cluster.change(index=1, leader=1)
    await asyncio.sleep(3)
    assert cluster.leaders() == [1, 1, 3]
    cluster.watch.stop()


@run_by(run_checked)
async def test_an_unclean_leader_is_elected_in_time_where_the_topic_allows_it(sim: Simulation, /) -> None:
    cluster = Watched()
    cluster.assign("u", [2, 1], unclean_leader_election_enable="true")
    cluster.change("u", isr=[2], leader=-1)
    cluster.change("t", isr=[2], leader=-1)
    cluster.fence(2)
    await asyncio.sleep(301)
    assert cluster.partition("u").leader == 1 and cluster.partition("u").isr == (1,)
    assert cluster.partition("t").leader == -1
    cluster.watch.stop()


@run_by(run_checked)
async def test_a_watch_that_was_stopped_fences_nobody(sim: Simulation, /) -> None:
    cluster = Watched()
    cluster.watch.stop()
    await asyncio.sleep(20)
    assert cluster.fenced() == []


@run_by(run_checked)
async def test_what_an_earlier_term_asked_for_is_not_asked_for_twice_from_then_on(sim: Simulation, /) -> None:
    cluster = Watched(leader_imbalance_check_interval_seconds="10")
    cluster.change(index=1, leader=1)
    asked: list[Callable[[Any], None]] = []
    cluster.watch._submit = lambda command, callback: (
        asked.append(callback) if isinstance(command, BalanceLeaders) else None
    )
    await asyncio.sleep(11)
    [earlier] = asked
    cluster.watch.start()
    earlier(Balanced())
    await asyncio.sleep(11)
    assert len(asked) == 2
    cluster.watch.stop()


@run_by(run_checked)
async def test_what_a_full_queue_refuses_is_asked_for_again(sim: Simulation, /) -> None:
    cluster = Watched()
    cluster.image.features.clear()  # as of a cluster whose levels are not finalized yet
    full = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the queue is full")
    cluster.watch._submit = lambda command, callback: callback(command.fail(full))
    cluster.watch.start()
    await asyncio.sleep(2.5)
    assert cluster.fenced() == []
    decided: list[Any] = []

    def submit(command: Any, callback: Callable[[Any], None]) -> None:
        decided.append(command)
        cluster._submit(command, callback)

    cluster.watch._submit = submit
    await asyncio.sleep(2.0)
    assert cluster.fenced() == [2, 3] and decided.count(Activate()) == 1
    cluster.watch.stop()
