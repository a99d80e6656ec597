"""Where a partition is, and its moves by Kafka's own Admin: the tools that come with Kafka."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from confluent_kafka.admin import AdminClient

from integration_tests.tools.tools import Tools
from integration_tests.waiting import until

SETTLE_S = 60.0


def ran(tools: Tools, bootstrap: str, tool: str, *arguments: str, exit_code: int = 0) -> str:
    """What one of Kafka's tools prints, which must end so."""
    cluster = ("--bootstrap-server", bootstrap)
    words = (*arguments, *cluster) if tool == "ClusterTool" else (*cluster, *arguments)  # its subcommand comes first
    done = tools.run(tool, *words)
    assert done.exit == exit_code, done.out + done.err
    return done.out + done.err


class Placing:
    """topic: it has the partition 0."""

    def __init__(self, tools: Tools, bootstrap: str, folder: Path, topic: str) -> None:
        self.tools = tools
        self.bootstrap = bootstrap
        self.topic = topic
        self._plan = folder / "reassign.json"
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def is_now(self, topic: str = "") -> tuple[int, list[int], list[int]]:
        """(leader, replicas, in-sync replicas in order of ids) of partition 0."""
        name = topic or self.topic
        found = self._admin.list_topics(name, timeout=10).topics[name].partitions[0]
        return found.leader, found.replicas, sorted(found.isrs)

    def leads(self, node_id: int) -> None:
        """Wait until it leads."""
        until(lambda: self.is_now()[0] == node_id, lambda: f"{node_id} does not lead: {self.is_now()}", SETTLE_S)

    def in_sync(self, *node_ids: int) -> None:
        """Wait until the ISR is this."""
        until(lambda: self.is_now()[2] == sorted(node_ids), lambda: f"not in sync: {self.is_now()}", SETTLE_S)

    def move(self, plan: Mapping[str, Sequence[int]]) -> None:
        """TOPIC-PARTITION -> node ids, the preferred leader first. Returns when it is done."""
        rows = [
            {"topic": name.rpartition("-")[0], "partition": int(name.rpartition("-")[2]), "replicas": list(replicas)}
            for name, replicas in plan.items()
        ]
        self._plan.write_text(json.dumps({"version": 1, "partitions": rows}))
        self.run("reassign.ReassignPartitionsCommand", "--reassignment-json-file", str(self._plan), "--execute")
        until(lambda: not self._moving(), lambda: f"still under way: {self._moving()}", SETTLE_S)

    def _moving(self) -> str:
        said = self.run("reassign.ReassignPartitionsCommand", "--list")
        return "" if "No partition reassignments found" in said else said

    def elect(self) -> None:
        """Of every partition the preferred replica leads from now on."""
        self.run("LeaderElectionCommand", "--election-type", "preferred", "--all-topic-partitions")

    def run(self, tool: str, *arguments: str) -> str:
        """What one of Kafka's tools prints, which must succeed."""
        return ran(self.tools, self.bootstrap, tool, *arguments)
