"""`--config server.properties`: a broker starts on the file of Kafka's distribution, and says what it does not need."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from integration_tests.brokers import BrokerProcess
from integration_tests.peers.peers import free_ports

EXIT_USAGE = 2
# What config/server.properties of Kafka 4 sets, but for ports and the directory, which are the test's own.
SET = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:{controller}

############################# Socket Server Settings #############################
# The name and port of a listener, and the protocol that is spoken there.
listeners=PLAINTEXT://:{port},CONTROLLER://:{controller}
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:{port},CONTROLLER://localhost:{controller}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,\
SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs={folder}/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
#log.flush.interval.messages=10000
#log.flush.interval.ms=1000
log.retention.hours=168
#log.retention.bytes=1073741824
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
NOT_NEEDED = [
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "share.coordinator.state.topic.min.isr",
    "share.coordinator.state.topic.replication.factor",
    "socket.receive.buffer.bytes",
]


class FromFile(BrokerProcess):
    def command(self) -> list[str]:
        return [sys.executable, "-m", "isthmus.core_broker", "--config", str(self.folder / "server.properties")]


def test_a_broker_starts_on_kafkas_own_file(tmp_path: Path) -> None:
    port, controller = free_ports(2)
    (tmp_path / "server.properties").write_text(SET.format(port=port, controller=controller, folder=tmp_path))
    broker = FromFile(tmp_path)
    broker.address = f"127.0.0.1:{port}"  # so that it chooses none
    broker.start()
    try:
        _, _, table = broker.log.partition("options without effect on this broker, and why:\n")
        rows = [line.split() for line in table.splitlines() if line.startswith("  ")]
        assert [row[0] for row in rows] == NOT_NEEDED
        assert all(len(row) > 3 for row in rows)  # a value, and words
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
        [about] = admin.list_topics(timeout=20).brokers.values()
        assert (about.id, about.host, about.port) == (1, "localhost", port)
        [described] = admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]).values()
        told = described.result(20)["num.network.threads"]
        assert (told.value, told.source) == ("3", 4)  # STATIC_BROKER_CONFIG
        assert (tmp_path / "kraft-combined-logs" / "meta.properties").exists()
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", controller)) == 0
    finally:
        broker.kill()


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ("listeners=PLAINTEXT://:{port},SSL://:0,CONTROLLER://:{controller}", "listener SSL has"),
        ("authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer", "authorizer.class.name"),
        ("controller.quorum.voters=1@localhost:{controller},2@other:9093", "2@other:9093"),
    ],
)
def test_what_it_cannot_honour_is_refused_by_name(tmp_path: Path, changed: str, named: str) -> None:
    port, controller = free_ports(2)
    text = (SET + changed).format(port=port, controller=controller, folder=tmp_path)
    (tmp_path / "server.properties").write_text(text)
    ended = subprocess.run(FromFile(tmp_path).command(), capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (EXIT_USAGE, "")
    last = ended.stderr.strip().splitlines()[-1]
    assert last.startswith("isthmus broker: ") and re.search(named, last)
    assert not (tmp_path / "kraft-combined-logs").exists()
