"""The tools' JVM, and the two brokers that they are run against: ours, and stock Kafka for comparison."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from integration_tests.brokers import running_broker
from integration_tests.peers.peers import Cluster, cluster

from .tools import Done, Side, Tools, running_tools

# What the shared Kafka has set, too. Its controller is node 1, as ours.
SETTINGS = {"group.initial.rebalance.delay.ms": 0}
LOOKING = {"--describe", "--list", "describe", "describe-producers", "find-hanging", "list", "--dry-run"}
LOOKING_TOOLS = {"GetOffsetShell"}
SETTLED_WITHIN_S = 10.0


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    with running_tools(tmp_path_factory.mktemp("tools") / "jvm.log") as made:
        yield made


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    with running_broker(tmp_path_factory.mktemp("ours"), SETTINGS) as broker:
        yield Side("isthmus", broker.bootstrap, str(broker.folder / "data"))


@pytest.fixture(scope="module")
def stock() -> Iterator[Side]:
    """A node of our own: tools list all topics and groups there are."""
    made: Cluster
    with cluster(heap="512m") as made:
        yield Side("kafka", made.bootstrap, str(made.nodes[0].folder / "data"))


Both = Callable[..., Done]


@pytest.fixture
def both(tools: Tools, ours: Side, stock: Side) -> Both:
    """`both("TopicCommand", "--list")` runs a tool against both brokers and compares what it prints and its exit code.

    `--bootstrap-server` is added; out and err of ours come back, in their plain form. but: takes out of them what
    may differ; ordered: whether the order of lines must be the same. Kafka answers a change before all of its threads
    know of it: what only looks is done again until both say the same.
    """

    def run(tool: str, *arguments: str, stdin: str = "", ordered: bool = True, but: Callable[[str], str] = str) -> Done:
        deadline = time.monotonic() + SETTLED_WITHIN_S
        looks = tool in LOOKING_TOOLS or not LOOKING.isdisjoint(arguments)
        while True:
            found = once(tool, arguments, stdin, ordered, but)
            if found[0] == found[1] or not looks or time.monotonic() > deadline:
                break
        assert found[0] == found[1], f"{tool} {' '.join(arguments)}"
        return found[0]

    def once(tool: str, arguments: tuple[str, ...], stdin: str, ordered: bool, but: Callable[[str], str]) -> list[Done]:
        found = []
        for side in (ours, stock):
            done = tools.run(tool, "--bootstrap-server", side.bootstrap, *arguments, stdin=stdin)
            out, err = but(side.plain(done.out)), but(side.plain(done.err))
            if not ordered:
                out = "\n".join(sorted(out.splitlines()))
            found.append(Done(done.exit, out, err))
        return found

    return run
