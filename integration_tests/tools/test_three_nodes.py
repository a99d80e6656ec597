"""LeaderElectionCommand, MetadataQuorumCommand, LogDirsCommand, ClusterTool, FeatureCommand, GetOffsetShell and
DumpLogSegments on three nodes: run unchanged, compared with what they print of three nodes of stock Kafka.

The tests of this file are one history, in their order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from integration_tests.cluster.kafka_nodes import has_brokers
from integration_tests.waiting import until

from .three_nodes import IDS, ThreeNodes, our_nodes, stock_nodes
from .tools import Done, Tools

pytestmark = pytest.mark.soak  # three JVMs of brokers: minutes

SETTLE_S = 60.0
NOT_OURS = tuple(f"Feature: {name}.version" for name in ("group", "share", "streams", "transaction"))
Pair = tuple[ThreeNodes, ThreeNodes]
Clean = Callable[[str], str]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    ours, stock = tmp_path_factory.mktemp("ours"), tmp_path_factory.mktemp("stock")
    with our_nodes(ours) as mine, stock_nodes(stock) as theirs:
        yield mine, theirs


class Both:
    """Runs a tool against both, and compares."""

    def __init__(self, tools: Tools, pair: Pair) -> None:
        self.tools = tools
        self.pair = pair

    def __call__(self, tool: str, *arguments: str, but: Clean = str, controller: bool = False) -> Done:
        """What both print, sorted by lines, and their exit code. but: takes out of it what may differ. controller: it
        is asked, not the brokers. What only tells how it is, is asked until both are the same."""
        found: list[Done] = []

        def same() -> bool:
            found[:] = [self.once(side, tool, arguments, but, controller) for side in self.pair]
            return found[0] == found[1]

        until(same, lambda: f"{tool} {' '.join(arguments)}:\nours\n{found[0]}\nKafka's\n{found[1]}", 10)
        return found[0]

    def once(self, side: ThreeNodes, tool: str, arguments: tuple[str, ...], but: Clean, controller: bool) -> Done:
        done = self.run(side, tool, *arguments, controller=controller)
        out, err = but(side.plain(done.out)), but(side.plain(done.err))
        return Done(done.exit, "\n".join(sorted(out.splitlines())), "\n".join(sorted(err.splitlines())))

    def run(self, side: ThreeNodes, tool: str, *arguments: str, controller: bool = False) -> Done:
        where = ("--bootstrap-controller", side.controller) if controller else ("--bootstrap-server", side.bootstrap)
        words = (*arguments, *where) if tool == "ClusterTool" else (*where, *arguments)  # its subcommand comes first
        return self.tools.run(tool, *words)

    def changes(self, tool: str, *arguments: str, but: Clean = str) -> Done:
        """The same for what is done once."""
        found = [self.once(side, tool, arguments, but, False) for side in self.pair]
        assert found[0] == found[1], f"{tool} {' '.join(arguments)}"
        return found[0]

    def on_each(self, act: Callable[[ThreeNodes], object]) -> None:
        for side in self.pair:  # not in threads: a broker ends with the thread that has started it
            act(side)


@pytest.fixture(scope="module")
def both(tools: Tools, pair: Pair) -> Both:
    return Both(tools, pair)


def partition(side: ThreeNodes, topic: str) -> Any:
    admin = AdminClient({"bootstrap.servers": side.bootstrap, "log_level": 0})
    return admin.list_topics(topic, timeout=10).topics[topic].partitions[0]


def create(side: ThreeNodes, topic: str, replicas: list[int], **options: str) -> None:
    admin = AdminClient({"bootstrap.servers": side.bootstrap})
    config = {name.replace("_", "."): value for name, value in options.items()}
    admin.create_topics([NewTopic(topic, 1, replica_assignment=[replicas], config=config)])[topic].result(20)
    until(lambda: len(partition(side, topic).isrs) == len(replicas), f"{topic} is in sync", SETTLE_S)


def numbers(text: str) -> str:
    """Epochs, offsets and times are a cluster's own; observers come in the order of a hash table."""
    observers = re.search(r"(?m)^CurrentObservers: \[(.*)\]$", text)
    if observers:
        rows = ", ".join(sorted(re.findall(r"\{.*?\}", observers[1])))
        text = text.replace(observers[0], f"CurrentObservers: [{rows}]")
    text = re.sub(r"(?m)^((?:LeaderEpoch|HighWatermark|MaxFollowerLag|MaxFollowerLagTimeMs): )-?\d+$", r"\1N", text)
    return re.sub(r"(Epoch: )\d+", r"\1N", text)


def replicas(text: str) -> str:
    """Offsets and times of the table of replicas, whose columns are NodeId, DirectoryId, LogEndOffset, Lag,
    LastFetchTimestamp, LastCaughtUpTimestamp, Status. Which node is which observer's or voter's is compared."""
    return re.sub(r"(?m)^(\d \S+) -?\d+ -?\d+ (MS|-1|\d+ ms ago) (MS|-1|\d+ ms ago) ", r"\1 N ", text)


def test_the_quorum_before_anybody_joined(both: Both) -> None:
    status = both("MetadataQuorumCommand", "describe", "--status", but=numbers).out.splitlines()
    assert "LeaderId: 1" in status and "ClusterId: CLUSTER" in status
    both("MetadataQuorumCommand", "describe", "--status", but=numbers, controller=True)
    table = both("MetadataQuorumCommand", "describe", "--replication", but=replicas).out
    assert len(table.splitlines()) == 1 + len(IDS)
    both("MetadataQuorumCommand", "describe", "--replication", "--human-readable", but=replicas)


def test_controllers_are_added_and_removed(both: Both) -> None:
    for node in (2, 3):
        added = [
            both.tools.run(
                "MetadataQuorumCommand", "--bootstrap-server", side.bootstrap, "--command-config",
                str(side.properties(node)), "add-controller",
            )
            for side in both.pair
        ]  # fmt: skip
        plain = [(done.exit, side.plain(done.out)) for done, side in zip(added, both.pair, strict=True)]
        assert plain[0] == plain[1], added
        assert plain[0][1].startswith(f"Added controller {node} with directory id DIR-{node}")
    status = both("MetadataQuorumCommand", "describe", "--status", but=numbers).out
    assert all(f'"id": {node}, "directoryId": "DIR-{node}"' in status for node in IDS), status
    table = both("MetadataQuorumCommand", "describe", "--replication", but=replicas).out
    assert "Observer" not in table
    for arguments in (
        ("--controller-id", "3", "--controller-directory-id", "A" * 21 + "Q"),  # it has another one
        ("--controller-id", "9", "--controller-directory-id", "A" * 21 + "Q"),
    ):
        assert both.changes("MetadataQuorumCommand", "remove-controller", *arguments).exit == 1
    for side in both.pair:
        which = ("--controller-id", "3", "--controller-directory-id", side.directory_id(3))
        done = both.run(side, "MetadataQuorumCommand", "remove-controller", *which)
        assert side.plain(done.out) == "Removed KRaft controller 3 with directory id DIR-3", (side.name, done)
    table = both("MetadataQuorumCommand", "describe", "--replication", but=replicas).out
    assert [line.split()[-1] for line in table.splitlines() if line[0] == "3"] == ["Observer"]


def test_endpoints_and_features(both: Both) -> None:
    brokers = both("ClusterTool", "list-endpoints").out
    assert len(brokers.splitlines()) == 1 + len(IDS)
    both("ClusterTool", "list-endpoints", "--include-fenced-brokers")
    both("ClusterTool", "cluster-id", controller=True)

    def ours(text: str) -> str:
        """Without those that are for transactions and newer kinds of groups, which we do not have."""
        return "\n".join(row for row in numbers(text).splitlines() if not row.startswith(NOT_OURS))

    assert len(both("FeatureCommand", "describe", but=ours).out.splitlines()) == 3
    both("FeatureCommand", "describe", but=ours, controller=True)


def test_log_directories(both: Both) -> None:
    both.on_each(lambda side: create(side, "logs", [1, 2, 3]))
    for side in both.pair:
        sent = both.tools.run(
            "ConsoleProducer", "--bootstrap-server", side.bootstrap, "--topic", "logs", stdin="1\n2\n3\n"
        )
        assert sent.exit == 0, sent.err

    def sizes(text: str) -> str:
        return re.sub(r'"size":[1-9]\d*', '"size":SOME', text)

    which = ("--describe", "--topic-list", "logs")
    out = both("LogDirsCommand", *which, but=sizes).out
    assert out.count('"size":SOME') == out.count('"error":null') == len(IDS)
    both("LogDirsCommand", *which, "--broker-list", "2,3", but=sizes)
    assert both("LogDirsCommand", *which, "--broker-list", "2,9").exit == 1
    for time in ("-1", "-2", "-4", "-5"):
        both("GetOffsetShell", "--topic", "logs", "--time", time)
    both("GetOffsetShell", "--topic-partitions", "logs:0,none:0")


def test_leaders_are_elected(both: Both) -> None:
    elect = ("LeaderElectionCommand", "--election-type")

    def fall_from_grace(side: ThreeNodes) -> None:
        """Broker 2 leads what 3 should; and of `lost` 2 was not in sync when 3 went."""
        create(side, "elected", [3, 2])
        create(side, "lost", [3, 2], unclean_leader_election_enable="false")
        side.stop(3)
        until(lambda: partition(side, "elected").leader == 2, "another one leads", SETTLE_S)

    both.on_each(fall_from_grace)
    which = ("--topic", "elected", "--partition", "0")
    assert both.changes(*elect, "preferred", *which).exit == 1  # it is not there
    both.on_each(lambda side: side.start(3))
    both.on_each(lambda side: until(lambda: len(partition(side, "lost").isrs) == 2, "in sync", SETTLE_S))
    both.on_each(lambda side: until(lambda: len(partition(side, "elected").isrs) == 2, "in sync", SETTLE_S))
    assert "Successfully completed leader election" in both.changes(*elect, "preferred", *which).out
    assert "Valid replica already elected" in both.changes(*elect, "preferred", *which).out
    both.changes(*elect, "preferred", "--all-topic-partitions")
    assert both.changes(*elect, "unclean", *which).exit == 0  # it has a leader
    assert both.changes(*elect, "unclean", "--topic", "none", "--partition", "0").exit == 1

    def lose(side: ThreeNodes) -> None:
        side.stop(2)
        until(lambda: [*partition(side, "lost").isrs] == [3], "2 is not in sync", SETTLE_S)
        side.stop(3)
        side.start(2)
        until(lambda: partition(side, "lost").leader < 0, "there is no leader", SETTLE_S)

    both.on_each(lose)
    lost = ("--topic", "lost", "--partition", "0")
    assert both.changes(*elect, "preferred", *lost).exit == 1
    assert "Successfully completed leader election (UNCLEAN)" in both.changes(*elect, "unclean", *lost).out
    both.on_each(lambda side: until(lambda: partition(side, "lost").leader == 2, "it leads", SETTLE_S))
    both.on_each(lambda side: side.start(3))


def test_a_broker_is_unregistered(both: Both) -> None:
    assert both.changes("ClusterTool", "unregister", "--id", "9").exit == 1
    both.on_each(lambda side: side.stop(3))
    both.on_each(lambda side: has_brokers(side.nodes[1].port, (1, 2)))
    fenced = both("ClusterTool", "list-endpoints", "--include-fenced-brokers").out
    assert len(fenced.splitlines()) == 1 + len(IDS)
    assert both.changes("ClusterTool", "unregister", "--id", "3").exit == 0
    left = both("ClusterTool", "list-endpoints", "--include-fenced-brokers").out
    assert len(left.splitlines()) == 3
    both.on_each(lambda side: side.start(3))
    both.on_each(lambda side: has_brokers(side.nodes[1].port, IDS))


TYPE = re.compile(r'"type":"(\w+)"')


def test_the_metadata_log_is_read(both: Both) -> None:
    """MetadataShell is not asked: that of Kafka 4.3 knows no metadata of 4.4, of Kafka's nodes neither."""
    for side in both.pair:
        side.stop(2)
    types: list[dict[str, None]] = []
    for side in both.pair:
        logs = sorted(side.data(2).glob("__cluster_metadata-0/*.log"))
        files = ("--files", ",".join(map(str, logs)))
        done = both.tools.run("DumpLogSegments", *files, "--cluster-metadata-decoder")
        assert done.exit == 0 and not done.err, done.err
        assert "Could not" not in done.out and "isvalid: false" not in done.out
        types.append(dict.fromkeys(TYPE.findall(done.out)))
    assert "TOPIC_RECORD" in types[0] and "PARTITION_CHANGE_RECORD" in types[0]
    unknown = [each for each in types[0] if each not in types[1]]
    assert unknown == [], "types that Kafka did not write in the same history"
