"""The plain outcomes of Produce, Fetch, ListOffsets and Metadata where a handler answers: no compiled short way."""

import asyncio

import pytest

from isthmus.core_broker.server._context import CloseConnection
from isthmus.core_broker.storage.log.append import Origin
from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import list_offsets, metadata
from isthmus.protocol.records import build_batch
from tests.running import run_by

from ..asking import fetch_of, produce_of
from .serving import serve

E = ErrorCode
NOW_MS = 1_700_000_000_000
UNKNOWN_ID = bytes(15) + b"?"
OPEN_TRANSACTION = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}


def batch(count=2, timestamp=NOW_MS):
    return build_batch([(timestamp + number, b"k", b"v", ()) for number in range(count)], "none")


def end_of(serving, topic="t"):
    return serving.replicas.get(topic, 0).log.log_end_offset


# --- Produce ----------------------------------------------------------------------------------------------------------


async def produced(serving, records, topic="t", index=0, version=9, **fields):
    return await serving.ask(produce_of((index, records), topic=topic, **fields), version)


def only(answer):
    [topic] = answer.responses
    [row] = topic.partition_responses
    return row


@run_by(serve)
async def test_acks_decide_whether_a_produce_is_answered(serving, /):
    await serving.topic("t")
    assert await produced(serving, batch(), acks=0) is None
    for acks, base_offset in ((1, 2), (-1, 4)):
        row = only(await produced(serving, batch(), acks=acks))
        assert (row.index, row.error_code, row.base_offset, row.log_start_offset) == (0, 0, base_offset, 0)
    assert end_of(serving) == 6


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"acks": 2}, E.INVALID_REQUIRED_ACKS),
        ({"acks": -2}, E.INVALID_REQUIRED_ACKS),
        ({"topic": "__consumer_offsets"}, E.INVALID_TOPIC_EXCEPTION),
        ({"topic": "none"}, E.UNKNOWN_TOPIC_OR_PARTITION),
        ({"index": 1}, E.UNKNOWN_TOPIC_OR_PARTITION),
        ({"version": 13, "topic_id": UNKNOWN_ID}, E.UNKNOWN_TOPIC_ID),
        ({"records": batch(200)}, E.MESSAGE_TOO_LARGE),
    ],
)
@run_by(serve)
async def test_a_produce_that_is_refused_appends_nothing(serving, /, asked, code):
    await serving.topic("t", max_message_bytes="1000")
    await serving.topic("__consumer_offsets")
    asked_for = {"records": batch(), **asked}
    row = only(await produced(serving, asked_for.pop("records"), **asked_for))
    assert (row.error_code, row.base_offset, row.log_start_offset) == (code, -1, -1)
    assert end_of(serving) == end_of(serving, "__consumer_offsets") == 0
    if "acks" not in asked:
        with pytest.raises(CloseConnection):
            await produced(serving, asked.get("records", batch()), **{**asked_for, "acks": 0})


@run_by(serve)
async def test_a_produce_is_answered_when_its_records_are_committed_or_its_time_is_over(serving, /):
    await serving.topic("t", durability="fsync")
    row = only(await produced(serving, batch(), timeout_ms=0))
    assert (row.error_code, row.base_offset) == (E.REQUEST_TIMED_OUT, 0)
    assert end_of(serving) == 2  # it is appended all the same
    row = only(await produced(serving, batch()))
    assert (row.error_code, row.base_offset) == (0, 2)
    assert serving.replicas.get("t", 0).high_watermark == 4


# --- Fetch ------------------------------------------------------------------------------------------------------------


async def fetched(serving, topic="t", index=0, offset=0, version=11, isolation=0, epoch=-1, wait_ms=0, min_bytes=1):
    request = fetch_of(
        (index, offset), topic=topic, leader_epoch=epoch, max_wait_ms=wait_ms, min_bytes=min_bytes, max_bytes=1 << 20,
        isolation_level=isolation,
    )  # fmt: skip
    [topic_row] = (await serving.ask(request, version)).responses
    [row] = topic_row.partitions
    return row


def bytes_of(row):
    return b"".join(piece.read() for piece in row.records or ())


@run_by(serve)
async def test_a_fetch_gives_what_is_committed_from_an_offset_on(serving, /):
    await serving.topic("t")
    for _ in range(2):
        await produced(serving, batch())
    size = len(batch())
    for offset, batches in ((0, 2), (1, 2), (2, 1), (4, 0)):
        row = await fetched(serving, offset=offset)
        assert (row.error_code, row.high_watermark, row.last_stable_offset, row.log_start_offset) == (0, 4, 4, 0)
        assert len(bytes_of(row)) == batches * size
    for offset in (-1, 5):
        row = await fetched(serving, offset=offset)
        assert (row.error_code, row.high_watermark) == (E.OFFSET_OUT_OF_RANGE, -1) and not row.records


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"topic": "none"}, E.UNKNOWN_TOPIC_OR_PARTITION),
        ({"index": 1}, E.UNKNOWN_TOPIC_OR_PARTITION),
        ({"epoch": 1_000}, E.UNKNOWN_LEADER_EPOCH),
        ({"isolation": 2}, E.UNKNOWN_SERVER_ERROR),
    ],
)
@run_by(serve)
async def test_a_fetch_that_is_refused_is_told_so_at_once(serving, /, asked, code):
    await serving.topic("t")
    row = await asyncio.wait_for(fetched(serving, **asked, wait_ms=600_000), 60)
    assert (row.error_code, row.high_watermark) == (code, -1) and not row.records


@run_by(serve)
async def test_an_open_transaction_is_hidden_from_who_reads_what_is_committed(serving, /):
    await serving.topic("t")
    await produced(serving, batch())
    rows = [(NOW_MS, b"k", b"v", ())] * 2
    records = build_batch(rows, "none", base_offset=2, **OPEN_TRANSACTION)  # as a leader's follower has it
    serving.replicas.get("t", 0).append(records, Origin.REPLICATION, NOW_MS)
    every = await fetched(serving)
    committed = await fetched(serving, isolation=1)
    assert len(bytes_of(committed)) == len(batch()) < len(bytes_of(every))
    assert (committed.high_watermark, committed.last_stable_offset) == (4, 2)
    assert every.aborted_transactions is None and committed.aborted_transactions == []
    for isolation, end in ((0, 4), (1, 2)):
        assert (await listed(serving, list_offsets_of(-1), isolation=isolation))[0][1] == end


# --- ListOffsets ------------------------------------------------------------------------------------------------------


def list_offsets_of(*timestamps, index=0, epoch=-1):
    return [
        list_offsets.ListOffsetsPartition(partition_index=index, current_leader_epoch=epoch, timestamp=timestamp)
        for timestamp in timestamps
    ]


async def listed(serving, partitions, topic="t", version=7, isolation=0):
    topics = [list_offsets.ListOffsetsTopic(name=topic, partitions=partitions)]
    answer = await serving.ask(
        list_offsets.Request(replica_id=-1, isolation_level=isolation, topics=topics), version
    )  # fmt: skip
    return [(row.error_code, row.offset, row.timestamp) for each in answer.topics for row in each.partitions]


@pytest.mark.parametrize(
    ("timestamp", "told"),
    [
        (-1, (0, 6, -1)),
        (-2, (0, 1, -1)),
        (-3, (0, 5, NOW_MS + 11)),
        (NOW_MS + 1, (0, 1, NOW_MS + 1)),
        (NOW_MS + 2, (0, 4, NOW_MS + 10)),
        (NOW_MS + 12, (0, -1, -1)),
        (-4, (E.UNSUPPORTED_VERSION, -1, -1)),
        (-7, (E.UNSUPPORTED_VERSION, -1, -1)),
    ],
)
@run_by(serve)
async def test_offsets_are_listed_by_timestamp(serving, /, timestamp, told):
    await serving.topic("t")
    for start in (NOW_MS, NOW_MS, NOW_MS + 10):
        await produced(serving, batch(timestamp=start))
    serving.replicas.get("t", 0).log.advance_start(1)
    assert await listed(serving, list_offsets_of(timestamp)) == [told]


@pytest.mark.parametrize(
    ("partitions", "more", "code"),
    [
        (list_offsets_of(-1, index=1), {}, E.UNKNOWN_TOPIC_OR_PARTITION),
        (list_offsets_of(-1), {"topic": "none"}, E.UNKNOWN_TOPIC_OR_PARTITION),
        (list_offsets_of(-1, -2), {}, E.INVALID_REQUEST),
        (list_offsets_of(-1), {"isolation": 2}, E.UNKNOWN_SERVER_ERROR),
        (list_offsets_of(-1, epoch=1_000), {}, E.UNKNOWN_LEADER_EPOCH),
    ],
)
@run_by(serve)
async def test_offsets_that_cannot_be_listed_are_an_error(serving, /, partitions, more, code):
    await serving.topic("t")
    assert await listed(serving, partitions, **more) == [(code, -1, -1)]


# --- Metadata ---------------------------------------------------------------------------------------------------------


def named(*names):
    return [metadata.MetadataRequestTopic(name=name) for name in names]


def of_id(topic_id):
    return [metadata.MetadataRequestTopic(name=None, topic_id=topic_id)]


async def told(serving, topics, version=13, creates=False):
    """The error of the answer, and name and error of each topic."""
    request = metadata.Request(topics=topics, allow_auto_topic_creation=creates)
    data = b"".join(map(bytes, metadata.API.encode_response(await serving.ask(request, version), version)))
    answer = metadata.API.decode_response(data, 0, version)
    return answer.error_code, [(row.name, row.error_code) for row in answer.topics]


@run_by(serve)
async def test_metadata_is_of_all_topics_or_of_those_that_are_asked_for(serving, /):
    topic_id = await serving.topic("u")
    await serving.topic("t")
    every = [("t", 0), ("u", 0)]
    assert await told(serving, None) == (0, every)
    assert await told(serving, [], version=0) == (0, every)
    assert await told(serving, []) == (0, [])
    assert await told(serving, named("u")) == (0, [("u", 0)])
    assert await told(serving, of_id(topic_id)) == (0, [("u", 0)])
    assert await told(serving, of_id(topic_id), version=11) == (0, [("", E.INVALID_REQUEST)])
    assert await told(serving, of_id(UNKNOWN_ID)) == (0, [(None, E.UNKNOWN_TOPIC_ID)])
    unknown = [("t", 0), ("none", E.UNKNOWN_TOPIC_OR_PARTITION), ("a b", E.INVALID_TOPIC_EXCEPTION)]
    assert await told(serving, named("none", "a b", "t")) == (0, unknown)


def test_metadata_creates_a_topic_where_client_and_broker_allow_it(tmp_path):
    unknown = 0, [("new", E.UNKNOWN_TOPIC_OR_PARTITION)]

    async def refuses(serving):
        assert await told(serving, named("new"), creates=True) == unknown

    async def allows(serving):
        assert await told(serving, named("new")) == unknown
        assert "new" not in serving.image.topics
        assert await told(serving, named("new"), creates=True) == (0, [("new", 0)])
        assert "new" in serving.image.topics

    serve(refuses, tmp_path / "a", auto_create_topics_enable="false")
    serve(allows, tmp_path / "b", auto_create_topics_enable="true")
