"""Kafka's own tool reads what our controller and group coordinator write: same records, same fields."""

from __future__ import annotations

import asyncio
import json
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from integration_tests.peers.peers import run
from isthmus.core_broker.cluster.controller import (
    AllocateProducerIds,
    BrokerHeartbeat,
    Controller,
    CreatePartitions,
    CreatePartitionsTopic,
    CreateTopics,
    DeleteTopics,
    RegisterBroker,
    new_topic,
)
from isthmus.core_broker.cluster.image import Endpoint, MetadataImage
from isthmus.core_broker.cluster.metadata_log import MetadataLog
from isthmus.core_broker.cluster.quorum.member import alone
from isthmus.core_broker.cluster.quorum.quorum import MetadataQuorum
from isthmus.core_broker.config import BrokerConfig
from isthmus.core_broker.storage.disk.real_files import RealFiles
from isthmus.core_broker.storage.log.append import Origin
from isthmus.core_broker.storage.log.log_config import LogConfig
from isthmus.core_broker.storage.startup.opening import open_log
from isthmus.protocol.messages import control_records as c
from isthmus.protocol.messages import group_records as g
from isthmus.protocol.primitives import uuid_to_str
from isthmus.protocol.records import build_batch
from isthmus.runtime import Runtime

REGISTER = RegisterBroker(1, bytes(range(16)), {"PLAINTEXT": Endpoint("h", 9092)}, "cluster", "rack")


async def started(folder: Path) -> tuple[MetadataLog, Controller]:
    runtime = Runtime(random.Random(1), lambda: 1_700_000_000_000, lambda: 0)
    log = await MetadataLog.open(RealFiles(1), str(folder), runtime)
    metadata = MetadataQuorum(log, MetadataImage("cluster"), runtime, alone(1))
    controller = Controller(metadata, BrokerConfig(), runtime, "PLAINTEXT")
    await metadata.start()
    return log, controller


def printed(folder: Path, *options: str, suffix: str = ".log") -> list[str]:
    """The lines that DumpLogSegments prints of records, in order."""
    files = ",".join(str(path) for path in sorted(folder.glob(f"*{suffix}")))
    text = run("org.apache.kafka.tools.DumpLogSegments", "--files", files, "--print-data-log", *options).stdout
    return [line for line in text.splitlines() if line.startswith("| ")]


def decoded(lines: list[str]) -> list[dict[str, Any]]:
    """The payloads in them."""
    found = []
    for line in lines:
        key, payload = re.search(r" key: (\{.*\}) payload: ", line), re.search(r"payload: (.*)$", line)
        assert payload is not None, line
        value = None if payload[1] == "<DELETE>" else json.loads(payload[1])
        found.append({"key": json.loads(key[1]) if key else None, "value": value})
    return found


def dump(folder: Path, *options: str) -> list[dict[str, Any]]:
    return decoded(printed(folder, *options))


def test_the_metadata_log(tmp_path):
    async def write() -> bytes:
        _, controller = await started(tmp_path)
        submit = controller.submit_wait
        for incarnation in range(2):
            registered = await submit(replace(REGISTER, incarnation_id=incarnation.to_bytes(16)))
            await submit(BrokerHeartbeat(1, registered.broker_epoch, controller.image.offset))
            await submit(CreateTopics([new_topic("t", 1, configs={"retention.ms": "5"})]))
        await submit(CreatePartitions([CreatePartitionsTopic(name="t", count=2, assignments=None)]))
        await submit(AllocateProducerIds())
        topic_id = controller.image.topics["t"].id
        await submit(DeleteTopics(names=["t"]))
        await controller.close()
        return topic_id

    topic = uuid_to_str(asyncio.run(write()))
    begin, *lines = printed(tmp_path / "__cluster_metadata-0", "--cluster-metadata-decoder")
    assert begin.endswith(
        'LeaderChange: {"version":0,"leaderId":1,"voters":[{"voterId":1}],"grantingVoters":[{"voterId":1}]}'
    )
    records = [each["value"] for each in decoded(lines)]
    assert [record["type"] for record in records] == [
        "REGISTER_BROKER_RECORD", "BROKER_REGISTRATION_CHANGE_RECORD",
        "TOPIC_RECORD", "CONFIG_RECORD", "PARTITION_RECORD",
        "PARTITION_CHANGE_RECORD", "REGISTER_BROKER_RECORD", "BROKER_REGISTRATION_CHANGE_RECORD",
        "PARTITION_CHANGE_RECORD", "PARTITION_RECORD", "PRODUCER_IDS_RECORD", "REMOVE_TOPIC_RECORD",
    ]  # fmt: skip
    broker, unfenced, first, option, partition, lost, _, _, change, _, ids, removed = (
        record["data"] for record in records
    )
    assert (broker["brokerId"], broker["rack"], broker["fenced"]) == (1, "rack", True)
    assert unfenced == {"brokerId": 1, "brokerEpoch": broker["brokerEpoch"], "fenced": -1}  # which is to unfence it
    assert broker["endPoints"] == [{"name": "PLAINTEXT", "host": "h", "port": 9092, "securityProtocol": 0}]
    assert first == {"name": "t", "topicId": topic} and removed == {"topicId": topic}
    assert option == {"resourceType": 2, "resourceName": "t", "name": "retention.ms", "value": "5"}
    assert (partition["replicas"], partition["isr"], partition["leader"], partition["leaderEpoch"]) == ([1], [1], 1, 0)
    assert lost == {"partitionId": 0, "topicId": topic, "leader": -1}  # the broker has started again, and is fenced
    assert change == {"partitionId": 0, "topicId": topic, "leader": 1}
    assert ids["nextProducerId"] > 0


def test_a_snapshot_of_the_metadata(tmp_path):
    """KIP-630: its header and footer, and between them what the log said."""

    async def write() -> MetadataImage:
        log, controller = await started(tmp_path)
        submit = controller.submit_wait
        registered = await submit(REGISTER)
        await submit(BrokerHeartbeat(1, registered.broker_epoch, controller.image.offset))
        await submit(CreateTopics([new_topic("t", 2, configs={"retention.ms": "5"}), new_topic("gone")]))
        await submit(AllocateProducerIds())
        await submit(DeleteTopics(names=["gone"]))
        await controller.metadata.snapshot_if_due(1, 0)
        await controller.close()
        return controller.image

    image = asyncio.run(write())
    folder = tmp_path / "__cluster_metadata-0"
    (path,) = folder.glob("*.checkpoint")
    assert path.name == f"{image.offset + 1:020d}-{image.epoch:010d}.checkpoint"
    header, *between, footer = printed(folder, "--cluster-metadata-decoder", suffix=".checkpoint")
    assert 'SnapshotHeader {"version":0,"lastContainedLogTimestamp":1700000000000}' in header
    assert 'SnapshotFooter {"version":0}' in footer
    records = [each["value"] for each in decoded(between)]
    assert [record["type"] for record in records] == [
        "REGISTER_BROKER_RECORD", "TOPIC_RECORD", "PARTITION_RECORD", "PARTITION_RECORD", "CONFIG_RECORD",
        "PRODUCER_IDS_RECORD",
    ]  # fmt: skip
    topic, partition = records[1]["data"], records[3]["data"]
    assert topic == {"name": "t", "topicId": uuid_to_str(image.topics["t"].id)}
    assert (partition["partitionId"], partition["leader"], partition["replicas"]) == (1, 1, [1])


def test_control_records(tmp_path):
    """KIP-595, KIP-853: each is printed as itself, in the order of its fields."""
    endpoint = c.VoterEndpoint(name="CONTROLLER", host="h", port=9093)
    voter = c.Voter(
        voter_id=2, voter_directory_id=bytes(range(16)), endpoints=[endpoint],
        kraft_version_feature=c.KRaftVersionFeature(max_supported_version=1),
    )  # fmt: skip
    written = (
        c.LeaderChangeMessage(leader_id=2, voters=[c.LeaderVoter(voter_id=2)]),
        c.KRaftVersionRecord(kraft_version=1),
        c.VotersRecord(voters=[voter]),
    )
    rows = [(5, *c.encode(each), ()) for each in written]
    batches = [build_batch([row], control=True, base_offset=n, partition_leader_epoch=3) for n, row in enumerate(rows)]
    folder = tmp_path / "__cluster_metadata-0"
    folder.mkdir()
    (folder / f"{0:020d}.log").write_bytes(b"".join(batches))
    leader, version, voters = printed(folder, "--cluster-metadata-decoder")
    assert 'LeaderChange: {"version":0,"leaderId":2,"voters":[{"voterId":2}],"grantingVoters":[]}' in leader
    assert 'KRaftVersion {"version":0,"kRaftVersion":1}' in version
    assert json.loads(voters.partition("KRaftVoters ")[2])["voters"] == [
        {
            "voterId": 2,
            "voterDirectoryId": uuid_to_str(bytes(range(16))),
            "endpoints": [{"name": "CONTROLLER", "host": "h", "port": 9093}],
            "kRaftVersionFeature": {"minSupportedVersion": 0, "maxSupportedVersion": 1},
        }
    ]


def test_group_records(tmp_path):
    member = g.MemberMetadata(
        member_id="m", group_instance_id="i", client_id="c", client_host="/h", rebalance_timeout=1, session_timeout=2,
        subscription=b"s", assignment=b"a",
    )  # fmt: skip
    committed = (
        g.OffsetCommitKey(group="g", topic="t", partition=3),
        g.OffsetCommitValue(offset=7, leader_epoch=2, metadata="note", commit_timestamp=5),
    )
    group = (
        g.GroupMetadataKey(group="g"),
        g.GroupMetadataValue(
            protocol_type="consumer", generation=4, protocol="range", leader="m", current_state_timestamp=6,
            members=[member],
        ),
    )  # fmt: skip
    folder = tmp_path / "__consumer_offsets-0"

    async def write() -> None:
        log = await open_log(RealFiles(1), str(folder), LogConfig(cleanup_policy="compact"))
        rows: list[Any] = [(0, g.encode_key(key), g.encode_value(value), ()) for key, value in (committed, group)]
        rows.append((0, g.encode_key(group[0]), None, ()))
        log.append(build_batch(rows), Origin.COORDINATOR, 0, 0)
        await log.close()

    asyncio.run(write())
    first, second, removed = dump(folder, "--offsets-decoder")
    assert first["key"]["data"] == {"group": "g", "topic": "t", "partition": 3}
    assert first["value"]["data"] == {"offset": 7, "leaderEpoch": 2, "metadata": "note", "commitTimestamp": 5}
    assert second["key"]["data"] == removed["key"]["data"] == {"group": "g"} and removed["value"] is None
    stored = second["value"]["data"]
    assert (stored["protocolType"], stored["generation"], stored["protocol"], stored["leader"]) == (
        "consumer", 4, "range", "m"
    )  # fmt: skip
    assert stored["currentStateTimestamp"] == 6
    assert (stored["members"][0]["memberId"], stored["members"][0]["groupInstanceId"]) == ("m", "i")
