"""What handlers refuse, and what many small things in one request may cost."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace

import pytest

from isthmus.core_broker.cluster.image import MetadataImage
from isthmus.core_broker.config import BrokerConfig
from isthmus.core_broker.purgatory import Purgatory
from isthmus.core_broker.replication.manager import ReplicaManager
from isthmus.core_broker.replication.states import Event
from isthmus.core_broker.server._context import CloseConnection, Context
from isthmus.core_broker.server.apis import list_offsets, produce
from isthmus.core_broker.storage.disk.real_files import RealFiles
from isthmus.core_broker.storage.manager import LogManager
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.messages import list_offsets as lo
from isthmus.protocol.messages import metadata_records as r
from isthmus.protocol.messages import produce as p
from isthmus.protocol.records import build_batch
from isthmus.runtime import system

BATCH = build_batch([(system().wall_ms(), b"k", b"v", ())])


@pytest.fixture
def serving(tmp_path):
    """Runs `work(context)` with the topics t and __consumer_offsets, one partition each."""

    def run(work):
        async def main():
            files, config = RealFiles(1), BrokerConfig()
            logs, image = LogManager(files, str(tmp_path), system()), MetadataImage("cluster")
            replicas = ReplicaManager(image, logs, config, system(), 1)
            await logs.open(1)
            for number, name in enumerate(("t", "__consumer_offsets")):
                topic_id = bytes([number + 1]) * 16
                records = [r.TopicRecord(name=name, topic_id=topic_id)]
                records.append(r.PartitionRecord(
                    partition_id=0, topic_id=topic_id, replicas=[1], isr=[1], leader=1, leader_epoch=0,
                    partition_epoch=0, directories=[bytes(16)],
                ))  # fmt: skip
                await replicas.apply(image.apply(records, image.offset + 2, 0))
            services = SimpleNamespace(
                config=config, runtime=system(), image=image, replicas=replicas, purgatory=Purgatory(10)
            )
            try:
                return work(Context(services, "PLAINTEXT", "10.0.0.1"))
            finally:
                await logs.close()
                files.close()

        return asyncio.run(main())

    return run


def produce_to(context, name, acks=1):
    context.version = 9
    data = p.PartitionProduceData(index=0, records=memoryview(BATCH))
    request = p.Request(
        acks=acks, timeout_ms=1000, topic_data=[p.TopicProduceData(name=name, partition_data=[data])]
    )  # fmt: skip
    return produce.handle(request, context)


def test_clients_do_not_write_to_internal_topics(serving):
    def work(context):
        (answer,) = produce_to(context, "__consumer_offsets").responses[0].partition_responses
        assert (answer.error_code, answer.log_start_offset) == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)
        with pytest.raises(CloseConnection):
            produce_to(context, "__consumer_offsets", acks=0)
        assert context.services.replicas.get("__consumer_offsets", 0).log.log_end_offset == 0
        assert produce_to(context, "t").responses[0].partition_responses[0].error_code == 0

    serving(work)


def test_list_offsets_of_many_partitions_takes_no_square_of_them(serving):
    def work(context):
        context.version = 5
        partitions = [lo.ListOffsetsPartition(partition_index=n, timestamp=-1) for n in range(20_000)]
        partitions.append(lo.ListOffsetsPartition(partition_index=7, timestamp=-1))
        started = time.process_time()
        answer = list_offsets.handle(lo.Request(topics=[lo.ListOffsetsTopic(name="t", partitions=partitions)]), context)
        assert time.process_time() - started < 2  # of 20,001 * 20,001 comparisons it was four
        codes = [each.error_code for each in answer.topics[0].partitions]
        assert len(codes) == 20_000 and codes[7] == ErrorCode.INVALID_REQUEST
        assert codes[0] == 0 and codes[1] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    serving(work)


def test_requests_to_an_offline_partition_leave_nothing_behind(serving):
    def work(context):
        partition = context.services.replicas.get("t", 0)
        partition.enter(Event.LOG_FAILED, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "Input/output error"))
        unopened = context.services.replicas._cannot_open(("u", 0), Event.LOG_FAILED, "u-0 is broken")
        context.services.image.topics["u"] = context.services.image.topics["t"]
        for _ in range(5):
            answer = produce_to(context, "t").responses[0].partition_responses[0]
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert produce_to(context, "u").responses[0].partition_responses[0].error_message == "u-0 is broken"
            asked = lo.ListOffsetsTopic(name="t", partitions=[lo.ListOffsetsPartition(partition_index=0, timestamp=-1)])
            list_offsets.handle(lo.Request(topics=[asked]), context)
            with pytest.raises(KafkaError):
                partition.append(memoryview(BATCH), 0, 0)
        for failure in (partition.failure, unopened.reason):
            assert failure.__traceback__ is failure.__context__ is None

    serving(work)
