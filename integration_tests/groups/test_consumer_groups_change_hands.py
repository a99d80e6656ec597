"""A data directory with consumer groups (KIP-848) goes from Kafka to us, and from us to Kafka: their members go on.

The steps are those of docs/how-to/move-a-data-directory.md.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from integration_tests.brokers import ROOT, running_broker
from integration_tests.cluster.kafka_nodes import OUR_LEVELS
from integration_tests.differential.consumers import (
    ASSIGNING,
    EMPTY,
    LEAVE_FOR_NOW,
    ONE,
    RECONCILING,
    STABLE,
    STATIC,
    TWO,
    Consumers,
)
from integration_tests.differential.crew import LEADER
from integration_tests.differential.peer import Case, Peer
from integration_tests.differential.scenarios.consumer_group_migration import MixedCrew
from integration_tests.differential.wire import plain
from integration_tests.peers.peers import cluster, run
from integration_tests.storage.dump import dump
from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import consumer_group_describe, consumer_group_heartbeat, heartbeat

LASTING_MS = 600_000  # members are to be there still when the other broker has read of them
OPTIONS = {
    "offsets.topic.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.max.session.timeout.ms": LASTING_MS,
    "group.consumer.session.timeout.ms": LASTING_MS,
}
STATES = (EMPTY, ASSIGNING, RECONCILING, STABLE)
PATTERN, AWAY, MIXED = "pattern", "away", "mixed"
GROUPS = (*STATES, PATTERN, AWAY, MIXED)


def fill(peer: Peer) -> tuple[list[consumer_group_heartbeat.Request], heartbeat.Request]:
    """A group of each kind; the next heartbeats of their members."""
    groups = [Consumers(Case(peer, 68, state)).bring(state) for state in STATES]
    pattern = Consumers(Case(peer, 68, PATTERN))
    pattern.join(ONE, subscribed_topic_names=None, subscribed_topic_regex="patt.*")
    pattern.case.wait_until(lambda: pattern.beat(ONE) and bool(pattern[ONE].owned), "the pattern's topics")
    away = Consumers(Case(peer, 68, AWAY)).bring(STABLE)
    away.beat(STATIC, away.beat_request(STATIC, member_epoch=LEAVE_FOR_NOW))
    del away.members[STATIC]
    mixed = Consumers(Case(peer, 68, MIXED))
    with MixedCrew(mixed.case) as crew:
        for _ in range(2):
            crew.in_newest(LEADER, crew.join_request(LEADER, session_timeout_ms=LASTING_MS))
        crew.assign()
        mixed.join(TWO)
        classic = crew.heartbeat_request(LEADER)
    groups += [pattern, away, mixed]
    return [group.beat_request(name) for group in groups for name in group.members], classic


def told(peer: Peer) -> list[Any]:
    """What a broker says of all groups."""
    for group in GROUPS:
        Case(peer, 68, group).coordinator()
    answer = peer.ask(consumer_group_describe.Request(group_ids=list(GROUPS)))
    for group in answer.groups:
        group.members.sort(key=lambda member: member.member_id)
        for member in group.members:
            for assignment in (member.assignment, member.target_assignment):
                assignment.topic_partitions.sort(key=lambda each: each.topic_name)
    return sorted(plain(answer, 1)["groups"], key=lambda group: str(group["group_id"]))


def check_goes_on(peer: Peer, beats: list[consumer_group_heartbeat.Request], classic: heartbeat.Request) -> None:
    for request in beats:
        answer = peer.ask(request)
        assert answer.error_code == ErrorCode.NONE and answer.member_epoch >= request.member_epoch, (request, answer)
    assert peer.ask(classic).error_code == ErrorCode.REBALANCE_IN_PROGRESS  # it has something to give back
    again = consumer_group_heartbeat.Request(
        group_id=AWAY,
        member_id="again",
        instance_id=STATIC,
        rebalance_timeout_ms=LASTING_MS,
        subscribed_topic_names=[AWAY],
        topic_partitions=[],
    )
    answer = peer.ask(again)
    assert answer.error_code == ErrorCode.NONE and len(answer.assignment.topic_partitions) == 1


def control(said: list[Any]) -> None:
    assert [group["group_state"] for group in said if group["group_id"] in STATES] == sorted(STATES)
    assert not any(group["error_code"] for group in said)
    by_id = {group["group_id"]: group for group in said}
    assert [each["member_type"] for each in by_id[MIXED]["members"]].count(0) == 1
    assert min(each["member_epoch"] for each in by_id[AWAY]["members"]) == LEAVE_FOR_NOW


def test_we_go_on_with_kafkas_groups(tmp_path: Path) -> None:
    with cluster(properties=OPTIONS, heap="512m", folder=tmp_path / "kafka") as kafka:
        peer = Peer("stock Kafka", kafka.bootstrap)
        beats = fill(peer)
        before = told(peer)
        control(before)
        peer.close()
        run("FeatureCommand", "--bootstrap-server", kafka.bootstrap, "downgrade", *OUR_LEVELS)
        kafka.stop()
        shutil.copytree(kafka.nodes[0].folder / "data", tmp_path / "ours" / "data")
    with running_broker(tmp_path / "ours", OPTIONS) as broker:
        peer = Peer("isthmus", broker.bootstrap)
        assert told(peer) == before
        check_goes_on(peer, *beats)
        peer.close()


def test_kafka_goes_on_with_our_groups(tmp_path: Path) -> None:
    with running_broker(tmp_path / "ours", OPTIONS) as broker:
        peer = Peer("isthmus", broker.bootstrap)
        beats = fill(peer)
        before = told(peer)
        control(before)
        peer.close()
        assert broker.stop() == 0
    data = tmp_path / "ours" / "data"
    text = dump(sorted((data / "__consumer_offsets-0").glob("*.log")), "--offsets-decoder", "--deep-iteration")
    for kind in range(3, 9):
        assert kind == 4 or f'"type":"{kind}"' in text, kind
    assert '"type":"16"' in text and "isvalid: false" not in text
    with cluster(properties=OPTIONS, heap="512m", folder=tmp_path / "kafka") as kafka:
        kafka.stop()
        theirs = kafka.nodes[0].folder / "data"
        shutil.rmtree(theirs)
        shutil.copytree(data, theirs)
        command = [sys.executable, "-m", "isthmus.core_broker", "to-kafka", str(theirs)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        assert done.returncode == 0, done.stderr
        kafka.start("512m")
        peer = Peer("stock Kafka", kafka.bootstrap)
        assert told(peer) == before
        check_goes_on(peer, *beats)
        peer.close()
