"""A broker that comes back opens its partitions by what the cluster has decided, not by what it knew when it went."""

from __future__ import annotations

from tests.simulation.brokers import Cluster
from tests.simulation.runner import Simulation, run_checked

SNAPSHOTS = "metadata.log.max.record.bytes.between.snapshots"


def test_a_log_is_not_set_aside_by_an_old_snapshot_of_the_metadata() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, options={SNAPSHOTS: "300", "controller.quorum.fetch.snapshot.max.bytes": "100"})
        await cluster.form()
        host = cluster.hosts[3]
        await cluster.stop(3)
        host.options[SNAPSHOTS] = str(1 << 30)  # its last snapshot is older than the topic
        await cluster.up(60.0)
        await cluster.make_topic("t", 2, {})
        cluster.kill(3, power=False)
        await cluster.make_topic("later", 2, {})  # the others' logs begin with a snapshot that it lacks
        await cluster.up(60.0)
        names = host.machine.disk.names
        assert not [name for name in names if "-stray" in name]
        held = [index for number, topic, index, _ in cluster.partitions() if (number, topic) == (3, "t")]
        assert sorted(held) == [0, 1]

    run_checked(scenario)
