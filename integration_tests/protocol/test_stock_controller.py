"""Requests between nodes, to the controller of a stock Kafka node: it reads each in every version, and we its answer.

What is asked changes nothing: it is of brokers and clusters that are not there.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from integration_tests.differential.wire import Connection
from integration_tests.peers.peers import Cluster, cluster, java_command
from integration_tests.waiting import until
from isthmus.protocol import records as batches
from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.header import RequestHeader, decode_response_header, frame_request
from isthmus.protocol.messages import (
    APIS,
    add_raft_voter,
    allocate_producer_ids,
    alter_partition,
    api_versions,
    assign_replicas_to_dirs,
    begin_quorum_epoch,
    broker_heartbeat,
    broker_registration,
    control_records,
    create_topics,
    describe_cluster,
    describe_quorum,
    end_quorum_epoch,
    envelope,
    fetch,
    fetch_snapshot,
    metadata_records,
    remove_raft_voter,
    unregister_broker,
    unregister_controller,
    update_features,
    update_raft_voter,
    vote,
)
from isthmus.protocol.primitives import read_uvarint
from isthmus.protocol.schema import Struct

TOPIC, TOPIC_ID = "__cluster_metadata", bytes(15) + b"\1"
LEADER, NOBODY = 1, 999
ANOTHER_CLUSTER = "AAAAAAAAAAAAAAAAAAAAAg"
OF_CONTROLLERS = {52, 53, 54, 55, 56, 57, 58, 59, 60, 62, 63, 64, 67, 70, 73, 80, 81, 82, 94}
ENDPOINTS_OF_CONTROLLERS = 2
SNAPSHOT_WITHIN_S = 60.0
Ask = Callable[[Struct, int], Any]


def connected(node: Cluster) -> Connection:
    port = re.search(r"CONTROLLER://127.0.0.1:(\d+)", node.nodes[0].properties["listeners"])
    assert port is not None
    return Connection(f"127.0.0.1:{port[1]}")


@pytest.fixture
def ask(kafka_peer: Cluster) -> Iterator[Ask]:
    connection = connected(kafka_peer)
    yield connection.ask
    connection.close()


def test_the_versions_that_a_node_announces_are_ours(ask: Ask, kafka: str) -> None:
    who = api_versions.Request(client_software_name="tests", client_software_version="1")
    broker = Connection(kafka)
    for answer, keys in ((ask(who, 4), OF_CONTROLLERS), (broker.ask(who, 4), {0, 3})):
        theirs = {
            each.api_key: (each.min_version, each.max_version) for each in answer.api_keys if each.api_key in APIS
        }
        assert theirs == {key: (APIS[key].min_version, APIS[key].max_version) for key in theirs}
        assert keys <= theirs.keys()
        supported = {each.name: (each.min_version, each.max_version) for each in answer.supported_features}
        assert supported["kraft.version"] == (0, 1)
        assert "metadata.version" in {each.name for each in answer.finalized_features}
        assert answer.finalized_features_epoch > 0
    broker.close()


REFUSED = [
    (
        vote.Request(
            cluster_id=ANOTHER_CLUSTER,
            topics=[vote.TopicData(topic_name=TOPIC, partitions=[vote.PartitionData(replica_id=NOBODY)])],
        ),
        ErrorCode.INCONSISTENT_CLUSTER_ID,
    ),
    (begin_quorum_epoch.Request(cluster_id=ANOTHER_CLUSTER), ErrorCode.INCONSISTENT_CLUSTER_ID),
    (end_quorum_epoch.Request(cluster_id=ANOTHER_CLUSTER), ErrorCode.INCONSISTENT_CLUSTER_ID),
    (
        alter_partition.Request(
            broker_id=LEADER,
            topics=[alter_partition.TopicData(topic_id=TOPIC_ID, partitions=[alter_partition.PartitionData()])],
        ),
        ErrorCode.STALE_BROKER_EPOCH,
    ),
    (
        update_features.Request(
            feature_updates=[update_features.FeatureUpdate(feature="no.such", max_version_level=1)]
        ),
        ErrorCode.INVALID_UPDATE_VERSION,
    ),
    (fetch_snapshot.Request(cluster_id=ANOTHER_CLUSTER), ErrorCode.INCONSISTENT_CLUSTER_ID),
    (
        broker_registration.Request(
            broker_id=NOBODY,
            cluster_id=ANOTHER_CLUSTER,
            incarnation_id=TOPIC_ID,
            listeners=[broker_registration.Listener(name="PLAINTEXT", host="h", port=9092)],
            features=[broker_registration.Feature(name="metadata.version", min_supported_version=7)],
            rack=None,
        ),
        ErrorCode.INCONSISTENT_CLUSTER_ID,
    ),
    (broker_heartbeat.Request(broker_id=NOBODY), ErrorCode.STALE_BROKER_EPOCH),
    (unregister_broker.Request(broker_id=NOBODY), ErrorCode.BROKER_ID_NOT_REGISTERED),
    (allocate_producer_ids.Request(broker_id=NOBODY), ErrorCode.STALE_BROKER_EPOCH),
    (assign_replicas_to_dirs.Request(broker_id=NOBODY), ErrorCode.STALE_BROKER_EPOCH),
    (add_raft_voter.Request(cluster_id=ANOTHER_CLUSTER, voter_id=NOBODY), ErrorCode.INCONSISTENT_CLUSTER_ID),
    (remove_raft_voter.Request(cluster_id=ANOTHER_CLUSTER, voter_id=NOBODY), ErrorCode.INCONSISTENT_CLUSTER_ID),
    (update_raft_voter.Request(cluster_id=ANOTHER_CLUSTER, voter_id=NOBODY), ErrorCode.INCONSISTENT_CLUSTER_ID),
    (unregister_controller.Request(controller_id=NOBODY), ErrorCode.CONTROLLER_ID_NOT_REGISTERED),
]


@pytest.mark.parametrize(("request_", "code"), REFUSED, ids=lambda each: each.API.name if hasattr(each, "API") else "")
def test_what_is_refused(ask: Ask, request_: Struct, code: ErrorCode) -> None:
    api = request_.API
    assert [ask(request_, v).error_code for v in range(api.min_version, api.max_version + 1)] == [
        code for _ in range(api.min_version, api.max_version + 1)
    ]


def the_quorum(ask: Ask, version: int = 2) -> describe_quorum.Response:
    partitions = [describe_quorum.PartitionRequest()]
    topics = [describe_quorum.TopicRequest(topic_name=TOPIC, partitions=partitions)]
    answer: describe_quorum.Response = ask(describe_quorum.Request(topics=topics), version)
    return answer


def epoch_of(ask: Ask) -> int:
    """Of its leader. Tests share the node, whose controller may have been elected again since the node's start."""
    return the_quorum(ask).topics[0].partitions[0].leader_epoch


def test_a_vote_in_an_epoch_that_has_a_leader_is_not_granted(ask: Ask) -> None:
    epoch = epoch_of(ask)
    candidate = vote.PartitionData(replica_id=2, replica_epoch=epoch)
    for version in range(3):
        candidate.pre_vote = version >= 2
        answer = ask(vote.Request(topics=[vote.TopicData(topic_name=TOPIC, partitions=[candidate])]), version)
        [result] = answer.topics[0].partitions
        assert (result.error_code, result.vote_granted) == (0, False)
        assert (result.leader_id, result.leader_epoch) == (LEADER, epoch)
        assert [each.node_id for each in answer.node_endpoints] == ([LEADER] if version else [])


def test_the_quorum_and_its_endpoints(ask: Ask) -> None:
    for version in range(3):
        answer = the_quorum(ask, version)
        [partition] = answer.topics[0].partitions
        assert (partition.leader_id, [each.replica_id for each in partition.current_voters]) == (LEADER, [LEADER])
        assert [each.listeners[0].name for each in answer.nodes] == (["CONTROLLER"] if version == 2 else [])
    for version in (1, 2):
        answer = ask(describe_cluster.Request(endpoint_type=ENDPOINTS_OF_CONTROLLERS), version)
        assert (answer.error_code, answer.endpoint_type, answer.controller_id) == (0, ENDPOINTS_OF_CONTROLLERS, LEADER)
        assert [each.broker_id for each in answer.brokers] == [LEADER]


def fetching(leader_epoch: int, offset: int = 0) -> fetch.Request:
    partition = fetch.FetchPartition(
        current_leader_epoch=leader_epoch, fetch_offset=offset, last_fetched_epoch=0, partition_max_bytes=1 << 20
    )
    topic = fetch.FetchTopic(topic_id=TOPIC_ID, partitions=[partition])
    return fetch.Request(max_wait_ms=200, min_bytes=1, topics=[topic])


def test_the_metadata_log_is_fetched_and_read(ask: Ask) -> None:
    """Its control records and metadata records are what we would write, to the byte."""
    epoch = epoch_of(ask)
    for version in range(13, 19):
        answer = ask(fetching(epoch), version)
        [partition] = answer.responses[0].partitions
        assert partition.current_leader == fetch.LeaderIdAndEpoch(leader_id=LEADER, leader_epoch=epoch)
        assert [each.node_id for each in answer.node_endpoints] == ([LEADER] if version >= 17 else [])
        [(_, first), *others] = records_of(bytes(partition.records))
        assert isinstance(first, control_records.LeaderChangeMessage)
        assert (first.leader_id, [each.voter_id for each in first.voters]) == (LEADER, [LEADER])
        found = {type(record) for is_control, record in others if not is_control}
        assert {metadata_records.RegisterBrokerRecord, metadata_records.RegisterControllerRecord} <= found
    [partition] = ask(fetching(epoch, offset=5), 18).responses[0].partitions
    assert partition.diverging_epoch == fetch.EpochEndOffset(epoch=0, end_offset=0)


def records_of(data: bytes) -> list[tuple[bool, Any]]:
    """The records of whole batches, and of each whether it is a control record."""
    found: list[tuple[bool, Any]] = []
    for position, header in batches.walk(data):
        for each in batches.decode_batch(data, position):
            if header.is_control:
                record = control_records.decode(each.key, each.value)
                assert control_records.encode(record) == (each.key, each.value)
            else:
                assert each.value is not None
                record = metadata_records.decode(each.value)
                _, at = read_uvarint(each.value, 0)
                _, at = read_uvarint(each.value, at)
                assert metadata_records.encode(record, read_uvarint(each.value, at)[0]) == each.value
            found.append((header.is_control, record))
    return found


def test_a_snapshot_is_fetched_and_read() -> None:
    with cluster(properties={"metadata.log.max.record.bytes.between.snapshots": 1}, heap="400m") as node:
        ask = connected(node).ask
        epoch = epoch_of(ask)
        found = until(
            lambda: ask(fetching(epoch), 18).responses[0].partitions[0].snapshot_id, "a snapshot", SNAPSHOT_WITHIN_S
        )
        wanted = fetch_snapshot.SnapshotId(end_offset=found.end_offset, epoch=found.epoch)
        partition = fetch_snapshot.PartitionSnapshotRequest(current_leader_epoch=epoch, snapshot_id=wanted)
        topic = fetch_snapshot.TopicSnapshotRequest(name=TOPIC, partitions=[partition])
        for version in (0, 1):
            answer = ask(fetch_snapshot.Request(topics=[topic]), version)
            [part] = answer.topics[0].partitions
            assert (part.snapshot_id, part.position, part.size) == (wanted, 0, len(part.unaligned_records))
            [(_, header), *between, (_, footer)] = records_of(bytes(part.unaligned_records))
            assert isinstance(header, control_records.SnapshotHeaderRecord)
            assert isinstance(footer, control_records.SnapshotFooterRecord)
            assert metadata_records.RegisterBrokerRecord in {type(record) for _, record in between}


def test_the_voters_that_kafka_formats_a_controller_with(tmp_path: Path) -> None:
    """The snapshot of a quorum whose voters may change (KIP-853), which is made before it starts."""
    settings = {
        "process.roles": "controller",
        "node.id": 7,
        "controller.listener.names": "CONTROLLER",
        "listeners": "CONTROLLER://127.0.0.1:19093",
        "controller.quorum.bootstrap.servers": "127.0.0.1:19093",
        "log.dirs": tmp_path / "data",
    }
    properties = tmp_path / "server.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    format_it = ("format", "--standalone", "-t", ANOTHER_CLUSTER, "-c", str(properties))
    command = java_command("kafka.tools.StorageTool", *format_it, profile="broker", heap="256m")
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    [path] = (tmp_path / "data" / f"{TOPIC}-0").glob("*.checkpoint")
    found = records_of(path.read_bytes())
    [version] = [each for _, each in found if isinstance(each, control_records.KRaftVersionRecord)]
    [voters] = [each for _, each in found if isinstance(each, control_records.VotersRecord)]
    assert version.kraft_version == 1
    [voter] = voters.voters
    assert (voter.voter_id, voter.kraft_version_feature.max_supported_version) == (7, 1)
    assert [(each.name, each.host, each.port) for each in voter.endpoints] == [("CONTROLLER", "127.0.0.1", 19093)]


def test_a_clients_request_is_forwarded_in_an_envelope(ask: Ask) -> None:
    topic = create_topics.CreatableTopic(name="never-made", num_partitions=1, replication_factor=1)
    body = create_topics.Request(topics=[topic], timeout_ms=1_000, validate_only=True)
    header = RequestHeader(create_topics.API.key, 7, 77, "a client")
    inner = b"".join(frame_request(header, create_topics.API.encode_request(body, 7)))[4:]  # without its size
    principal = envelope.encode_principal(envelope.Principal(type="User", name="ANONYMOUS"))
    here = bytes([127, 0, 0, 1])
    answer = ask(envelope.Request(request_data=inner, request_principal=principal, client_host_address=here), 0)
    assert answer.error_code == 0
    correlation_id, at = decode_response_header(answer.response_data, 1)
    [made] = create_topics.API.decode_response(answer.response_data, at, 7).topics
    assert (correlation_id, made.name, made.error_code) == (77, "never-made", 0)
    bad = envelope.Request(request_data=inner, request_principal=None, client_host_address=here)
    assert ask(bad, 0).error_code == ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE
