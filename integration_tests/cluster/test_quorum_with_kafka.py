"""A member of ours in a metadata quorum of stock Kafka: it copies, leads when Kafka's leader dies, and hands over."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from integration_tests.mirror.workers import until
from integration_tests.peers.peers import Cluster, free_ports
from isthmus.core_broker.cluster.image import MetadataImage
from isthmus.core_broker.cluster.metadata_log import DIRECTORY, MetadataLog
from isthmus.core_broker.cluster.quorum.member import Member
from isthmus.core_broker.cluster.quorum.peers import ConnectionPeers
from isthmus.core_broker.cluster.quorum.quorum import MetadataQuorum
from isthmus.core_broker.cluster.raft.raft import Raft, RaftOptions
from isthmus.core_broker.cluster.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from isthmus.core_broker.purgatory import Pending
from isthmus.core_broker.storage.disk.real_files import RealFiles
from isthmus.protocol.messages import APIS, api_versions
from isthmus.protocol.records import walk
from isthmus.runtime import Runtime, system

OURS = 3
QUICK = RaftOptions(election_timeout_ms=300, fetch_timeout_ms=1_000)  # so that it stands first
SERVED = {1: (4, 18), 18: (0, 4), 52: (0, 2), 53: (0, 1), 54: (0, 1), 59: (0, 1)}
WITHIN_S = 60.0
HEAD_BYTES = 10  # key, version, correlation id, and the length of the client's name
FLEXIBLE_HEADER = 2


class Served:
    """The quorum's requests on a port, one after the other on each connection."""

    def __init__(self, quorum: MetadataQuorum) -> None:
        self.quorum = quorum

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = memoryview(await reader.readexactly(size))
                writer.write(await self.answer(frame))
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def answer(self, frame: memoryview) -> bytes:
        key, version, correlation_id, length = struct.unpack_from(">hhih", frame)
        api = APIS[key]
        is_flexible = api.request_header_version(version) == FLEXIBLE_HEADER
        request = api.decode_request(frame, HEAD_BYTES + max(length, 0) + is_flexible, version)  # no tags in the header
        if key == api_versions.API.key:
            rows = [api_versions.ApiVersion(api_key=k, min_version=a, max_version=b) for k, (a, b) in SERVED.items()]
            level = api_versions.SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)
            answer: Any = api_versions.Response(api_keys=rows, supported_features=[level])
        else:
            answer = self.quorum.handle(request)
        if isinstance(answer, Pending):
            done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            answer.when_done(done.set_result)
            answer = await done
        body = b"".join(map(bytes, api.encode_response(answer, version)))
        head = correlation_id.to_bytes(4, "big") + bytes(api.response_header_version(version))
        return (len(head) + len(body)).to_bytes(4, "big") + head + body


@asynccontextmanager
async def member(folder: Path, peers: Cluster, cluster_id: str, port: int) -> AsyncIterator[MetadataQuorum]:
    clocks = system()
    runtime = Runtime(random.Random(1), clocks.wall_ms, clocks.perf_ns)
    voters = [Voter(ReplicaKey(OURS), (Endpoint("CONTROLLER", "127.0.0.1", port),))]
    voters += [
        Voter(ReplicaKey(node.id), (Endpoint("CONTROLLER", "127.0.0.1", controller_port(node)),))
        for node in peers.nodes
    ]
    log = await MetadataLog.open(RealFiles(2), str(folder), runtime)
    own = (Endpoint("CONTROLLER", "127.0.0.1", port),)
    key = ReplicaKey(OURS, bytes(range(16)))
    quorum = MetadataQuorum(
        log, MetadataImage(cluster_id), runtime,
        Member(key, VoterSet.of(voters), own, options=QUICK, cluster_id=cluster_id), ConnectionPeers("ours"),
    )  # fmt: skip
    server = await asyncio.start_server(Served(quorum).connected, "127.0.0.1", port)
    try:
        await quorum.start()
        yield quorum
    finally:
        server.close()
        await quorum.close()


def controller_port(node: Any) -> int:
    return int(node.properties["listeners"].rpartition(":")[2])


def batches_in(folder: Path) -> list[tuple[int, bytes]]:
    """(base offset, bytes) of each batch of a metadata log's files."""
    found = []
    for path in sorted((folder / DIRECTORY).glob("*.log")):
        data = path.read_bytes()
        found += [(h.base_offset, data[position : position + h.size_bytes]) for position, h in walk(data)]
    return found


def test_voter_of_ours_among_kafkas(tmp_path: Path) -> None:
    ports = free_ports(5)
    voters = f"1@127.0.0.1:{ports[1]},2@127.0.0.1:{ports[3]},{OURS}@127.0.0.1:{ports[4]}"
    made = Cluster.create(tmp_path / "kafka", 2, ports[:4], {"controller.quorum.voters": voters})
    meta = (tmp_path / "kafka" / "node-1" / "data" / "meta.properties").read_text()
    [cluster_id] = [line.partition("=")[2] for line in meta.splitlines() if line.startswith("cluster.id=")]

    async def history() -> dict[int, int]:
        """Up to where each node of Kafka's has what is committed. What a killed leader wrote after that is its own."""
        async with member(tmp_path / "ours", made, cluster_id, ports[4]) as ours:
            await until(lambda: ours.leader_id in (1, 2), "one of Kafka's leads", WITHIN_S)
            await until(lambda: ours.high_watermark > 20, "it copies what Kafka's controller decides", WITHIN_S)
            leader = next(node for node in made.nodes if node.id == ours.leader_id)
            first = ours.epoch
            ends = {leader.id: ours.high_watermark}
            leader.kill()
            with mock.patch.object(Raft, "_may_vote", lambda *_: False):  # else it would vote for Kafka's other one
                # What begins its epoch is committed only if Kafka's node fetches from it.
                await until(
                    lambda: ours.is_leader and ours.epoch > first, "Kafka's votes for ours, and follows it", WITHIN_S
                )
            end, second = ours.high_watermark, ours.epoch
            await ours.resign()
            await until(lambda: ours.leader_id in (1, 2) and ours.epoch > second, "Kafka's leads again", WITHIN_S)
            await until(lambda: ours.high_watermark > end, "it follows Kafka's", WITHIN_S)
            return {1: end, 2: end} | ends

    try:
        for node in made.nodes:
            node.start("256m")
        made.controller()  # one of Kafka's leads before ours stands, which is quicker
        ends = asyncio.run(history())
    finally:
        made.kill()
    mine = dict(batches_in(tmp_path / "ours"))
    for number, end in ends.items():
        other = dict(batches_in(tmp_path / "kafka" / f"node-{number}" / "data"))
        common = [offset for offset in mine if offset in other and offset < end]
        assert len(common) > 5 and all(mine[offset] == other[offset] for offset in common)
