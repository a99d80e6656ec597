"""A broker of ours in a cluster of stock Kafka: it follows and leads, dies and sees others die, is drained and leaves.

All the time an idempotent producer sends; in the end all that was acknowledged is there once, in order. The controls:
who leads after each step, and the bytes of the logs.
"""

from __future__ import annotations

from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from integration_tests.console.commands import isthmus, said
from integration_tests.tools.tools import running_tools
from integration_tests.waiting import until

from .kafka_nodes import HEAP, JVM, has_brokers, kafka_nodes
from .placing import Placing
from .sending import TOPIC, Sending

OURS = 10
SETTLE_S = 60.0


def test_a_member_from_its_coming_to_its_going(tmp_path: Path) -> None:
    with kafka_nodes(tmp_path) as cluster, running_tools(tmp_path / "tools.log") as tools:
        first, second = cluster.brokers
        ours = cluster.ours(OURS).start()
        has_brokers(first.port, [2, 3, OURS])
        has_brokers(ours.port, [2, 3, OURS])
        topic = NewTopic(TOPIC, 1, replica_assignment=[[2, 3]], config={"min.insync.replicas": "2"})
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([topic])[TOPIC].result(20)
        place = Placing(tools, cluster.bootstrap, tmp_path, TOPIC)
        sending = Sending(cluster.bootstrap)
        sending.goes_on()

        place.move({f"{TOPIC}-0": [OURS, 2, 3]})  # it follows Kafka's leader
        place.in_sync(2, 3, OURS)
        assert place.is_now()[0] == 2
        sending.goes_on()
        place.elect()  # it leads Kafka's followers
        place.leads(OURS)
        sending.goes_on()
        place.in_sync(2, 3, OURS)

        ours.kill()
        until(lambda: place.is_now()[0] in (2, 3), "one of Kafka's leads", SETTLE_S)
        sending.goes_on()
        ours.start()
        place.in_sync(2, 3, OURS)
        place.elect()
        place.leads(OURS)
        first.kill()  # a follower of ours
        sending.goes_on()
        place.in_sync(3, OURS)
        first.start(HEAP, JVM)
        place.in_sync(2, 3, OURS)

        place.move({f"{TOPIC}-0": [2, 3, OURS]})
        place.elect()
        place.leads(2)
        sending.goes_on()
        first.kill()  # the leader of ours
        until(lambda: place.is_now()[0] in (3, OURS), "another one leads", SETTLE_S)
        sending.goes_on()
        first.start(HEAP, JVM)
        place.in_sync(2, 3, OURS)

        sending.end()
        until(lambda: len({cluster.log_of(each, f"{TOPIC}-0") for each in (2, 3, OURS)}) == 1, "equal bytes", SETTLE_S)
        sending.all_are_there(cluster.bootstrap)

        place.move({f"{TOPIC}-0": [2, 3]})
        said(isthmus("broker", "drain", str(OURS), "-b", cluster.bootstrap, folder=tmp_path))
        assert ours.stop() == 0
        place.run("ClusterTool", "unregister", "--id", str(OURS))
        has_brokers(first.port, [2, 3])
