"""The two brokers that are compared."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from integration_tests.brokers import running_broker

from .comparing import Comparison
from .peer import Peer

SETTINGS = {  # as those of the stock peer
    "broker.id": 1,  # which Kafka takes from node.id
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@127.0.0.1:9093",
    "group.initial.rebalance.delay.ms": 0,
    "node.id": 1,
    "offsets.topic.num.partitions": 10,
    "offsets.topic.replication.factor": 1,
    "process.roles": "broker,controller",
    "share.coordinator.state.topic.min.isr": 1,
    "share.coordinator.state.topic.num.partitions": 10,
    "share.coordinator.state.topic.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 10,
    "transaction.state.log.replication.factor": 1,
}


@pytest.fixture(scope="session")
def stock(kafka: str) -> Iterator[Peer]:
    peer = Peer("stock Kafka", kafka)
    yield peer
    peer.close()


@pytest.fixture(scope="session")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    """Our broker with the few options that the stock peer is given too."""
    with running_broker(tmp_path_factory.mktemp("differential"), SETTINGS) as broker:
        peer = Peer("isthmus", broker.bootstrap)
        yield peer
        peer.close()


@pytest.fixture(scope="session")
def comparison(ours: Peer, stock: Peer) -> Iterator[Comparison]:
    made = Comparison(ours, stock)
    yield made
    made.close()
