"""Mirrors from outside: bytes and offsets kept, topics found and owned, links in a ring, kills and doubled workers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
from pathlib import Path
from typing import Any

import pytest

from integration_tests.brokers import BrokerProcess, running_broker
from isthmus.client import Admin, Client, TopicPartition
from isthmus.client.raw import append_raw
from isthmus.mirror import carrier
from isthmus.mirror.link import Limits, MirrorLink
from isthmus.mirror.worker import MirrorWorker
from isthmus.protocol import _records, compression, records
from isthmus.protocol.crc import crc32c
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.messages import mirror_append
from isthmus.protocol.primitives import uuid_to_str

from .topics import create, produce, reaches
from .workers import Worker, clients, log_bytes, mirror_arguments, run, same, until

HEADER = struct.Struct(">qiibIhiqqqhii")


def raw_batch(
    base: int, delta: int, count: int, attributes: int, payload: bytes, epoch: int = 0, producer: int = -1
) -> bytes:
    """A batch whose payload is anything, under a right CRC."""
    tail = HEADER.pack(base, 49 + len(payload), epoch, 2, 0, attributes, delta, 1, 2, producer, 0, -1, count) + payload
    return tail[:17] + crc32c(tail[21:]).to_bytes(4, "big") + tail[21:]


def test_what_no_decoder_could_read_is_carried_byte_for_byte(
    pair: tuple[BrokerProcess, BrokerProcess], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reserved codec 5, control and transactional batches, holes, empty batches, epochs: only headers are looked at."""
    source, target = pair
    strange = b"".join(
        [
            raw_batch(7, 4, 5, 5, os.urandom(5000), epoch=2),  # the reserved codec, from offset 7 on
            raw_batch(20, 9, 2, 5, os.urandom(100), epoch=2),  # compacted: 2 of 10 are left
            raw_batch(30, 5, 0, 0, b"", epoch=2),  # compacted: none is left
            raw_batch(40, 0, 1, 0x10, os.urandom(30), epoch=3, producer=77),  # of a transaction
            raw_batch(41, 0, 1, 0x30, bytes(16), epoch=3, producer=77),  # its marker
            raw_batch(42, 0, 1, 0x08 | 7, os.urandom(10), epoch=5),  # codec 7, LogAppendTime
        ]
    )

    def refuse(*_: object, **__: object) -> Any:
        raise AssertionError("the mirror looked at a record")

    async def scenario() -> None:
        async with clients(source.bootstrap, target.bootstrap) as (origin, copy):
            seed = b"seed" * 4  # a mirrored topic takes whatever its link brings
            owner = {"mirror_link": "seed", "mirror_source_cluster_id": "elsewhere"}
            await create(origin, "strange", 1, **owner, mirror_source_topic_id=uuid_to_str(seed))
            part = mirror_append.MirrorAppendPartition(index=0, source_leader_epoch=5, range_from=0, records=strange)
            topic = mirror_append.MirrorAppendTopic(name="strange", source_topic_id=seed, partitions=[part])
            request = mirror_append.Request(
                link_id="seed", source_cluster_id="elsewhere", timeout_ms=5000, topics=[topic]
            )
            answer = await origin.request(request)
            assert not answer.topics[0].partitions[0].error_code, answer
            for module, names in {
                records: (
                    "decode_batch",
                    "record_pieces",
                    "decode_lists",
                    "decode_lists_with_headers",
                    "iter_columns",
                    "validate_batch",
                ),
                compression: ("decompress", "decompressed_pieces"),
                _records: ("read_lists",),
            }.items():
                for name in names:
                    monkeypatch.setattr(module, name, refuse)
            worker = MirrorWorker(MirrorLink("strange", "src", ["strange"]), origin, copy)
            await worker.start()
            await until(lambda: same(origin, copy, "strange", [0]), "the copy is the source")
            await worker.stop()
            monkeypatch.undo()
            assert await log_bytes(copy, "src.strange", 0) == strange
            assert (await Admin(copy).list_offsets({TopicPartition("src.strange", 0): "latest"})) == {
                TopicPartition("src.strange", 0): (43, -1, 5)
            }

    run(scenario())
    [ours], [theirs] = (
        list((broker.folder / "data" / f"{topic}-0").glob("*.log"))
        for broker, topic in ((source, "strange"), (target, "src.strange"))
    )
    assert ours.read_bytes().rstrip(b"\0") == theirs.read_bytes().rstrip(b"\0") == strange.rstrip(b"\0")


def test_stock_kafka_is_carried_with_its_transactions_and_grows_within_five_seconds(
    kafka: str, isthmus_broker: BrokerProcess, tmp_path: Path
) -> None:
    import confluent_kafka

    def transactions(topic: str) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": kafka, "transactional.id": "mirrored"})
        producer.init_transactions(20)
        for i in range(6):
            producer.begin_transaction()
            for j in range(20):
                producer.produce(topic, f"{i}-{j}".encode(), partition=j % 2)
            producer.commit_transaction(20) if i % 3 else producer.abort_transaction(20)

    async def scenario() -> None:
        async with clients(kafka, isthmus_broker.bootstrap) as (origin, copy):
            await create(origin, "mirrored.a", 2)
            for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
                await produce(origin, "mirrored.a", 300, compression=codec)
            await asyncio.to_thread(transactions, "mirrored.a")
            await until(lambda: same(origin, copy, "mirrored.a", range(2)), "all of it is there")
            ends = [
                (await Admin(client).list_offsets({TopicPartition(topic, p): "latest" for p in range(2)})).values()
                for client, topic in ((origin, "mirrored.a"), (copy, "src.mirrored.a"))
            ]
            assert [each[0] for each in ends[0]] == [each[0] for each in ends[1]]
            await create(origin, "mirrored.new")
            await produce(origin, "mirrored.new", 10)
            await until(lambda: same(origin, copy, "mirrored.new", [0]), "a new topic", 5)
            await Admin(origin).create_partitions("mirrored.a", 3)
            await origin.refresh_metadata(["mirrored.a"])
            await until(lambda: _grown(origin), "stock Kafka leads it")
            await append_raw(origin, TopicPartition("mirrored.a", 2), records.build_batch([(0, None, b"new", ())]))
            await until(lambda: same(origin, copy, "mirrored.a", range(3)), "a new partition", 5)

    async def _grown(origin: Client) -> bool:
        await origin.refresh_metadata(["mirrored.a"])
        return origin.leader(TopicPartition("mirrored.a", 2)) is not None

    arguments = mirror_arguments(kafka, isthmus_broker.bootstrap, "mirrored.*")
    with Worker(tmp_path, "mirror", *arguments) as worker:
        run(scenario(), 120)
        assert worker.end() == 0, worker.log


def test_a_stock_kafka_target_is_not_yet(kafka: str, isthmus_broker: BrokerProcess, tmp_path: Path) -> None:
    with Worker(tmp_path, "mirror", *mirror_arguments(isthmus_broker.bootstrap, kafka, "x")) as worker:
        assert worker.process.wait(20) == 2
        said = [line for line in worker.log.splitlines() if line.startswith("error: ")]
        assert len(said) == 1 and "stock Apache Kafka is not supported yet" in said[0], worker.log
        assert "Traceback" not in worker.log


def test_a_cluster_is_not_mirrored_into_itself(isthmus_broker: BrokerProcess, tmp_path: Path) -> None:
    address = isthmus_broker.bootstrap
    with Worker(tmp_path, "mirror", *mirror_arguments(address, address, ".*")) as worker:
        assert worker.process.wait(20) == 2
        assert "source and target are one cluster" in worker.log


def test_links_in_a_ring_carry_each_topic_everywhere_and_none_back_to_where_it_came_through(tmp_path: Path) -> None:
    """Links that select everything point from a to b, to c, to a, and from b back to a: topics must not breed."""
    left_out = {"ab": ["b.y", "c.b.y"], "bc": [], "ca": ["b.a.x"], "ba": ["a.x"]}
    with contextlib.ExitStack() as stack:
        brokers = {name: stack.enter_context(running_broker(tmp_path / name)) for name in "abc"}
        workers = {}
        for link in left_out:
            source, target = (brokers[name].bootstrap for name in link)
            arguments = mirror_arguments(source, target, ".*", link, alias=link[0])
            workers[link] = stack.enter_context(Worker(tmp_path, link, *arguments))

        async def scenario() -> None:
            async with clients(*(broker.bootstrap for broker in brokers.values())) as (a, b, c):

                async def looked_at() -> bool:
                    said = [
                        f"link {link}: {topic} came from the target" for link in left_out for topic in left_out[link]
                    ]
                    return all(any(line in worker.log for worker in workers.values()) for line in said)

                async def topics(client: Client) -> list[str]:
                    return [name for name in await Admin(client).list_topics() if not name.startswith("__")]

                await create(a, "x")
                await create(b, "y")
                await until(looked_at, "each link has met what came through its target")
                assert await topics(a) == ["b.y", "c.b.y", "x"]
                assert await topics(b) == ["a.x", "y"]
                assert await topics(c) == ["b.a.x", "b.y"]

        run(scenario())


def test_a_topic_is_owned_by_its_link_and_a_foreign_one_is_left_alone(
    pair: tuple[BrokerProcess, BrokerProcess], tmp_path: Path
) -> None:
    source, target = pair

    async def scenario() -> None:
        async with clients(source.bootstrap, target.bootstrap) as (origin, copy):
            await create(origin, "own.good")
            await create(origin, "own.taken")
            await create(copy, "src.own.taken")
            await append_raw(copy, TopicPartition("src.own.taken", 0), records.build_batch([(0, None, b"mine", ())]))
            before = await log_bytes(copy, "src.own.taken", 0)
            await produce(origin, "own.good", 100)
            await produce(origin, "own.taken", 100)
            await until(lambda: same(origin, copy, "own.good", [0]), "the good topic")
            batch = records.build_batch([(0, None, b"intruder", ())])
            with pytest.raises(KafkaError) as refused:
                await append_raw(copy, TopicPartition("src.own.good", 0), batch)
            assert refused.value.code == ErrorCode.POLICY_VIOLATION
            assert await same(origin, copy, "own.good", [0])
            said = (await reaches(target.bootstrap, "own.taken", "FAILED"))["reason"]
            assert "src.own.taken was not created by a mirror: delete it, or give link link another rename" in said
            assert await log_bytes(copy, "src.own.taken", 0) == before
            await Admin(copy).delete_topics(["src.own.taken"])  # the way out that it named
            await until(lambda: same(origin, copy, "own.taken", [0]), "it goes on by itself")
            await reaches(target.bootstrap, "own.taken", "MIRRORING")

    with Worker(tmp_path, "mirror", *mirror_arguments(source.bootstrap, target.bootstrap, "own.*")) as worker:
        run(scenario())
        assert worker.end() == 0, worker.log


def test_kills_of_everything_and_doubled_workers_leave_an_equal_copy(tmp_path: Path) -> None:
    with running_broker(tmp_path / "s") as source, running_broker(tmp_path / "t") as target:
        arguments = mirror_arguments(source.bootstrap, target.bootstrap, "busy")
        first, second = Worker(tmp_path, "first", *arguments), Worker(tmp_path, "second", *arguments)

        async def scenario() -> None:
            async with clients(source.bootstrap, target.bootstrap) as (origin, copy):
                await create(origin, "busy", 3)
                producing = asyncio.create_task(produce(origin, "busy", 100_000, 400, pause_s=0.03))
                await until(lambda: _some(copy), "the mirror has begun")
                first.kill()
                await asyncio.sleep(0.5)
                target.kill()
                await asyncio.to_thread(target.start)
                await asyncio.sleep(0.5)
                assert not producing.done()
                source.kill()
                await asyncio.to_thread(source.start)
                with Worker(tmp_path, "third", *arguments):
                    await producing
                    await until(lambda: same(origin, copy, "busy", range(3)), "the copy is the source", 40)

        async def _some(copy: Client) -> bool:
            return bool(await log_bytes(copy, "src.busy", 0))

        with first, second:
            run(scenario(), 120)
            target.kill()  # a worker whose target is away ends soon, too
            assert second.end() == 0, second.log


def test_what_is_under_way_stays_within_the_budget(
    pair: tuple[BrokerProcess, BrokerProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = pair
    budget = 3 << 20
    most = 0

    class Watched(carrier.Carrier):
        def __setattr__(self, name: str, value: Any) -> None:
            nonlocal most
            if name == "under_way_bytes":
                most = max(most, value)
            super().__setattr__(name, value)

    monkeypatch.setattr("isthmus.mirror.worker.Carrier", Watched)

    async def scenario() -> None:
        async with clients(source.bootstrap, target.bootstrap) as (origin, copy):
            await create(origin, "much", 3)
            batch = records.build_batch([(0, None, os.urandom(1000), ())] * 200)
            for i in range(90):
                await append_raw(origin, TopicPartition("much", i % 3), batch)
            limits = Limits(budget_bytes=budget, fetch_max_bytes=1 << 20, fetch_partition_max_bytes=1 << 20)
            worker = MirrorWorker(MirrorLink("much", "src", ["much"], limits=limits), origin, copy)
            await worker.start()
            await until(lambda: same(origin, copy, "much", range(3)), "all of it is there")
            assert worker.carrier.mismatches_total == 0
            assert worker.carrier.under_way_bytes <= 1 << 20  # the fetch that waits
            await worker.stop()
            assert worker.carrier.under_way_bytes == 0

    run(scenario())
    assert 1 << 20 < most <= budget + (1 << 18)
