"""Our listener for controllers beside that of stock Kafka: the same requests, and the same codes in the answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from integration_tests.brokers import BrokerProcess
from integration_tests.differential.wire import Connection
from integration_tests.peers.peers import Cluster, free_ports
from isthmus.core_broker.server.dispatch import SERVED_BY_CONTROLLERS
from isthmus.core_broker.server.forwarding import ANONYMOUS
from isthmus.protocol.header import RequestHeader, frame_request
from isthmus.protocol.messages import (
    api_versions,
    create_topics,
    describe_cluster,
    describe_configs,
    describe_quorum,
    envelope,
    fetch,
    fetch_snapshot,
    metadata,
    raise_leader_epoch,
    vote,
)
from isthmus.protocol.schema import Struct

from .test_stock_controller import ANOTHER_CLUSTER, NOBODY, REFUSED, TOPIC, TOPIC_ID, connected

SECURITY = {17, 29, 30, 31, 36, 38, 39, 40, 41, 49, 50, 51}  # and quotas: not here yet


@pytest.fixture(scope="module")
def our_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port, controller = free_ports(2)
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "controller.listener.names": "CONTROLLER",
    }
    broker = OwnListeners(tmp_path_factory.mktemp("controller"), settings)
    broker.address = f"127.0.0.1:{port}"
    broker.start()
    yield f"127.0.0.1:{controller}"
    broker.kill()


@pytest.fixture
def ours(our_address: str) -> Iterator[Connection]:
    connection = Connection(our_address)
    yield connection
    connection.close()


class OwnListeners(BrokerProcess):
    def command(self) -> list[str]:
        command = super().command()
        at = command.index("--listen")
        return command[:at] + command[at + 2 :]


@pytest.fixture
def stock(kafka_peer: Cluster) -> Iterator[Connection]:
    connection = connected(kafka_peer)
    yield connection
    connection.close()


def test_what_is_announced_is_stock_kafkas_without_security(ours: Connection, stock: Connection) -> None:
    request = api_versions.Request(client_software_name="tests", client_software_version="1")
    own, theirs = [
        {each.api_key: (each.min_version, each.max_version) for each in connection.ask(request, 4).api_keys}
        for connection in (ours, stock)
    ]
    assert own == SERVED_BY_CONTROLLERS
    assert own.pop(raise_leader_epoch.API.key)  # our own
    assert own.items() <= theirs.items()
    assert theirs.keys() - own.keys() == SECURITY


def frame(request: Struct, version: int) -> bytes:
    api = type(request).API
    return b"".join(frame_request(RequestHeader(api.key, version, 77, "x"), api.encode_request(request, version)))[4:]


MADE = create_topics.CreatableTopic(name="never-made", num_partitions=1, replication_factor=1)
GOOD = frame(create_topics.Request(topics=[MADE], timeout_ms=5_000, validate_only=True), 5)


def enveloped(**fields: Any) -> envelope.Request:
    whole = {"request_data": GOOD, "request_principal": ANONYMOUS, "client_host_address": b"\x0a\0\0\1"}
    return envelope.Request(**whole | fields)


def of_partition(topic: str, topic_id: bytes, *indexes: int) -> list[fetch.FetchTopic]:
    rows = [fetch.FetchPartition(partition=each, partition_max_bytes=1000) for each in indexes]
    return [fetch.FetchTopic(topic=topic, topic_id=topic_id, partitions=rows)]


def asking(*topics: str) -> describe_quorum.Request:
    rows = [describe_quorum.PartitionRequest(partition_index=0)]
    return describe_quorum.Request(topics=[describe_quorum.TopicRequest(topic_name=t, partitions=rows) for t in topics])


SAME: list[tuple[Struct, int]] = [
    *((request, request.API.max_version) for request, _ in REFUSED),
    (enveloped(), 0),
    (enveloped(client_host_address=bytes(16)), 0),
    (enveloped(request_principal=None), 0),
    (enveloped(request_principal=b"\0"), 0),
    (enveloped(request_principal=b"\0\5abc"), 0),
    (enveloped(client_host_address=b"\1\2\3"), 0),
    (enveloped(request_data=frame(metadata.Request(topics=[]), 9)), 0),
    (enveloped(request_data=frame(describe_configs.Request(resources=[]), 4)), 0),
    (enveloped(request_data=b"abc"), 0),
    (enveloped(request_data=GOOD[:-4]), 0),
    (enveloped(request_data=GOOD[:2] + b"\0\x63" + GOOD[4:]), 0),
    *((describe_cluster.Request(endpoint_type=kind), 2) for kind in (1, 2, 3)),
    (describe_cluster.Request(), 0),
    (asking(), 2),
    (asking("foo"), 2),
    (asking(TOPIC), 2),
    (fetch.Request(topics=of_partition("", b"\3" * 16, 0)), 17),
    (fetch.Request(topics=of_partition("", TOPIC_ID, 1)), 17),
    (fetch.Request(topics=of_partition("", TOPIC_ID, 0, 1)), 17),
    (fetch.Request(topics=of_partition("foo", bytes(16), 0)), 12),
    (fetch.Request(topics=[]), 17),
    (fetch.Request(cluster_id=ANOTHER_CLUSTER, topics=of_partition("", TOPIC_ID, 0)), 17),
    (vote.Request(topics=[vote.TopicData(topic_name="foo", partitions=[vote.PartitionData(replica_id=NOBODY)])]), 2),
    (vote.Request(topics=[]), 2),
    (fetch_snapshot.Request(topics=[fetch_snapshot.TopicSnapshotRequest(name="foo")]), 1),
]


def codes(answer: Any, found: list[int] | None = None) -> list[int]:
    """All error codes of an answer, in the order of its fields."""
    found = [] if found is None else found
    if isinstance(answer, Struct):
        for field in answer.FIELDS:
            value = getattr(answer, field.name)
            if field.name == "error_code":
                found.append(value)
            else:
                codes(value, found)
    elif isinstance(answer, list):
        for each in answer:
            codes(each, found)
    return found


@pytest.mark.parametrize(("request_", "version"), SAME, ids=[f"{i}-{r.API.name}" for i, (r, _) in enumerate(SAME)])
def test_both_answer_with_the_same_codes(ours: Connection, stock: Connection, request_: Struct, version: int) -> None:
    assert codes(ours.ask(request_, version)) == codes(stock.ask(request_, version))
