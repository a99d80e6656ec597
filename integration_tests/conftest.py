"""What the integration tests share: stock Kafka and Isthmus brokers as real processes on loopback."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from integration_tests.brokers import BrokerProcess, running_broker
from integration_tests.peers.peers import Cluster, cluster

BrokerMaker = Callable[..., BrokerProcess]

# What a shell runs in the background ignores SIGINT, and so would all that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def kafka_peer() -> Iterator[Cluster]:
    """One stock Kafka node for the whole run. It is shared: use topics and groups of your own, do not break it."""
    with cluster(heap="512m") as made:
        yield made


@pytest.fixture(scope="session")
def kafka(kafka_peer: Cluster) -> str:
    """Bootstrap address of that node."""
    return kafka_peer.bootstrap


@pytest.fixture(scope="module")
def isthmus_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One Isthmus broker for a test module, with default options."""
    with running_broker(tmp_path_factory.mktemp("isthmus")) as broker:
        yield broker


@pytest.fixture
def make_broker(tmp_path: Path) -> Iterator[BrokerMaker]:
    """`make_broker({"option": value}, name="a")` starts a broker of the test's own; it may be killed and started."""
    with ExitStack() as started:

        def make(settings: dict[str, object] | None = None, name: str = "broker") -> BrokerProcess:
            return started.enter_context(running_broker(tmp_path / name, settings))

        yield make
