"""What a follower's fetches cost: what has changed, however many partitions it follows; and what is new waits for none.

Three nodes. Counted is how often a partition is looked at, on both sides, while none, one or all have something new.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from isthmus.core_broker.replication import fetching
from isthmus.core_broker.server.apis import fetch as fetch_api
from isthmus.protocol.messages import create_topics, delete_records, produce
from isthmus.protocol.records import build_batch

from .three_nodes import IDS, ThreeNodes, on_three_nodes

PARTITIONS = 60
ROUNDS = 10


class Looks:
    """How often partitions were looked at: by followers that ask, and by leaders that answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counts: Counter[str] = Counter()
        self._count(monkeypatch, fetching.Copy, "wanted")
        self._count(monkeypatch, fetch_api._Fetch, "_read_one")
        self._count(monkeypatch, fetch_api._Fetch, "_note")
        self._count(monkeypatch, fetch_api, "handle")
        for module in (fetching, fetch_api):
            monkeypatch.setattr(module, "LOOK_AT_ALL_S", 1e9)

    def _count(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        plain = getattr(owner, name)

        def counted(*arguments: Any) -> Any:
            self.counts[name] += 1
            return plain(*arguments)

        monkeypatch.setattr(owner, name, counted)

    def taken(self) -> Counter[str]:
        counts, self.counts = self.counts, Counter()
        return counts


async def create(nodes: ThreeNodes, name: str, partitions: int, configs: dict[str, str] | None = None) -> None:
    wanted = [create_topics.CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()]
    topic = create_topics.CreatableTopic(name=name, num_partitions=partitions, replication_factor=3, configs=wanted)
    answer = await nodes.ask(1, create_topics.Request(topics=[topic], timeout_ms=20_000))
    assert not answer.topics[0].error_code

    def placed() -> bool:
        return all(len(nodes.services(each).replicas.partitions.get(name, ())) == partitions for each in IDS)

    await nodes.sim.until(placed, "all have it")


async def written(nodes: ThreeNodes, topic: str, index: int = 0) -> float:
    """A record that all replicas have acknowledged: how long that took, in seconds."""
    image = nodes.services(1).image.partition(topic, index)
    assert image is not None
    batch = build_batch([(0, b"k", b"v", ())])
    data = produce.TopicProduceData(
        name=topic, partition_data=[produce.PartitionProduceData(index=index, records=batch)]
    )
    connection = await nodes.connect(image.leader)
    began = nodes.sim.loop.time()
    request = produce.Request(acks=-1, timeout_ms=10_000, topic_data=[data])
    answer = await connection.request(produce.API, request, 20_000, 9)
    assert not answer.responses[0].partition_responses[0].error_code
    return nodes.sim.loop.time() - began


def poll_s(nodes: ThreeNodes) -> float:
    return float(nodes.services(1).config["replica.fetch.wait.max.ms"]) / 1000


def test_a_fetch_looks_at_what_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks(monkeypatch)

    async def work(nodes: ThreeNodes) -> None:
        await create(nodes, "t", PARTITIONS)
        await nodes.sim.sleep(4 * poll_s(nodes))
        looks.taken()
        await nodes.sim.sleep(ROUNDS * poll_s(nodes))
        idle = looks.taken()
        assert idle["handle"] >= 6 * (ROUNDS - 1)  # each node asks two leaders
        assert idle["wanted"] == idle["_read_one"] == idle["_note"] == 0
        await written(nodes, "t")
        await nodes.sim.sleep(4 * poll_s(nodes))
        one = looks.taken()
        assert 0 < max(one["wanted"], one["_read_one"], one["_note"]) < PARTITIONS / 3

    on_three_nodes(work)


def test_what_rests_takes_records_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The high watermark of each, what DeleteRecords left, and the in-sync replicas reach the followers."""
    looks = Looks(monkeypatch)

    async def work(nodes: ThreeNodes) -> None:
        await create(nodes, "t", 3)
        await nodes.sim.sleep(4 * poll_s(nodes))
        for _ in range(2):
            for index in range(3):
                assert await written(nodes, "t", index) < poll_s(nodes) / 2
        leader = nodes.services(1).image.partition("t", 0).leader  # type: ignore[union-attr]
        follower = next(each for each in IDS if each != leader)
        copy = nodes.services(follower).replicas.held("t", 0)
        await nodes.sim.until(lambda: copy.high_watermark == 2, "the follower knows what is committed")
        gone = delete_records.DeleteRecordsPartition(partition_index=0, offset=1)
        topic = delete_records.DeleteRecordsTopic(name="t", partitions=[gone])
        began = nodes.sim.loop.time()
        answer = await nodes.ask(leader, delete_records.Request(topics=[topic], timeout_ms=10_000))
        assert nodes.sim.loop.time() - began < poll_s(nodes) / 2  # it waits for all replicas, which are told at once
        assert answer.topics[0].partitions[0].low_watermark == copy.log.log_start_offset == 1
        assert looks.counts

    on_three_nodes(work)


def test_a_new_partition_does_not_wait_for_the_long_poll_of_others() -> None:
    async def work(nodes: ThreeNodes) -> None:
        await create(nodes, "t", 3)
        await nodes.sim.sleep(4 * poll_s(nodes))
        took_s = []
        for number in range(5):
            await nodes.sim.sleep(0.1)
            await create(nodes, f"new-{number}", 1)
            took_s.append(await written(nodes, f"new-{number}"))
        # A leader that does not know of its partition yet is asked again after a pause: not each is at once.
        assert sorted(took_s)[2] < poll_s(nodes) / 20
        await nodes.sim.sleep(2 * poll_s(nodes))
        for each in IDS:
            sources = nodes.hosts[each].broker._fetching._sources  # type: ignore[union-attr]
            assert not any(source._newcomers.copies for source in sources.values()), "all are settled"

    on_three_nodes(work)
