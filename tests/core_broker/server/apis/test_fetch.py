"""Fetch: waiting, sessions through the handler, and what is told of leaders elsewhere."""

import asyncio
import errno
import os

from isthmus.core_broker.cluster.controller import DeleteTopics
from isthmus.core_broker.storage.log.transactions import TransactionIndex
from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import metadata_records as r
from tests.running import run_by

from ..asking import fetch_of
from .serving import serve

E = ErrorCode


def told(answer):
    return {
        row.partition_index: (row.error_code, row.high_watermark, sum(map(len, row.records or ())) > 0)
        for topic in answer.responses
        for row in topic.partitions
    }


@run_by(serve)
async def test_a_session_tells_what_has_changed_and_wakes_for_it(serving, /):
    topic_id = await serving.topic("t", partitions=3)
    opened = await serving.ask(fetch_of((0, 0), (1, 0), (2, 0), session_epoch=0, topic_id=topic_id))
    assert opened.session_id and told(opened) == dict.fromkeys(range(3), (0, 0, False))
    waiting = asyncio.ensure_future(
        serving.ask(fetch_of(session_id=opened.session_id, session_epoch=1, max_wait_ms=60_000))
    )
    await asyncio.sleep(0)
    serving.fill("t", 3, index=2)
    assert told(await waiting) == {2: (0, 3, True)}
    idle = await serving.ask(fetch_of((2, 3), session_id=opened.session_id, session_epoch=2, topic_id=topic_id))
    assert told(idle) == {} and idle.session_id == opened.session_id


@run_by(serve)
async def test_a_client_waits_for_as_much_as_it_asks_for(serving, /):
    """More than an answer that is bounded by as much holds of whole batches."""
    topic_id = await serving.topic("t")
    waiting = asyncio.ensure_future(
        serving.ask(fetch_of((0, 0), max_wait_ms=60_000, min_bytes=100_000, topic_id=topic_id))
    )
    log = serving.replicas.get("t", 0).log
    while log.size_bytes < 100_000:
        await asyncio.sleep(0)
        assert not waiting.done()
        serving.fill("t", 400)
    [[row]] = [topic.partitions for topic in (await waiting).responses]
    assert sum(map(len, row.records)) == log.size_bytes


@run_by(serve)
async def test_a_request_that_overtakes_the_one_that_waits_ends_it(serving, /):
    topic_id = await serving.topic("t")
    session = (await serving.ask(fetch_of((0, 0), session_epoch=0, topic_id=topic_id))).session_id
    waiting = asyncio.ensure_future(serving.ask(fetch_of(session_id=session, session_epoch=1, max_wait_ms=60_000)))
    await asyncio.sleep(0)
    assert (await serving.ask(fetch_of(session_id=session, session_epoch=2))).error_code == E.NONE
    serving.fill("t", 3)
    late = await waiting
    assert (late.error_code, late.session_id, late.responses) == (E.INVALID_FETCH_SESSION_EPOCH, session, [])


@run_by(serve, max_incremental_fetch_session_cache_slots="2")
async def test_there_are_no_more_sessions_than_slots(serving, /):
    topic_id = await serving.topic("t")
    sessions = [(await serving.ask(fetch_of((0, 0), session_epoch=0, topic_id=topic_id))).session_id for _ in range(3)]
    assert sessions[0] and sessions[1] and sessions[2] == 0


@run_by(serve)
async def test_who_asks_the_wrong_broker_is_told_the_leader(serving, /):
    topic_id = await serving.topic("t")
    broker = r.RegisterBrokerRecord(
        broker_id=2,
        incarnation_id=bytes(16),
        broker_epoch=9,
        fenced=False,
        rack="b",
        end_points=[
            r.BrokerEndpoint(name="OUTSIDE", host="outside-2", port=9999),
            r.BrokerEndpoint(name="PLAINTEXT", host="broker-2", port=9093),
        ],
    )
    grown = r.PartitionRecord(
        partition_id=1, topic_id=topic_id, replicas=[2], isr=[2], leader=2, leader_epoch=4, partition_epoch=0,
        directories=[bytes(16)],
    )  # fmt: skip
    await serving.replicas.apply(serving.image.apply([broker, grown], serving.image.offset + 2, 0))
    for listener, host, port in (("PLAINTEXT", "broker-2", 9093), ("OUTSIDE", "outside-2", 9999)):
        serving.context.listener = listener  # that the client asks at
        answer = await serving.ask(fetch_of((1, 0), topic_id=topic_id))
        (row,) = answer.responses[0].partitions
        assert row.error_code == E.NOT_LEADER_OR_FOLLOWER
        assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (2, 4)
        assert [(n.node_id, n.host, n.port, n.rack) for n in answer.node_endpoints] == [(2, host, port, "b")]


@run_by(serve)
async def test_an_idle_partition_of_a_session_is_looked_at_again_when_anything_of_it_changes(serving, /):
    topic_id = await serving.topic("t", partitions=6)
    for index in range(6):
        serving.fill("t", 4, index=index)
    rows = [(index, 4) for index in range(6)]
    session = (await serving.ask(fetch_of(*rows, session_epoch=0, topic_id=topic_id))).session_id
    for epoch in (1, 2):
        assert told(await serving.ask(fetch_of(session_id=session, session_epoch=epoch))) == {}
    serving.replicas.get("t", 0).log.status.fail(OSError(5, "Input/output error"), "cannot sync")
    serving.fill("t", 1, index=1)
    serving.replicas.get("t", 2).delete_records(2)
    serving.replicas.get("t", 3).fail(OSError(5, "Input/output error"))
    serving.replicas.get("t", 4).begin_epoch(7)  # of that a consumer is told nothing
    changed = await serving.ask(fetch_of((5, 9), session_id=session, session_epoch=3, topic_id=topic_id))
    assert told(changed) == {
        0: (E.KAFKA_STORAGE_ERROR, -1, False),
        1: (E.NONE, 5, True),
        2: (E.NONE, 4, False),
        3: (E.KAFKA_STORAGE_ERROR, -1, False),
        5: (E.OFFSET_OUT_OF_RANGE, -1, False),
    }
    await serving.controller.submit_wait(DeleteTopics(["t"]))
    gone = await serving.ask(fetch_of(session_id=session, session_epoch=4))
    assert told(gone) == dict.fromkeys(range(6), (E.UNKNOWN_TOPIC_OR_PARTITION, -1, False))


@run_by(serve)
async def test_a_consumer_that_knows_more_than_a_cut_off_leader_is_sent_away(serving, /):
    """A newer leader has given it more. It would take OFFSET_OUT_OF_RANGE for a reason to begin anew."""
    topic_id = await serving.topic("t", partitions=3)
    for index in range(3):
        serving.fill("t", 4, index=index)
    serving.replicas.get("t", 1).delete_records(2)
    asked = fetch_of((0, 4), (1, 1), (2, 5), topic_id=topic_id)
    for has_session, code in ((True, E.OFFSET_OUT_OF_RANGE), (False, E.NOT_LEADER_OR_FOLLOWER)):
        serving.has_session = has_session
        assert {index: row[0] for index, row in told(await serving.ask(asked)).items()} == {
            0: E.NONE, 1: E.OFFSET_OUT_OF_RANGE, 2: code
        }  # fmt: skip


@run_by(serve)
async def test_index_of_aborted_transactions_that_cannot_be_read_is_an_error_of_its_partition(serving, /, monkeypatch):
    def refuse(files, segment):
        raise OSError(errno.EIO, os.strerror(errno.EIO), segment.path(".txnindex"))

    topic_id = await serving.topic("t", partitions=2)
    for index in range(2):
        serving.fill("t", 3, index=index)
    before = fetch_of((1, 0), topic_id=topic_id)
    asked = fetch_of((0, 0), topic_id=topic_id)
    before.isolation_level = asked.isolation_level = 1
    assert told(await serving.ask(before)) == {1: (0, 3, True)}
    monkeypatch.setattr(TransactionIndex, "read", staticmethod(refuse))
    assert told(await serving.ask(asked)) == {0: (E.KAFKA_STORAGE_ERROR, -1, False)}
    monkeypatch.undo()
    assert told(await serving.ask(fetch_of((0, 0), (1, 0), topic_id=topic_id))) == {
        0: (E.KAFKA_STORAGE_ERROR, -1, False),
        1: (0, 3, True),
    }
    assert list(serving.replicas.offline()) == [("t", 0)]
    assert ".txnindex: Input/output error" in serving.replicas.offline()["t", 0]
