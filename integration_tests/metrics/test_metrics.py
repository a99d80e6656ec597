"""Metrics and health over HTTP: what real clients did is what is told, under the names that Kafka's have."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from prometheus_client.parser import text_string_to_metric_families

from integration_tests.brokers import BrokerProcess, running_cluster
from integration_tests.conftest import BrokerMaker
from integration_tests.differential.batches import batch
from integration_tests.differential.peer import Case, Peer
from integration_tests.differential.requests import fetch_request, produce_request
from integration_tests.peers.peers import Cluster, free_ports, java_command
from integration_tests.waiting import until
from isthmus import runtime
from isthmus.core_broker.broker import Broker
from isthmus.core_broker.config import BrokerConfig
from isthmus.core_broker.metrics.http import MAX_CONNECTIONS
from isthmus.core_broker.metrics.table import METRICS, exported_name
from isthmus.core_broker.storage.disk.real_files import RealFiles

Metrics = dict[str, dict[tuple[tuple[str, str], ...], float]]
DOMAINS = ("kafka.server", "kafka.network", "kafka.log", "kafka.cluster", "kafka.controller", "kafka.coordinator.group")
OF_FOLLOWERS = {"kafka.server:type=FetcherLagMetrics,name=ConsumerLag"}  # one node follows no partition


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def address(broker: BrokerProcess) -> str:
    *_, found = re.findall(r"metrics and health at (http://[^/]+)/metrics", broker.log)  # of its last start
    return found


def scrape(url: str) -> Metrics:
    found: Metrics = {}
    for family in text_string_to_metric_families(get(f"{url}/metrics")[1]):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


@pytest.fixture
def broker(make_broker: BrokerMaker) -> BrokerProcess:
    return make_broker({"metrics.listener": "127.0.0.1:0", "group.initial.rebalance.delay.ms": 0})


def produce(bootstrap: str, topic: str, records: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for n in range(records):
        producer.produce(topic, b"value %d" % n)
    assert producer.flush(30) == 0


def test_what_clients_did_is_told(broker: BrokerProcess) -> None:
    produce(broker.bootstrap, "one", 100)
    produce(broker.bootstrap, "other", 30)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["one"])
    read = 0
    while read < 100:
        read += len(consumer.consume(100, 10))
    consumer.commit(asynchronous=False)

    found = scrape(address(broker))
    topics = "kafka_server_brokertopicmetrics_"
    assert found[f"{topics}messagesin_total"][("topic", "one"),] == 100
    assert found[f"{topics}messagesin_total"][("topic", "other"),] == 30
    size = sum(each.stat().st_size for each in broker.folder.glob("data/one-0/*.log"))
    assert found[f"{topics}bytesin_total"][("topic", "one"),] == size
    assert found[f"{topics}bytesout_total"][("topic", "one"),] == size
    assert found[f"{topics}bytesout_total"][("topic", "other"),] == 0
    every_topic = [value for labels, value in found[f"{topics}messagesin_total"].items() if labels]
    assert found[f"{topics}messagesin_total"][()] == sum(every_topic)
    assert found["kafka_log_log_logendoffset"][("partition", "0"), ("topic", "one")] == 100
    assert found["kafka_log_log_size"][("partition", "0"), ("topic", "one")] == size
    groups = "kafka_coordinator_group_groupmetadatamanager_"
    assert found[f"{groups}numgroups"][()] == found[f"{groups}numgroupsstable"][()] == 1
    assert found[f"{groups}numoffsets"][()] == 1
    assert found["kafka_controller_kafkacontroller_activecontrollercount"][()] == 1
    assert found["kafka_server_replicamanager_underreplicatedpartitions"][()] == 0
    assert found["kafka_server_kafkaserver_brokerstate"][()] == 3
    requests = found["kafka_network_requestmetrics_requests_total"]
    produced = sum(value for labels, value in requests.items() if ("request", "Produce") in labels)
    assert produced == found["kafka_network_requestmetrics_totaltimems_count"][("request", "Produce"),] > 0
    assert found["isthmus_request_seconds_count"][("request", "Produce"),] == produced
    assert found["kafka_network_requestmetrics_totaltimems"][("quantile", "0.99"), ("request", "Produce")] > 0
    assert found["kafka_server_socket_server_metrics_connection_count"][("listener", "PLAINTEXT"),] >= 1
    assert found["process_resident_memory_bytes"][()] > 1 << 20
    consumer.close()
    assert scrape(address(broker))[f"{groups}numgroupsempty"][()] == 1

    told = {name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count") for name in found}
    missing = {each.family.name for each in METRICS} - told - set(found)
    elections = {f"kafka_server_raft_metrics_election_latency_{each}" for each in ("avg", "max")}  # of the last minute
    calm = {
        "isthmus_partition_offline",
        "isthmus_groups_unread",
        "isthmus_transactions_unread",
        *map(exported_name, OF_FOLLOWERS),
    }
    assert missing in (calm, calm | elections)


def test_a_partition_that_is_offline_is_told_with_its_reason(broker: BrokerProcess) -> None:
    produce(broker.bootstrap, "lost", 1)
    broker.stop()
    directory = broker.folder / "data/lost-0"
    for path in directory.glob("*.log"):
        path.unlink()
        path.mkdir()
    broker.start()
    (labels,) = scrape(re.findall(r"health at (http://[^/]+)/", broker.log)[-1])["isthmus_partition_offline"]
    assert dict(labels)["topic"] == "lost"
    assert str(directory) in dict(labels)["reason"]


class GatedFiles(RealFiles):
    """Files whose slow calls wait until the gate is open."""

    def __init__(self) -> None:
        super().__init__(2)
        self.gate = asyncio.Event()

    async def run(self, fn: Callable[..., Any], *args: Any) -> Any:
        await self.gate.wait()
        return await super().run(fn, *args)


def test_ready_only_when_all_is_recovered_and_read(tmp_path: Path) -> None:
    async def main() -> None:
        files = GatedFiles()
        port = free_ports(1)[0]
        options = {"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}
        broker = Broker(BrokerConfig({**options, "metrics.listener": f"127.0.0.1:{port}"}), runtime.system(), files)

        async def ask(path: str) -> tuple[int, str]:
            return await asyncio.to_thread(get, f"http://127.0.0.1:{port}{path}")

        starting = asyncio.create_task(broker.start())
        await asyncio.sleep(0)
        while not broker._monitor or not broker._monitor.address:
            await asyncio.sleep(0)
        assert await ask("/health/live") == (200, "alive\n")
        code, said = await ask("/health/ready")
        assert code == 503 and said.startswith(f"not ready: it opens the data directory {tmp_path}")
        assert "kafka_server_kafkaserver_brokerstate 1\n" in (await ask("/metrics"))[1]
        files.gate.set()
        await starting
        assert await ask("/health/ready") == (200, "ready\n")
        files.gate.clear()
        stopping = asyncio.create_task(broker.stop())
        await asyncio.sleep(0)
        assert await ask("/health/ready") == (503, "not ready: it stops\n")
        files.gate.set()
        await stopping
        with pytest.raises(urllib.error.URLError):
            await ask("/health/ready")
        files.close()

    asyncio.run(main())


def test_a_cluster_tells_its_controller_and_what_is_not_in_sync(tmp_path: Path) -> None:
    settings = {"metrics.listener": "127.0.0.1:0", "broker.session.timeout.ms": 3000}
    began_ms = time.time() * 1000
    with running_cluster(tmp_path, settings=settings) as cluster:
        produce(cluster.bootstrap, "t", 10)

        def told(name: str, of: Sequence[int] = (1, 2, 3)) -> list[float]:
            return [scrape(address(cluster.brokers[each]))[name][()] for each in of]

        def under_replicated(of: Sequence[int]) -> float:
            return sum(told("kafka_server_replicamanager_underreplicatedpartitions", of))

        until(lambda: under_replicated((1, 2, 3)) == 0, "all is in sync")
        controller = cluster.controller()
        active = told("kafka_controller_kafkacontroller_activecontrollercount")
        assert active == [each == controller for each in (1, 2, 3)]
        states = [scrape(address(each))["kafka_server_raft_metrics_current_state"] for each in cluster.brokers.values()]
        assert sorted(dict(key)["state"] for state in states for key in state) == ["follower", "follower", "leader"]
        assert told("kafka_server_raft_metrics_current_leader") == [controller] * 3
        [slowest], [average] = (
            told(f"kafka_server_raft_metrics_election_latency_{each}", [controller]) for each in ("max", "avg")
        )
        assert slowest >= average > 0
        applied = "kafka_server_broker_metadata_metrics_last_applied_record"
        [when] = dict.fromkeys(told(f"{applied}_timestamp"))
        assert began_ms <= when <= time.time() * 1000
        assert told(f"{applied}_lag_ms") == told("kafka_controller_kafkacontroller_lastappliedrecordlagms") == [0, 0, 0]
        sent, copied = (
            sum(told(f"kafka_server_brokertopicmetrics_replicationbytes{way}_total")) for way in ("out", "in")
        )
        assert sent == copied > 0
        dead = next(each for each in (1, 2, 3) if each != controller)
        left = [each for each in (1, 2, 3) if each != dead]
        cluster.brokers[dead].kill()
        until(lambda: under_replicated(left) > 0, "a broker is missed", 20)
        assert told("kafka_controller_kafkacontroller_fencedbrokercount", left) == [1, 1]
        cluster.start()
        until(lambda: under_replicated((1, 2, 3)) == 0, "all is in sync again", 20)
        assert sum(told("kafka_server_replicamanager_isrexpands_total", left)) > 0
        assert told("kafka_server_replicafetchermanager_maxlag") == [0, 0, 0]


def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        command = BrokerProcess(tmp_path / "b", {"metrics.listener": where}).command()
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert done.returncode == 1
    assert re.fullmatch(f"isthmus broker: cannot listen on {where} for metrics: .*--metrics HOST:PORT.*\n", done.stderr)


def test_hostile_clients_take_no_more_than_their_share(broker: BrokerProcess) -> None:
    host, _, port = address(broker).removeprefix("http://").rpartition(":")
    with ExitStack() as opened:
        crowd = [opened.enter_context(socket.create_connection((host, int(port)), 5)) for _ in range(MAX_CONNECTIONS)]
        for n, each in enumerate(crowd):
            each.sendall((b"GET /metrics HTTP/1.1\r\nHost: x\r\nX-Slow: ", b"", b"\0" * 50)[n % 3])
        produce(broker.bootstrap, "busy", 10)
        slow = crowd[0::3]
        for each in slow:
            each.sendall(b"y" * 9000)
            assert each.recv(100).startswith(b"HTTP/1.1 431 ")
            each.close()
        assert get(f"{address(broker)}/health/ready")[0] == 200
    assert broker.alive()
    assert scrape(address(broker))["kafka_server_brokertopicmetrics_messagesin_total"][("topic", "busy"),] == 10


# --- Kafka's names ----------------------------------------------------------------------------------------------------


def counted(bootstrap: str) -> None:
    """Of each kind of answer that Kafka counts another way, one."""
    case = Case(Peer("", bootstrap), 0, "counted")
    topic_id = case.topic(max_message_bytes="2000")
    keys_id = case.topic("-keys", cleanup_policy="compact")
    head: dict[str, Any] = {"producer_id": 77, "producer_epoch": 0}
    for data, wanted in (
        (batch(5), topic_id),
        (batch(3, codec="lz4"), topic_id),
        (batch(3, break_crc=True), topic_id),
        (batch(1, value=b"x" * 3000), topic_id),
        (batch(3), keys_id),  # one without a key
        (batch(2, base_sequence=0, **head), topic_id),
        (batch(2, base_sequence=9, **head), topic_id),
    ):
        case.prepare(produce_request(case, data, wanted))
    for offset, epoch in ((0, -1), (4, -1), (10, -1), (99, -1), (-5, -1), (0, 9)):
        case.prepare(fetch_request(case, offset, topic_id, current_leader_epoch=epoch, session_epoch=-1))
    case.peer.close()


@pytest.fixture(scope="module")
def jmx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Stock Kafka's attributes after a first client and `counted`."""
    made = Cluster.create(tmp_path_factory.mktemp("jmx"))
    port = free_ports(1)[0]
    jmx = "-Dcom.sun.management.jmxremote"
    switches = [f"{jmx}.port={port}", f"{jmx}.rmi.port={port}", f"{jmx}.authenticate=false", f"{jmx}.ssl=false"]
    made.nodes[0].start("512m", [*switches, f"{jmx}.host=127.0.0.1", "-Djava.rmi.server.hostname=127.0.0.1"])
    try:
        made.nodes[0].wait()
        produce(made.bootstrap, "t", 10)
        counted(made.bootstrap)
        url = f"service:jmx:rmi:///jndi/rmi://127.0.0.1:{port}/jmxrmi"
        command = java_command("JmxTool", "--jmx-url", url, "--one-time", "--report-format", "tsv")
        text = subprocess.run(command, capture_output=True, text=True, timeout=60).stdout
    finally:
        made.kill()
    yield {name: value for name, _, value in (line.rpartition("\t") for line in text.splitlines())}


@pytest.fixture(scope="module")
def mbeans(jmx: dict[str, str]) -> set[str]:
    """What stock Kafka has, as domain:type=…,name=… without other labels; some come with the first client."""
    found = set()
    for line in jmx:
        if match := re.match(r"(kafka\.[\w.]+):type=([\w-]+),name=([\w-]+)[,:]", line):
            found.add(f"{match[1]}:type={match[2]},name={match[3]}")
        elif match := re.match(r"(kafka\.[\w.]+):type=([\w-]+)(?:,listener=[^:]*)?:([\w-]+)$", line):
            found.add(f"{match[1]}:type={match[2]},name={match[3]}")  # an attribute of a bean that has no name
    return found


def test_names_are_those_that_the_exporter_makes_of_kafkas(mbeans: set[str]) -> None:
    assert len(mbeans) > 100
    ours = {each.mbean for each in METRICS if each.mbean}
    assert ours - mbeans == OF_FOLLOWERS
    assert {each.mbean.partition(":")[0] for each in METRICS if each.mbean} == set(DOMAINS)
    assert all(each.family.name.startswith("kafka_" if each.mbean else ("isthmus_", "process_")) for each in METRICS)
    # By the rules of the exporter's example for Kafka, in its documentation.
    assert exported_name("kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec") == (
        "kafka_server_brokertopicmetrics_messagesin_total"
    )
    assert exported_name("kafka.coordinator.group:type=GroupMetadataManager,name=NumGroups") == (
        "kafka_coordinator_group_groupmetadatamanager_numgroups"
    )


def test_the_same_traffic_makes_the_same_counts_as_in_kafka(jmx: dict[str, str], broker: BrokerProcess) -> None:
    produce(broker.bootstrap, "t", 10)
    counted(broker.bootstrap)
    found = scrape(address(broker))
    wrong = []
    by_topic = [each for each in METRICS if each.family.labels == ("topic",)]
    for bean in (each.mbean for each in by_topic if "type=BrokerTopicMetrics" in each.mbean):
        for topic in ("counted", "counted-keys"):
            theirs = jmx.get(f"{bean},topic={topic}:Count", "0")  # it comes with the first that is counted
            ours = found[exported_name(bean)][("topic", topic),]
            if ours != int(theirs):
                wrong.append(f"{bean} of {topic}: {ours}, {theirs} of Kafka's")
    assert wrong == []
    assert found["kafka_server_brokertopicmetrics_bytesrejected_total"][("topic", "counted"),] > 3000
