"""Produce: exactly one batch, which records were wrong, replicas that are not there, and who leads elsewhere."""

import struct

import pytest

from isthmus.core_broker.server._context import CloseConnection
from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import metadata_records as r
from isthmus.protocol.messages import produce as m
from isthmus.protocol.records import build_batch
from tests.running import run_by

from ..asking import produce_of
from .serving import serve

E = ErrorCode
NOW_MS = 1_700_000_000_000


def batch(*keys, codec="none", **header):
    """Records a second apart, one for each key."""
    records = [(NOW_MS + 1000 * number, key, b"v", ()) for number, key in enumerate(keys)]
    return build_batch(records, codec, **header)


async def produced(serving, records, topic="t", index=0, version=9, **fields):
    answer = await serving.ask(produce_of((index, records), topic=topic, **fields), version)
    return answer, answer.responses[0].partition_responses[0]


def end_of(serving, topic="t"):
    return serving.replicas.get(topic, 0).log.log_end_offset


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (None, E.INVALID_RECORD),
        (b"", E.INVALID_RECORD),
        (batch(b"k")[:16], E.INVALID_RECORD),
        (batch(b"k")[:-1], E.INVALID_RECORD),
        (batch(b"k") + batch(b"k"), E.INVALID_RECORD),
        (batch(b"k") + bytes(12), E.CORRUPT_MESSAGE),
        (batch(b"k") + batch(b"k")[:16] + b"\3", E.CORRUPT_MESSAGE),
        (batch(b"k")[:16] + b"\1" + batch(b"k")[17:], E.INVALID_RECORD),  # the format before batches
        (batch(b"k")[:16] + b"\3" + batch(b"k")[17:], E.CORRUPT_MESSAGE),  # one that is not
        (batch(b"k")[:8] + struct.pack(">i", -1) + batch(b"k")[12:], E.CORRUPT_MESSAGE),
    ],
)
@run_by(serve)
async def test_what_is_not_exactly_one_batch_is_refused(serving, /, records, code):
    await serving.topic("t")
    _, row = await produced(serving, records)
    assert (row.error_code, row.base_offset, row.log_start_offset, row.record_errors) == (code, -1, -1, [])
    assert end_of(serving) == 0
    with pytest.raises(CloseConnection):
        await produced(serving, records, acks=0)


@pytest.mark.parametrize("acks", [-1, 0])
@run_by(serve)
async def test_of_a_partition_named_twice_what_is_wrong_is_told_and_the_last_right_batch_appended(serving, /, acks):
    await serving.topic("t")
    sent = (batch(b"a"), batch(b"k", b"l"), batch(b"k")[:-1])
    request = produce_of(*((0, each) for each in sent), topic="t", acks=acks)
    request.topic_data.append(m.TopicProduceData(name="t"))
    asked = serving.ask(request, 9)
    if acks:
        [topic] = (await asked).responses
        assert [(row.index, row.error_code, row.base_offset) for row in topic.partition_responses] == [
            (0, E.INVALID_RECORD, -1)
        ]
    else:
        with pytest.raises(CloseConnection):
            await asked
    assert end_of(serving) == 2


async def produced_to_three(serving, middle, acks=1):
    """Codes of partitions 0 to 2, the second of which is given something else than a good batch."""
    rows = [(i, middle if i == 1 else batch(b"k")) for i in range(3)]
    answer = await serving.ask(produce_of(*rows, topic="t", acks=acks), 9)
    return answer and [row.error_code for row in answer.responses[0].partition_responses]


@pytest.mark.parametrize(
    ("middle", "code"),
    [
        (batch(b"k")[:16] + b"\3" + batch(b"k")[17:], E.CORRUPT_MESSAGE),
        (batch(b"k")[:16] + b"\3", E.CORRUPT_MESSAGE),
        (batch(b"k")[:8] + struct.pack(">i", 13), E.CORRUPT_MESSAGE),
        (batch(b"k", transactional=True), E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ],
)
@run_by(serve)
async def test_a_head_that_nobody_reads_fails_the_whole_request(serving, /, middle, code):
    await serving.topic("t", partitions=3)
    assert await produced_to_three(serving, middle) == [code] * 3
    assert await produced_to_three(serving, middle, acks=2) == [code] * 3
    with pytest.raises(CloseConnection):
        await produced_to_three(serving, middle, acks=0)
    assert end_of(serving) == 0


@run_by(serve)
async def test_without_acks_what_is_refused_does_not_keep_the_rest_from_being_appended(serving, /):
    await serving.topic("t", partitions=3)
    with pytest.raises(CloseConnection):
        await produced_to_three(serving, batch(b"k")[:-1], acks=0)
    assert [serving.replicas.get("t", index).log.log_end_offset for index in range(3)] == [1, 0, 1]


@run_by(serve)
async def test_of_a_partition_that_is_named_twice_the_last_batch_is_taken(serving, /):
    await serving.topic("t", partitions=2)
    rows = [m.PartitionProduceData(index=i, records=memoryview(batch(*keys))) for i, keys in enumerate_twice()]
    topics = [m.TopicProduceData(name="t", partition_data=part) for part in (rows[:2], rows[2:])]
    answer = await serving.ask(m.Request(acks=1, timeout_ms=5_000, topic_data=topics), 9)
    assert [[row.index for row in topic.partition_responses] for topic in answer.responses] == [[0, 1]]
    assert [serving.replicas.get("t", index).log.log_end_offset for index in (0, 1)] == [3, 2]


def enumerate_twice():
    return (0, [b"a"]), (1, [b"a", b"b"]), (0, [b"a", b"b", b"c"])


@run_by(serve)
async def test_half_a_batch_after_a_whole_one_is_left_out(serving, /):
    await serving.topic("t")
    _, row = await produced(serving, batch(b"k") + batch(b"k")[:30])
    assert (row.error_code, row.base_offset, end_of(serving)) == (E.NONE, 0, 1)


@pytest.mark.parametrize("codec", ["none", "gzip"])
@run_by(serve)
async def test_records_without_keys_are_named(serving, /, codec):
    await serving.topic("t", cleanup_policy="compact")
    _, row = await produced(serving, batch(b"a", None, b"b", None, codec=codec))
    assert (row.error_code, [each.batch_index for each in row.record_errors]) == (E.INVALID_RECORD, [1, 3])
    assert all("t-0" in each.batch_index_error_message for each in row.record_errors)
    assert end_of(serving) == 0


@run_by(serve)
async def test_records_out_of_time_are_named(serving, /):
    limit = serving.runtime.wall_ms() - NOW_MS - 1500  # the first two records are older than that
    await serving.topic("t", message_timestamp_before_max_ms=str(limit))
    _, row = await produced(serving, batch(b"a", b"b", b"c"))
    assert row.error_code == E.INVALID_TIMESTAMP
    assert [each.batch_index for each in row.record_errors] in ([0], [0, 1])  # the clock goes on meanwhile
    assert row.log_start_offset == 0


@run_by(serve)
async def test_no_more_replicas_are_asked_for_than_there_are(serving, /):
    await serving.topic("t", min_insync_replicas="2")
    _, row = await produced(serving, batch(b"k"))
    assert row.error_code == E.NONE
    serving.replicas.get("t", 0).place(1, [1, 2], [1])
    _, row = await produced(serving, batch(b"k"))
    assert row.error_code == E.NOT_ENOUGH_REPLICAS
    _, row = await produced(serving, batch(b"k"), acks=1)
    assert row.error_code == E.NONE


@run_by(serve)
async def test_a_transactional_batch_without_a_transactional_id_has_no_right_to_be_written(serving, /):
    await serving.topic("t")
    sent = batch(b"k", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    _, row = await produced(serving, sent)
    assert (row.error_code, row.log_start_offset) == (E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1)


@run_by(serve)
async def test_who_writes_to_the_wrong_broker_is_told_the_leader_from_version_10_on(serving, /):
    topic_id = await serving.topic("t")
    broker = r.RegisterBrokerRecord(
        broker_id=2, incarnation_id=bytes(16), broker_epoch=9, fenced=False,
        end_points=[r.BrokerEndpoint(name="PLAINTEXT", host="broker-2", port=9093)],
    )  # fmt: skip
    grown = r.PartitionRecord(
        partition_id=1, topic_id=topic_id, replicas=[2], isr=[2], leader=2, leader_epoch=4, partition_epoch=0,
        directories=[bytes(16)],
    )  # fmt: skip
    await serving.replicas.apply(serving.image.apply([broker, grown], serving.image.offset + 2, 0))
    answer, row = await produced(serving, batch(b"k"), index=1, version=10)
    assert row.error_code == E.NOT_LEADER_OR_FOLLOWER
    assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (2, 4)
    assert [(each.node_id, each.host, each.port) for each in answer.node_endpoints] == [(2, "broker-2", 9093)]
    answer, _ = await produced(serving, batch(b"k"), index=1, version=9)
    assert answer.node_endpoints == []
