"""What the integration tests share: stock Kafka and Isthmus brokers as real processes on loopback, and in which order
two workers take the files."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler.loadfile import LoadFileScheduling

from integration_tests.brokers import BrokerProcess, running_broker
from integration_tests.peers.peers import Cluster, cluster
from isthmus.client import Admin, Client

# Folders whose files one worker takes, as it takes the tests of a file: they share what is dear to start.
TOGETHER = ("integration_tests/connectors/",)  # a Spark session
# What takes longest begins first: whoever ends early has small files left to take.
FIRST = (
    "integration_tests/test_packaging.py",  # one test compiles all modules
    "integration_tests/demo/",
    "integration_tests/connectors/",
    "integration_tests/console/",
    "integration_tests/client/",
)

STOCK = pytest.StashKey[Cluster]()

BrokerMaker = Callable[..., BrokerProcess]

# What a shell runs in the background ignores SIGINT, and so would all that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Schedule(LoadFileScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return next((folder for folder in TOGETHER if nodeid.startswith(folder)), super()._split_scope(nodeid))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--streams-on", choices=("isthmus", "kafka"), default="isthmus", help="whose broker streams use")


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Schedule | None:
    return Schedule(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        return next((n for n, folder in enumerate(FIRST) if item.nodeid.startswith(folder)), len(FIRST))

    items.sort(key=place)


@pytest.fixture(scope="session")
def kafka_peer(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """One stock Kafka node for the whole run. It is shared: do not break it. Topics are gone after a test module."""
    with cluster(heap="512m") as made:
        request.config.stash[STOCK] = made
        yield made


@pytest.fixture(scope="module", autouse=True)
def _topics_go(request: pytest.FixtureRequest) -> Iterator[None]:
    """Which files a worker is given is chance: none finds topics of another one's names in stock Kafka."""
    yield
    if (made := request.config.stash.get(STOCK, None)) is not None:
        asyncio.run(delete_topics(made.bootstrap))


async def delete_topics(bootstrap: str) -> None:
    client = Client(bootstrap)
    await client.start()
    try:
        topics = [each.name for each in await Admin(client).all_topics() if not each.is_internal]
        if topics:
            await Admin(client).delete_topics(topics)
    finally:
        await client.close()


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
