"""DescribeProducers: what a partition remembers of its idempotent producers."""

from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import describe_producers as m
from tests.running import run_by

from .serving import serve


async def ask(serving, topic, *indexes):
    answer = await serving.ask(m.Request(topics=[m.TopicRequest(name=topic, partition_indexes=list(indexes))]))
    return answer.topics[0].partitions


@run_by(serve)
async def test_producers_with_their_last_sequence_and_the_time_of_their_last_batch(serving, /):
    await serving.topic("t")
    serving.fill("t", 3)  # by no producer
    serving.fill("t", 3, producer_id=7, producer_epoch=1, base_sequence=0)
    serving.fill("t", 2, producer_id=7, producer_epoch=1, base_sequence=3)
    serving.fill("t", 1, producer_id=5, producer_epoch=0, base_sequence=0)
    (row,) = await ask(serving, "t", 0)
    assert [(p.producer_id, p.producer_epoch, p.last_sequence) for p in row.active_producers] == [
        (5, 0, 0),
        (7, 1, 4),
    ]
    for producer in row.active_producers:
        assert producer.last_timestamp > 0
        assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (-1, -1)


@run_by(serve)
async def test_wrong_names_and_partitions(serving, /):
    await serving.topic("t")
    for topic, index, code in (
        ("no/name", 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("no", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ):
        (row,) = await ask(serving, topic, index)
        assert (row.partition_index, row.error_code, row.active_producers) == (index, code, [])
