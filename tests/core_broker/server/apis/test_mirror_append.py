"""MirrorAppend: who may append where, under which epochs and offsets, and where a new log begins.

Each refusal has its counterpart: what is just not refused.
"""

import asyncio

import pytest

from isthmus.core_broker.cluster.controller import RegisterMirrorLink
from isthmus.core_broker.server._context import CloseConnection
from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import mirror_append as m
from isthmus.protocol.primitives import uuid_to_str
from isthmus.protocol.records import build_batch
from tests.running import run_by

from .serving import serve
from .test_produce import produced

E = ErrorCode
SOURCE_ID = bytes(range(16))
OWNED = {"mirror_link": "a-b", "mirror_source_cluster_id": "a", "mirror_source_topic_id": uuid_to_str(SOURCE_ID)}
EPOCH = 3  # of what the copy holds


def batch(offset, count=5, epoch=EPOCH, value=b"v"):
    rows = [(1_700_000_000_000, None, value, ())] * count
    return build_batch(rows, base_offset=offset, partition_leader_epoch=epoch)


def request(
    records, *, topic="copy", index=0, link="a-b", link_epoch=1, cluster="a", source_id=SOURCE_ID,
    epoch=EPOCH, previous=-2, **fields,
):  # fmt: skip
    part = m.MirrorAppendPartition(
        index=index, records=records, source_leader_epoch=epoch, previous_leader_epoch=previous, **fields
    )
    topics = [m.MirrorAppendTopic(name=topic, source_topic_id=source_id, partitions=[part])]
    return m.Request(
        link_id=link, link_epoch=link_epoch, source_cluster_id=cluster, timeout_ms=5000, topics=topics
    )  # fmt: skip


async def append(serving, records, **fields):
    """The partition's answer, or that of the whole request where it is refused."""
    answer = await serving.ask(request(records, **fields))
    return answer if answer.error_code else answer.topics[0].partitions[0]


async def copied(serving):
    """A copy that ends at offset 5 of leader epoch 3, of a link at epoch 1; beside it a topic of nobody."""
    await serving.topic("copy", 1, **OWNED)
    await serving.topic("plain")
    result = await serving.controller.submit_wait(RegisterMirrorLink("a-b", "a", 1))
    assert not result.error_code
    assert (await append(serving, batch(0), range_from=0, previous=-1)).error_code == 0


def log_of(serving, topic="copy"):
    return serving.replicas.get(topic, 0).log


REFUSED = [
    ({"topic": "plain", "range_from": 0}, E.POLICY_VIOLATION, "is owned by no link"),
    ({"link": "other", "link_epoch": 0}, E.POLICY_VIOLATION, "is owned by link a-b, not by other"),
    ({"topic": "plain", "range_from": 0, "link": ""}, E.INVALID_REQUEST, None),
    ({"link_epoch": 0}, E.FENCED_LEADER_EPOCH, None),
    ({"cluster": "c"}, E.INCONSISTENT_CLUSTER_ID, "mirrors cluster a, not c"),
    ({"source_id": bytes(16)}, E.INCONSISTENT_TOPIC_ID, "deleted and created again"),
    ({"mode": 1}, E.INVALID_REQUEST, "mode 1 is not known"),
    ({"index": 1}, E.UNKNOWN_TOPIC_OR_PARTITION, ""),
    ({"topic": "nothing"}, E.UNKNOWN_TOPIC_OR_PARTITION, ""),
    ({"range_from": 4}, E.OFFSET_OUT_OF_RANGE, "ends at offset 5, not 4"),
    ({"range_from": 6}, E.OFFSET_OUT_OF_RANGE, "ends at offset 5, not 6"),
    ({"range_from": 4, "epoch": 2}, E.OFFSET_OUT_OF_RANGE, "ends at offset 5, not 4"),  # late, and no divergence
    ({"range_from": 6, "epoch": 2}, E.OFFSET_OUT_OF_RANGE, "ends at offset 5, not 6"),
    ({"epoch": 2}, E.FENCED_LEADER_EPOCH, "source leader epoch 2, but the log holds epoch 3"),
    ({"previous": 2}, E.OFFSET_OUT_OF_RANGE, "is of leader epoch 3, not 2"),
    ({"previous": 4}, E.OFFSET_OUT_OF_RANGE, "is of leader epoch 3, not 4"),
    ({"previous": -1}, E.OFFSET_OUT_OF_RANGE, "is of leader epoch 3, not -1"),
]
TAKEN = [{}, {"previous": 3}, {"link_epoch": 2}, {"epoch": 4}, {"epoch": -1}, {"source_log_start_offset": 3}]


@pytest.mark.parametrize(("fields", "code", "said"), REFUSED)
@run_by(serve)
async def test_what_does_not_belong_or_does_not_follow_is_refused(serving, /, fields, code, said):
    await copied(serving)
    answer = await append(serving, batch(5), **{"range_from": 5, **fields})
    assert answer.error_code == code
    if said is not None:
        assert said in (answer.error_message or "")
    if code == E.OFFSET_OUT_OF_RANGE:
        assert (answer.next_offset, answer.next_epoch) == (5, EPOCH)
    assert [log_of(serving, name).log_end_offset for name in ("copy", "plain")] == [5, 0]


@pytest.mark.parametrize("fields", TAKEN)
@run_by(serve)
async def test_what_follows_is_appended_as_it_is(serving, /, fields):
    await copied(serving)
    epoch = max(fields.get("epoch", EPOCH), EPOCH)
    answer = await append(serving, batch(5, epoch=epoch), range_from=5, **fields)
    assert (answer.error_code, answer.next_offset, answer.next_epoch) == (0, 10, epoch)
    assert answer.link_epoch == fields.get("link_epoch", 1)
    assert log_of(serving).log_start_offset == 0
    assert serving.replicas.get("copy", 0).leader_epoch >= epoch


@run_by(serve)
async def test_a_probe_says_where_the_log_ends_and_appends_nothing(serving, /):
    await copied(serving)
    answer = await append(serving, None, range_from=-1, epoch=-1)
    assert (answer.error_code, answer.next_offset, answer.next_epoch, answer.link_epoch) == (0, 5, EPOCH, 1)


# Records of the request, the source's log start; where the copy begins and ends then.
BEGINNINGS = [
    (None, 100, 100, 100),  # the source is empty
    (batch(100), 100, 100, 105),
    (batch(100), 103, 103, 105),  # it begins inside its first batch
    (batch(110), 100, 100, 115),  # compaction left a hole at its start
    (batch(0), 0, 0, 5),
    (batch(0), -1, 0, 5),  # a source that does not say where its log begins
    (batch(2), -1, 0, 7),
]


@pytest.mark.parametrize(("records", "start", "begins", "ends"), BEGINNINGS)
@run_by(serve)
async def test_a_log_that_never_held_a_record_begins_where_the_source_does(serving, /, records, start, begins, ends):
    await serving.topic("copy", 1, **OWNED)
    answer = await append(serving, records, range_from=0, source_log_start_offset=start, previous=-1)
    assert (answer.error_code, answer.next_offset) == (0, ends)
    log, partition = log_of(serving), serving.replicas.get("copy", 0)
    assert (log.log_start_offset, log.log_end_offset, partition.high_watermark) == (begins, ends, ends)
    follows = await append(serving, batch(ends), range_from=ends, source_log_start_offset=start)
    assert (follows.error_code, follows.next_offset) == (0, ends + 5)
    assert log_of(serving).log_start_offset == begins


NOT_BEGUN = [
    ({"link": "other"}, E.POLICY_VIOLATION),
    ({"source_id": bytes(16)}, E.INCONSISTENT_TOPIC_ID),
    ({"mode": 1}, E.INVALID_REQUEST),
    ({"range_from": 50}, E.OFFSET_OUT_OF_RANGE),
    ({"range_from": -1}, E.NONE),  # a probe
]


@pytest.mark.parametrize(("fields", "code"), NOT_BEGUN)
@run_by(serve)
async def test_a_request_that_may_not_append_does_not_move_where_a_log_begins(serving, /, fields, code):
    await serving.topic("copy", 1, **OWNED)
    asked = {"range_from": 0, "source_log_start_offset": 100, **fields}
    assert (await append(serving, None, **asked)).error_code == code
    assert log_of(serving).log_start_offset == log_of(serving).log_end_offset == 0


@run_by(serve)
async def test_a_log_that_has_begun_or_holds_records_does_not_begin_again(serving, /):
    await serving.topic("copy", 1, **OWNED)
    # Two workers at once, which saw the source begin at different offsets: one of them is first.
    first = append(serving, batch(100), range_from=0, source_log_start_offset=100)
    second = append(serving, None, range_from=0, source_log_start_offset=200)
    answers = await asyncio.gather(first, second)
    assert [answer.error_code for answer in answers] == [0, E.OFFSET_OUT_OF_RANGE]
    assert answers[1].next_offset in (100, 105)
    late = await append(serving, None, range_from=0, source_log_start_offset=200)
    assert (late.error_code, late.next_offset) == (E.OFFSET_OUT_OF_RANGE, 105)
    assert (log_of(serving).log_start_offset, log_of(serving).log_end_offset) == (100, 105)


@run_by(serve)
async def test_clients_do_not_write_to_a_mirrors_topic(serving, /):
    await copied(serving)
    records = build_batch([(serving.runtime.wall_ms(), b"k", b"v", ())])
    for acks in (1, -1):
        _, row = await produced(serving, records, "copy", acks=acks)
        assert (row.error_code, row.base_offset) == (E.POLICY_VIOLATION, -1)
        assert row.error_message == "copy is written by mirror link a-b; produce to its source"
    with pytest.raises(CloseConnection):
        await produced(serving, records, "copy", acks=0)
    assert log_of(serving).log_end_offset == 5
    _, row = await produced(serving, records, "plain")
    assert (row.error_code, row.base_offset) == (0, 0)
