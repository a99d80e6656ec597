"""A Spark task whose broker is killed -9 in mid-read: it waits, and goes on where it was. In a cluster, whose leader
hangs, it goes on from the next one."""

from __future__ import annotations

import signal
from pathlib import Path

from confluent_kafka.admin import NewTopic

from integration_tests.brokers import running_cluster
from integration_tests.conftest import BrokerMaker
from isthmus.connectors.options import parse
from isthmus.connectors.planning import OffsetRange
from isthmus.connectors.reading import read_ranges

from .conftest import Cluster

RECORDS = 20_000


def test_a_task_goes_on_when_its_broker_is_back(make_broker: BrokerMaker) -> None:
    broker = make_broker({})
    cluster = Cluster(broker.bootstrap)
    topic = cluster.topic()
    cluster.produce(topic, [b"%06d" % n + b"x" * 400 for n in range(RECORDS)], linger_ms=20)
    options = parse({"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "fetchMaxBytes": "200000"}, False)
    values: list[bytes] = []
    kills = 0
    for batch in read_ranges(options, [OffsetRange(topic, 0, 0, RECORDS)], ["value"]):
        values += batch.column("value").to_pylist()
        if len(values) * 3 > RECORDS * (kills + 1) and kills < 2:
            broker.kill()
            broker.start()
            kills += 1
    assert kills == 2
    assert [int(value[:6]) for value in values] == list(range(RECORDS))


def test_a_task_goes_on_from_another_leader_while_the_first_hangs(tmp_path: Path) -> None:
    with running_cluster(tmp_path, settings={"broker.session.timeout.ms": 3000}) as brokers:
        cluster = Cluster(brokers.bootstrap)
        cluster.admin.create_topics([NewTopic("t", 1, 3, config={"retention.ms": "-1"})])["t"].result(30)
        cluster.produce("t", [b"%06d" % n + b"x" * 400 for n in range(RECORDS)], linger_ms=20)
        leader = cluster.admin.list_topics("t", timeout=20).topics["t"].partitions[0].leader
        text = {"kafka.bootstrap.servers": brokers.bootstrap, "subscribe": "t", "fetchMaxBytes": "200000"}
        values: list[bytes] = []
        for batch in read_ranges(parse(text, False), [OffsetRange("t", 0, 0, RECORDS)], ["value"]):
            values += batch.column("value").to_pylist()
            if len(values) * 3 > RECORDS:
                brokers.brokers[leader].signal(signal.SIGSTOP)  # for good
        assert [int(value[:6]) for value in values] == list(range(RECORDS))
        del cluster.admin
