"""MetadataQuorumCommand, LeaderElectionCommand, TransactionsCommand, ClusterTool: run unchanged, as with Kafka."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from .conftest import Both
from .tools import Side, Tools

pytestmark = pytest.mark.soak  # two JVMs a command: minutes

# Which controller listens where, and how often it was elected, is a node's own.
OWN = (
    (re.compile(r"(ClusterId): \S+"), r"\1: ID"),
    (re.compile(r"(LeaderEpoch|HighWatermark): \d+"), r"\1: NUMBER"),
    (re.compile(r"\w+://(BROKER|\S+?:\d+)"), "LISTENER"),
    (re.compile(r'("directoryId"): ?\S+?([,}])'), r"\1: ID\2"),
)


def without_own(text: str) -> str:
    for pattern, instead in OWN:
        text = pattern.sub(instead, text)
    return text


def test_the_quorum(both: Both) -> None:
    status = both("MetadataQuorumCommand", "describe", "--status", but=without_own).out.splitlines()
    assert status[0] == "ClusterId: ID"
    assert "LeaderId: 1" in status and "MaxFollowerLag: 0" in status
    replication = both("MetadataQuorumCommand", "describe", "--replication", but=lambda text: text.split("\n")[0]).out
    assert replication.startswith("NodeId ")


def test_the_clusters_id(tools: Tools, ours: Side, stock: Side) -> None:
    """The one of the tools that takes its subcommand first."""
    for side in (ours, stock):
        done = tools.run("ClusterTool", "cluster-id", "--bootstrap-server", side.bootstrap)
        [found] = re.findall(r"(?m)^cluster.id=(\S+)$", Path(side.data, "meta.properties").read_text())
        assert (done.exit, done.out.strip()) == (0, f"Cluster ID: {found}")


def test_leaders_are_elected(both: Both, tmp_path: Path) -> None:
    both("TopicCommand", "--create", "--topic", "elected", "--partitions", "2")
    elect = ("LeaderElectionCommand", "--election-type", "preferred")
    assert both(*elect, "--topic", "elected", "--partition", "1").exit == 0  # it leads already
    assert both(*elect, "--all-topic-partitions").exit == 0
    path = tmp_path / "elect.json"
    path.write_text(json.dumps({"partitions": [{"topic": "elected", "partition": index} for index in (0, 1)]}))
    assert both(*elect, "--path-to-json-file", str(path)).exit == 0
    assert both(*elect, "--topic", "elected", "--partition", "7").exit == 1
    assert both(*elect, "--topic", "none", "--partition", "0").exit == 1


def test_producers_of_a_partition(both: Both) -> None:
    both("TopicCommand", "--create", "--topic", "produced", "--partitions", "1")
    idempotent = ("--command-property", "enable.idempotence=true")
    both("ConsoleProducer", "--topic", "produced", *idempotent, stdin="".join(f"{n}\n" for n in range(5)))

    def numbered(text: str) -> str:
        return re.sub(r"(?m)^\d+ (\d+ -?\d+ )", r"ID \1", text)

    described = ("TransactionsCommand", "describe-producers", "--topic", "produced", "--partition", "0")
    head, row = both(*described, but=numbered).out.splitlines()
    assert head.split()[0] == "ProducerId" and row.split()[3] == "4"  # of its sequence
