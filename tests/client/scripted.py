"""A broker for tests that does what it is told: small true defaults, and a script of answers that come first.

It runs on a simulated machine, so that its clients meet a real loop's transports, on a clock that costs no time.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from isthmus.client import Client
from isthmus.client.raw import READ_COMMITTED
from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import (
    APIS,
    api_versions,
    describe_producers,
    fetch,
    init_producer_id,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
)
from isthmus.protocol.records import read_header, walk
from tests.leftovers import no_leftovers
from tests.protocol.frames import decode_request_header, frame_response
from tests.simulation.runner import Simulation, run_checked

PORT = 9092
SILENCE = object()  # a script's answer: say nothing, and go on with the next request
HANG_UP = object()  # close the connection instead of answering

TELL_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)

Answer = Callable[[Any], Any]


class Log:
    """One partition: batches as bytes, their offsets given on append; the last sequence of each producer."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.start = 0
        self.end = 0
        self.last_stable_offset: int | None = None  # None: the end
        self.aborted: list[tuple[int, int, int]] = []  # producer id, first and last offset of transactions
        self.producers: dict[int, tuple[int, int, dict[int, int]]] = {}  # id -> epoch, next sequence, offsets

    def append(self, data: bytes) -> tuple[int, int]:
        """(error code, base offset), as a broker checks sequences: of a producer it does not know it takes any."""
        header = read_header(data)
        if header.producer_id >= 0:
            epoch, expected, offsets = self.producers.get(header.producer_id, (-1, header.base_sequence, {}))
            if header.producer_epoch < epoch:
                return ErrorCode.INVALID_PRODUCER_EPOCH, -1
            if header.producer_epoch > epoch >= 0:
                expected, offsets = 0, {}
            if header.base_sequence in offsets:
                return 0, offsets[header.base_sequence]
            if header.base_sequence != expected:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            offsets[header.base_sequence] = self.end
            self.producers[header.producer_id] = (header.producer_epoch, expected + header.records_count, offsets)
        base = self.end
        self.batches.append(base.to_bytes(8, "big") + data[8:])
        self.end += header.records_count
        return 0, base

    def end_of(self, epoch: int) -> tuple[int, int]:
        """The newest epoch up to this one and its end, as LeaderEpochFileCache; -1, -1 for one that is newer."""
        headers = [read_header(batch) for batch in self.batches]
        later = [h.base_offset for h in headers if h.partition_leader_epoch > epoch]
        known = [h.partition_leader_epoch for h in headers if h.partition_leader_epoch <= epoch]
        if not later:
            return (epoch, self.end) if epoch in known else (-1, -1)
        return max(known, default=epoch), later[0]

    def read(self, offset: int) -> bytes:
        return b"".join(batch for batch in self.batches if read_header(batch).last_offset >= offset)

    def read_committed(self, offset: int, most_bytes: int) -> tuple[bytes, list[tuple[int, int]]]:
        """What is below the last stable offset, and the aborted transactions that overlap with it."""
        end = self.end if self.last_stable_offset is None else self.last_stable_offset
        found = self.read(offset)
        upper = next((at for at, header in walk(found) if header.next_offset > end), len(found))
        data = found[: min(upper, most_bytes)]
        last = max((header.last_offset for _, header in walk(data)), default=-1)
        return data, [(each, first) for each, first, until in self.aborted if first <= last and until >= offset]


class World:
    """What all scripted brokers of a run agree on."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.brokers: dict[int, ScriptedBroker] = {}
        self.topics: dict[str, bytes] = {}  # name -> id
        self.controller = 1
        self.leaders: dict[tuple[str, int], tuple[int, int]] = {}  # partition -> node, epoch
        self.followers: dict[tuple[str, int], list[int]] = defaultdict(list)  # nodes that answer fetches, too
        self.logs: dict[tuple[str, int], Log] = defaultdict(Log)
        self.client: Client  # of `started_client`
        self.to_close: list[Callable[[], Awaitable[None]]] = []  # at the end of a test that holds, the last one first

    def add_topic(self, name: str, partitions: int = 1, leader: int = 1) -> None:
        self.topics[name] = name.encode().ljust(16, b"\1")[:16]
        for index in range(partitions):
            self.leaders[name, index] = (leader, 0)

    def move(self, name: str, index: int, leader: int) -> None:
        self.leaders[name, index] = (leader, self.leaders[name, index][1] + 1)

    def log(self, name: str, index: int = 0) -> Log:
        return self.logs[name, index]


class ScriptedBroker:
    """script[api name] answers come before the defaults: each takes the request, and gives the response, SILENCE,
    HANG_UP, or None for the default's answer. `asked` is all that came: (name, message)."""

    def __init__(self, world: World, node_id: int = 1) -> None:
        self.world = world
        self.node_id = node_id
        self.host = f"broker{node_id}"
        self.asked: list[tuple[str, Any]] = []
        self.script: dict[str, deque[Answer]] = defaultdict(deque)
        self.links: list[Link] = []
        self.versions = {api.key: (api.min_version, api.max_version) for api in APIS.values()}
        self.pieces_bytes = 0  # answers in pieces of so many bytes, each on a turn of its own
        self.producer_ids = 100
        self.hangs = False  # takes requests and answers none, as a stopped process does
        self.rack: str | None = None
        self.version = 0  # of the request that is answered
        self.features: dict[str, int] = {}
        self.tells_leaders = False  # says who leads the partitions that it does not lead (KIP-951)
        world.brokers[node_id] = self

    async def start(self) -> ScriptedBroker:
        process = self.world.sim.machine(self.host).start()

        async def listen() -> None:
            loop = asyncio.get_running_loop()
            await loop.create_server(lambda: Link(self), "0.0.0.0", PORT)

        await process.outcome(listen())
        return self

    @property
    def address(self) -> str:
        return f"{self.host}:{PORT}"

    def kill(self) -> None:
        self.world.sim.machine(self.host).kill()

    def requests(self, name: str) -> list[Any]:
        return [message for asked, message in self.asked if asked == name]

    def answer(self, name: str, message: Any) -> Any:
        self.asked.append((name, message))
        if self.hangs:
            return SILENCE
        if self.script[name]:
            said = self.script[name].popleft()(message)
            if said is not None:
                return said
        return getattr(self, f"on_{name}")(message)

    # --- Defaults -----------------------------------------------------------------------------------

    def on_api_versions(self, _: Any) -> Any:
        keys = [
            api_versions.ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in self.versions.items()
        ]
        features = [
            api_versions.FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in self.features.items()
        ]
        return api_versions.Response(api_keys=keys, finalized_features=features, finalized_features_epoch=1)

    def on_metadata(self, message: Any) -> Any:
        names = (
            list(self.world.topics)
            if message.topics is None
            else [topic.name or self._name(topic.topic_id) for topic in message.topics]
        )
        brokers = [
            metadata.MetadataResponseBroker(node_id=each.node_id, host=each.host, port=PORT)
            for each in self.world.brokers.values()
        ]
        topics = []
        for name in names:
            topic_id = self.world.topics.get(name) if name else None
            code = 0 if topic_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            partitions = [
                metadata.MetadataResponsePartition(partition_index=index, leader_id=node, leader_epoch=epoch)
                for (topic, index), (node, epoch) in self.world.leaders.items()
                if topic == name
            ]
            topics.append(
                metadata.MetadataResponseTopic(
                    error_code=code, name=name, topic_id=topic_id or bytes(16), partitions=partitions
                )
            )
        return metadata.Response(
            brokers=brokers, cluster_id="scripted", controller_id=self.world.controller, topics=topics
        )

    def on_init_producer_id(self, _: Any) -> Any:
        self.producer_ids += 1
        return init_producer_id.Response(producer_id=self.producer_ids, producer_epoch=0)

    def on_produce(self, message: Any) -> Any:
        if message.acks == 0:
            self.produced(message)
            return SILENCE
        return self.produced(message)

    def produced(self, message: Any, refuse: Callable[[str, int, Any], int] = lambda *_: 0) -> Any:
        """Append; `refuse(topic, index, header)` gives a code with which a batch is refused instead."""
        topics = []
        for topic in message.topic_data:
            name = self._name(topic.topic_id) or topic.name
            parts: list[Any] = []
            for part in topic.partition_data:
                data = bytes(part.records)
                code, base = ErrorCode.UNKNOWN_TOPIC_ID, -1
                if name:
                    code = refuse(name, part.index, read_header(data))
                if not code and self.world.leaders[name, part.index][0] != self.node_id:
                    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                leader = self._told(produce.LeaderIdAndEpoch, code, name, part.index)
                if not code:
                    code, base = self.world.log(name, part.index).append(data)
                parts.append(
                    produce.PartitionProduceResponse(
                        index=part.index,
                        error_code=code,
                        base_offset=base,
                        log_start_offset=self.world.log(name, part.index).start,
                        current_leader=leader,
                    )
                )
            topics.append(produce.TopicProduceResponse(name=name, topic_id=topic.topic_id, partition_responses=parts))
        return produce.Response(responses=topics, node_endpoints=self._endpoints(produce.NodeEndpoint))

    def on_describe_producers(self, message: Any) -> Any:
        topics = []
        for topic in message.topics:
            parts = []
            for index in topic.partition_indexes:
                states = [
                    describe_producers.ProducerState(
                        producer_id=producer_id, producer_epoch=epoch, last_sequence=expected - 1
                    )
                    for producer_id, (epoch, expected, _) in self.world.log(topic.name, index).producers.items()
                ]
                parts.append(describe_producers.PartitionResponse(partition_index=index, active_producers=states))
            topics.append(describe_producers.TopicResponse(name=topic.name, partitions=parts))
        return describe_producers.Response(topics=topics)

    def on_fetch(self, message: Any) -> Any:
        responses = []
        left = message.max_bytes
        for topic in message.topics:
            name = self._name(topic.topic_id) or topic.topic
            parts = []
            for part in topic.partitions:
                log = self.world.log(name, part.partition)
                code, records = 0, b""
                aborted: list[tuple[int, int]] = []
                replica = -1 if not name else self._preferred(name, part.partition, message.rack_id)
                if not name:
                    code = ErrorCode.UNKNOWN_TOPIC_ID
                elif code := self._checked(name, part.partition, part.current_leader_epoch, by_followers=True):
                    pass
                elif not log.start <= part.fetch_offset <= log.end:
                    code = ErrorCode.OFFSET_OUT_OF_RANGE
                elif replica < 0:
                    most = min(part.partition_max_bytes, left)
                    if message.isolation_level == READ_COMMITTED:
                        records, aborted = log.read_committed(part.fetch_offset, most)
                    else:
                        records = log.read(part.fetch_offset)[:most]
                    left -= len(records)
                diverging = None
                if not code and (epoch := part.last_fetched_epoch) >= 0:
                    end_epoch, end = log.end_of(epoch)
                    if end < 0:
                        code, records = ErrorCode.OFFSET_OUT_OF_RANGE, b""
                    elif end_epoch < epoch or end < part.fetch_offset:
                        diverging = fetch.EpochEndOffset(epoch=end_epoch, end_offset=end)
                parts.append(
                    fetch.PartitionData(
                        partition_index=part.partition,
                        error_code=code,
                        high_watermark=log.end,
                        last_stable_offset=log.end if log.last_stable_offset is None else log.last_stable_offset,
                        aborted_transactions=[
                            fetch.AbortedTransaction(producer_id=each, first_offset=first) for each, first in aborted
                        ],
                        log_start_offset=log.start,
                        diverging_epoch=diverging,
                        preferred_read_replica=replica,
                        current_leader=self._told(fetch.LeaderIdAndEpoch, code, name, part.partition),
                        records=b"" if diverging else records,
                    )
                )
            responses.append(fetch.FetchableTopicResponse(topic=name, topic_id=topic.topic_id, partitions=parts))
        return fetch.Response(responses=responses, node_endpoints=self._endpoints(fetch.NodeEndpoint))

    def on_offset_for_leader_epoch(self, message: Any) -> Any:
        topics = []
        for topic in message.topics:
            parts = []
            for part in topic.partitions:
                code = self._checked(topic.topic, part.partition, part.current_leader_epoch)
                epoch, end = (-1, -1) if code else self.world.log(topic.topic, part.partition).end_of(part.leader_epoch)
                parts.append(
                    offset_for_leader_epoch.EpochEndOffset(
                        error_code=code, partition=part.partition, leader_epoch=epoch, end_offset=end
                    )
                )
            topics.append(offset_for_leader_epoch.OffsetForLeaderTopicResult(topic=topic.topic, partitions=parts))
        return offset_for_leader_epoch.Response(topics=topics)

    def on_find_coordinator(self, _: Any) -> Any:
        return SILENCE  # it has no groups

    def on_list_offsets(self, message: Any) -> Any:
        topics = []
        for topic in message.topics:
            parts = []
            for part in topic.partitions:
                log = self.world.log(topic.name, part.partition_index)
                code = self._checked(topic.name, part.partition_index, part.current_leader_epoch)
                end = log.end
                if message.isolation_level == READ_COMMITTED and log.last_stable_offset is not None:
                    end = log.last_stable_offset
                offset = end if part.timestamp == -1 else log.start
                parts.append(
                    list_offsets.ListOffsetsPartitionResponse(
                        partition_index=part.partition_index, error_code=code, offset=-1 if code else offset
                    )
                )
            topics.append(list_offsets.ListOffsetsTopicResponse(name=topic.name, partitions=parts))
        return list_offsets.Response(topics=topics)

    def _preferred(self, name: str, index: int, rack: str) -> int:
        """The replica in this rack, as RackAwareReplicaSelector: -1 if it is the leader itself, or there is none."""
        nodes = [self.node_id, *self.world.followers[name, index]]
        found = [node for node in nodes if rack and self.world.brokers[node].rack == rack]
        is_leader = self.world.leaders[name, index][0] == self.node_id
        return found[0] if is_leader and found and found[0] != self.node_id else -1

    def _checked(self, name: str, index: int, epoch: int, by_followers: bool = False) -> int:
        """The code for a request of somebody who knows this leader epoch, -1 if none (KIP-320)."""
        leader, current = self.world.leaders.get((name, index), (-1, -1))
        if epoch >= 0 and epoch != current:
            return ErrorCode.FENCED_LEADER_EPOCH if epoch < current else ErrorCode.UNKNOWN_LEADER_EPOCH
        is_ours = leader == self.node_id or (by_followers and self.node_id in self.world.followers[name, index])
        return 0 if is_ours else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _told(self, kind: Any, code: int, name: str | None, index: int) -> Any:
        if name is None or not self.tells_leaders or code not in TELL_LEADER:
            return None
        leader, epoch = self.world.leaders[name, index]
        return kind(leader_id=leader, leader_epoch=epoch)

    def _endpoints(self, kind: Any) -> list[Any]:
        brokers = self.world.brokers.values() if self.tells_leaders else ()
        return [kind(node_id=each.node_id, host=each.host, port=PORT) for each in brokers]

    def _name(self, topic_id: bytes) -> str | None:
        return next((name for name, each in self.world.topics.items() if each == topic_id), None)


class Link(asyncio.Protocol):
    """One connection; answers in order. A fetch that finds nothing waits for its time, as a broker's does."""

    def __init__(self, broker: ScriptedBroker) -> None:
        self.broker = broker
        self.buffer = bytearray()
        self.waiting: deque[bytes] = deque()
        self.busy = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.broker.links.append(self)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while len(self.buffer) >= 4:
            size = int.from_bytes(self.buffer[:4], "big")
            if len(self.buffer) < 4 + size:
                break
            self.waiting.append(bytes(self.buffer[4 : 4 + size]))
            del self.buffer[: 4 + size]
        self.work()

    def work(self) -> None:
        while self.waiting and not self.busy and not self.transport.is_closing():
            frame = self.waiting.popleft()
            header, at = decode_request_header(frame)
            api = APIS[header.api_key]
            low, high = self.broker.versions[api.key]
            version = header.api_version
            name = type(api).__name__ and api.request.struct.__module__.rpartition(".")[2]
            if api.key == 18 and not low <= version <= high:
                said = self.broker.on_api_versions(None)
                said.error_code, version = ErrorCode.UNSUPPORTED_VERSION, 0
            else:
                message = api.decode_request(memoryview(frame), at, version)
                self.broker.version = version
                said = self.broker.answer(name, message)
                if name == "fetch" and isinstance(said, fetch.Response) and _is_empty(said) and message.max_wait_ms:
                    self.busy = True
                    asyncio.get_running_loop().call_later(
                        message.max_wait_ms / 1000, self.late, header.correlation_id, api, version, message
                    )
                    return
            self.reply(header.correlation_id, api, version, said)

    def late(self, correlation_id: int, api: Any, version: int, message: Any) -> None:
        self.busy = False
        if not self.transport.is_closing():
            self.reply(correlation_id, api, version, self.broker.on_fetch(message))
            self.work()

    def reply(self, correlation_id: int, api: Any, version: int, said: Any) -> None:
        if said is SILENCE or self.broker.hangs:
            return
        if said is HANG_UP:
            self.transport.abort()
            return
        data = frame_response(correlation_id, api.response_header_version(version), api.encode_response(said, version))
        step = self.broker.pieces_bytes or len(data)
        for at in range(0, len(data), step):
            self.transport.write(data[at : at + step])


def _is_empty(said: Any) -> bool:
    return not any(
        part.records or part.error_code or part.diverging_epoch or part.preferred_read_replica >= 0
        for topic in said.responses
        for part in topic.partitions
    )


def simulate(
    test: Callable[[World], Coroutine[Any, Any, None]],
    seed: int = 1,
    broker: Callable[[World], ScriptedBroker] = ScriptedBroker,
    **options: Any,
) -> None:
    """Run an async test on a simulated machine called `app`, with one scripted broker at `broker1`. What is made by
    other means than `started_client` and the like, the test must close."""

    async def checked(world: World) -> None:
        async with no_leftovers():
            await test(world)
            for close in reversed(world.to_close):
                await close()

    async def scenario(sim: Simulation) -> None:
        world = World(sim)
        await broker(world).start()
        await sim.machine("app").start().outcome(checked(world))

    run_checked(scenario, seed, **options)


async def started_client(world: World, **options: Any) -> Client:
    """It is `world.client`, too, and closed at the end."""
    process = world.sim.machine("app").process
    assert process is not None
    world.client = Client(world.brokers[1].address, client_id="app", runtime=process.runtime, **options)
    await world.client.start()
    world.to_close.append(world.client.close)
    return world.client
